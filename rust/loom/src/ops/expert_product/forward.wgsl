// What slots make with the weights of their experts: a thread an element.
fn main(i: u32) {
    if i >= constants.count {
        return;
    }
    let slot = i / OUTPUTS;
    let column = min(u32(choices[slot]), EXPERTS - 1u) * OUTPUTS + i % OUTPUTS;
    let row = slot / SHARING * INPUTS;
    var sum = 0.0;
    for (var input = 0u; input < INPUTS; input += 1u) {
        sum = fma(x[row + input], weight_of(input, column), sum);
    }
    y[i] = sum;
}
