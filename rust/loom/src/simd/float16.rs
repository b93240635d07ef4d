//! The numbers that codes of 16 bits stand for, and the nearest that bfloat16 has.

/// The number that binary16 bits stand for.
#[inline(always)]
pub fn float16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7FFF) << 13;
    // Read with binary32's bias the number is too small by 2^112; the product is exact,
    // and makes subnormals normal.
    let scaled = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0x7F80_0000;
    let magnitude = if magnitude >= 0x0F80_0000 { special } else { scaled };
    f32::from_bits(magnitude | u32::from(bits & 0x8000) << 16)
}

/// The number that bfloat16 bits stand for.
#[inline(always)]
pub fn bfloat16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest number that bfloat16 has, ties to even; NaN stays NaN.
#[inline(always)]
pub(crate) fn to_bfloat16(value: f32) -> f32 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    // Adding might carry a NaN's payload into its sign.
    let kept = if bits & 0x7FFF_FFFF > 0x7F80_0000 { bits | 0x40_0000 } else { nearest };
    f32::from_bits(kept & 0xFFFF_0000)
}
