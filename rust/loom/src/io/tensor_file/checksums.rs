//! Checksums of what a file holds: a last tensor of bytes, with the CRC-32 (of zlib, gzip and PNG) of the header, its
//! length counted in, and of each tensor in the order of their places, four bytes each, the lowest first.

use super::contents::{Contents, TensorInfo, damaged};
use super::element::ElementType;
use super::value::Value;
use crate::Result;
use std::ops::Range;

/// What the tensor is called.
pub(in crate::io) const NAME: &str = "loom.checksums";

/// The bytes of a checksum.
pub(in crate::io) const BYTES: usize = size_of::<u32>();

/// The first format that has checksums.
const FORMAT: &str = "2";

/// Takes the checksums out of the tensors: `fetch` brings their bytes from a place in the file. Returns that of the
/// header, where there are any.
pub(super) fn take(
    contents: &mut Contents,
    fetch: impl FnOnce(Range<usize>) -> Result<Vec<u8>>,
) -> Result<Option<u32>> {
    let Some(place) = contents.tensors.iter().position(|tensor| tensor.name == NAME) else {
        let format = Value::String(FORMAT.into());
        return match contents.metadata.iter().any(|(key, value)| key == "loom.format" && *value == format) {
            true => Err(damaged("the file is damaged: it lacks its checksums")),
            false => Ok(None),
        };
    };
    let TensorInfo { shape, element, range, .. } = contents.tensors.remove(place);
    let mut order: Vec<&mut TensorInfo> = contents.tensors.iter_mut().collect();
    order.sort_by_key(|tensor| (tensor.range.start, tensor.range.end));
    let count = order.len().saturating_add(1);
    let last = order.last().is_none_or(|last| last.range.end == range.start);
    if element != ElementType::U8 || shape != [count, BYTES] || !last {
        return Err(damaged("the file is damaged: its checksums are not of its tensors"));
    }
    let bytes = fetch(range)?;
    let (checksums, _) = bytes.as_chunks::<BYTES>();
    let mut checksums = checksums.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let of_header = checksums.next();
    for (tensor, checksum) in order.into_iter().zip(checksums) {
        tensor.checksum = Some(checksum);
    }
    Ok(of_header)
}
