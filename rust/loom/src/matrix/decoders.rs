//! Right operands in packed numeric types, decoded while the product packs them.

use super::panels::{FewRows, PanelSource, STREAMED};
use super::stream::Streamed;
use super::tile::{Right, RowPanel, Vectors};
use crate::dtype::{DType, Packing};
use crate::simd::wide::{Element, Kernel, LANES, Wide, padded};
use crate::simd::{Isa, Real};
use half::bf16;
use std::marker::PhantomData;
use std::ops::Range;

/// Right operand B[k, n] of bfloat16 elements, row after row.
///
/// A product with it equals, bit for bit, the product with the elements
/// converted to the wider type, which is exact.
#[derive(Clone, Copy)]
pub struct Bfloat16Panels<'a> {
    data: &'a [bf16],
    depth: usize,
    lanes: usize,
}

impl<'a> Bfloat16Panels<'a> {
    /// `data` is B[k, n].
    ///
    /// # Panics
    /// If `data` does not hold k times n elements.
    pub fn new(data: &'a [bf16], k: usize, n: usize) -> Self {
        assert_eq!(data.len(), k.saturating_mul(n), "B does not hold {k} x {n} elements");
        Self { data, depth: k, lanes: n }
    }
}

/// Right operand B[k, n] of 8-bit integers, row after row, with a scale per column.
///
/// A product with it equals, bit for bit, the product with the elements
/// `(q as T) * scale[column]`.
#[derive(Clone, Copy)]
pub struct Int8Panels<'a, T> {
    data: &'a [i8],
    scale: &'a [T],
    depth: usize,
}

impl<'a, T> Int8Panels<'a, T> {
    /// `data` is B[k, n], `scale` has n elements.
    ///
    /// # Panics
    /// If `data` does not hold k times n elements, or `scale` not n.
    pub fn new(data: &'a [i8], scale: &'a [T], k: usize, n: usize) -> Self {
        assert_eq!(data.len(), k.saturating_mul(n), "B does not hold {k} x {n} elements");
        assert_eq!(scale.len(), n, "there is not one scale for each of {n} columns");
        Self { data, scale, depth: k }
    }
}

/// Sixteen (or the last few) elements of a row of B, decoded.
trait Decode<T>: Copy {
    /// # Safety
    /// `index..index + 16` is within B and `column..column + 16` within its columns.
    unsafe fn wide<W: Wide<T>>(&self, index: usize, column: usize) -> W;

    /// The same for `count` elements; anything may follow them.
    ///
    /// # Safety
    /// As [`Decode::wide`] with `count` for 16.
    unsafe fn few<W: Wide<T>>(&self, index: usize, column: usize, count: usize) -> W;
}

/// `count` elements from `index` on, then whatever comes next.
///
/// # Safety
/// `data` holds `count` elements, at most 16, from `index` on.
#[inline(always)]
unsafe fn beyond<Q: Copy + Default>(data: &[Q], index: usize, count: usize) -> [Q; LANES] {
    let from = data.as_ptr().wrapping_add(index);
    if index + LANES <= data.len() {
        // SAFETY: as just tested.
        unsafe { *from.cast() }
    } else {
        // SAFETY: the caller's promise.
        unsafe { padded(from, count) }
    }
}

impl<T> Decode<T> for Bfloat16Panels<'_> {
    #[inline(always)]
    unsafe fn wide<W: Wide<T>>(&self, index: usize, _: usize) -> W {
        // SAFETY: the caller's promise.
        unsafe { W::load_bfloat16(self.data.as_ptr().add(index)) }
    }

    #[inline(always)]
    unsafe fn few<W: Wide<T>>(&self, index: usize, _: usize, count: usize) -> W {
        // SAFETY: the caller's promise.
        unsafe { W::load_bfloat16(beyond(self.data, index, count).as_ptr()) }
    }
}

