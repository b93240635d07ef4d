//! The two element types that networks compute in, the vectors of them, and kernels written for both.

use super::float16::to_bfloat16;
use super::isa::{Isa, Level};
use super::math::Math;
use crate::precision::Precision;
use std::fmt::{Debug, Display};
use std::hint::black_box;
use std::ops::{AddAssign, DivAssign, MulAssign, SubAssign};

/// `f32` or `f64`.
///
/// Elementwise arithmetic (`mul_add`, `sqrt`, `abs`, `select` and the rest)
/// comes from [`Elementwise`](super::Elementwise), `exp` and its kin from
/// [`Math`]; their results are the same on every machine.
pub trait Real:
    bytemuck::Pod
    + Math<Element = Self, Mask = bool>
    + PartialOrd
    + Display
    + Debug
    + Default
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + std::iter::Sum
    + Send
    + Sync
    + 'static
{
    /// Which of the two it is.
    const PRECISION: Precision;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// Not a number.
    const NAN: Self;
    /// The distance from 1 to the next larger number.
    const EPSILON: Self;
    /// The least positive normal number.
    const MIN_POSITIVE: Self;

    /// The vector of 16 lanes that every machine has.
    type Portable: Vector<Element = Self>;

    /// The nearest number to `value`.
    fn from_f64(value: f64) -> Self;
    /// The nearest number to `value`.
    fn from_usize(value: usize) -> Self;
    /// The same number as `f64`, exactly.
    fn to_f64(self) -> f64;
    /// The nearest `f32`.
    fn to_f32(self) -> f32;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
    /// The bits, zero-extended, to compare or to print.
    fn to_bits_u64(self) -> u64;

    /// Runs `kernel` compiled for `isa`, with the vectors written for it.
    ///
    /// Code for an instruction set is entered here alone, but for kernels that use [`Words::add_quads`] or
    /// [`Decode::add_bfloat16_pairs`].
    fn dispatch<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output;

    /// [`dispatch`](Self::dispatch) in single precision, portable code in double: for what double precision
    /// seldom does, and code for every instruction set would only take room.
    fn dispatch_single<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output;
}

/// As many as asked for, each made from its place: [`std::array::from_fn`] in a tenth of the code for the
/// compiler, for what kernels do in every instance. The first is made twice.
#[inline(always)]
pub(crate) fn array_of<T: Copy, const N: usize>(each: impl Fn(usize) -> T) -> [T; N] {
    let mut all = [each(0); N];
    let mut place = 1;
    while place < N {
        all[place] = each(place);
        place += 1;
    }
    all
}

/// The lanes of every [`Vector`], on every instruction set.
pub const LANES: usize = 16;

/// 16 elements, operated on together.
///
/// Element `i` of an extent belongs to lane `i % 16`, so sums taken lane by
/// lane and finished with [`Vector::reduce_sum`] come out the same wherever
/// they run.
pub trait Vector: Math<Element: Real> + Send + Sync + 'static {
    /// The instruction set it is written for, so that a kernel can choose its
    /// tile's size; the order of sums must not depend on it.
    const LEVEL: Level;

    /// The vectors of `f32` of the same instruction set.
    type Float32: Decode;

    /// Each number as an element, exactly.
    fn from_f32(numbers: Self::Float32) -> Self;

    /// The first 16 elements; panics where there are fewer.
    fn load(from: &[Self::Element]) -> Self;

    /// The first elements, at most 16; lanes past the slice's end are 0.
    fn load_partial(from: &[Self::Element]) -> Self;

    /// 16 elements from `from` on, which needs no alignment.
    ///
    /// # Safety
    /// `from` must be valid for reading 16 elements.
    unsafe fn load_unchecked(from: *const Self::Element) -> Self;

    /// Writes the first 16 elements; panics where there are fewer.
    fn store(self, to: &mut [Self::Element]);

    /// Writes the first elements, at most 16; lanes past the slice's end are dropped.
    fn store_partial(self, to: &mut [Self::Element]);

    /// Writes 16 elements from `to` on, which needs no alignment.
    ///
    /// # Safety
    /// `to` must be valid for writing 16 elements.
    unsafe fn store_unchecked(self, to: *mut Self::Element);

    /// The lanes as an array.
    #[inline(always)]
    fn to_array(self) -> [Self::Element; LANES] {
        let mut lanes = [Self::Element::ZERO; LANES];
        self.store(&mut lanes);
        lanes
    }

    /// The 32 elements of `self` and `other` sorted apart: those at even places, those at odd ones.
    fn unzip(self, other: Self) -> (Self, Self);

    /// Every lane moved to the next; the first is 0.
    fn shift_up(self) -> Self;

    /// Every lane moved to the one before; the last is 0.
    fn shift_down(self) -> Self;

    /// A mask of the first `count` lanes (all of them from 16 on).
    fn first_lanes(count: usize) -> Self::Mask;

    /// The sum of the lanes by the fixed tree: lane `i` with `i + 8`, then
    /// `i + 4`, `i + 2`, `i + 1`.
    fn reduce_sum(self) -> Self::Element;

    /// The largest lane by the same tree with `max`, the lower
    /// lane on the left: where there is a NaN, the result is one that the tree
    /// decides, the same everywhere.
    fn reduce_max(self) -> Self::Element;

    /// The smallest lane, as [`Vector::reduce_max`].
    fn reduce_min(self) -> Self::Element;

    /// Turns rows into columns: vector `j` then holds lane `j` of each of the 16 vectors.
    fn transpose(block: &mut [Self; LANES]);
}

