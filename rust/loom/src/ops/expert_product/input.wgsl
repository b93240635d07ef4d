// The gradient of the rows that slots read, summed over those that share one: a thread an element.
fn main(i: u32) {
    if i >= constants.count {
        return;
    }
    let row = i / INPUTS;
    var sum = 0.0;
    for (var slot = row * SHARING; slot < row * SHARING + SHARING; slot += 1u) {
        let column = min(u32(choices[slot]), EXPERTS - 1u) * OUTPUTS;
        for (var output = 0u; output < OUTPUTS; output += 1u) {
            sum = fma(dy[slot * OUTPUTS + output], weight_of(i % INPUTS, column + output), sum);
        }
    }
    dx[i] = sum;
}