impl<T: Copy + Default> Decode<T> for Int8Panels<'_, T> {
    #[inline(always)]
    unsafe fn wide<W: Wide<T>>(&self, index: usize, column: usize) -> W {
        // SAFETY: the caller's promise.
        unsafe {
            let q = W::load_int8(self.data.as_ptr().add(index));
            q.multiply(W::load(self.scale.as_ptr().add(column)))
        }
    }

    #[inline(always)]
    unsafe fn few<W: Wide<T>>(&self, index: usize, column: usize, count: usize) -> W {
        // SAFETY: the caller's promise.
        unsafe {
            let q = W::load_int8(beyond(self.data, index, count).as_ptr());
            q.multiply(W::load_few(self.scale.as_ptr().add(column), count))
        }
    }
}

struct PackDecoded<'a, T, D> {
    decoder: D,
    columns: usize,
    depth: Range<usize>,
    lanes: Range<usize>,
    width: usize,
    out: &'a mut [T],
    _element: PhantomData<T>,
}

impl<T, D: Decode<T>> Kernel<T> for PackDecoded<'_, T, D> {
    #[inline(always)]
    unsafe fn run<W: Wide<T>>(self) {
        let Self { decoder, columns, depth, lanes, width, out, .. } = self;
        // SAFETY: decodes elements of the given ranges only, which lie within B;
        // writes within depth x width.
        unsafe {
            for (row, k) in depth.enumerate() {
                let to = out.as_mut_ptr().add(row * width);
                let mut lane = 0;
                while lane + LANES <= lanes.len() {
                    let column = lanes.start + lane;
                    decoder.wide::<W>(k * columns + column, column).store(to.add(lane));
                    lane += LANES;
                }
                if lane < lanes.len() {
                    let column = lanes.start + lane;
                    decoder.few::<W>(k * columns + column, column, lanes.len() - lane).store(to.add(lane));
                    lane += LANES;
                }
                while lane < width {
                    W::zero().store(to.add(lane));
                    lane += LANES;
                }
            }
        }
    }
}

impl<T: Element + Sync> PanelSource<T> for Bfloat16Panels<'_> {
    #[allow(private_interfaces)]
    fn streamed(&self) -> Option<Streamed<'_>> {
        if self.data.len() < STREAMED {
            return None;
        }
        let packing = Packing::new(DType::BFloat16, self.depth, self.lanes);
        Streamed::new(packing, bytemuck::cast_slice(self.data), &[])
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn is_packed(&self) -> bool {
        true
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, lanes: Range<usize>, width: usize, out: &mut [T]) {
        pack(*self, (self.depth, self.lanes), isa, depth, lanes, width, out);
    }

    fn few_rows(&self) -> Option<&dyn FewRows<T>> {
        Some(self)
    }
}

impl<T: Element + Copy + Default + Sync> PanelSource<T> for Int8Panels<'_, T> {
    #[allow(private_interfaces)]
    fn streamed(&self) -> Option<Streamed<'_>> {
        let packing = Packing::new(DType::Int8, self.depth, self.scale.len());
        Streamed::new(packing, bytemuck::cast_slice(self.data), bytemuck::try_cast_slice(self.scale).ok()?)
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn lanes(&self) -> usize {
        self.scale.len()
    }

    fn is_packed(&self) -> bool {
        true
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, lanes: Range<usize>, width: usize, out: &mut [T]) {
        pack(*self, (self.depth, self.scale.len()), isa, depth, lanes, width, out);
    }

    fn few_rows(&self) -> Option<&dyn FewRows<T>> {
        Some(self)
    }
}

/// Right operand B[k, n] in any packed numeric type, its columns the output channels.
///
/// A product with it equals, bit for bit, the product with the decoded elements.
#[derive(Clone, Copy)]
pub struct PackedPanels<'a> {
    packing: Packing,
    bytes: &'a [u8],
    scales: &'a [f32],
}