/// Sixteen places in memory at one distance from another, such as the blocks of sixteen columns.
#[derive(Clone, Copy)]
pub struct Sixteen {
    /// Every fourth: with the distance and three times that, all are one addition away.
    fourths: [*const u8; 4],
    distance: usize,
}

impl Sixteen {
    /// From `first` on.
    #[inline(always)]
    pub fn new(first: *const u8, distance: usize) -> Self {
        Self { fourths: array_of(|i| first.wrapping_add(4 * i * distance)), distance }
    }

    /// One of them.
    #[inline(always)]
    pub fn at(&self, place: usize) -> *const u8 {
        self.fourths[place / 4].wrapping_add(place % 4 * self.distance)
    }

    /// All of them, moved by so many bytes.
    #[inline(always)]
    pub fn advance(&mut self, bytes: usize) {
        for fourth in &mut self.fourths {
            // Seen through, the compiler would move sixteen addresses, most of them in memory.
            *fourth = black_box(fourth.wrapping_add(bytes));
        }
    }
}

/// Sixteen words of 32 bits, and what sums of products of integers and decoders of packed numbers do with them.
///
/// Addresses need no alignment.
pub trait Words: Copy + Send + Sync + 'static {
    /// `word` sixteen times.
    fn splat(word: i32) -> Self;

    /// Words of four bytes each, the first in the lowest bits.
    ///
    /// # Safety
    /// `from` must be valid for reading 64 bytes.
    unsafe fn load(from: *const u8) -> Self;

    /// Writes the words.
    ///
    /// # Safety
    /// `to` must be valid for writing 16 words.
    unsafe fn store(self, to: *mut i32);

    /// Words of a byte each.
    ///
    /// # Safety
    /// `from` must be valid for reading 16 bytes.
    unsafe fn bytes(from: *const u8) -> Self;

    /// Words of a byte each, with its sign.
    ///
    /// # Safety
    /// As [`bytes`](Words::bytes).
    unsafe fn signed_bytes(from: *const u8) -> Self;

    /// Words of two bytes each, the first in the lowest bits.
    ///
    /// # Safety
    /// `from` must be valid for reading 32 bytes.
    unsafe fn halves(from: *const u8) -> Self;

    /// Words of two bytes each, with their sign.
    ///
    /// # Safety
    /// As [`halves`](Words::halves).
    unsafe fn signed_halves(from: *const u8) -> Self;

    /// The bits moved up by fewer than 32 places; zeros come in.
    fn shift_left(self, bits: u32) -> Self;

    /// The bits moved down by fewer than 32 places; zeros come in.
    fn shift_right(self, bits: u32) -> Self;

    /// The bits moved down by fewer than 32 places; copies of the sign come in.
    fn shift_right_signed(self, bits: u32) -> Self;

    /// The bits that are set in both.
    fn and(self, other: Self) -> Self;

    /// The bits that are set in either.
    fn or(self, other: Self) -> Self;

    /// The bits that are set in one of them.
    fn xor(self, other: Self) -> Self;

    /// The difference, which wraps around.
    fn sub(self, other: Self) -> Self;

    /// Adds the products of the halves of each word of `a` and `b`, as signed integers of 16 bits.
    fn add_pairs(self, a: Self, b: Self) -> Self;

    /// Adds the products of the bytes of each word: of `a` without a sign, of `b` with one.
    ///
    /// # Safety
    /// The code must have been entered by `dispatch_quads`.
    #[inline(always)]
    unsafe fn add_quads(self, a: Self, b: Self) -> Self {
        let (mut sums, mut left, mut right) = ([0; LANES], [0i32; LANES], [0i32; LANES]);
        // SAFETY: arrays of 16 words.
        unsafe {
            self.store(sums.as_mut_ptr());
            a.store(left.as_mut_ptr());
            b.store(right.as_mut_ptr());
        }
        for (sum, (a, b)) in sums.iter_mut().zip(left.into_iter().zip(right)) {
            for (a, b) in a.to_le_bytes().into_iter().zip(b.to_le_bytes()) {
                *sum = sum.wrapping_add(i32::from(a) * i32::from(b as i8));
            }
        }
        // SAFETY: as above.
        unsafe { Self::load(sums.as_ptr().cast()) }
    }

    /// Adds the products of the bytes of each word: of `a` without a sign and at most 15, of `b` with one.
    ///
    /// # Safety
    /// With `QUADS`, as [`add_quads`](Words::add_quads).
    #[inline(always)]
    unsafe fn add_small_quads<const QUADS: bool>(self, a: Self, b: Self) -> Self {
        // SAFETY: what stands here asks for no instructions.
        unsafe { self.add_quads(a, b) }
    }

    /// Adds the products of the bytes of each word, both with their sign, those of `b` above -128; with `QUADS`
    /// 128 times the bytes of `b` are added, too.
    ///
    /// # Safety
    /// With `QUADS`, as [`add_quads`](Words::add_quads).
    #[inline(always)]
    unsafe fn add_signed_quads<const QUADS: bool>(self, a: Self, b: Self) -> Self {
        let (mut sums, mut left, mut right) = ([0; LANES], [0i32; LANES], [0i32; LANES]);
        // SAFETY: arrays of 16 words.
        unsafe {
            self.store(sums.as_mut_ptr());
            a.store(left.as_mut_ptr());
            b.store(right.as_mut_ptr());
        }
        for (sum, (a, b)) in sums.iter_mut().zip(left.into_iter().zip(right)) {
            for (a, b) in a.to_le_bytes().into_iter().zip(b.to_le_bytes()) {
                *sum += (i32::from(a as i8) + if QUADS { 128 } else { 0 }) * i32::from(b as i8);
            }
        }
        // SAFETY: as above.
        unsafe { Self::load(sums.as_ptr().cast()) }
    }

    /// Four rows of 64 bytes as words of a byte of each, the first row's in the lowest bits: lane `4 i + l` of
    /// vector `j` is byte `16 i + 4 j + l`.
    ///
    /// # Safety
    /// The bytes must be valid for reading.
    #[inline(always)]
    unsafe fn interleaved(rows: [*const u8; 4]) -> [Self; 4] {
        let mut words = [[0i32; LANES]; 4];
        for (j, words) in words.iter_mut().enumerate() {
            for (lane, word) in words.iter_mut().enumerate() {
                let byte = lane / 4 * 16 + j * 4 + lane % 4;
                // SAFETY: the caller's promise.
                *word = i32::from_le_bytes(rows.map(|row| unsafe { *row.add(byte) }));
            }
        }
        // SAFETY: arrays of 16 words.
        array_of(|j| unsafe { Self::load(words[j].as_ptr().cast()) })
    }

    /// Sixteen bytes, `offset` bytes after each of these places, as words turned round: vector `j` has the word `j` of
    /// every place.
    ///
    /// # Safety
    /// The bytes must be valid for reading.
    #[inline(always)]
    unsafe fn turned_words(blocks: &Sixteen, offset: usize) -> [Self; 4] {
        let mut words = [[0i32; LANES]; 4];
        for (j, words) in words.iter_mut().enumerate() {
            for (place, word) in words.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *word = i32::from_le_bytes(unsafe { *blocks.at(place).add(offset + j * 4).cast() });
            }
        }
        // SAFETY: arrays of 16 words.
        array_of(|j| unsafe { Self::load(words[j].as_ptr().cast()) })
    }

    /// The entry of a table for each byte, all of which are below 16.
    #[inline(always)]
    fn look_up_bytes(self, table: &[u8; 16]) -> Self {
        let mut words = [0i32; LANES];
        // SAFETY: arrays of 16 words.
        unsafe {
            self.store(words.as_mut_ptr());
            let found = words.map(|word| word.to_le_bytes().map(|code| table[usize::from(code % 16)]));
            Self::load(found.as_flattened().as_ptr())
        }
    }

    /// Of sixteen blocks of 32 signed bytes, `offset` bytes after these places, the sums of their products with
    /// 32 signed bytes from `a` on, all above -128, whose own sum is `total`.
    ///
    /// # Safety
    /// The bytes must be valid for reading; with `QUADS` the code must have been entered by `dispatch_quads`.
    #[inline(always)]
    unsafe fn dot_bytes<const QUADS: bool>(
        blocks: &Sixteen,
        offset: usize,
        a: *const i8,
        total: i32,
    ) -> Self {
        let _ = total;
        let mut sums = [0i32; LANES];
        for (number, sum) in sums.iter_mut().enumerate() {
            let block = blocks.at(number);
            for place in 0..32 {
                // SAFETY: the caller's promise.
                let (code, a) = unsafe { (*block.add(offset + place).cast::<i8>(), *a.add(place)) };
                *sum += i32::from(code) * i32::from(a);
            }
        }
        // SAFETY: an array of 16 words.
        unsafe { Self::load(sums.as_ptr().cast()) }
    }

    /// The same for blocks of 16 bytes, whose lower halves are the first 16 codes and whose upper halves the
    /// last; with `TABLE` a code stands for its entry, of at most 63, and otherwise for itself.
    ///
    /// # Safety
    /// As [`dot_bytes`](Words::dot_bytes).
    #[inline(always)]
    unsafe fn dot_halves<const QUADS: bool, const TABLE: bool>(
        blocks: &Sixteen,
        offset: usize,
        a: *const i8,
        table: &[u8; 16],
    ) -> Self {
        let value = |code: u8| i32::from(if TABLE { table[usize::from(code)] } else { code });
        let mut sums = [0i32; LANES];
        for (number, sum) in sums.iter_mut().enumerate() {
            let block = blocks.at(number);
            for place in 0..16 {
                // SAFETY: the caller's promise.
                let (codes, first, last) =
                    unsafe { (*block.add(offset + place), *a.add(place), *a.add(16 + place)) };
                *sum += value(codes & 15) * i32::from(first) + value(codes >> 4) * i32::from(last);
            }
        }
        // SAFETY: an array of 16 words.
        unsafe { Self::load(sums.as_ptr().cast()) }
    }
}

