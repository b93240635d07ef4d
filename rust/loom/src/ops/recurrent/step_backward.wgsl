// The gradient of one step of one direction; see gpu_stepwise.rs.

var<workgroup> parts: array<vec4<f32>, THREADS * VECTORS>;

// Element `at` of the state before the first step.
fn initial_state(first: u32, at: u32) -> Lanes {
    #{INITIAL}
}

fn main(index: u32, thread: u32) {
    let block = index / TILES;
    if block * LANES >= constants.rows {
        return;
    }
    let place = index % TILES * TILE + thread % TILE;
    let unit = min(place, UNITS - 1u);
    let lane = thread / TILE;
    let first = block * LANES + lane;
    let begin = min(lane / PARTS * SHARE, TERMS);
    // Of the last step's h nothing is asked by a later step.
    let length = select(min(SHARE, TERMS - begin), 0u, constants.left == TIME);
    #{PRODUCT}
    if lane >= LANES || first >= constants.rows {
        return;
    }
    // What is not this loop's is left to the first direction.
    if STATE && DIRECTION == 0u && constants.left == 0u && index % TILES == 0u {
        for (var at = thread % TILE; at < STATE_ROW; at += TILE) {
            if at < STATE_START || at >= STATE_START + STATE_LEN {
                store_state(first, at, Lanes());
            }
        }
    }
    if place >= UNITS {
        return;
    }
    let held = (block * UNITS + unit) * LANES + lane;
    var dh = Lanes();
    #{SUMS}
    if constants.left < TIME {
        dh += carry[held];
    }
    if constants.left == 0u {
        if STATE {
            store_state(first, STATE_AT + unit, dh);
            #{LAST_CELLS}
        }
        return;
    }
    let step = constants.left - 1u;
    let time = select(step, TIME - 1u - step, BACKWARD);
    let earlier = select(time - 1u, time + 1u, BACKWARD);
    let real = is_real(first, time);
    dh += from_output(first, step, unit);
    #{NO_CELLS}
    #{STEP}
    carry[held] = select(dh, direct, real);
}
