// Softmax over classes that lie INNER elements apart, or its gradient: LANES threads a position.

// Every logit that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

#{JOIN}

fn main(group: u32, thread: u32) {
    let position = group * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    let present = position < constants.positions;
    let base = position / INNER * CLASSES * INNER + position % INNER;
    #{BODY}
}
