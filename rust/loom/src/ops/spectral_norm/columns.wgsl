// The sum of a column's products with one number for each row: a thread a column.
fn main(i: u32) {
    if i >= constants.columns {
        return;
    }
    var sum = 0.0;
    for (var row = 0u; row < constants.rows; row += 1u) {
        sum = fma(w[row * constants.columns + i], v[row], sum);
    }
    sums[i] = sum;
}
