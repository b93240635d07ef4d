// A gathering pass, forward or to the input: what its kernels read and write.
@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<#{WORD}>;
@group(0) @binding(2) var<storage, read_write> destination: array<#{STORED}>;
#{OPTIONAL}

struct Constants {
    step: u32,
    // Destination pixels of all images.
    pixels: u32,
}
var<immediate> constants: Constants;

#{WINDOW}

// The weight, or four side by side along the outputs, of the group.
fn weight(input: u32, tap: u32, output: u32) -> #{WEIGHT} {
    let at = (input * TAPS + tap) * OUTPUTS + batch * GROUP_OUTPUTS + output;
    return #{DECODED};
}

#{ACTIVATION}

// Stores an element of the group's channel `row`, or four of neighbouring pixels.
fn store(row: u32, pixel: u32, value: #{STORED}) {
    let channel = batch * GROUP_DESTINATIONS + row;
    let at = (pixel / PIXELS * DESTINATION_CHANNELS + channel) * PIXELS + pixel % PIXELS;
    let biased = value#{BIAS};
    destination[at / STORE_WIDTH] = #{ACTIVATED};
}
