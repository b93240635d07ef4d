// A loss of single elements: each row's sum, and the gradient of the mean. ROW_THREADS threads a row.

#{FUNCTION}
#{JOIN}

fn main(group: u32, thread: u32) {
    let row = group * (THREADS / ROW_THREADS) + thread / ROW_THREADS;
    let lane = thread % ROW_THREADS;
    let there = row < constants.rows;
    var weight = 1.0;
    #{WEIGHT}
    let divisor = steps[constants.step].loss_divisor#{SCALED};
    // Weights that are all 0 have a divisor of 0, and no gradient.
    let scale = select(0.0, weight / divisor, divisor > 0.0);
    var loss = 0.0;
    if there {
        for (var element = lane; element < ELEMENTS; element += ROW_THREADS) {
            let i = row * ELEMENTS + element;
            let o = output[i];
            let t = targets[i];
            loss += loss_of(o, t)#{FACTOR};
            #{GRADIENT}
        }
    }
    loss = row_sum(thread, loss);
    if there && lane == 0u {
        losses[row] = loss * weight;
    }
}
