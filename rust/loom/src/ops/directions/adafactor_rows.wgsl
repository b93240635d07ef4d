#{JOIN}

// A workgroup a row.
fn main(row: u32, thread: u32) {
    var sum = 0.0;
    for (var column = thread; column < constants.columns; column += THREADS) {
        let g = gradient[row * constants.columns + column];
        sum += g * g + EPSILON;
    }
    let total = join(thread, sum);
    if thread == 0u {
        next[row] = averaged(square[row], total / f32(constants.columns));
    }
}
