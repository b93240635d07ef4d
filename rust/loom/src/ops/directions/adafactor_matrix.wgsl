// Over the roots of what rows and columns have on average, those of rows not over their own mean yet.

fn main(i: u32) {
    if i >= constants.rows * constants.columns {
        return;
    }
    let of_row = next[i / constants.columns];
    let of_column = next[constants.rows + i % constants.columns];
    direction[i] = gradient[i] * (1.0 / sqrt(of_row)) * (1.0 / sqrt(of_column));
}