/// What vectors of `f32` do beside arithmetic, to decode packed numbers.
pub trait Decode: Vector<Element = f32, Float32 = Self> {
    /// The words of the same instruction set.
    type Words: Words;

    /// Each word as the bits of a number.
    fn from_bits(words: Self::Words) -> Self;

    /// Each word as a signed integer, to the nearest number.
    fn from_integers(words: Self::Words) -> Self;

    /// The element of this table of 16 that the four lowest bits of each word name.
    fn look_up(self, words: Self::Words) -> Self;

    /// The lanes whose bits are set, the lowest the first lane's, with the other sign.
    fn negate_where(self, bits: u16) -> Self;

    /// Byte `byte` of each word, its highest bit the sign, the others below it from bit 31 - `down` on, as
    /// the bits of a number: a small float but for a power of two.
    #[inline(always)]
    fn small_float(words: Self::Words, byte: u32, down: u32) -> Self {
        let mask = Self::Words::splat((0x8000_0000 | 0x7F00_0000_u32 >> down) as i32);
        Self::from_bits(words.shift_left(24 - 8 * byte).shift_right_signed(down).and(mask))
    }

    /// Sixteen numbers of bfloat16.
    ///
    /// # Safety
    /// `from` must be valid for reading 32 bytes.
    #[inline(always)]
    unsafe fn bfloat16(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self::from_bits(unsafe { Self::Words::halves(from) }.shift_left(16))
    }

