//! The micro-kernels: exact sums of products of codes.

use super::limits::COLUMNS;
use super::route::Route;
use super::rows::QuantizedRows;
use crate::simd::{Decode, Kernel, Level, Real, Vector, Words, dispatch_quads};
use std::ops::Range;

/// The most rows of a tile.
pub(super) const MOST_ROWS: usize = 6;

/// Words of codes of 64 columns, row after row of k.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    pub words: &'a [i32],
}

/// The most rows of a tile, and its vectors of sixteen columns.
const fn shape(level: Level) -> (usize, usize) {
    match level {
        Level::Portable => (2, 1),
        Level::Avx2 => (6, 1),
        Level::Avx512 => (6, 4),
    }
}

/// What words of the left operand are too large by: 128 in each byte that is multiplied without a sign.
const OFFSET: i32 = -0x7F7F_7F80;

/// Some rows against a panel.
#[derive(Clone, Copy)]
struct Tiles {
    panel: *const i32,
    words: usize,
    a: *const u8,
    a_row: usize,
    sums: *mut i32,
    rows: usize,
}

/// Adds to the sums, four products a word or two.
struct Add<const QUADS: bool>(Tiles);

impl<const QUADS: bool> Kernel<f32> for Add<QUADS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        // SAFETY: `add`, which alone makes one of these, knows that the panel has `words` rows of 64 words, each
        // row of codes as many words from `a` on, and `sums` `rows` rows of 64; columns stay within 64.
        unsafe {
            for column in (0..COLUMNS).step_by(const { shape(V::LEVEL).1 * 16 }) {
                let Tiles { panel, sums, .. } = self.0;
                let at = Tiles { panel: panel.add(column), sums: sums.add(column), ..self.0 };
                match const { shape(V::LEVEL).1 } {
                    4 => at.columns::<V::Float32, 4, QUADS>(),
                    _ => at.columns::<V::Float32, 1, QUADS>(),
                }
            }
        }
    }
}

/// The sums of the products of words' parts, added.
///
/// # Safety
/// As [`Words::add_quads`], where those are asked for.
#[inline(always)]
unsafe fn dot<W: Words, const QUADS: bool>(sum: W, a: W, b: W) -> W {
    // SAFETY: the caller's promise.
    if QUADS { unsafe { sum.add_quads(a, b) } } else { sum.add_pairs(a, b) }
}

impl Tiles {
    /// # Safety
    /// As [`Add`] says, and as [`dot`].
    #[inline(always)]
    unsafe fn columns<V: Decode, const N: usize, const QUADS: bool>(mut self) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut offsets = [V::Words::splat(0); N];
            if QUADS {
                for word in 0..self.words {
                    for (j, offset) in offsets.iter_mut().enumerate() {
                        let right = load::<V>(self.panel.add(word * COLUMNS + j * 16));
                        *offset = dot::<_, QUADS>(*offset, V::Words::splat(OFFSET), right);
                    }
                }
            }
            while self.rows > 0 {
                let some = match self.rows {
                    1 => self.tile::<V, 1, N, QUADS>(&offsets),
                    _ if const { shape(V::LEVEL).0 == 2 } => self.tile::<V, 2, N, QUADS>(&offsets),
                    2 => self.tile::<V, 2, N, QUADS>(&offsets),
                    3 => self.tile::<V, 3, N, QUADS>(&offsets),
                    4 => self.tile::<V, 4, N, QUADS>(&offsets),
                    5 => self.tile::<V, 5, N, QUADS>(&offsets),
                    _ => self.tile::<V, MOST_ROWS, N, QUADS>(&offsets),
                };
                self.rows -= some;
                self.a = self.a.wrapping_add(some * self.a_row);
                self.sums = self.sums.wrapping_add(some * COLUMNS);
            }
        }
    }

    /// # Safety
    /// As `columns`.
    #[inline(always)]
    unsafe fn tile<V: Decode, const R: usize, const N: usize, const QUADS: bool>(
        &self,
        offsets: &[V::Words; N],
    ) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [[V::Words::splat(0); N]; R];
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = load::<V>(self.sums.add(i * COLUMNS + j * 16));
                    if QUADS {
                        *sum = sum.sub(offsets[j]);
                    }
                }
            }
            let (mut a, mut panel) = (self.a, self.panel);
            for _ in 0..self.words {
                let mut right = [V::Words::splat(0); N];
                for (j, right) in right.iter_mut().enumerate() {
                    *right = load::<V>(panel.add(j * 16));
                }
                for (i, row) in sums.iter_mut().enumerate() {
                    let left = a.wrapping_add(i * self.a_row).cast::<i32>().read_unaligned();
                    let left = V::Words::splat(left);
                    for (sum, right) in row.iter_mut().zip(right) {
                        *sum = dot::<_, QUADS>(*sum, left, right);
                    }
                }
                a = a.wrapping_add(4);
                panel = panel.wrapping_add(COLUMNS);
            }
            for (i, row) in sums.into_iter().enumerate() {
                for (j, sum) in row.into_iter().enumerate() {
                    sum.store(self.sums.add(i * COLUMNS + j * 16));
                }
            }
        }
        R
    }
}

/// # Safety
/// `from` is good for sixteen words.
#[inline(always)]
unsafe fn load<V: Decode>(from: *const i32) -> V::Words {
    // SAFETY: the caller's promise.
    unsafe { V::Words::load(from.cast()) }
}

/// Adds to `sums`, rows of 64, the products of some rows' codes from `k` on and a panel.
pub(super) fn add(
    route: Route,
    panel: Panel<'_>,
    quantized: &QuantizedRows<'_>,
    rows: Range<usize>,
    k: usize,
    sums: &mut [i32],
) {
    let words = panel.words.len() / COLUMNS;
    assert!(sums.len() >= rows.len() * COLUMNS && quantized.route() == route);
    assert!(rows.end <= quantized.len() && k + words * route.per() < quantized.depth() + route.per());
    if rows.is_empty() || words == 0 {
        return;
    }
    let tiles = Tiles {
        panel: panel.words.as_ptr(),
        words,
        a: quantized.at(rows.start, k),
        a_row: quantized.stride(),
        sums: sums.as_mut_ptr(),
        rows: rows.len(),
    };
    if route.per() == 4 {
        dispatch_quads(route.isa(), Add::<true>(tiles));
    } else {
        f32::dispatch(route.isa(), Add::<false>(tiles));
    }
}
