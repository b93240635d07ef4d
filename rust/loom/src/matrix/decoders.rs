//! Right operands in packed numeric types, decoded while the product packs them.

use super::few_rows::{FewRows, Form};
use super::panels::PanelSource;
use super::stream::Streamed;
use crate::dtype::{DType, Packing};
use crate::simd::{Decode, Isa, Kernel, LANES, Real, Vector, Words};
use half::bf16;
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

/// Where `count` elements from `index` on can be read as sixteen: in place, or else from a copy.
///
/// # Safety
/// `data` holds `count` elements from `index` on.
#[inline(always)]
unsafe fn sixteen<Q: Copy>(data: &[Q], index: usize, count: usize, copy: &mut [Q; LANES]) -> *const u8 {
    let from = data.as_ptr().wrapping_add(index);
    if count == LANES || index + LANES <= data.len() {
        return from.cast();
    }
    // SAFETY: the caller's promise.
    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(from, count) };
    copy.as_ptr().cast()
}

impl<T: Real> Form<T> for Bfloat16Panels<'_> {
    fn extents(&self) -> (usize, usize) {
        (self.depth, self.lanes)
    }

    #[inline(always)]
    unsafe fn vector<V: Vector<Element = T>>(&self, k: usize, column: usize, count: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let mut copy = [bf16::ZERO; LANES];
            let codes = sixteen(self.data, k * self.lanes + column, count, &mut copy);
            V::from_f32(V::Float32::bfloat16(codes))
        }
    }
}

impl<T: Real> Form<T> for Int8Panels<'_, T> {
    fn extents(&self) -> (usize, usize) {
        (self.depth, self.scale.len())
    }

    #[inline(always)]
    unsafe fn vector<V: Vector<Element = T>>(&self, k: usize, column: usize, count: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let mut copy = [0; LANES];
            let codes = sixteen(self.data, k * self.scale.len() + column, count, &mut copy);
            let words = <V::Float32 as Decode>::Words::signed_bytes(codes);
            let scale = match count {
                LANES => V::load_unchecked(self.scale.as_ptr().add(column)),
                _ => V::load_partial(self.scale.get_unchecked(column..column + count)),
            };
            V::from_f32(V::Float32::from_integers(words)) * scale
        }
    }
}

struct Pack<'a, T, F> {
    form: F,
    depth: Range<usize>,
    lanes: Range<usize>,
    width: usize,
    out: &'a mut [T],
}

impl<T: Real, F: Form<T>> Kernel<T> for Pack<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { form, depth, lanes, width, out } = self;
        for (row, k) in depth.enumerate() {
            for column in lanes.clone().step_by(LANES) {
                let to = row * width + column - lanes.start;
                // SAFETY: decodes elements of the given ranges only, which `pack` found to be within B; writes
                // within depth x width, of which width is a multiple of 16.
                unsafe {
                    let vector: V = match lanes.end - column {
                        LANES.. => form.vector(k, column, LANES),
                        few => form.vector(k, column, few),
                    };
                    vector.store_unchecked(out.as_mut_ptr().add(to));
                }
            }
        }
    }
}

fn pack<T: Real>(
    form: impl Form<T>,
    isa: Isa,
    depth: Range<usize>,
    lanes: Range<usize>,
    width: usize,
    out: &mut [T],
) {
    let (k, n) = form.extents();
    assert!(depth.end <= k && lanes.end <= n && lanes.len() <= width);
    assert!(width.is_multiple_of(LANES) && out.len() == depth.len() * width);
    T::dispatch(isa, Pack { form, depth, lanes, width, out });
}

impl<T: Real> PanelSource<T> for Bfloat16Panels<'_> {
    #[allow(private_interfaces)]
    fn streamed(&self) -> Option<Streamed<'_>> {
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
        pack(*self, isa, depth, lanes, width, out);
    }

    fn few_rows(&self) -> Option<&dyn FewRows<T>> {
        Some(self)
    }
}

impl<T: Real> PanelSource<T> for Int8Panels<'_, T> {
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
        pack(*self, isa, depth, lanes, width, out);
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
    /// The first of its columns among those that are packed, and how many it has.
    columns: (usize, usize),
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
        Self { packing, bytes, scales, columns: (0, packing.channels) }
    }

    /// Some columns of what was packed so.
    ///
    /// # Panics
    /// As [`new`](Self::new), or if there are not so many columns.
    pub fn of_columns(packing: Packing, bytes: &'a [u8], scales: &'a [f32], columns: Range<usize>) -> Self {
        assert!(columns.end <= packing.channels, "B has {} columns, not {}", packing.channels, columns.end);
        if packing.has_blocks() {
            // One column lies behind the other.
            let each = packing.bytes() / packing.channels;
            let bytes = &bytes[columns.start * each..columns.end * each];
            return Self::new(Packing { channels: columns.len(), ..packing }, bytes, scales);
        }
        Self { columns: (columns.start, columns.len()), ..Self::new(packing, bytes, scales) }
    }
}

impl<T: Real> PanelSource<T> for PackedPanels<'_> {
    fn depth(&self) -> usize {
        self.packing.rows
    }

    fn lanes(&self) -> usize {
        self.columns.1
    }

    fn is_packed(&self) -> bool {
        true
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, lanes: Range<usize>, width: usize, out: &mut [T]) {
        let (first, count) = self.columns;
        assert!(depth.end <= self.packing.rows && lanes.end <= count);
        let lanes = first + lanes.start..first + lanes.end;
        assert!(lanes.len() <= width && out.len() == depth.len() * width);
        self.packing.decode_tile(isa, (self.bytes, self.scales), depth, lanes, out, width);
    }

    #[allow(private_interfaces)]
    fn streamed(&self) -> Option<Streamed<'_>> {
        let whole = self.columns == (0, self.packing.channels);
        Streamed::new(self.packing, self.bytes, self.scales).filter(|_| whole)
    }
}
