// Copies a stretch of every repetition of one value into every repetition of another.
fn main(i: u32) {
    if (i >= constants.count) {
        return;
    }
    #{GUARD}
    let repetition = i / constants.length;
    let place = i % constants.length;
    y[repetition * constants.y_stride + constants.y_start + place] =
        x[repetition * constants.x_stride + constants.x_start + place];
}
