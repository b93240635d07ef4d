fn code(bits: u32) -> u32 {
    let sign = bits >> 16u & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude >= 143u << 23u {
        return sign | 0x7c00u;
    }
    if magnitude >= 113u << 23u {
        // The exponent's bias goes from 127 to 15; as for bfloat16 with 13 bits to drop.
        return sign | (magnitude - (112u << 23u) + 0xfffu + (magnitude >> 13u & 1u)) >> 13u;
    }
    // Units of 2^-24, of which there is less than half a one where there is nothing left.
    let exponent = magnitude >> 23u;
    if exponent < 102u {
        return sign;
    }
    let mantissa = magnitude & 0x7fffffu | 0x800000u;
    let shift = 126u - exponent;
    let units = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    let up = rest > half || (rest == half && (units & 1u) == 1u);
    return sign | units + select(0u, 1u, up);
}