    /// Sixteen numbers of binary16, as [`float16_to_f32`](super::float16_to_f32) does it.
    ///
    /// # Safety
    /// `from` must be valid for reading 32 bytes.
    #[inline(always)]
    unsafe fn float16(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        let halves = unsafe { Self::Words::halves(from) };
        let magnitude = halves.and(Self::Words::splat(0x7FFF)).shift_left(13);
        let scaled = Self::from_bits(magnitude) * Self::splat(f32::from_bits((127 + 112) << 23));
        let special = Self::from_bits(magnitude.or(Self::Words::splat(0x7F80_0000)));
        let finite = Self::from_bits(magnitude).lt(Self::splat(f32::from_bits(0x0F80_0000)));
        Self::select(finite, scaled, special).copysign(Self::from_bits(halves.shift_left(16)))
    }

    /// Adds the products of two words of two numbers of bfloat16, that of their upper halves first: two fused
    /// multiply-adds, where no operand, no sum and nothing added on the way is a subnormal number, for which zero may
    /// stand.
    ///
    /// # Safety
    /// The code must have been entered by `dispatch_bfloat16_pairs`.
    #[inline(always)]
    unsafe fn add_bfloat16_pairs(self, a: Self::Words, b: Self::Words) -> Self {
        let upper = Self::Words::splat(0xFFFF_0000_u32 as i32);
        let sum = Self::from_bits(a.and(upper)).mul_add(Self::from_bits(b.and(upper)), self);
        Self::from_bits(a.shift_left(16)).mul_add(Self::from_bits(b.shift_left(16)), sum)
    }

