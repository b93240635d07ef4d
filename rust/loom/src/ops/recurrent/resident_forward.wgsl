// All steps of one direction, of some units of some rows; see gpu_resident.rs.

// Element `at` of the state before the first step.
fn initial_state(first: u32, at: u32) -> Lanes {
    #{RESUMED}
    #{INITIAL}
}

fn main(index: u32, thread: u32) {
    let block = index / TILES;
    let place = index % TILES * TILE + thread % TILE;
    let unit = min(place, UNITS - 1u);
    // What a thread adds up: a share of the terms of a gate's sum. What it finishes: a unit of a row; those that are more
    // finish the last row once more, and hand nothing on.
    let share = thread / TILE;
    let lane = min(share, LANES - 1u);
    let first = block * LANES + lane;
    let sends = share < LANES && place < UNITS;
    let stores = sends && first < constants.rows;
    #{WEIGHTS}
    var old = initial_state(first, unit);
    #{CELLS_BEFORE}
    for (var step = 0u; step < TIME; step++) {
        let time = select(step, TIME - 1u - step, BACKWARD);
        let real = is_real(first, time);
        // Read early, so that they come while the others are waited for.
        #{START}
        for (var vector = thread; vector < TERMS * VECTORS; vector += THREADS) {
            var received: vec4<f32>;
            if step == 0u {
                for (var row = 0u; row < 4u; row++) {
                    let at = block * LANES + vector % VECTORS * 4u + row;
                    received[row] = initial_state(at, vector / VECTORS);
                }
            } else {
                received = receive(step - 1u, block, vector);
            }
            held[vector] = received;
        }
        workgroupBarrier();
        #{PRODUCT}
        workgroupBarrier();
        #{SUMS}
        #{STEP}
        let now = select(old, h, real);
        if sends {
            send(step, block, unit, lane, now);
        }
        if stores {
            #{KEEP}
            if KEEPS {
                store_before(first, time * UNITS + unit, old);
            }
            if SEQUENCES {
                store_y(first, (time * DIRECTIONS + DIRECTION) * UNITS + unit, select(Lanes(), h, real));
            }
        }
        old = now;
        // What this workgroup hands to itself is there before it is waited for.
        workgroupBarrier();
    }
    if stores {
        if !SEQUENCES {
            store_y(first, DIRECTION * UNITS + unit, old);
        }
        if STATE {
            store_state(first, STATE_AT + unit, old);
            #{LAST_CELLS}
        }
    }
}