impl<'a> PackedPanels<'a> {
    /// `bytes` and `scales` are what was packed so.
    ///
    /// # Panics
    /// If there are not as many of them as that takes.
    pub fn new(packing: Packing, bytes: &'a [u8], scales: &'a [f32]) -> Self {
        assert!(
            bytes.len() >= packing.bytes() && scales.len() >= packing.scale_words(),
            "B does not hold {} x {} elements of {}",
            packing.rows,
            packing.channels,
            packing.dtype
        );
        Self { packing, bytes, scales }
    }
}

impl<T: Real> PanelSource<T> for PackedPanels<'_> {
    fn depth(&self) -> usize {
        self.packing.rows
    }

    fn lanes(&self) -> usize {
        self.packing.channels
    }

    fn is_packed(&self) -> bool {
        true
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, lanes: Range<usize>, width: usize, out: &mut [T]) {
        assert!(depth.end <= self.packing.rows && lanes.end <= self.packing.channels);
        assert!(lanes.len() <= width && out.len() == depth.len() * width);
        self.packing.decode_tile(isa, (self.bytes, self.scales), depth, lanes, out, width);
    }

    #[allow(private_interfaces)]
    fn streamed(&self) -> Option<Streamed<'_>> {
        Streamed::new(self.packing, self.bytes, self.scales)
    }
}

fn pack<T: Element>(
    decoder: impl Decode<T>,
    (k, n): (usize, usize),
    isa: Isa,
    depth: Range<usize>,
    lanes: Range<usize>,
    width: usize,
    out: &mut [T],
) {
    assert!(depth.end <= k && lanes.end <= n && lanes.len() <= width);
    assert!(width.is_multiple_of(LANES) && out.len() == depth.len() * width);
    let pack = PackDecoded { decoder, columns: n, depth, lanes, width, out, _element: PhantomData };
    // SAFETY: the ranges are within B and the panel, as asserted.
    unsafe { T::enter(isa, pack) }
}

/// A row of B from some column on, decoded vector by vector.
#[derive(Clone, Copy)]
struct Decoded<D> {
    decoder: D,
    columns: usize,
    index: usize,
    column: usize,
}

impl<T, D: Decode<T>> Vectors<T> for Decoded<D> {
    #[inline(always)]
    unsafe fn load<W: Wide<T>>(self, j: usize) -> W {
        // SAFETY: the caller's promise.
        unsafe { self.decoder.wide(self.index + j * LANES, self.column + j * LANES) }
    }

    #[inline(always)]
    unsafe fn load_few<W: Wide<T>>(self, count: usize) -> W {
        // SAFETY: the caller's promise.
        unsafe { self.decoder.few(self.index, self.column, count) }
    }

    #[inline(always)]
    fn deeper(self) -> Self {
        Self { index: self.index + self.columns, ..self }
    }

    #[inline(always)]
    fn skip(self, elements: usize) -> Self {
        Self { index: self.index + elements, column: self.column + elements, ..self }
    }
}

macro_rules! few_rows {
    () => {
        fn extents(&self) -> (usize, usize) {
            (PanelSource::<T>::depth(self), PanelSource::<T>::lanes(self))
        }

        #[allow(private_interfaces)]
        unsafe fn run(&self, isa: Isa, panel: RowPanel<T, ()>, k: usize, column: usize) {
            let columns = PanelSource::<T>::lanes(self);
            let decoded = Decoded { decoder: *self, columns, index: k * columns + column, column };
            let right = Right { vectors: decoded, panel: T::tile(isa, panel.rows).1 * LANES };
            // SAFETY: the caller's promise.
            unsafe { panel.with(right).run_few(isa) }
        }
    };
}

impl<T: Element> FewRows<T> for Bfloat16Panels<'_> {
    few_rows!();
}

impl<T: Element + Default> FewRows<T> for Int8Panels<'_, T> {
    few_rows!();
}
