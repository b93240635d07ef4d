// A loss of distributions over classes: each row's sum, and the gradient of the mean.
//
// A row has POSITIONS class axes, whose classes lie INNER elements apart. LANES threads share the
// classes of a position, and POSITION_LANES such groups of threads the positions of a row.

const POSITIONS: u32 = OUTER * INNER;
const ROW_THREADS: u32 = POSITION_LANES * LANES;
// Every logit that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

#{JOIN}

// The target of a class, smoothed and weighted. `i` is the element's place.
fn wanted(axis: u32, class_index: u32, i: u32) -> f32 {
    #{WANTED}
}

fn main(group: u32, thread: u32) {
    let row = group * (THREADS / ROW_THREADS) + thread / ROW_THREADS;
    let lane = thread % LANES;
    let there = row < constants.rows;
    var weight = 1.0;
    #{WEIGHT}
    let divisor = steps[constants.step].loss_divisor#{SCALED};
    // Weights that are all 0 have a divisor of 0, and no gradient.
    let scale = select(0.0, weight / divisor, divisor > 0.0);
    var loss = 0.0;
    // All threads go round as often as each other: they wait for one another within.
    for (var start = 0u; start < POSITIONS; start += POSITION_LANES) {
        let position = start + thread % ROW_THREADS / LANES;
        let present = there && position < POSITIONS;
        let axis = row * POSITIONS + position;
        let base = axis / INNER * CLASSES * INNER + axis % INNER;
        #{LOSS}
    }
    loss = row_sum(thread, loss);
    if there && thread % ROW_THREADS == 0u {
        losses[row] = loss * weight;
    }
}
