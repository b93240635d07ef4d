// The weight's gradient: what its kernels read and write.
@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> gradient: array<#{GRADIENT}>;
// dW itself, or a sum for each part of the pixels; the same of the bias's gradient where it is made, too.
@group(0) @binding(2) var<storage, read_write> destination: array<#{STORED}>;

struct Constants {
    step: u32,
    // Output pixels of all images, summed over in `parts` parts of `chunk` each.
    pixels: u32,
    parts: u32,
    chunk: u32,
    // Where the weight's elements start, and the bias's, and how many there are of a part.
    weight: u32,
    bias: u32,
    stride: u32,
}
var<immediate> constants: Constants;

#{WINDOW}

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
