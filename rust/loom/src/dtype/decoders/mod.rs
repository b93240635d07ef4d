//! How groups of columns of rows of codes become terms of the sums of a product, in vectors.
//!
//! A group is as many columns as 64 bytes (or so) of one row of codes hold. Where codes have fewer than
//! eight bits, lane `j` of vector `i` is column `j * VECTORS + i`: each of the sixteen words of 32 bits then
//! gives one code after another to its own lane, and nothing has to be moved across lanes.

mod whole;

pub(crate) use whole::{BFloat16, Codes, Float16, Float32, Int8, Whole};
pub(super) use whole::{E4M3, E5M2, Int16, Uint8, Uint8Min, Uint16};

use crate::simd::{Decode, Words};

/// What is done with the decoder of a type.
pub(crate) trait WithDecoder {
    /// What comes of it.
    type Output;

    /// Does it.
    fn with<D: Decoder>(self) -> Self::Output;
}

/// Decodes the codes of a row and adds the row's terms.
pub(crate) trait Decoder: Copy {
    /// Vectors of a group.
    const VECTORS: usize;
    /// Bits of a code.
    const BITS: usize;
    /// Whether what is beyond a group's bytes may be read, up to this many bytes.
    const BEYOND: usize = 0;
    /// Whether a zero point is taken from codes.
    const ZEROS: bool = false;
    /// Whether a minimum is added to codes times scales.
    const MINIMA: bool = false;

    /// The group's column that a lane of a vector stands for.
    #[inline(always)]
    fn column(vector: usize, lane: usize) -> usize {
        vector * 16 + lane
    }

    /// The bits of the least magnitude of a scale that it cannot do with.
    const SCALES: u32 = f32::INFINITY.to_bits();

    /// What the kernel wants for a scale.
    fn scale(scale: f32) -> f32 {
        scale
    }

    /// Adds to `sums[i][j]` the product of `a[i]` and the weights of vector `first + j`.
    ///
    /// # Safety
    /// `codes` has a group's bytes and those beyond, `first + N` is at most `VECTORS` and
    /// `first` a multiple of `N`, which is 4 or 8.
    unsafe fn step<V: Decode, const R: usize, const N: usize>(
        codes: *const u8,
        first: usize,
        fits: &Fits<V, N>,
        a: [f32; R],
        sums: &mut [[V; N]; R],
    );
}

/// The scales of some vectors of columns, and their zero points or minima.
pub(crate) struct Fits<V, const N: usize> {
    pub scales: [V; N],
    /// Anything where the decoder takes none.
    pub zeros: [V; N],
}

/// Adds decoded weights.
#[allow(clippy::needless_range_loop, reason = "iterators that are not inlined keep sums out of registers")]
#[inline(always)]
fn add<V: Decode, const R: usize, const N: usize>(a: [f32; R], weights: [V; N], sums: &mut [[V; N]; R]) {
    for i in 0..R {
        let a = V::splat(a[i]);
        for j in 0..N {
            sums[i][j] = a.mul_add(weights[j], sums[i][j]);
        }
    }
}

/// Small floats of eight bits, `DOWN` of them sign and exponent but for the sign, times a scale.
#[derive(Clone, Copy)]
pub(super) struct SmallFloat<const DOWN: u32>;

impl<const DOWN: u32> SmallFloat<DOWN> {
    /// Their exponent's bits are the highest of a number's, so that they come out too small by a power of
    /// two, which the scale makes good: exactly, also where what comes out is denormal.
    const POWER: i32 = if DOWN == 4 { 120 } else { 112 };
}

impl<const DOWN: u32> Decoder for SmallFloat<DOWN> {
    const VECTORS: usize = 8;
    const BITS: usize = 8;
    /// Those that become infinite.
    const SCALES: u32 = ((255 - Self::POWER) << 23) as u32;

    #[inline(always)]
    fn column(vector: usize, lane: usize) -> usize {
        vector / 4 * 64 + lane * 4 + vector % 4
    }

    fn scale(scale: f32) -> f32 {
        scale * f32::from_bits(((Self::POWER + 127) as u32) << 23)
    }

    #[inline(always)]
    unsafe fn step<V: Decode, const R: usize, const N: usize>(
        codes: *const u8,
        first: usize,
        fits: &Fits<V, N>,
        a: [f32; R],
        sums: &mut [[V; N]; R],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut weights = fits.scales;
            for (j, weight) in weights.iter_mut().enumerate() {
                let words = V::Words::load(codes.add((first + j) / 4 * 64));
                *weight = V::small_float(words, j as u32 % 4, DOWN) * *weight;
            }
            add(a, weights, sums);
        }
    }
}

