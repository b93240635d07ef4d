// Whole numbers of a row as indices, one a thread.
fn main(i: u32) {
    if i >= constants.elements {
        return;
    }
    let row = i / constants.length;
    y[i] = i32(x[row * constants.total + constants.start + i % constants.length]);
}
