//! The micro-kernels: exact sums of products of codes.

use super::COLUMNS;
use super::rows::QuantizedRows;
use crate::simd::{Isa, Level};
use std::ops::Range;

/// The most rows of a tile.
pub(super) const MOST_ROWS: usize = 6;

/// The instructions that products of codes are summed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    isa: Isa,
    /// Whether four products an instruction are there: AVX-512 VNNI. Private, as an `Isa`'s level is.
    quads: bool,
}

impl Route {
    /// The fastest of an instruction set on this machine.
    pub fn best(isa: Isa) -> Self {
        Self { isa, quads: has_quads(isa) }
    }

    /// Every route of this machine.
    pub fn available() -> Vec<Self> {
        let plain = Isa::available().into_iter().map(|isa| Self { isa, quads: false });
        let quads = Isa::available().into_iter().filter(|isa| has_quads(*isa));
        plain.chain(quads.map(|isa| Self { isa, quads: true })).collect()
    }

    /// The instruction set it is of.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// Codes along k in a word of 32 bits.
    pub(super) fn per(self) -> usize {
        if self.quads { 4 } else { 2 }
    }

    /// Bytes of a row's code.
    pub fn code_bytes(self) -> usize {
        4 / self.per()
    }
}

/// Whether a machine on which `isa` is used has AVX-512 VNNI too.
fn has_quads(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa.level() == Level::Avx512 && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    return isa.level() > Level::Avx512;
}

/// Words of codes of 64 columns, row after row of k.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    pub words: &'a [i32],
}

/// Sixteen sums.
///
/// # Safety
/// All methods may be called only where the instruction set that the type stands for has been found at run
/// time; pointers must be good for sixteen words, or for one to broadcast. Nothing need be aligned.
trait Dots: Copy {
    /// The most rows of a tile, and its vectors of sixteen columns.
    const ROWS: usize;
    const VECTORS: usize;
    /// A word by which the panel's products are taken off the sums again; 0 for none.
    const OFFSET: i32;
    unsafe fn load(from: *const i32) -> Self;
    unsafe fn splat(word: i32) -> Self;
    unsafe fn store(self, to: *mut i32);
    /// The sums of the products of a word's parts, added.
    unsafe fn dot(self, a: Self, b: Self) -> Self;
    unsafe fn minus(self, other: Self) -> Self;
}

/// Two products a word, one by one.
#[derive(Clone, Copy)]
struct Plain([i32; 16]);

impl Dots for Plain {
    const ROWS: usize = 2;
    const VECTORS: usize = 1;
    const OFFSET: i32 = 0;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { from.cast::<[i32; 16]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn splat(word: i32) -> Self {
        Self([word; 16])
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut i32) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[i32; 16]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn dot(mut self, a: Self, b: Self) -> Self {
        for (sum, (a, b)) in self.0.iter_mut().zip(a.0.into_iter().zip(b.0)) {
            let (low, high) = (i32::from(a as i16) * i32::from(b as i16), (a >> 16) * (b >> 16));
            *sum = sum.wrapping_add(low).wrapping_add(high);
        }
        self
    }

    #[inline(always)]
    unsafe fn minus(self, _: Self) -> Self {
        self
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Dots;
    use std::arch::x86_64::*;

    /// An unsafe block of the one kind that this module has.
    macro_rules! trust {
        ($($body:tt)*) => {{
            // SAFETY: [`Dots`]'s promise, on which everything here is called: the instruction set was found,
            // and pointers are good for what is read and written.
            unsafe { $($body)* }
        }};
    }

    /// Four products a word: of bytes without a sign, which have 128 added, and bytes with one.
    #[derive(Clone, Copy)]
    pub struct Quads(__m512i);

    /// Two products a word, of 16 bits.
    #[derive(Clone, Copy)]
    pub struct Pairs512(__m512i);

    /// The same in two halves.
    #[derive(Clone, Copy)]
    pub struct Pairs256(__m256i, __m256i);

    macro_rules! one_register {
        ($name:ident, $offset:literal, |$sum:ident, $a:ident, $b:ident| $dot:expr) => {
            impl Dots for $name {
                const ROWS: usize = 6;
                const VECTORS: usize = 4;
                const OFFSET: i32 = $offset;

                #[inline(always)]
                unsafe fn load(from: *const i32) -> Self {
                    Self(trust! { _mm512_loadu_si512(from.cast()) })
                }

                #[inline(always)]
                unsafe fn splat(word: i32) -> Self {
                    Self(trust! { _mm512_set1_epi32(word) })
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut i32) {
                    trust! { _mm512_storeu_si512(to.cast(), self.0) }
                }

                #[inline(always)]
                unsafe fn dot(self, a: Self, b: Self) -> Self {
                    let ($sum, $a, $b) = (self.0, a.0, b.0);
                    Self(trust! { $dot })
                }

                #[inline(always)]
                unsafe fn minus(self, other: Self) -> Self {
                    Self(trust! { _mm512_sub_epi32(self.0, other.0) })
                }
            }
        };
    }

    // 0x80 in each byte: 128 times the panel's sums is what the added 128s are too much.
    one_register!(Quads, -0x7F7F_7F80, |sum, a, b| _mm512_dpbusd_epi32(sum, a, b));
    one_register!(Pairs512, 0, |sum, a, b| _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)));

