//! Types whose codes are whole bytes, sixteen of which are a vector's lanes as they lie in memory.

use super::{Decoder, Fits, add};
use crate::simd::{Decode, Words};
use std::marker::PhantomData;

/// A type with whole bytes to a code.
pub(crate) trait Codes: Copy {
    /// Bits of a code.
    const BITS: usize;
    /// Whether numbers are multiplied by a scale, ...
    const SCALED: bool = true;
    /// ... and less a zero point before, ...
    const ZEROS: bool = false;
    /// ... or a minimum is added after.
    const MINIMA: bool = false;

    /// The numbers of sixteen codes.
    ///
    /// # Safety
    /// `from` is good for reading so many.
    unsafe fn numbers<V: Decode>(from: *const u8) -> V;
}

/// How such a type is decoded.
#[derive(Clone, Copy)]
pub(crate) struct Whole<C>(PhantomData<C>);

impl<C: Codes> Decoder for Whole<C> {
    const VECTORS: usize = 8;
    const BITS: usize = C::BITS;
    const ZEROS: bool = C::ZEROS;
    const MINIMA: bool = C::MINIMA;

    #[allow(clippy::needless_range_loop, reason = "as in `add`")]
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
            for j in 0..N {
                let number: V = C::numbers(codes.add((first + j) * 2 * C::BITS));
                let number = if C::ZEROS { number - fits.zeros[j] } else { number };
                let scaled = if C::SCALED { number * weights[j] } else { number };
                weights[j] = if C::MINIMA { scaled + fits.zeros[j] } else { scaled };
            }
            add(a, weights, sums);
        }
    }
}

macro_rules! codes {
    ($name:ident, $bits:literal, $scaled:literal, $zeros:literal, $vector:ident, $from:ident => $numbers:expr,
     $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Codes for $name {
            const BITS: usize = $bits;
            const SCALED: bool = $scaled;
            const ZEROS: bool = $zeros;

            #[inline(always)]
            unsafe fn numbers<$vector: Decode>($from: *const u8) -> $vector {
                // SAFETY: the caller's promise.
                unsafe { $numbers }
            }
        }
    };
}

codes!(Float32, 32, false, false, V, from => V::load_unchecked(from.cast()), "Full precision.");
codes!(Float16, 16, false, false, V, from => V::float16(from), "binary16.");
codes!(BFloat16, 16, false, false, V, from => V::bfloat16(from), "The upper half of a number's bits.");
codes!(Int16, 16, true, false, V, from => V::from_integers(V::Words::signed_halves(from)), "Signed integers of 16 bits.");
codes!(Int8, 8, true, false, V, from => V::from_integers(V::Words::signed_bytes(from)), "Signed bytes.");
codes!(Uint16, 16, true, true, V, from => V::from_integers(V::Words::halves(from)), "Integers of 16 bits.");
codes!(Uint8, 8, true, true, V, from => V::from_integers(V::Words::bytes(from)), "Bytes.");
/// Bytes, times a scale, and a minimum.
#[derive(Clone, Copy)]
pub(crate) struct Uint8Min;

impl Codes for Uint8Min {
    const BITS: usize = 8;
    const MINIMA: bool = true;

    #[inline(always)]
    unsafe fn numbers<V: Decode>(from: *const u8) -> V {
        // SAFETY: the caller's promise.
        unsafe { Uint8::numbers(from) }
    }
}

codes!(E4M3, 8, true, false, V, from => small_float::<V, 4>(from), "Floats of 4 bits of exponent.");
codes!(E5M2, 8, true, false, V, from => small_float::<V, 3>(from), "Floats of 5 bits of exponent.");

/// Small floats whose sign and exponent are `DOWN` bits (but for the sign), exactly.
///
/// # Safety
/// As [`Codes::numbers`].
#[inline(always)]
unsafe fn small_float<V: Decode, const DOWN: u32>(from: *const u8) -> V {
    let power: u32 = if DOWN == 4 { 120 } else { 112 };
    // SAFETY: the caller's promise.
    let words = unsafe { V::Words::bytes(from) };
    V::small_float(words, 0, DOWN) * V::splat(f32::from_bits((power + 127) << 23))
}
