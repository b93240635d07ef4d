// The weight's gradient: how its kernels reach what they write. `destination` is dW itself, or a sum for each
// part of the pixels; the same of the bias's gradient where it is made, too.

// Stores the sum of a part for weight `row` (tap, input channel) of the group's output `column`.
// Channels are next to each other here, so that a tile has few taps, but not in dW.
fn store(row: u32, column: u32, value: #{STORED}) {
    let stored = row % GROUP_SOURCES * TAPS + row / GROUP_SOURCES;
    let first = part * constants.stride + constants.weight;
    let at = (first + stored * OUTPUTS + batch * GROUP_OUTPUTS + column) / STORE_WIDTH;
    destination[at] = #{BEFORE}value;
}

// Stores the sum of a part for the bias of the group's output `column`.
fn store_sum(column: u32, value: f32) {
    let at = part * constants.stride + constants.bias + batch * GROUP_OUTPUTS + column;
    #{PLACE} = #{BEFORE_SUM}value;
}
