// The sum of dy over the rows of the batch, for each place that the sequence reaches: a thread an element.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let reached = constants.time * constants.width;
    var sum = 0.0;
    if i < reached {
        for (var row = 0u; row < constants.rows; row += 1u) {
            sum += dy[row * reached + i];
        }
    }
    gradient[i] = #{START} + sum;
}
