// Normalises by each channel's statistics, or the gradient of doing so: one thread an element.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let count = constants.count;
    let channel = i / constants.inner % constants.channels;
    let inverse = 1.0 / sqrt(variance[channel] + EPSILON);
    let factor = #{FACTOR};
    result[i] = #{RESULT};
}
