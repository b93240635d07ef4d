// The gradient of all steps of one direction, of some rows; see gpu_alone.rs.

// Element `at` of the state before the first step.
fn initial_state(first: u32, at: u32) -> Lanes {
    #{INITIAL}
}

struct Ahead {
    #{FIELDS}
}

// As forwards.
fn read_ahead(first: u32, step: u32, unit: u32) -> Ahead {
    let time = select(step, TIME - 1u - step, BACKWARD);
    let earlier = select(time - 1u, time + 1u, BACKWARD);
    let real = is_real(first, time);
    let output = from_output(first, step, unit);
    #{LOADS}
}

fn main(index: u32, thread: u32) {
    let first = index * ROWS;
    let finishes = thread < UNITS;
    let unit = min(thread, UNITS - 1u);
    #{WEIGHTS}
    for (var at = thread; at < HELD; at += THREADS) {
        held[at] = Lanes();
    }
    // What is not this loop's is left to the first direction.
    if STATE && DIRECTION == 0u {
        for (var at = thread; at < STATE_ROW; at += THREADS) {
            if at < STATE_START || at >= STATE_START + STATE_LEN {
                store_state(first, at, Lanes());
            }
        }
    }
    // What of the gradient of h, and of an LSTM's c, does not pass through the product.
    var carry = Lanes();
    #{CELLS_BEFORE}
    var next: Ahead;
    if finishes {
        next = read_ahead(first, TIME - 1u, unit);
    }
    workgroupBarrier();
    // The gradient of the initial state is what is left for no step. The first product is of zeros.
    for (var done = 0u; done < ROUNDS; done++) {
        let left = TIME - done;
        let step = max(left, 1u) - 1u;
        let time = select(step, TIME - 1u - step, BACKWARD);
        let ahead = next;
        if finishes && step > 0u {
            next = read_ahead(first, step - 1u, unit);
        }
        #{PRODUCT}
        workgroupBarrier();
        if finishes {
            #{KNOWN}
            var dh = carry;
            #{SUMS}
            if left == 0u {
                if STATE {
                    store_state(first, STATE_AT + unit, dh);
                    #{LAST_CELLS}
                }
            } else {
                dh += output;
                #{GATES_OF_UNIT}
                #{STORES}
                carry = select(dh, direct, real);
            }
        }
        workgroupBarrier();
    }
}
