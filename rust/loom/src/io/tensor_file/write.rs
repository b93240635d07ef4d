//! Writing safetensors and GGUF, one tensor at a time.

use super::element::ElementType;
use super::gguf::{ALIGNMENT, ALIGNMENT_KEY, MAGIC};
use super::value::{ARRAY, NumberType, STRING, Value, Values};
use crate::io::atomic;
use crate::{Error, Result};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::Path;

/// A tensor that is to be written.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    /// What it is called.
    pub name: String,
    /// Its extents, the axis whose elements lie side by side last.
    pub shape: Vec<usize>,
    /// What its elements are.
    pub element: ElementType,
}

impl TensorSpec {
    fn bytes(&self) -> Result<usize> {
        self.element.bytes(&self.shape).ok_or_else(|| {
            let (name, element) = (&self.name, self.element);
            Error::Shape(format!(
                "\"{name}\" of extents {:?} cannot be {}: rows are to be multiples of {}",
                self.shape,
                element.name(),
                element.block()
            ))
        })
    }
}

/// Refuses names that are there twice.
fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::Value(format!("{what} \"{name}\" is there twice")));
        }
    }
    Ok(())
}

/// Writes tensors, each when its turn comes, and gaps so that each begins at a multiple of `alignment`.
fn write_data<'a>(
    file: &mut dyn Write,
    alignment: usize,
    order: &[(usize, usize)],
    bytes_of: &mut impl FnMut(usize) -> Result<Cow<'a, [u8]>>,
) -> Result<()> {
    for (index, len) in order {
        let bytes = bytes_of(*index)?;
        if bytes.len() != *len {
            let message = format!("tensor {index} has {} bytes, its extents say {len}", bytes.len());
            return Err(Error::Value(message));
        }
        file.write_all(&bytes).map_err(|source| atomic::refused("a tensor", source))?;
        fill(file, *len, alignment)?;
    }
    Ok(())
}

/// Zeros up to a multiple of `alignment`.
fn fill(file: &mut dyn Write, len: usize, alignment: usize) -> Result<()> {
    let gap = len.next_multiple_of(alignment).saturating_sub(len);
    file.write_all(&vec![0; gap]).map_err(|source| atomic::refused("a tensor", source))
}

/// Writes a safetensors file: to a temporary file, synced and renamed. `bytes_of` is asked for the bytes of one
/// tensor after the other, by their places in `tensors`, so that one at a time need be in memory.
///
/// # Errors
/// [`Error::Io`] where the system refuses; [`Error::Value`] for names that are there twice, or bytes that are not
/// as many as the extents say; [`Error::DType`] for types that safetensors does not have; what `bytes_of` says.
pub fn write_safetensors<'a>(
    path: impl AsRef<Path>,
    metadata: &BTreeMap<String, String>,
    tensors: &[TensorSpec],
    mut bytes_of: impl FnMut(usize) -> Result<Cow<'a, [u8]>>,
) -> Result<()> {
    let mut order: Vec<(usize, &TensorSpec)> = tensors.iter().enumerate().collect();
    // The widest first: then each lies as its type wants it.
    order.sort_by_key(|(_, TensorSpec { name, element, .. })| {
        (std::cmp::Reverse(element.block_bytes()), element.name(), name)
    });
    let specs: Vec<&TensorSpec> = order.iter().map(|(_, spec)| *spec).collect();
    let (header, lengths) = header_of(metadata, &specs)?;
    let data: Vec<(usize, usize)> = order.into_iter().map(|(index, _)| index).zip(lengths).collect();
    atomic::write_with(path.as_ref(), |file| {
        file.write_all(&header).map_err(|source| atomic::refused("the header", source))?;
        write_data(file, 1, &data, &mut bytes_of)
    })
}

/// The header of safetensors, its length in front, for tensors that lie side by side in this order, and the bytes of
/// each.
pub(in crate::io) fn header_of(
    metadata: &BTreeMap<String, String>,
    tensors: &[&TensorSpec],
) -> Result<(Vec<u8>, Vec<usize>)> {
    check_names("the tensor", tensors.iter().map(|tensor| tensor.name.as_str()))?;
    let mut header = String::from("{");
    if !metadata.is_empty() {
        header.push_str(&format!("\"__metadata__\":{}", json(metadata)?));
    }
    let (mut at, mut lengths) = (0usize, Vec::new());
    for spec in tensors {
        let TensorSpec { name, shape, element } = spec;
        let Some(dtype) = element.safetensors() else {
            return Err(Error::DType(format!("\"{name}\": safetensors has no {}", element.name())));
        };
        if name == "__metadata__" {
            return Err(Error::Value("safetensors has no tensor \"__metadata__\"".into()));
        }
        let len = spec.bytes()?;
        let end = at.checked_add(len).ok_or_else(|| Error::Memory("the file would be too large".into()))?;
        let comma = if header.len() > 1 { "," } else { "" };
        let entry = format!(
            "{comma}{}:{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{at},{end}]}}",
            json(name)?
        );
        header.push_str(&entry);
        lengths.push(len);
        at = end;
    }
    header.push('}');
    let padded = header.len().next_multiple_of(size_of::<u64>());
    let mut bytes = (padded as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(size_of::<u64>()), b' ');
    Ok((bytes, lengths))
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Serialization(error.to_string()))
}

