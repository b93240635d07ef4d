//! Shapes and contiguous storage.

use crate::lasting::{self, CacheLine, Part};
pub use crate::precision::Precision;
use crate::simd::Real;
use crate::{Error, Result, extents};
use bytemuck::Pod;
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

    /// The number of elements: the product of the extents, 1 for no axes; the largest number there is where
    /// it does not fit, which [`extents::check`](crate::extents::check) refuses.
    pub fn len(&self) -> usize {
        extents::product(&self.0)
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

/// Where a buffer's lines are.
enum Lines {
    Own(Vec<CacheLine>),
    /// In memory for what lasts.
    Lasting(Part),
}

impl Default for Lines {
    fn default() -> Self {
        Lines::Own(Vec::new())
    }
}

impl Clone for Lines {
    fn clone(&self) -> Self {
        let lines = self.lines();
        match self {
            // Where there is no memory of that kind, any will do.
            Lines::Lasting(_) => match Part::zeroed(size_of_val(lines)) {
                Ok(mut part) => {
                    part.lines_mut().copy_from_slice(lines);
                    Lines::Lasting(part)
                }
                Err(_) => Lines::Own(lines.to_vec()),
            },
            Lines::Own(lines) => Lines::Own(lines.clone()),
        }
    }
}

impl Lines {
    fn lines(&self) -> &[CacheLine] {
        match self {
            Lines::Own(lines) => lines,
            Lines::Lasting(part) => part.lines(),
        }
    }

    fn lines_mut(&mut self) -> &mut [CacheLine] {
        match self {
            Lines::Own(lines) => lines,
            Lines::Lasting(part) => part.lines_mut(),
        }
    }
}

/// Contiguous zero-initialised memory, aligned to 64 bytes, viewed as any plain type.
///
/// An empty buffer owns no memory, so one can be taken out of a table of
/// buffers and put back without allocating.
#[derive(Clone, Default)]
pub struct Buffer {
    lines: Lines,
    bytes: usize,
}

impl Buffer {
    /// `bytes` zero bytes.
    ///
    /// # Errors
    /// [`Error::Memory`] where the system has no memory for them.
    pub fn zeroed(bytes: usize) -> Result<Self> {
        let lines = bytemuck::allocation::try_zeroed_vec(bytes.div_ceil(size_of::<CacheLine>()));
        Ok(Self { lines: Lines::Own(lines.map_err(|()| extents::refused(bytes, 1))?), bytes })
    }

    /// `bytes` zero bytes for what stays and is read whole again and again: where the system has large pages, in
    /// such.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed).
    pub(crate) fn lasting(bytes: usize) -> Result<Self> {
        if bytes < lasting::LEAST {
            return Self::zeroed(bytes);
        }
        Ok(Self { lines: Lines::Lasting(Part::zeroed(bytes)?), bytes })
    }

    /// Room for `len` zero elements of `T`.
    ///
    /// # Errors
    /// [`Error::Memory`] where the system has no memory for them.
    pub fn of<T: Pod>(len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| extents::refused(len, size_of::<T>()))?;
        Self::zeroed(bytes)
    }

    /// Room for `len` elements of `T` that a kernel works in. Tasks return nothing, so where the system has no
    /// memory for them this unwinds with the error, and [`extents::caught`] returns it.
    pub(crate) fn working<T: Pod>(len: usize) -> Self {
        Self::of::<T>(len).unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error)))
    }

    /// A copy of `data`.
    ///
    /// # Errors
    /// [`Error::Memory`] where the system has no memory for it.
    pub fn from_slice<T: Pod>(data: &[T]) -> Result<Self> {
        let mut buffer = Self::of::<T>(data.len())?;
        buffer.as_mut_slice::<T>().copy_from_slice(data);
        Ok(buffer)
    }

    /// `bytes` zero bytes for what is read whole again and again but goes by itself: many, in large pages.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed).
    pub(crate) fn large(bytes: usize) -> Result<Self> {
        if bytes < lasting::LARGE {
            return Self::zeroed(bytes);
        }
        Ok(Self { lines: Lines::Lasting(Part::alone(bytes)?), bytes })
    }

    /// So many zero bytes each for what is read together again and again: where that is much, one after the other in
    /// large pages, none of which is there before it is written.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed).
    pub(crate) fn together(bytes: &[usize]) -> Result<Vec<Self>> {
        if bytes.iter().fold(0usize, |all, bytes| all.saturating_add(*bytes)) < lasting::LARGE {
            return bytes.iter().map(|bytes| Self::zeroed(*bytes)).collect();
        }
        let parts = Part::together(bytes)?.into_iter().zip(bytes);
        Ok(parts.map(|(part, bytes)| Self { lines: Lines::Lasting(part), bytes: *bytes }).collect())
    }

    /// The number of bytes asked for (not the padding to whole cache lines).
    pub fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(self.lines.lines())[..self.bytes]
    }

    /// The bytes themselves, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(self.lines.lines_mut())[..self.bytes]
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

