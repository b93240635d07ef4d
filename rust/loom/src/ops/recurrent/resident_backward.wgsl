// The gradient of all steps of one direction, of some units of some rows; see gpu_resident.rs.

// Element `at` of the state before the first step.
fn initial_state(first: u32, at: u32) -> Lanes {
    #{INITIAL}
}

fn main(index: u32, thread: u32) {
    let block = index / TILES;
    let place = index % TILES * TILE + thread % TILE;
    let unit = min(place, UNITS - 1u);
    // As forwards.
    let share = thread / TILE;
    let lane = min(share, LANES - 1u);
    let first = block * LANES + lane;
    let sends = share < LANES && place < UNITS;
    let stores = sends && first < constants.rows;
    #{WEIGHTS}
    // What is not this loop's is left to the first direction.
    if STATE && DIRECTION == 0u && index % TILES == 0u && share < LANES && first < constants.rows {
        for (var at = thread % TILE; at < STATE_ROW; at += TILE) {
            if at < STATE_START || at >= STATE_START + STATE_LEN {
                store_state(first, at, Lanes());
            }
        }
    }
    // What of the gradient of h, and of an LSTM's c, does not pass through the product.
    var carry = Lanes();
    #{CELLS_BEFORE}
    // The gradient of the initial state is what is left for no step.
    for (var done = 0u; done < ROUNDS; done++) {
        let left = TIME - done;
        let step = max(left, 1u) - 1u;
        let time = select(step, TIME - 1u - step, BACKWARD);
        let earlier = select(time - 1u, time + 1u, BACKWARD);
        let real = is_real(first, time);
        // Read early, so that they come while the others are waited for.
        #{LOADS}
        let output = from_output(first, step, unit);
        // Of the last step's h nothing is asked by a later step.
        for (var vector = thread; done > 0u && vector < TERMS * VECTORS; vector += THREADS) {
            held[vector] = receive(left, block, vector);
        }
        workgroupBarrier();
        #{PRODUCT}
        workgroupBarrier();
        var dh = carry;
        if done > 0u {
            #{SUMS}
        }
        if left == 0u {
            if STATE && stores {
                store_state(first, STATE_AT + unit, dh);
                #{LAST_CELLS}
            }
        } else {
            dh += output;
            #{GATES_OF_UNIT}
            if sends && done + 1u < ROUNDS {
                #{SEND}
            }
            if stores {
                #{STORES}
            }
            carry = select(dh, direct, real);
        }
        // As forwards.
        workgroupBarrier();
    }
}
