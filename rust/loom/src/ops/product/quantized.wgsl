// Products of int8 codes of activations and codes of a packed weight, summed exactly: a column and up to
// eight rows a thread.

// The code of an element of the weight.
fn code_at(k: u32, column: u32) -> i32 {
    #{CODE}
}

// The scale of the weights of a column that share one.
fn scale_at(number: u32, column: u32) -> f32 {
    #{SCALE}
}

#{FINISH}

fn main(number: u32, thread: u32) {
    let across = (constants.columns + THREADS - 1u) / THREADS;
    let column = number % across * THREADS + thread;
    let row = number / across * ROWS;
    if column >= constants.columns || row >= constants.rows {
        return;
    }
    let last = constants.rows - 1u;
    #{START}
    for (var number = 0u; number * BLOCK < constants.depth; number++) {
        let first = number * BLOCK;
        let end = min(first + BLOCK, constants.depth);
        #{CLEAR}
        #{SUM}
        #{SCALED}
    }
    #{STORE}
}