/// Writes a GGUF file of version 3: to a temporary file, synced and renamed. `bytes_of` is asked for the bytes of
/// one tensor after the other, by their places in `tensors`; [`encode`](super::encode) makes them of numbers.
///
/// # Errors
/// As [`write_safetensors`]; [`Error::Value`] for an alignment that is no power of two.
pub fn write_gguf<'a>(
    path: impl AsRef<Path>,
    metadata: &[(String, Value)],
    tensors: &[TensorSpec],
    mut bytes_of: impl FnMut(usize) -> Result<Cow<'a, [u8]>>,
) -> Result<()> {
    check_names("the tensor", tensors.iter().map(|tensor| tensor.name.as_str()))?;
    check_names("the key", metadata.iter().map(|(key, _)| key.as_str()))?;
    let alignment = match metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) {
        None => ALIGNMENT,
        Some((_, Value::U32(alignment))) if alignment.is_power_of_two() && *alignment <= 1 << 20 => {
            *alignment as usize
        }
        Some(_) => return Err(Error::Value(format!("{ALIGNMENT_KEY} must be a power of two, as uint32"))),
    };
    let mut header = MAGIC.to_vec();
    header.extend(3u32.to_le_bytes());
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut header, key);
        put_value(&mut header, value);
    }
    let (mut at, mut data) = (0usize, Vec::new());
    for (index, spec) in tensors.iter().enumerate() {
        let TensorSpec { name, shape, element } = spec;
        let Some(kind) = element.gguf() else {
            return Err(Error::DType(format!("\"{name}\": GGUF has no {}", element.name())));
        };
        put_text(&mut header, name);
        header.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|extent| header.extend((*extent as u64).to_le_bytes()));
        header.extend(kind.to_le_bytes());
        header.extend((at as u64).to_le_bytes());
        let len = spec.bytes()?;
        data.push((index, len));
        let end = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(alignment));
        at = end.ok_or_else(|| Error::Memory("the file would be too large".into()))?;
    }
    atomic::write_with(path.as_ref(), |file| {
        file.write_all(&header).map_err(|source| atomic::refused("the header", source))?;
        fill(file, header.len(), alignment)?;
        write_data(file, alignment, &data, &mut bytes_of)
    })
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

fn put_value(to: &mut Vec<u8>, value: &Value) {
    let mut put = |kind: u32, bytes: &[u8]| {
        to.extend(kind.to_le_bytes());
        to.extend(bytes);
    };
    match value {
        Value::U8(it) => put(NumberType::U8 as u32, &it.to_le_bytes()),
        Value::I8(it) => put(NumberType::I8 as u32, &it.to_le_bytes()),
        Value::U16(it) => put(NumberType::U16 as u32, &it.to_le_bytes()),
        Value::I16(it) => put(NumberType::I16 as u32, &it.to_le_bytes()),
        Value::U32(it) => put(NumberType::U32 as u32, &it.to_le_bytes()),
        Value::I32(it) => put(NumberType::I32 as u32, &it.to_le_bytes()),
        Value::F32(it) => put(NumberType::F32 as u32, &it.to_le_bytes()),
        Value::Bool(it) => put(NumberType::Bool as u32, &[u8::from(*it)]),
        Value::U64(it) => put(NumberType::U64 as u32, &it.to_le_bytes()),
        Value::I64(it) => put(NumberType::I64 as u32, &it.to_le_bytes()),
        Value::F64(it) => put(NumberType::F64 as u32, &it.to_le_bytes()),
        Value::String(it) => {
            put(STRING, &[]);
            put_text(to, it);
        }
        Value::Array(values) => {
            put(ARRAY, &[]);
            put_values(to, values);
        }
    }
}

fn put_values(to: &mut Vec<u8>, values: &Values) {
    let (kind, count) = match values {
        Values::Numbers(number, bytes) => {
            (*number as u32, bytes.len().checked_div(number.bytes()).unwrap_or(0))
        }
        Values::Strings(strings) => (STRING, strings.len()),
        Values::Arrays(arrays) => (ARRAY, arrays.len()),
    };
    to.extend(kind.to_le_bytes());
    to.extend((count as u64).to_le_bytes());
    match values {
        Values::Numbers(_, bytes) => to.extend(bytes),
        Values::Strings(strings) => strings.iter().for_each(|string| put_text(to, string)),
        Values::Arrays(arrays) => arrays.iter().for_each(|array| put_values(to, array)),
    }
}