/// Real elements in one of the two precisions.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    /// `f32` elements.
    Float32(&'a [f32]),
    /// `f64` elements.
    Float64(&'a [f64]),
}

impl<'a> Elements<'a> {
    /// A slice of either precision.
    pub fn of<T: Real>(elements: &'a [T]) -> Self {
        match T::PRECISION {
            Precision::Float32 | Precision::Mixed => Elements::Float32(bytemuck::cast_slice(elements)),
            Precision::Float64 => Elements::Float64(bytemuck::cast_slice(elements)),
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Elements::Float32(elements) => elements.len(),
            Elements::Float64(elements) => elements.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A borrowed array in row-major order, the batch axis first.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    shape: Vec<usize>,
    elements: Elements<'a>,
}

impl<'a> TensorView<'a> {
    /// Sees `elements` as an array of this shape.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the shape's product is the number of elements.
    pub fn new(shape: impl Into<Vec<usize>>, elements: Elements<'a>) -> Result<Self> {
        let shape = shape.into();
        let expected = shape.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
        if expected != Some(elements.len()) {
            return Err(Error::Shape(format!(
                "an array of shape {} does not hold {} elements",
                Shape::new(shape),
                elements.len()
            )));
        }
        Ok(Self { shape, elements })
    }

    /// The extents, the batch axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The extent of the batch axis; 0 for an array without axes.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    /// The elements in row-major order.
    pub fn elements(&self) -> Elements<'a> {
        self.elements
    }

    /// A copy of the array.
    ///
    /// # Errors
    /// None that a view of valid extents can meet.
    pub fn to_tensor(&self) -> Result<Tensor> {
        match self.elements {
            Elements::Float32(elements) => Tensor::new(self.shape.clone(), elements.to_vec()),
            Elements::Float64(elements) => Tensor::new(self.shape.clone(), elements.to_vec()),
        }
    }

    /// Rows `range` of this array.
    pub fn slice_rows(&self, range: std::ops::Range<usize>) -> TensorView<'a> {
        let row: usize = self.shape[1..].iter().product();
        let part = range.start * row..range.end * row;
        let mut shape = self.shape.clone();
        shape[0] = range.len();
        let elements = match self.elements {
            Elements::Float32(elements) => Elements::Float32(&elements[part]),
            Elements::Float64(elements) => Elements::Float64(&elements[part]),
        };
        Self { shape, elements }
    }

    /// Copies the elements, converted to `T` where they are not yet.
    pub(crate) fn copy_to<T: Real>(&self, out: &mut [T]) {
        match self.elements {
            Elements::Float32(elements) => convert(elements, out),
            Elements::Float64(elements) => convert(elements, out),
        }
    }

    /// The flat index of the first element that is infinite or NaN.
    pub fn first_non_finite(&self) -> Option<usize> {
        match self.elements {
            Elements::Float32(elements) => first_non_finite(elements),
            Elements::Float64(elements) => first_non_finite(elements),
        }
    }
}

fn convert<S: Real, T: Real>(from: &[S], to: &mut [T]) {
    if S::PRECISION == T::PRECISION {
        to.copy_from_slice(bytemuck::cast_slice(from));
    } else {
        for (to, from) in to.iter_mut().zip(from) {
            *to = T::from_f64(from.to_f64());
        }
    }
}

/// The index of the first element that is infinite or NaN.
pub(crate) fn first_non_finite<T: Real>(elements: &[T]) -> Option<usize> {
    // Whole chunks first: the compiler turns the inner loop into vector code.
    const CHUNK: usize = 4096;
    for (number, chunk) in elements.chunks(CHUNK).enumerate() {
        if !chunk.iter().fold(true, |finite, x| finite & x.is_finite()) {
            return chunk.iter().position(|x| !x.is_finite()).map(|i| number * CHUNK + i);
        }
    }
    None
}

/// Checks that an array holds no infinity and no NaN.
pub(crate) fn check_finite(array: &TensorView<'_>, what: &str) -> Result<()> {
    match array.first_non_finite() {
        None => Ok(()),
        Some(index) => {
            let row = index / array.shape()[1..].iter().product::<usize>().max(1);
            Err(Error::NonFinite(format!(
                "{what} holds NaN or infinity, first in row {row}; clean the data before using it"
            )))
        }
    }
}

/// An owned array in row-major order, the batch axis first.
#[derive(Clone, Debug, PartialEq)]
pub enum Tensor {
    /// `f32` elements with their extents.
    Float32(Vec<usize>, Vec<f32>),
    /// `f64` elements with their extents.
    Float64(Vec<usize>, Vec<f64>),
}

impl Tensor {
    /// An array from elements in row-major order.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the shape's product is the number of elements.
    pub fn new<T: Real>(shape: impl Into<Vec<usize>>, elements: Vec<T>) -> Result<Self> {
        let shape = shape.into();
        TensorView::new(shape.clone(), Elements::of(&elements))?;
        Ok(match T::PRECISION {
            Precision::Float32 | Precision::Mixed => Tensor::Float32(shape, bytemuck::cast_vec(elements)),
            Precision::Float64 => Tensor::Float64(shape, bytemuck::cast_vec(elements)),
        })
    }

    /// The extents, the batch axis first.
    pub fn shape(&self) -> &[usize] {
        match self {
            Tensor::Float32(shape, _) | Tensor::Float64(shape, _) => shape,
        }
    }

    /// The array, borrowed.
    pub fn view(&self) -> TensorView<'_> {
        match self {
            Tensor::Float32(shape, elements) => {
                TensorView { shape: shape.clone(), elements: Elements::Float32(elements) }
            }
            Tensor::Float64(shape, elements) => {
                TensorView { shape: shape.clone(), elements: Elements::Float64(elements) }
            }
        }
    }

    /// The elements as `f32`, converted where they are `f64`.
    pub fn to_f32(&self) -> Vec<f32> {
        let view = self.view();
        let mut out = vec![0.0; view.elements.len()];
        view.copy_to(&mut out);
        out
    }

    /// The elements as `f64`.
    pub fn to_f64(&self) -> Vec<f64> {
        let view = self.view();
        let mut out = vec![0.0; view.elements.len()];
        view.copy_to(&mut out);
        out
    }
}

impl<'a> TryFrom<ndarray::ArrayViewD<'a, f32>> for TensorView<'a> {
    type Error = Error;

    /// Sees an array in standard (row-major, contiguous) layout; others must be copied first.
    fn try_from(array: ndarray::ArrayViewD<'a, f32>) -> Result<Self> {
        let shape = array.shape().to_vec();
        let elements = array.to_slice().ok_or_else(not_contiguous)?;
        Self::new(shape, Elements::Float32(elements))
    }
}

impl<'a> TryFrom<ndarray::ArrayViewD<'a, f64>> for TensorView<'a> {
    type Error = Error;

    /// Sees an array in standard (row-major, contiguous) layout; others must be copied first.
    fn try_from(array: ndarray::ArrayViewD<'a, f64>) -> Result<Self> {
        let shape = array.shape().to_vec();
        let elements = array.to_slice().ok_or_else(not_contiguous)?;
        Self::new(shape, Elements::Float64(elements))
    }
}

fn not_contiguous() -> Error {
    Error::Shape("the array is not in standard layout; call `as_standard_layout` first".into())
}
