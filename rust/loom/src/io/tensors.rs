//! Tensors on their way into a file, and what precisions are called there.

use super::atomic;
use super::tensor_file::{CHECKSUM_BYTES, CHECKSUMS, ElementType, TensorSpec, header_of};
use crate::dtype::DType;
use crate::tensor::{Precision, Tensor};
use crate::weights::{Layout, WeightStore};
use crate::{Error, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;

/// Tensors by name, on their way into a file.
pub(super) type Entries<'a> = Vec<(String, Entry<'a>)>;

/// One tensor on its way into a file.
pub(super) struct Entry<'a> {
    element: ElementType,
    shape: Vec<usize>,
    content: Content<'a>,
}

/// Where the bytes of a tensor come from.
enum Content<'a> {
    Bytes(Cow<'a, [u8]>),
    /// A parameter of a store, which is put into the outside's order when its turn comes.
    Parameter(&'a WeightStore, usize),
}

impl<'a> Entry<'a> {
    /// Bytes as they lie in memory.
    pub(super) fn bytes(element: ElementType, shape: Vec<usize>, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { element, shape, content: Content::Bytes(bytes.into()) }
    }

    /// Elements in one row.
    pub(super) fn list<T: bytemuck::Pod>(element: ElementType, elements: &'a [T]) -> Self {
        Self::bytes(element, vec![elements.len()], bytemuck::cast_slice(elements))
    }

    /// A tensor of real numbers.
    pub(super) fn real(tensor: &'a Tensor) -> Self {
        let list = match tensor {
            Tensor::Float32(_, elements) => Self::list(ElementType::F32, elements),
            Tensor::Float64(_, elements) => Self::list(ElementType::F64, elements),
        };
        Self { shape: tensor.shape().to_vec(), ..list }
    }

    /// A parameter in full precision.
    pub(super) fn parameter(store: &'a WeightStore, index: usize, layout: &Layout) -> Result<Self> {
        let stored = store.float_bytes(Some(index))?;
        let content = match layout.is_outside() {
            true => Content::Bytes(stored.into()),
            false => Content::Parameter(store, index),
        };
        Ok(Self { element: real_element(store.precision()), shape: layout.outside_shape(), content })
    }

    /// Hands the bytes over.
    fn with_bytes<R>(&self, take: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        match &self.content {
            Content::Bytes(bytes) => take(bytes),
            Content::Parameter(store, index) => match store.get(*index)? {
                Tensor::Float32(_, elements) => take(bytemuck::cast_slice(&elements)),
                Tensor::Float64(_, elements) => take(bytemuck::cast_slice(&elements)),
            },
        }
    }
}

/// Where types stand in a file: the widest first, so that each tensor lies as its type wants it.
fn rank(element: ElementType) -> usize {
    let order = [ElementType::U64, ElementType::F64, ElementType::F32, ElementType::BF16, ElementType::F16];
    let last = [ElementType::I8, ElementType::U8];
    order.iter().chain(&last).position(|known| *known == element).unwrap_or(usize::MAX)
}

/// A file that is ready to be written, tensor by tensor.
pub(super) struct Writable<'a> {
    header: Vec<u8>,
    tensors: Vec<(usize, Entry<'a>)>,
    /// The bytes of all.
    pub(super) len: usize,
}

impl<'a> Writable<'a> {
    /// Puts tensors into their order, and writes the header.
    ///
    /// # Errors
    /// [`Error::Value`] for names that are there twice.
    pub(super) fn new(metadata: &BTreeMap<String, String>, mut entries: Entries<'a>) -> Result<Self> {
        entries.sort_by(|(name, entry), (other, known)| {
            (rank(entry.element), name).cmp(&(rank(known.element), other))
        });
        let (mut specs, mut tensors) = (Vec::new(), Vec::new());
        for (name, entry) in entries {
            specs.push(TensorSpec { name, shape: entry.shape.clone(), element: entry.element });
            tensors.push(entry);
        }
        let shape = vec![tensors.len().saturating_add(1), CHECKSUM_BYTES];
        specs.push(TensorSpec { name: CHECKSUMS.into(), shape, element: ElementType::U8 });
        let (header, lengths) = header_of(metadata, &specs.iter().collect::<Vec<_>>())?;
        let len = header.len().saturating_add(lengths.iter().sum::<usize>());
        Ok(Self { header, tensors: lengths.into_iter().zip(tensors).collect(), len })
    }

    /// Writes it, with a checksum of the header and of every tensor at the end.
    ///
    /// # Errors
    /// [`Error::Io`] where the system refuses.
    pub(super) fn write(self, to: &mut dyn Write) -> Result<()> {
        let mut checksums = Vec::new();
        let mut put = |bytes: &[u8]| {
            checksums.extend(crc32fast::hash(bytes).to_le_bytes());
            to.write_all(bytes).map_err(|source| atomic::refused("a tensor", source))
        };
        put(&self.header)?;
        for (len, entry) in self.tensors {
            entry.with_bytes(|bytes| match bytes.len() == len {
                true => put(bytes),
                false => Err(Error::Internal(format!("a tensor of {} bytes was to have {len}", bytes.len()))),
            })?;
        }
        to.write_all(&checksums).map_err(|source| atomic::refused("the checksums", source))
    }
}

/// What real numbers of a precision are in a file.
pub(super) fn real_element(precision: Precision) -> ElementType {
    match precision.stored() {
        Precision::Float64 => ElementType::F64,
        _ => ElementType::F32,
    }
}

/// What packed weights of a parameter are called; `by_rows` where the blocks of a table are those of its rows.
pub(super) fn packed_name(parameter: &str, dtype: DType, by_rows: bool) -> String {
    format!("{parameter}@{dtype}{}", if by_rows { ".rows" } else { "" })
}

/// What packed weights are in a file, and in which extents.
pub(super) fn packed_element(
    dtype: DType,
    [rows, columns]: [usize; 2],
    bytes: usize,
) -> (ElementType, Vec<usize>) {
    match dtype {
        DType::BFloat16 => (ElementType::BF16, vec![rows, columns]),
        DType::Float16 => (ElementType::F16, vec![rows, columns]),
        DType::Int8 => (ElementType::I8, vec![rows, columns]),
        _ => (ElementType::U8, vec![bytes]),
    }
}

/// Whatever is wrong with content that a file brought is the file's fault.
pub(super) fn damaged(error: Error) -> Error {
    match error {
        Error::Serialization(_) | Error::Memory(_) | Error::Io { .. } => error,
        other => Error::Serialization(format!("the file does not describe a network: {other}")),
    }
}
