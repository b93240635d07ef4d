// Zeros in place of the steps that are padding: one thread an element.
fn main(i: u32) {
    if (i >= constants.count) {
        return;
    }
    y[i] = select(0.0, x[i], mask[i / constants.width] != 0.0);
}
