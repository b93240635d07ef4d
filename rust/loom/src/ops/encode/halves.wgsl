// Encodes a part of a parameter in 16 bits, four weights a thread, with the CPU's codes: on the bits
// alone, as drivers may flush what is too small for a normal number.

#{CODE}

fn main(i: u32) {
    if 4u * i >= constants.elements || control.applies == 0u && control.goes_back == 0u {
        return;
    }
    // What lies beyond the last weight is another's.
    let is_weight = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(constants.elements);
    let bits = select(vec4<u32>(), master[i], is_weight);
    codes[i] = vec2<u32>(code(bits.x) | code(bits.y) << 16u, code(bits.z) | code(bits.w) << 16u);
}
