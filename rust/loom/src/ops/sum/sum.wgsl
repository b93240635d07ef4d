// y = x0 + x1 + ..., from left to right, in units of four elements. What lies beyond the last element is
// left alone: it may belong to a store of gradients, whose norm is taken over the whole.
fn main(i: u32) {
    if i * 4u >= constants.elements {
        return;
    }
    let sum = #{SUM};
    let total = select(sum, y[i] + sum, constants.accumulate != 0u);
    if i * 4u + 4u <= constants.elements {
        y[i] = total;
        return;
    }
    for (var rest = 0u; rest < constants.elements % 4u; rest += 1u) {
        y[i][rest] = total[rest];
    }
}
