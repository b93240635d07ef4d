// The sum of products over each row: a thread a row.
fn main(i: u32) {
    if i >= constants.rows {
        return;
    }
    var sum = 0.0;
    for (var column = 0u; column < constants.columns; column += 1u) {
        sum = fma(a[i * constants.columns + column], #{OTHER}, sum);
    }
    sums[constants.first + i] = sum;
}
