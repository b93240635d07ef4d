// Softmax over the classes that the masks leave, which lie INNER elements apart: LANES threads a position.

// Every logit that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

#{JOIN}

// Whether a entry of a row's repetition takes part.
fn keeps(row: u32, repetition: u32, entry: u32) -> bool {
    return (#{FIXED}) && (#{TIMELY});
}

fn main(group: u32, thread: u32) {
    let position = group * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    let repetition = position / INNER % OUTER;
    let row = position / INNER / OUTER;
    let base = position / INNER * CLASSES * INNER + position % INNER;
    // Threads past the last position go along, as all meet at the barriers.
    let end = select(0u, CLASSES, position < constants.positions);
    var largest = LEAST;
    for (var c = lane; c < end; c += LANES) {
        if keeps(row, repetition, c) {
            largest = max(largest, x[base + c * INNER]);
        }
    }
    largest = class_largest(thread, largest);
    var sum = 0.0;
    for (var c = lane; c < end; c += LANES) {
        if keeps(row, repetition, c) {
            sum += exp(x[base + c * INNER] - largest);
        }
    }
    sum = class_sum(thread, sum);
    for (var c = lane; c < end; c += LANES) {
        let i = base + c * INNER;
        var value = 0.0;
        if keeps(row, repetition, c) {
            value = exp(x[i] - largest) / sum;
        }
        y[i] = value;
    }
}
