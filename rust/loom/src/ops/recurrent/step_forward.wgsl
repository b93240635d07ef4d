// One step of one direction; see gpu_stepwise.rs.

var<workgroup> parts: array<vec4<f32>, THREADS * VECTORS>;

fn main(index: u32, thread: u32) {
    let block = index / TILES;
    if block * LANES >= constants.rows {
        return;
    }
    let place = index % TILES * TILE + thread % TILE;
    let unit = min(place, UNITS - 1u);
    let lane = thread / TILE;
    let first = block * LANES + lane;
    let time = select(constants.at, TIME - 1u - constants.at, BACKWARD);
    let real = is_real(first, time);
    let begin = min(lane / PARTS * SHARE, TERMS);
    let length = min(SHARE, TERMS - begin);
    // Read early, so that they come while the product is made.
    #{START}
    #{PRODUCT}
    if lane >= LANES || place >= UNITS || first >= constants.rows {
        return;
    }
    #{SUMS}
    let held = (block * UNITS + unit) * LANES + lane;
    let old = previous[held / 4u][held % 4u];
    #{STEP}
    let now = select(old, h, real);
    next[held] = now;
    if KEEPS {
        store_before(first, time * UNITS + unit, old);
    }
    if SEQUENCES {
        store_y(first, (time * DIRECTIONS + DIRECTION) * UNITS + unit, select(Lanes(), h, real));
    }
    if constants.at + 1u == TIME {
        if !SEQUENCES {
            store_y(first, DIRECTION * UNITS + unit, now);
        }
        if STATE {
            store_state(first, STATE_AT + unit, now);
            #{LAST_CELLS}
        }
    }
}
