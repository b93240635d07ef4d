// Encodes a part of a parameter in bytes, four weights a thread.

#{INT8}

fn main(i: u32) {
    if 4u * i >= constants.elements || control.applies == 0u && control.goes_back == 0u {
        return;
    }
    // What lies beyond the last weight is another's.
    let is_weight = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(constants.elements);
    let bits = select(vec4<u32>(), master[i], is_weight);
    let first = constants.channel + 4u * i;
    codes[i] = code(bits.x, scales[first % constants.channels])
        | code(bits.y, scales[(first + 1u) % constants.channels]) << 8u
        | code(bits.z, scales[(first + 2u) % constants.channels]) << 16u
        | code(bits.w, scales[(first + 3u) % constants.channels]) << 24u;
}
