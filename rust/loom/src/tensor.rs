//! Shapes and contiguous storage.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The extents of one sample, without the batch axis.
#[derive(Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape with these extents.
    pub fn new(extents: impl Into<Vec<usize>>) -> Self {
        Self(extents.into())
    }

    /// The number of elements: the product of the extents, 1 for no axes.
    pub fn len(&self) -> usize {
        self.0.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }
}

impl std::ops::Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Self {
        Self(extents.to_vec())
    }
}

impl From<&[usize]> for Shape {
    fn from(extents: &[usize]) -> Self {
        Self(extents.to_vec())
    }
}

impl From<usize> for Shape {
    fn from(extent: usize) -> Self {
        Self(vec![extent])
    }
}

/// `(1, 28, 28)`, as Python writes it.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "({one},)"),
            many => {
                write!(f, "(")?;
                for (i, extent) in many.iter().enumerate() {
                    write!(f, "{}{extent}", if i > 0 { ", " } else { "" })?;
                }
                write!(f, ")")
            }
        }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The arithmetic a network's masters and activations are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE binary32: tuned kernels.
    #[default]
    Float32,
    /// IEEE binary64: portable kernels, for proofs and for who asks.
    Float64,
}

impl Precision {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Precision::Float32 => 4,
            Precision::Float64 => 8,
        }
    }
}

/// 64 bytes on their own cache line: the unit that [`Buffer`] allocates.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// Contiguous zero-initialised memory, aligned to 64 bytes, viewed as any plain type.
///
/// An empty buffer owns no memory, so one can be taken out of a table of
/// buffers and put back without allocating.
#[derive(Clone, Default)]
pub struct Buffer {
    lines: Vec<CacheLine>,
    bytes: usize,
}

impl Buffer {
    /// `bytes` zero bytes.
    pub fn zeroed(bytes: usize) -> Self {
        Self { lines: vec![CacheLine::zeroed(); bytes.div_ceil(64)], bytes }
    }

    /// Room for `len` zero elements of `T`.
    pub fn of<T: Pod>(len: usize) -> Self {
        Self::zeroed(len * size_of::<T>())
    }

    /// A copy of `data`.
    pub fn from_slice<T: Pod>(data: &[T]) -> Self {
        let mut buffer = Self::of::<T>(data.len());
        buffer.as_mut_slice::<T>().copy_from_slice(data);
        buffer
    }

    /// The number of bytes asked for (not the padding to whole cache lines).
    pub fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    /// The bytes themselves, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
    }

    /// The content as elements of `T`; a tail shorter than one element is left out.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        let whole = self.bytes / size_of::<T>() * size_of::<T>();
        bytemuck::cast_slice(&self.bytes()[..whole])
    }

    /// The content as elements of `T`, to write; a tail shorter than one element is left out.
    pub fn as_mut_slice<T: Pod>(&mut self) -> &mut [T] {
        let whole = self.bytes / size_of::<T>() * size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.bytes_mut()[..whole])
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes)
    }
}
