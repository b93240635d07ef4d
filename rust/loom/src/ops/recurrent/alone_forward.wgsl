// All steps of one direction, of some rows; see gpu_alone.rs.

// Element `at` of the state before the first step.
fn initial_state(first: u32, at: u32) -> Lanes {
    #{RESUMED}
    #{INITIAL}
}

struct Ahead {
    #{FIELDS}
}

// What a step reads that no step makes.
fn read_ahead(first: u32, step: u32, unit: u32) -> Ahead {
    let time = select(step, TIME - 1u - step, BACKWARD);
    let real = is_real(first, time);
    #{LOADS}
}

fn main(index: u32, thread: u32) {
    let first = index * ROWS;
    // All threads add up, the first of them finish a unit each.
    let finishes = thread < UNITS;
    let unit = min(thread, UNITS - 1u);
    #{WEIGHTS}
    for (var at = thread; at < HELD; at += THREADS) {
        held[at] = Lanes();
        if at < TERMS {
            held[at] = initial_state(first, at);
        }
    }
    var old = initial_state(first, unit);
    #{CELLS_BEFORE}
    var next: Ahead;
    if finishes {
        next = read_ahead(first, 0u, unit);
    }
    workgroupBarrier();
    for (var step = 0u; step < TIME; step++) {
        let time = select(step, TIME - 1u - step, BACKWARD);
        let ahead = next;
        if finishes && step + 1u < TIME {
            next = read_ahead(first, step + 1u, unit);
        }
        #{PRODUCT}
        workgroupBarrier();
        if finishes {
            #{KNOWN}
            #{SUMS}
            #{STEP}
            let now = select(old, h, real);
            held[unit] = now;
            #{KEEP}
            if KEEPS {
                store_before(first, time * UNITS + unit, old);
            }
            if SEQUENCES {
                store_y(first, (time * DIRECTIONS + DIRECTION) * UNITS + unit, select(Lanes(), h, real));
            }
            old = now;
        }
        workgroupBarrier();
    }
    if finishes {
        if !SEQUENCES {
            store_y(first, DIRECTION * UNITS + unit, old);
        }
        if STATE {
            store_state(first, STATE_AT + unit, old);
            #{LAST_CELLS}
        }
    }
}
