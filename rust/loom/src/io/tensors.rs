//! Tensors on their way into a file, and out of one.

use crate::precision::in_precision;
use crate::tensor::{Buffer, Precision, Tensor};
use crate::{Error, Result};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use std::borrow::Cow;

/// Tensors by name, on their way into a file.
pub(super) type Entries = Vec<(String, Entry)>;

/// One tensor on its way into a file.
pub(super) struct Entry {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

impl Entry {
    /// Elements in one row.
    pub(super) fn list<T: bytemuck::Pod>(dtype: Dtype, elements: &[T]) -> Self {
        Self { dtype, shape: vec![elements.len()], bytes: bytemuck::cast_slice(elements).to_vec() }
    }

    /// A tensor of real numbers.
    pub(super) fn real(tensor: &Tensor) -> Self {
        let list = match tensor {
            Tensor::Float32(_, elements) => Self::list(Dtype::F32, elements),
            Tensor::Float64(_, elements) => Self::list(Dtype::F64, elements),
        };
        Self { shape: tensor.shape().to_vec(), ..list }
    }
}

impl View for &Entry {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// What real numbers of a precision are in a file.
pub(super) fn real_dtype(precision: Precision) -> Dtype {
    match precision.stored() {
        Precision::Float64 => Dtype::F64,
        _ => Dtype::F32,
    }
}

/// A tensor of the network's own precision, from bytes that need not be aligned.
pub(super) fn real_tensor(tensors: &SafeTensors<'_>, name: &str, precision: Precision) -> Result<Tensor> {
    let saved = tensors.tensor(name).map_err(unreadable)?;
    if saved.dtype() != real_dtype(precision) {
        let found = saved.dtype();
        return Err(Error::Serialization(format!("\"{name}\" is {found:?} in a {precision} network")));
    }
    let (shape, aligned) = (saved.shape(), Buffer::from_slice(saved.data())?);
    in_precision!(precision, T => Tensor::new(shape, aligned.as_slice::<T>().to_vec()))
}

pub(super) fn unreadable(error: SafeTensorError) -> Error {
    Error::Serialization(format!("the file is damaged, cut short, or no safetensors file: {error}"))
}

/// Whatever is wrong with content that a file brought is the file's fault.
pub(super) fn damaged(error: Error) -> Error {
    match error {
        Error::Serialization(_) | Error::Memory(_) => error,
        other => Error::Serialization(format!("the file does not describe a network: {other}")),
    }
}
