//! Elements of any type as float32.

use super::blocks;
use super::element::ElementType;
use crate::{Error, Result, extents};
use bytemuck::Zeroable;
use half::{bf16, f16};

/// The numbers that bytes stand for as elements of a type, such as some rows of a tensor.
///
/// # Errors
/// [`Error::DType`] for a type that is not decoded; [`Error::Shape`] for bytes that are no whole blocks;
/// [`Error::Memory`] where there is no memory for the numbers.
pub fn decode(element: ElementType, bytes: &[u8]) -> Result<Vec<f32>> {
    if !bytes.len().is_multiple_of(element.block_bytes()) {
        let message = format!("{} bytes are no whole blocks of {}", bytes.len(), element.name());
        return Err(Error::Shape(message));
    }
    match element {
        ElementType::F64 => plain(bytes, |it| f64::from_le_bytes(it) as f32),
        ElementType::F32 => plain(bytes, f32::from_le_bytes),
        ElementType::F16 => plain(bytes, |it| f16::from_le_bytes(it).to_f32()),
        ElementType::BF16 => plain(bytes, |it| bf16::from_le_bytes(it).to_f32()),
        ElementType::F8_E4M3 => plain(bytes, |[it]| from_e4m3(it)),
        // The upper half of a float16.
        ElementType::F8_E5M2 => plain(bytes, |[it]| f16::from_le_bytes([0, it]).to_f32()),
        ElementType::F8_E8M0 => plain(bytes, |[it]| from_e8m0(it)),
        ElementType::I64 => plain(bytes, |it| i64::from_le_bytes(it) as f32),
        ElementType::I32 => plain(bytes, |it| i32::from_le_bytes(it) as f32),
        ElementType::I16 => plain(bytes, |it| f32::from(i16::from_le_bytes(it))),
        ElementType::I8 => plain(bytes, |it| f32::from(i8::from_le_bytes(it))),
        ElementType::U64 => plain(bytes, |it| u64::from_le_bytes(it) as f32),
        ElementType::U32 => plain(bytes, |it| u32::from_le_bytes(it) as f32),
        ElementType::U16 => plain(bytes, |it| f32::from(u16::from_le_bytes(it))),
        ElementType::U8 => plain(bytes, |[it]| f32::from(it)),
        ElementType::Bool => plain(bytes, |[it]| f32::from(it != 0)),
        ElementType::Q4_0 => packed(bytes, blocks::q4_0),
        ElementType::Q8_0 => packed(bytes, blocks::q8_0),
        ElementType::Q4_1
        | ElementType::Q5_0
        | ElementType::Q5_1
        | ElementType::Q2_K
        | ElementType::Q3_K
        | ElementType::Q4_K
        | ElementType::Q5_K
        | ElementType::Q6_K
        | ElementType::IQ4_NL
        | ElementType::MXFP4 => scaled(element, bytes),
        ElementType::C64
        | ElementType::Q8_1
        | ElementType::Q8_K
        | ElementType::IQ2_XXS
        | ElementType::IQ2_XS
        | ElementType::IQ3_XXS
        | ElementType::IQ1_S
        | ElementType::IQ3_S
        | ElementType::IQ2_S
        | ElementType::IQ4_XS
        | ElementType::IQ1_M
        | ElementType::TQ1_0
        | ElementType::TQ2_0 => Err(Error::DType(format!(
            "loom does not decode {}; with llama.cpp, llama-quantize --allow-requantize makes q8_0 of it",
            element.name()
        ))),
    }
}

/// Elements of their own.
fn plain<const BYTES: usize>(bytes: &[u8], number: impl Fn([u8; BYTES]) -> f32) -> Result<Vec<f32>> {
    let (elements, _) = bytes.as_chunks::<BYTES>();
    let mut numbers = extents::room(elements.len())?;
    numbers.extend(elements.iter().map(|element| number(*element)));
    Ok(numbers)
}

/// Elements in blocks.
fn packed<const BYTES: usize, const BLOCK: usize>(
    bytes: &[u8],
    decode: impl Fn(&[u8; BYTES], &mut [f32; BLOCK]),
) -> Result<Vec<f32>>
where
    [f32; BLOCK]: Zeroable,
{
    let (blocks, _) = bytes.as_chunks::<BYTES>();
    let mut numbers: Vec<f32> = extents::zeros(blocks.len().saturating_mul(BLOCK))?;
    let (decoded, _) = numbers.as_chunks_mut::<BLOCK>();
    for (block, decoded) in blocks.iter().zip(decoded) {
        decode(block, decoded);
    }
    Ok(numbers)
}

/// Elements in blocks of integers with a scale for each group.
fn scaled(element: ElementType, bytes: &[u8]) -> Result<Vec<f32>> {
    let grouped = blocks::grouped(element)
        .ok_or_else(|| Error::Internal(format!("{} is no type of integers", element.name())))?;
    let (block, words) = (element.block(), grouped.words());
    let blocks = bytes.chunks_exact(element.block_bytes());
    let mut numbers: Vec<f32> = extents::zeros(blocks.len().saturating_mul(block))?;
    let (mut codes, mut fits) = (vec![0; block], vec![0.0; grouped.fits_of(block)]);
    for (block, numbers) in blocks.zip(numbers.chunks_exact_mut(block)) {
        (grouped.read)(block, &mut codes, &mut fits);
        let groups = numbers.chunks_exact_mut(grouped.elements).zip(codes.chunks_exact(grouped.elements));
        for ((numbers, codes), fit) in groups.zip(fits.chunks_exact(words)) {
            grouped.decode(codes, fit, numbers);
        }
    }
    Ok(numbers)
}

/// Four bits of exponent, three of fraction; no infinity, and NaN where all are set.
fn from_e4m3(byte: u8) -> f32 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 0xF), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction / 512.0,
        _ => (1.0 + fraction / 8.0) * power_of_two(exponent.wrapping_sub(7)),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

/// An exponent alone; NaN where all its bits are set.
fn from_e8m0(byte: u8) -> f32 {
    if byte == 0xFF { f32::NAN } else { power_of_two(i32::from(byte).wrapping_sub(127)) }
}

/// A power from -127 to 127.
fn power_of_two(power: i32) -> f32 {
    if power < -126 {
        f32::MIN_POSITIVE / 2.0
    } else {
        f32::from_bits((power.wrapping_add(127) as u32) << 23)
    }
}
