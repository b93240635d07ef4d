// The sum over an axis whose elements lie INNER apart: LANES threads a sum.

#{JOIN}

fn main(group: u32, thread: u32) {
    let position = group * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    let present = position < constants.positions;
    let base = position / INNER * COUNT * INNER + position % INNER;
    var sum = 0.0;
    if present {
        for (var c = lane; c < COUNT; c += LANES) {
            sum += x[base + c * INNER];
        }
    }
    sum = axis_total(thread, sum);
    if present && lane == 0u {
        y[position] = sum;
    }
}
