// Elements times a number.

fn main(i: u32) {
    if i < constants.elements {
        values[i] *= factor[0];
    }
}
