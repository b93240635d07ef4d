//! The header of safetensors: a length, JSON that says what is where, and the bytes.
//!
//! The bytes are to be the tensors and nothing else, without gaps, as the format's own reader wants it.

use super::checksums;
use super::contents::{Contents, Format, TensorInfo, check_extents, damaged};
use super::element::ElementType;
use super::value::Value;
use crate::Result;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// The longest header there may be, as in the format's own reader: 100 MB.
const LONGEST_HEADER: u64 = 100_000_000;

/// The bytes of the header's length.
const LENGTH: usize = size_of::<u64>();

/// What ends the header and begins the data, if a file that begins so can be such a one.
pub(in crate::io) fn data_start(bytes: &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    let length = u64::from_le_bytes(*length);
    if rest.first() != Some(&b'{') || length > LONGEST_HEADER {
        return None;
    }
    usize::try_from(length).ok()?.checked_add(LENGTH)
}

/// Reads the header of a file that is in memory.
pub(super) fn read(bytes: &[u8]) -> Result<Contents> {
    let beyond = || damaged("the header is longer than the file");
    let header = data_start(bytes).and_then(|start| bytes.get(..start)).ok_or_else(beyond)?;
    let fetch = |range: Range<usize>| Ok(bytes.get(range).unwrap_or_default().to_vec());
    read_header(header, bytes.len(), true, fetch)
}

/// Where the last tensor ends, by what a header says, its length in front.
pub(in crate::io) fn data_end(header: &[u8]) -> Result<usize> {
    let start = header.len();
    let ends =
        parsed(header)?.tensors.into_iter().map(|(_, entry)| start.saturating_add(entry.data_offsets.1));
    Ok(ends.max().unwrap_or(start))
}

fn parsed(header: &[u8]) -> Result<Header> {
    serde_json::from_slice(header.get(LENGTH..).unwrap_or_default())
        .map_err(|error| damaged(format_args!("the header of the safetensors file: {error}")))
}

/// Reads a header, its length in front, of a file of so many bytes; `fetch` brings some of those. What a file says of
/// its tensors is believed only once it has the checksum that it is to have, unless told otherwise.
pub(in crate::io) fn read_header(
    header: &[u8],
    len: usize,
    verify: bool,
    fetch: impl FnOnce(Range<usize>) -> Result<Vec<u8>>,
) -> Result<Contents> {
    let (start, checksum) = (header.len(), crc32fast::hash(header));
    let header = parsed(header)?;
    let mut tensors = Vec::new();
    for (name, Entry { dtype, shape, data_offsets: (from, to) }) in header.tensors {
        let Some(element) = ElementType::of_safetensors(&dtype) else {
            return Err(damaged(format_args!("\"{name}\" is of type {dtype}, which loom does not know")));
        };
        let (from, to) = (start.checked_add(from), start.checked_add(to));
        let (Some(from), Some(to)) = (from, to) else {
            return Err(damaged(format_args!("\"{name}\" lies beyond the end of the file")));
        };
        tensors.push(TensorInfo { name, shape, element, storage: 0, range: from..to, checksum: None });
    }
    let end = check_extents(&tensors, start, len, true)?;
    if end != len {
        return Err(damaged("bytes follow that belong to no tensor"));
    }
    let metadata = header.metadata.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
    let mut contents = Contents { format: Format::Safetensors, metadata, tensors };
    match checksums::take(&mut contents, fetch)? {
        Some(expected) if verify && expected != checksum => {
            Err(damaged("the file is damaged: its header is not the one that was saved"))
        }
        _ => Ok(contents),
    }
}

/// What a header says of a tensor.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// A header; JSON would have the last of two entries of one name.
struct Header {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, Entry)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Header, M::Error> {
                let mut header = Header { metadata: Vec::new(), tensors: Vec::new() };
                let mut names = HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if names.contains(&name) {
                        return Err(M::Error::custom(format_args!("\"{name}\" is there twice")));
                    }
                    match name.as_str() {
                        "__metadata__" => header.metadata = map.next_value::<Unique>()?.0,
                        _ => header.tensors.push((name.clone(), map.next_value()?)),
                    }
                    names.insert(name);
                }
                Ok(header)
            }
        }

        from.deserialize_map(Names)
    }
}

/// Strings by keys, each there once.
struct Unique(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("metadata: strings by key")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> std::result::Result<Unique, M::Error> {
                let (mut pairs, mut keys) = (Vec::new(), HashSet::new());
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if !keys.insert(key.clone()) {
                        return Err(M::Error::custom(format_args!("metadata \"{key}\" is there twice")));
                    }
                    pairs.push((key, value));
                }
                Ok(Unique(pairs))
            }
        }

        from.deserialize_map(Keys)
    }
}
