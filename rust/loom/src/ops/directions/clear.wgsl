// Zeros.

fn main(i: u32) {
    if i < constants.elements {
        values[i] = 0.0;
    }
}
