//! The numbers that codes of 16 bits stand for.

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
