// A gathering pass, forward or to the input: how its kernels reach what they read and write.

// The weight, or four side by side along the outputs, of the group.
fn weight(input: u32, tap: u32, output: u32) -> #{WEIGHT} {
    let at = (input * TAPS + tap) * OUTPUTS + group_number() * GROUP_OUTPUTS + output;
    return #{DECODED};
}

#{ACTIVATION}

// Stores an element of the group's channel `row`, or four of neighbouring pixels.
fn store(row: u32, pixel: u32, value: #{STORED}) {
    let channel = group_number() * GROUP_DESTINATIONS + row;
    #{PLACE}
    let biased = value#{BIAS};
    destination[at / STORE_WIDTH] = #{ACTIVATED};
}
