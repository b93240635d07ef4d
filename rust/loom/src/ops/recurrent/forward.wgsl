// All steps of one direction for a few rows: the threads of a workgroup share out the units, and the
// rows lie side by side in each `Lanes`, so that a weight is read once for all of them.

// Element `at` of the state before the first step.
fn initial_state(first: u32, at: u32) -> Lanes {
    #{RESUMED}
    #{INITIAL}
}

fn main(index: u32, thread: u32) {
    let first = index * ROWS;
    if first >= constants.rows {
        return;
    }
    // h before the step and after it, which change places, then an LSTM's c, or what a GRU has reset.
    let held = index * HELD;
    let cells = held + 2u * UNITS;
    for (var unit = thread; unit < UNITS; unit += THREADS) {
        hold[held + unit] = initial_state(first, unit);
        if CELLS {
            hold[cells + unit] = initial_state(first, UNITS + unit);
        }
    }
    #{BARRIER}
    var before = held;
    var after = held + UNITS;
    for (var step = 0u; step < TIME; step++) {
        let time = select(step, TIME - 1u - step, BACKWARD);
        let real = is_real(first, time);
        #{QUANTIZE}
        #{RESET}
        for (var unit = thread; unit < UNITS; unit += THREADS) {
            let old = hold[before + unit];
            #{STEP}
            hold[after + unit] = select(old, h, real);
            if KEEPS {
                store_before(first, time * UNITS + unit, old);
            }
            if SEQUENCES {
                store_y(first, (time * DIRECTIONS + DIRECTION) * UNITS + unit, select(Lanes(), h, real));
            }
        }
        #{BARRIER}
        let last = before;
        before = after;
        after = last;
    }
    for (var unit = thread; unit < UNITS; unit += THREADS) {
        if !SEQUENCES {
            store_y(first, DIRECTION * UNITS + unit, hold[before + unit]);
        }
        if STATE {
            store_state(first, STATE_AT + unit, hold[before + unit]);
            if CELLS {
                store_state(first, STATE_AT + UNITS + unit, hold[cells + unit]);
            }
        }
    }
}
