//! GGUF, the files of llama.cpp: metadata, what tensors there are, and their bytes, each at a multiple of the
//! alignment.
//!
//! Versions 2 and 3, the lowest byte first. Nothing is allocated by what a count says before the file is known to
//! be long enough for that many of the shortest.

use super::contents::{Contents, Format, TensorInfo, check_extents, damaged};
use super::element::ElementType;
use super::value::{ARRAY, NumberType, STRING, Value, Values};
use crate::Result;
use std::collections::HashSet;

/// What such a file begins with.
pub(super) const MAGIC: &[u8; 4] = b"GGUF";

/// Where tensors lie unless the metadata says otherwise.
pub(super) const ALIGNMENT: usize = 32;

/// The metadata's name for that.
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";

/// The most axes of a tensor; llama.cpp has four.
const MOST_AXES: usize = 8;

/// How deep arrays may lie in arrays.
const DEEPEST: usize = 8;

/// The largest alignment there may be: larger ones would only be gaps.
const LARGEST_ALIGNMENT: usize = 1 << 20;

/// The fewest bytes of a key with its value, of a tensor's description, of a string, and of an array.
const LEAST_PAIR: usize = 8 + 4 + 1;
const LEAST_TENSOR: usize = 8 + 4 + 4 + 8;
const LEAST_STRING: usize = 8;
const LEAST_ARRAY: usize = 4 + 8;

/// Reads everything but the tensors' bytes.
pub(super) fn read(bytes: &[u8]) -> Result<Contents> {
    let mut cursor = Cursor { bytes, at: 0 };
    if cursor.array::<4>()? != *MAGIC {
        return Err(damaged("this is no GGUF file"));
    }
    let version = cursor.u32()?;
    match version {
        2 | 3 => {}
        1 => {
            return Err(damaged("this GGUF file is of version 1, which is no longer read: convert it anew"));
        }
        _ if version.swap_bytes() <= 3 => {
            return Err(damaged("this GGUF file is for big-endian machines, which loom does not read"));
        }
        _ => return Err(damaged(format_args!("this GGUF file is of version {version}, loom reads 2 and 3"))),
    }
    let tensor_count = cursor.u64()?;
    let pair_count = cursor.count(LEAST_PAIR, "entries of metadata")?;
    let mut metadata = Vec::new();
    let mut keys = HashSet::new();
    for _ in 0..pair_count {
        let key = cursor.name("a key of the metadata")?;
        if !keys.insert(key.clone()) {
            return Err(damaged(format_args!("metadata \"{key}\" is there twice")));
        }
        let kind = cursor.u32()?;
        let value = cursor.value(kind)?;
        metadata.push((key, value));
    }
    let alignment = alignment(&metadata)?;
    let tensor_count = cursor.fits(tensor_count, LEAST_TENSOR, "tensors")?;
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(cursor.tensor()?);
    }
    let start = cursor.at.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
    for TensorInfo { name, range, .. } in &mut tensors {
        if !range.start.is_multiple_of(alignment) {
            return Err(damaged(format_args!(
                "\"{name}\" begins at byte {}, which is no multiple of {alignment}",
                range.start
            )));
        }
        let moved = (start.checked_add(range.start), start.checked_add(range.end));
        let (Some(from), Some(to)) = moved else {
            return Err(damaged(format_args!("\"{name}\" lies beyond the end of the file")));
        };
        *range = from..to;
    }
    check_extents(&tensors, start.min(bytes.len()), bytes.len(), false)?;
    Ok(Contents { format: Format::Gguf, metadata, tensors })
}

/// What the offsets of tensors are multiples of.
fn alignment(metadata: &[(String, Value)]) -> Result<usize> {
    match metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) {
        None => Ok(ALIGNMENT),
        Some((_, Value::U32(alignment))) if alignment.is_power_of_two() => {
            let alignment = usize::try_from(*alignment).unwrap_or(usize::MAX);
            match alignment <= LARGEST_ALIGNMENT {
                true => Ok(alignment),
                false => Err(damaged(format_args!("an alignment of {alignment} is too large"))),
            }
        }
        Some((_, value)) => {
            Err(damaged(format_args!("{ALIGNMENT_KEY} must be a power of two, got {value:?}")))
        }
    }
}

