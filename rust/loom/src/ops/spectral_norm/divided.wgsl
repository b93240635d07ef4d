// A weight divided by its largest singular value.
fn main(i: u32) {
    if i < constants.elements {
        y[i] = w[i] * (1.0 / max(sizes[0], LEAST));
    }
}