/// What a code of four bits stands for.
pub(super) trait Table: Copy {
    /// By code.
    const NUMBERS: [f32; 16];
    /// Whether a zero point is taken from it.
    const ZEROS: bool = false;
    /// Whether a minimum is added to it times the scale.
    const MINIMA: bool = false;
}

/// int4's.
#[derive(Clone, Copy)]
pub(super) struct Int4;

impl Table for Int4 {
    const NUMBERS: [f32; 16] =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0];
}

/// float4_e2m1's.
#[derive(Clone, Copy)]
pub(super) struct Float4;

impl Table for Float4 {
    const NUMBERS: [f32; 16] =
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
}

/// uint4's.
#[derive(Clone, Copy)]
pub(super) struct Uint4;

impl Table for Uint4 {
    const NUMBERS: [f32; 16] =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    const ZEROS: bool = true;
}

/// uint4_min's.
#[derive(Clone, Copy)]
pub(super) struct Uint4Min;

impl Table for Uint4Min {
    const NUMBERS: [f32; 16] = Uint4::NUMBERS;
    const MINIMA: bool = true;
}

/// q4_0's.
#[derive(Clone, Copy)]
pub(super) struct Offset;

impl Table for Offset {
    const NUMBERS: [f32; 16] =
        [-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
}

/// Codes of four bits, looked up, times a scale.
#[derive(Clone, Copy)]
pub(super) struct FourBits<T>(std::marker::PhantomData<T>);

impl<T: Table> Decoder for FourBits<T> {
    const VECTORS: usize = 8;
    const BITS: usize = 4;
    const BEYOND: usize = 4;
    const ZEROS: bool = T::ZEROS;
    const MINIMA: bool = T::MINIMA;

    #[inline(always)]
    fn column(vector: usize, lane: usize) -> usize {
        lane * Self::VECTORS + vector
    }

    #[inline(always)]
    unsafe fn step<V: Decode, const R: usize, const N: usize>(
        codes: *const u8,
        first: usize,
        fits: &Fits<V, N>,
        a: [f32; R],
        sums: &mut [[V; N]; R],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let table = V::load(&T::NUMBERS);
            let codes = codes.add(first / 2);
            let mut weights = fits.scales;
            for (j, weight) in weights.iter_mut().enumerate() {
                // What is a whole byte further is loaded, which costs less than to be shifted.
                let words = V::Words::load(codes.add(j / 2));
                let words = if j % 2 == 0 { words } else { words.shift_right(4) };
                let number = table.look_up(words);
                let number = if T::ZEROS { number - fits.zeros[j] } else { number };
                let scaled = number * *weight;
                *weight = if T::MINIMA { scaled + fits.zeros[j] } else { scaled };
            }
            add(a, weights, sums);
        }
    }
}

/// Bytes of which the lower four bits, or the upper, are a code, looked up, times a scale.
#[derive(Clone, Copy)]
pub(super) struct Nibbles<T, const UPPER: bool>(std::marker::PhantomData<T>);

impl<T: Table, const UPPER: bool> Decoder for Nibbles<T, UPPER> {
    const VECTORS: usize = 8;
    const BITS: usize = 8;

    #[inline(always)]
    unsafe fn step<V: Decode, const R: usize, const N: usize>(
        codes: *const u8,
        first: usize,
        fits: &Fits<V, N>,
        a: [f32; R],
        sums: &mut [[V; N]; R],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let table = V::load(&T::NUMBERS);
            let mut weights = fits.scales;
            for (j, weight) in weights.iter_mut().enumerate() {
                let words = V::Words::bytes(codes.add((first + j) * 16));
                let words = if UPPER { words.shift_right(4) } else { words };
                *weight = table.look_up(words) * *weight;
            }
            add(a, weights, sums);
        }
    }
}

/// Codes of two bits: 0, 1, -2 and -1 times a scale.
///
/// For one row, what is looked up is a code's number times `a`, which is exact: its product with the scale is
/// that of `a` and the weight, which is exact too, so that the terms are the same, at one multiplication less.
#[derive(Clone, Copy)]
pub(super) struct TwoBits;

impl Decoder for TwoBits {
    const VECTORS: usize = 16;
    const BITS: usize = 2;
    const BEYOND: usize = 4;

    #[inline(always)]
    fn column(vector: usize, lane: usize) -> usize {
        lane * Self::VECTORS + vector
    }

