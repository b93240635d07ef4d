// All steps of one direction for a few rows, from the last to the first; see forward.wgsl.

// Element `at` of the state before the first step.
fn initial_state(first: u32, at: u32) -> Lanes {
    #{INITIAL}
}

fn main(index: u32, thread: u32) {
    let first = index * ROWS;
    if first >= constants.rows {
        return;
    }
    // The gradients of the state's share, of h, and of an LSTM's c.
    let shares = index * HELD;
    let hidden = shares + GATES * UNITS;
    let cells = hidden + UNITS;
    for (var unit = thread; unit < UNITS; unit += THREADS) {
        hold[hidden + unit] = from_output(first, TIME - 1u, unit);
        if CELLS {
            hold[cells + unit] = Lanes();
        }
    }
    for (var left = TIME; left > 0u; left--) {
        let step = left - 1u;
        let time = select(step, TIME - 1u - step, BACKWARD);
        let earlier = select(time - 1u, time + 1u, BACKWARD);
        let real = is_real(first, time);
        #{CANDIDATE}
        for (var unit = thread; unit < UNITS; unit += THREADS) {
            let dh = hold[hidden + unit];
            #{STEP}
            var sum = select(dh, direct, real);
            if step > 0u {
                sum += from_output(first, step - 1u, unit);
            }
            hold[hidden + unit] = sum;
        }
        #{BARRIER}
        if step > 0u || STATE {
            for (var unit = thread; unit < UNITS; unit += THREADS) {
                var sum = hold[hidden + unit];
                #{SUM}
                hold[hidden + unit] = sum;
            }
        }
        #{BARRIER}
    }
    if STATE {
        for (var unit = thread; unit < UNITS; unit += THREADS) {
            store_state(first, STATE_AT + unit, hold[hidden + unit]);
            if CELLS {
                store_state(first, STATE_AT + UNITS + unit, hold[cells + unit]);
            }
        }
        // What is not this loop's is left to the first direction.
        if DIRECTION == 0u {
            for (var at = thread; at < STATE_ROW; at += THREADS) {
                if at < STATE_START || at >= STATE_START + STATE_LEN {
                    store_state(first, at, Lanes());
                }
            }
        }
    }
}
