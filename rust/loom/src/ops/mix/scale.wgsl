// y = factor x.
fn main(i: u32) {
    if (i < constants.count) {
        y[i] = x[i] * constants.factor;
    }
}