/// A place in the file's bytes.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.at.checked_add(len).and_then(|end| Some((self.bytes.get(self.at..end)?, end)));
        let (taken, end) = taken.ok_or_else(|| damaged("the file is cut short"))?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| damaged("the file is cut short"))
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of things that are at least so long.
    fn count(&mut self, least: usize, what: &str) -> Result<usize> {
        let count = self.u64()?;
        self.fits(count, least, what)
    }

    fn fits(&self, count: u64, least: usize, what: &str) -> Result<usize> {
        let fits = |count: &usize| count.checked_mul(least).is_some_and(|bytes| bytes <= self.left());
        usize::try_from(count)
            .ok()
            .filter(fits)
            .ok_or_else(|| damaged(format_args!("the file is too short for {count} {what}")))
    }

    fn string(&mut self) -> Result<&'a [u8]> {
        let len = self.count(1, "letters")?;
        self.take(len)
    }

    /// A string that something is called by.
    fn name(&mut self, what: &str) -> Result<String> {
        let name = self.string()?;
        match std::str::from_utf8(name) {
            Ok(name) => Ok(name.to_string()),
            Err(_) => Err(damaged(format_args!("{what} is not UTF-8: {}", String::from_utf8_lossy(name)))),
        }
    }

    /// A string that is only shown; vocabularies hold parts of letters.
    fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.string()?).into_owned())
    }

    fn bool(&mut self) -> Result<bool> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(damaged(format_args!("a truth value is {other}, neither 0 nor 1"))),
        }
    }

    fn value(&mut self, kind: u32) -> Result<Value> {
        let Some(number) = NumberType::of(kind) else {
            return match kind {
                STRING => self.text().map(Value::String),
                ARRAY => self.values(1).map(Value::Array),
                _ => Err(damaged(format_args!("metadata has a value of the unknown type {kind}"))),
            };
        };
        Ok(match number {
            NumberType::U8 => Value::U8(u8::from_le_bytes(self.array()?)),
            NumberType::I8 => Value::I8(i8::from_le_bytes(self.array()?)),
            NumberType::U16 => Value::U16(u16::from_le_bytes(self.array()?)),
            NumberType::I16 => Value::I16(i16::from_le_bytes(self.array()?)),
            NumberType::U32 => Value::U32(self.u32()?),
            NumberType::I32 => Value::I32(i32::from_le_bytes(self.array()?)),
            NumberType::F32 => Value::F32(f32::from_le_bytes(self.array()?)),
            NumberType::Bool => Value::Bool(self.bool()?),
            NumberType::U64 => Value::U64(self.u64()?),
            NumberType::I64 => Value::I64(i64::from_le_bytes(self.array()?)),
            NumberType::F64 => Value::F64(f64::from_le_bytes(self.array()?)),
        })
    }

    fn values(&mut self, depth: usize) -> Result<Values> {
        if depth > DEEPEST {
            return Err(damaged(format_args!("metadata has arrays in arrays more than {DEEPEST} deep")));
        }
        let kind = self.u32()?;
        if let Some(number) = NumberType::of(kind) {
            let count = self.count(number.bytes(), "numbers")?;
            let bytes = self.take(count.saturating_mul(number.bytes()))?;
            if number == NumberType::Bool && bytes.iter().any(|byte| *byte > 1) {
                return Err(damaged("a truth value is neither 0 nor 1"));
            }
            return Ok(Values::Numbers(number, bytes.to_vec()));
        }
        match kind {
            STRING => {
                let count = self.count(LEAST_STRING, "strings")?;
                (0..count).map(|_| self.text()).collect::<Result<_>>().map(Values::Strings)
            }
            ARRAY => {
                let count = self.count(LEAST_ARRAY, "arrays")?;
                let deeper = depth.saturating_add(1);
                (0..count).map(|_| self.values(deeper)).collect::<Result<_>>().map(Values::Arrays)
            }
            _ => Err(damaged(format_args!("metadata has an array of the unknown type {kind}"))),
        }
    }

    /// A tensor, its bytes counted from where the first may be.
    fn tensor(&mut self) -> Result<TensorInfo> {
        let name = self.name("the name of a tensor")?;
        let axes = self.u32()?;
        if usize::try_from(axes).is_ok_and(|axes| axes > MOST_AXES) {
            return Err(damaged(format_args!("\"{name}\" has {axes} axes, more than {MOST_AXES}")));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            let extent = usize::try_from(self.u64()?);
            shape.push(extent.map_err(|_| damaged(format_args!("\"{name}\" is too large")))?);
        }
        // Theirs begins with the axis whose elements lie side by side.
        shape.reverse();
        let kind = self.u32()?;
        let Some(element) = ElementType::of_gguf(kind) else {
            return Err(damaged(format_args!("\"{name}\" is of type {kind}, which loom does not know")));
        };
        let start = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        let bytes = element.bytes(&shape).ok_or_else(|| too_large(&name, &shape, element))?;
        let end = start
            .checked_add(bytes)
            .ok_or_else(|| damaged(format_args!("\"{name}\" lies beyond the end of the file")))?;
        Ok(TensorInfo { name, shape, element, storage: 0, checksum: None, range: start..end })
    }
}

fn too_large(name: &str, shape: &[usize], element: ElementType) -> crate::Error {
    damaged(format_args!(
        "\"{name}\" of extents {shape:?} and type {}: too large, or its rows are no whole blocks of {}",
        element.name(),
        element.block()
    ))
}
