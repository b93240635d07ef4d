// The sum of products over each column: a thread a column.
fn inverse(x: f32) -> f32 {
    return select(0.0, 1.0 / x, x > 0.0);
}

fn main(i: u32) {
    if i >= constants.columns {
        return;
    }
    var sum = 0.0;
    for (var row = 0u; row < constants.rows; row += 1u) {
        let place = row * constants.columns + i;
        sum = fma(#{OTHER}[place], v[place], sum);
    }
    sums[i] = #{TOTAL};
}
