// Rounds numbers to 16 bits, four a thread, with the CPU's codes: on the bits alone, as drivers may flush
// what is too small for a normal number.

#{CODE}

fn narrow(bits: u32) -> u32 {
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return bits >> 16u & 0x8000u | NAN;
    }
    return code(bits);
}

fn main(i: u32) {
    if 4u * i >= constants.elements {
        return;
    }
    // What lies beyond the last number is another's.
    let is_ours = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(constants.elements);
    let bits = select(vec4<u32>(), x[i], is_ours);
    words[i] = vec2<u32>(narrow(bits.x) | narrow(bits.y) << 16u, narrow(bits.z) | narrow(bits.w) << 16u);
}
