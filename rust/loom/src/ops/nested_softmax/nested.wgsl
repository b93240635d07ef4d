// A softmax whose last probabilities are shared out by further ones, or its gradient: LANES threads a position.

// Every logit that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

#{JOIN}

// What turns a logit into its probability.
struct Scale {
    largest: f32,
    share: f32,
}

// Of the logits from `start` on to before `end`, for all threads of a position.
fn scale_of(thread: u32, start: u32, end: u32) -> Scale {
    let lane = thread % LANES;
    var largest = LEAST;
    for (var i = start + lane; i < end; i += LANES) {
        largest = max(largest, x[i]);
    }
    largest = largest_of(thread, largest);
    var sum = 0.0;
    for (var i = start + lane; i < end; i += LANES) {
        sum += exp(x[i] - largest);
    }
    return Scale(largest, 1.0 / sum_of(thread, sum));
}

fn main(group: u32, thread: u32) {
    let position = group * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    let present = position < constants.positions;
    let base = position * INPUTS;
    let out = position * OUTPUTS;
    // Threads past the last position go along, as all meet at the barriers.
    let head = scale_of(thread, base, select(base, base + SHORTLIST + PARTS, present));
    #{BODY}
}