    #[inline(always)]
    unsafe fn step<V: Decode, const R: usize, const N: usize>(
        codes: *const u8,
        first: usize,
        fits: &Fits<V, N>,
        a: [f32; R],
        sums: &mut [[V; N]; R],
    ) {
        const LOW: [f32; 16] =
            [0.0, 1.0, -2.0, -1.0, 0.0, 1.0, -2.0, -1.0, 0.0, 1.0, -2.0, -1.0, 0.0, 1.0, -2.0, -1.0];
        const HIGH: [f32; 16] =
            [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, -2.0, -2.0, -2.0, -2.0, -1.0, -1.0, -1.0, -1.0];
        // SAFETY: the caller's promise.
        unsafe {
            let (low, high) = (V::load(&LOW), V::load(&HIGH));
            let codes = codes.add(first / 4);
            let mut weights = fits.scales;
            let (low_a, high_a) = (low * V::splat(a[0]), high * V::splat(a[0]));
            for j in 0..N / 2 {
                // Two codes are looked up with the same bits, by either half of them.
                let words = V::Words::load(codes.add(j / 2));
                let words = if j % 2 == 0 { words } else { words.shift_right(4) };
                let (even, odd) = (2 * j, 2 * j + 1);
                if R == 1 {
                    sums[0][even] = low_a.look_up(words).mul_add(fits.scales[even], sums[0][even]);
                    sums[0][odd] = high_a.look_up(words).mul_add(fits.scales[odd], sums[0][odd]);
                } else {
                    weights[even] = low.look_up(words) * fits.scales[even];
                    weights[odd] = high.look_up(words) * fits.scales[odd];
                }
            }
            if R > 1 {
                add(a, weights, sums);
            }
        }
    }
}

/// Codes of two bits less a zero point, times a scale; or times a scale, and a minimum.
#[derive(Clone, Copy)]
pub(super) struct UnsignedTwoBits<const MINIMA: bool>;

/// uint2's.
pub(super) type Uint2 = UnsignedTwoBits<false>;
/// uint2_min's.
pub(super) type Uint2Min = UnsignedTwoBits<true>;

impl<const MINIMA: bool> Decoder for UnsignedTwoBits<MINIMA> {
    const VECTORS: usize = 16;
    const BITS: usize = 2;
    const BEYOND: usize = 4;
    const ZEROS: bool = !MINIMA;
    const MINIMA: bool = MINIMA;

    #[inline(always)]
    fn column(vector: usize, lane: usize) -> usize {
        lane * Self::VECTORS + vector
    }

    #[inline(always)]
    unsafe fn step<V: Decode, const R: usize, const N: usize>(
        codes: *const u8,
        first: usize,
        fits: &Fits<V, N>,
        a: [f32; R],
        sums: &mut [[V; N]; R],
    ) {
        const LOW: [f32; 16] =
            [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0];
        const HIGH: [f32; 16] =
            [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0];
        // SAFETY: the caller's promise.
        unsafe {
            let tables = [V::load(&LOW), V::load(&HIGH)];
            let codes = codes.add(first / 4);
            let mut weights = fits.scales;
            for (j, weight) in weights.iter_mut().enumerate() {
                let words = V::Words::load(codes.add(j / 4));
                let words = if j / 2 % 2 == 0 { words } else { words.shift_right(4) };
                let number = tables[j % 2].look_up(words);
                *weight = match MINIMA {
                    false => (number - fits.zeros[j]) * *weight,
                    true => number * *weight + fits.zeros[j],
                };
            }
            add(a, weights, sums);
        }
    }
}

/// Codes of one bit: 1 or -1 times a scale.
#[derive(Clone, Copy)]
pub(super) struct OneBit;

impl Decoder for OneBit {
    const VECTORS: usize = 16;
    const BITS: usize = 1;

    /// That of a bit that is 0; the others turn it round.
    fn scale(scale: f32) -> f32 {
        -scale
    }

    #[inline(always)]
    unsafe fn step<V: Decode, const R: usize, const N: usize>(
        codes: *const u8,
        first: usize,
        fits: &Fits<V, N>,
        a: [f32; R],
        sums: &mut [[V; N]; R],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut weights = fits.scales;
            for (j, weight) in weights.iter_mut().enumerate() {
                let bits = codes.add((first + j) * 2).cast::<u16>().read_unaligned();
                *weight = weight.negate_where(u16::from_le(bits));
            }
            add(a, weights, sums);
        }
    }
}
