// The gradient of the weights, from the slots that chose each expert: a thread an element, which looks at all slots.
fn main(i: u32) {
    if i >= constants.count {
        return;
    }
    let input = i / (EXPERTS * OUTPUTS);
    let expert = i / OUTPUTS % EXPERTS;
    let output = i % OUTPUTS;
    var sum = #{START};
    for (var slot = 0u; slot < constants.slots; slot += 1u) {
        if min(u32(choices[slot]), EXPERTS - 1u) == expert {
            sum = fma(x[slot / SHARING * INPUTS + input], dy[slot * OUTPUTS + output], sum);
        }
    }
    dw[i] = sum;
}
