// 1 where any feature of a step differs from the padding's value: one thread a step.
fn main(i: u32) {
    if (i >= constants.count) {
        return;
    }
    let value = constants.value;
    var found = 0.0;
    for (var feature = 0u; feature < constants.width; feature++) {
        if (x[i * constants.width + feature] != value) {
            found = 1.0;
        }
    }
    mask[i] = found;
}