    impl Dots for Pairs256 {
        const ROWS: usize = 6;
        const VECTORS: usize = 1;
        const OFFSET: i32 = 0;

        #[inline(always)]
        unsafe fn load(from: *const i32) -> Self {
            trust! { Self(_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast())) }
        }

        #[inline(always)]
        unsafe fn splat(word: i32) -> Self {
            let all = trust! { _mm256_set1_epi32(word) };
            Self(all, all)
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut i32) {
            trust! {
                _mm256_storeu_si256(to.cast(), self.0);
                _mm256_storeu_si256(to.add(8).cast(), self.1);
            }
        }

        #[inline(always)]
        unsafe fn dot(self, a: Self, b: Self) -> Self {
            trust! {
                Self(
                    _mm256_add_epi32(self.0, _mm256_madd_epi16(a.0, b.0)),
                    _mm256_add_epi32(self.1, _mm256_madd_epi16(a.1, b.1)),
                )
            }
        }

        #[inline(always)]
        unsafe fn minus(self, other: Self) -> Self {
            trust! { Self(_mm256_sub_epi32(self.0, other.0), _mm256_sub_epi32(self.1, other.1)) }
        }
    }
}

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

impl Tiles {
    /// Adds to the sums.
    ///
    /// # Safety
    /// As [`Dots`]; the panel has `words` rows of 64 words, each row of codes as many words from `a` on, and
    /// `sums` has `rows` rows of 64.
    #[inline(always)]
    unsafe fn run<D: Dots>(self) {
        // SAFETY: the caller's promise; columns stay within 64.
        unsafe {
            for column in (0..COLUMNS).step_by(D::VECTORS * 16) {
                let at = Tiles { panel: self.panel.add(column), sums: self.sums.add(column), ..self };
                if D::VECTORS == 4 { at.columns::<D, 4>() } else { at.columns::<D, 1>() }
            }
        }
    }

    #[inline(always)]
    unsafe fn columns<D: Dots, const N: usize>(mut self) {
        // SAFETY: as `run`.
        unsafe {
            let mut offsets = [D::splat(0); N];
            if D::OFFSET != 0 {
                let all = D::splat(D::OFFSET);
                for word in 0..self.words {
                    for (j, offset) in offsets.iter_mut().enumerate() {
                        *offset = offset.dot(all, D::load(self.panel.add(word * COLUMNS + j * 16)));
                    }
                }
            }
            while self.rows > 0 {
                let some = match self.rows.min(D::ROWS) {
                    1 => self.tile::<D, 1, N>(&offsets),
                    2 => self.tile::<D, 2, N>(&offsets),
                    3 => self.tile::<D, 3, N>(&offsets),
                    4 => self.tile::<D, 4, N>(&offsets),
                    5 => self.tile::<D, 5, N>(&offsets),
                    _ => self.tile::<D, MOST_ROWS, N>(&offsets),
                };
                self.rows -= some;
                self.a = self.a.wrapping_add(some * self.a_row);
                self.sums = self.sums.wrapping_add(some * COLUMNS);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<D: Dots, const R: usize, const N: usize>(&self, offsets: &[D; N]) -> usize {
        // SAFETY: as `run`.
        unsafe {
            let mut sums = [[D::splat(0); N]; R];
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = D::load(self.sums.add(i * COLUMNS + j * 16));
                    if D::OFFSET != 0 {
                        *sum = sum.minus(offsets[j]);
                    }
                }
            }
            let (mut a, mut panel) = (self.a, self.panel);
            for _ in 0..self.words {
                let mut right = [D::splat(0); N];
                for (j, right) in right.iter_mut().enumerate() {
                    *right = D::load(panel.add(j * 16));
                }
                for (i, row) in sums.iter_mut().enumerate() {
                    let left = D::splat(a.wrapping_add(i * self.a_row).cast::<i32>().read_unaligned());
                    for (sum, right) in row.iter_mut().zip(right) {
                        *sum = sum.dot(left, right);
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
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
        unsafe fn quads(tiles: Tiles) {
            // SAFETY: as `Tiles::run`.
            unsafe { tiles.run::<x86::Quads>() }
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn pairs512(tiles: Tiles) {
            // SAFETY: as `Tiles::run`.
            unsafe { tiles.run::<x86::Pairs512>() }
        }
        #[target_feature(enable = "avx2,fma")]
        unsafe fn pairs256(tiles: Tiles) {
            // SAFETY: as `Tiles::run`.
            unsafe { tiles.run::<x86::Pairs256>() }
        }
        match (route.isa.level(), route.quads) {
            // SAFETY: a route has quads only where VNNI was found, and an `Isa` proves the rest; panel, codes
            // and sums are as long as asserted, and codes may be read beyond a row's end.
            (Level::Avx512, true) => return unsafe { quads(tiles) },
            // SAFETY: as above.
            (Level::Avx512, false) => return unsafe { pairs512(tiles) },
            // SAFETY: as above.
            (Level::Avx2, _) => return unsafe { pairs256(tiles) },
            (Level::Portable, _) => {}
        }
    }
    // SAFETY: as above; no instruction set is needed.
    unsafe { tiles.run::<Plain>() }
}
