//! Products of numbers of bfloat16, two of them a word.
//!
//! An operand's words hold two numbers that follow each other along k, the first in the upper half; where k is odd, the
//! last word's lower half is +0 in the left operand and -0 in the right one, whose product changes no sum. Each
//! element of the result is what [`product`](super::product) makes of the same numbers, bit for bit.
//!
//! AVX512-BF16 multiplies and adds 32 of them an instruction, but takes subnormal numbers for zero. Whatever is added up
//! is a multiple of the product of the two operands' last places, so that no sum is subnormal where that is not; where
//! it is, and where C holds subnormal numbers to go on from, words are taken apart.

use super::block::Block;
use super::{Epilogue, NoEpilogue, Output, Start, Strided};
use crate::simd::{
    Cpu, Decode, Elementwise, Isa, Kernel, Real, Vector, Words, dispatch_bfloat16_pairs, has_bfloat16_pairs,
};
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The fewest rows for which rounding both operands to words is less than what is gained.
const FEWEST_ROWS: usize = 8;

/// Whether [`product_of_pairs`] is there on `isa`, and the faster way for so many rows.
///
/// Not every processor that has the instruction gains by it: Zen 4 starts as many of them as fused multiply-adds,
/// Sapphire Rapids a quarter. The first call measures it, in some microseconds. The bits are those of either way.
pub fn pairs_pay(isa: Isa, rows: usize) -> bool {
    static FAST: OnceLock<bool> = OnceLock::new();
    rows >= FEWEST_ROWS && has_bfloat16_pairs(isa) && *FAST.get_or_init(|| are_fast(isa))
}

/// Whether the instruction for two products takes less than one and a half times as long as that for one.
fn are_fast(isa: Isa) -> bool {
    let time = |run: &dyn Fn()| {
        let once = || {
            let begun = Instant::now();
            run();
            begun.elapsed()
        };
        // The shortest is the one that nobody interrupted.
        (0..8).map(|_| once()).min().unwrap_or(Duration::MAX)
    };
    let pairs = time(&|| dispatch_bfloat16_pairs(isa, Sums::<true>));
    pairs * 2 < time(&|| f32::dispatch(isa, Sums::<false>)) * 3
}

/// Some sums of products that do not wait for each other, of pairs or of numbers.
struct Sums<const PAIRS: bool>;

impl<const PAIRS: bool> Kernel<f32> for Sums<PAIRS> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let words = <V::Float32 as Decode>::Words::splat(black_box(0x3F80_3F80));
        let number = V::Float32::from_bits(words);
        let mut sums = [V::Float32::splat(0.0); 12];
        for _ in 0..200 {
            for sum in &mut sums {
                *sum = match PAIRS {
                    // SAFETY: `are_fast`, the only maker, enters with instructions for pairs.
                    true => unsafe { sum.add_bfloat16_pairs(words, words) },
                    false => number.mul_add(number, *sum),
                };
            }
        }
        black_box(sums);
    }
}

/// How an operand's rows in memory lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Along k: a row of numbers is a row of half as many words.
    Along,
    /// Across: two rows of numbers are one of as many words.
    Across,
}

/// An operand in words.
#[derive(Clone, Copy)]
pub struct Pairs<'a> {
    /// The words, in the type of the elements that they take the place of.
    pub words: &'a [f32],
    /// How they lie.
    pub rows: Rows,
    /// Words from one row of them to the next.
    pub stride: usize,
    /// The smallest exponent among numbers that are not zero, as it is stored, before rounding; 255 where there is none.
    pub least_exponent: u32,
}

impl<'a> Pairs<'a> {
    /// The rows of a left operand, the columns of a right one, from this on.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn from_lane(self, lane: usize) -> Self {
        let before = match self.rows {
            Rows::Along => lane * self.stride,
            Rows::Across => lane,
        };
        Self { words: &self.words[before..], ..self }
    }

    /// As an operand of so many terms and rows or columns.
    fn operand(&self, depth: usize, lanes: usize) -> Strided<'a, f32> {
        let depth = depth.div_ceil(2);
        match self.rows {
            Rows::Along => Strided::new(self.words, depth, lanes, 1, self.stride),
            Rows::Across => Strided::new(self.words, depth, lanes, self.stride, 1),
        }
    }

    /// Whether some products with the other's numbers may be subnormal.
    fn is_gradual(&self, other: &Self) -> bool {
        is_subnormal(self.least_exponent, other.least_exponent)
    }
}

/// Whether a product of two numbers with these exponents can be subnormal, or have places below those of normal ones.
fn is_subnormal(left: u32, right: u32) -> bool {
    // Stored exponents are 127 more than real ones, last places 7 below.
    let last_place = i64::from(left.max(1)) + i64::from(right.max(1)) - 2 * (127 + 7);
    left == 0 || right == 0 || last_place < i64::from(f32::MIN_EXP - 1)
}

/// Computes C = A B, or C += A B, over so many terms, then applies `epilogue`, spread over the pool.
///
/// # Panics
/// If the extents do not fit each other, and where [`pairs_pay`] says that there are no such instructions.
pub fn product_of_pairs(
    cpu: &Cpu,
    (a, b, depth): (Pairs<'_>, Pairs<'_>, usize),
    start: Start,
    epilogue: &dyn Epilogue<f32>,
    c: Output<'_, f32>,
) {
    let gradual = a.is_gradual(&b);
    let (a, b) = (a.operand(depth, c.rows), b.operand(depth, c.columns));
    Block::new(cpu.isa(), &a, &b, start, epilogue, &c).of_pairs(gradual).run(cpu.pool());
}

/// [`product_of_pairs`] without what follows it, on the calling thread alone: for use inside a pool's task.
///
/// # Panics
/// As [`product_of_pairs`].
pub fn product_of_pairs_serial(
    isa: Isa,
    (a, b, depth): (Pairs<'_>, Pairs<'_>, usize),
    start: Start,
    c: Output<'_, f32>,
) {
    let gradual = a.is_gradual(&b);
    let (a, b) = (a.operand(depth, c.rows), b.operand(depth, c.columns));
    Block::new(isa, &a, &b, start, &NoEpilogue, &c).of_pairs(gradual).run_serial();
}
