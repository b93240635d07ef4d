// Entmax over the last axis, or its gradient: LANES threads a position.

// Every logit that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

#{JOIN}

fn value_of(v: f32) -> f32 {
    return select(0.0, #{VALUE}, v > 0.0);
}

// By how much y grows with its logit, but for the change of tau.
fn slope_of(y: f32) -> f32 {
    return select(0.0, #{SLOPE}, y > 0.0);
}

fn main(group: u32, thread: u32) {
    let position = group * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    let base = position * CLASSES;
    // Threads past the last position go along, as all meet at the barriers.
    let end = select(0u, CLASSES, position < constants.positions);
    #{BODY}
}
