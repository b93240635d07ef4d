//! Numbers as elements of a file.

use super::element::ElementType;
use crate::dtype::{encode_q4_0, encode_q8_0};
use crate::{Error, Result, extents};
use half::{bf16, f16};

/// The bytes of numbers as elements of a type: F64, F32, F16, BF16, Q4_0 or Q8_0.
///
/// Sixteen bits are rounded to the nearest, ties to even; blocks are packed as llama.cpp does.
///
/// # Errors
/// [`Error::DType`] for another type; [`Error::Shape`] where blocks do not fill the numbers; [`Error::NonFinite`]
/// for numbers that a block cannot hold; [`Error::Memory`] where there is no memory for the bytes.
pub fn encode(element: ElementType, numbers: &[f32]) -> Result<Vec<u8>> {
    match element {
        ElementType::F64 => plain(numbers, |it| f64::from(it).to_le_bytes()),
        ElementType::F32 => plain(numbers, f32::to_le_bytes),
        ElementType::F16 => plain(numbers, |it| f16::from_f32(it).to_le_bytes()),
        ElementType::BF16 => plain(numbers, |it| bf16::from_f32(it).to_le_bytes()),
        ElementType::Q4_0 => packed(numbers, element, encode_q4_0),
        ElementType::Q8_0 => packed(numbers, element, encode_q8_0),
        other => {
            let message = "loom writes float64, float32, float16, bfloat16, q4_0 and q8_0";
            Err(Error::DType(format!("{message}, not {}", other.name())))
        }
    }
}

fn plain<const BYTES: usize>(numbers: &[f32], bytes_of: impl Fn(f32) -> [u8; BYTES]) -> Result<Vec<u8>> {
    let mut bytes = extents::room(numbers.len().saturating_mul(BYTES))?;
    numbers.iter().for_each(|number| bytes.extend_from_slice(&bytes_of(*number)));
    Ok(bytes)
}

fn packed(
    numbers: &[f32],
    element: ElementType,
    encode: impl Fn(&[f32; 32], &mut [u8]) -> bool,
) -> Result<Vec<u8>> {
    let (blocks, rest) = numbers.as_chunks();
    if !rest.is_empty() {
        let message =
            format!("{} numbers are no whole blocks of 32, as {} wants", numbers.len(), element.name());
        return Err(Error::Shape(message));
    }
    let mut bytes = extents::zeros(blocks.len().saturating_mul(element.block_bytes()))?;
    for (block, bytes) in blocks.iter().zip(bytes.chunks_exact_mut(element.block_bytes())) {
        // The formats know no infinity, and a scale is a float16.
        if !block.iter().all(|number| number.is_finite()) || !encode(block, bytes) {
            let message = format!("numbers that are not finite, or too large, cannot be {}", element.name());
            return Err(Error::NonFinite(message));
        }
    }
    Ok(bytes)
}