    /// Words of two numbers of bfloat16, those of `upper` in the upper halves: the nearest, ties to even, but that zero
    /// stands for what is subnormal.
    ///
    /// # Safety
    /// As [`add_bfloat16_pairs`](Decode::add_bfloat16_pairs).
    #[inline(always)]
    unsafe fn to_bfloat16_pairs(upper: Self, lower: Self) -> Self::Words {
        let (upper, lower) = (upper.to_array(), lower.to_array());
        let words: [u32; LANES] = array_of(|i| {
            let [upper, lower] = [upper[i], lower[i]].map(|x| match x.is_subnormal() {
                true => 0.0_f32.copysign(x),
                false => to_bfloat16(x),
            });
            upper.to_bits() | lower.to_bits() >> 16
        });
        // SAFETY: an array of 16 words.
        unsafe { Self::Words::load(words.as_ptr().cast()) }
    }

    /// The same of numbers that follow each other, the first of two in the upper half.
    ///
    /// # Safety
    /// As [`add_bfloat16_pairs`](Decode::add_bfloat16_pairs).
    #[inline(always)]
    unsafe fn to_bfloat16_neighbours(first: Self, next: Self) -> Self::Words {
        let (upper, lower) = first.unzip(next);
        // SAFETY: the caller's promise.
        unsafe { Self::to_bfloat16_pairs(upper, lower) }
    }

    /// 32 rows of 16 bytes, `offset` bytes after these addresses, as columns, written `stride` bytes apart.
    ///
    /// # Safety
    /// The bytes must be valid for reading, those from `to` on for writing.
    #[inline(always)]
    unsafe fn transpose_bytes(rows: &[*const u8; 32], offset: usize, to: *mut u8, stride: usize) {
        for (row, from) in rows.iter().enumerate() {
            for column in 0..16 {
                // SAFETY: the caller's promise.
                unsafe { *to.add(column * stride + row) = *from.add(offset + column) };
            }
        }
    }
}

/// Work written once over vectors, for [`Real::dispatch`].
///
/// Mark `run` and what it calls `#[inline(always)]`.
pub trait Kernel<T: Real> {
    /// What the work returns.
    type Output;

    /// Does the work with vectors of the type `V`.
    fn run<V: Vector<Element = T>>(self) -> Self::Output;
}
