//! Operands of mixed products in words of two numbers of bfloat16, for instructions that multiply such words.

use super::Operand;
use crate::matrix::{Pairs, Rows};
use crate::ops::element_loops::{PASS, rows_per_task};
use crate::simd::{Cpu, Decode, Kernel, LANES, Real, Vector, Words, dispatch_bfloat16_pairs, to_bfloat16};
use std::sync::atomic::{AtomicU32, Ordering};

/// Shows `elements`, rows of `row` numbers, as words of two numbers rounded to bfloat16, in memory that the thread keeps.
///
/// # Panics
/// Where the processor has no instructions for that.
pub(in crate::ops) fn with_pairs<R>(
    cpu: &Cpu,
    operand: Operand,
    (elements, row, rows): (&[f32], usize, Rows),
    then: impl FnOnce(Pairs<'_>) -> R,
) -> R {
    let count = elements.len().checked_div(row).unwrap_or(0);
    // What one row of words is made of, and how many words that is.
    let (taken, made, count) = match rows {
        Rows::Along => (row, row.div_ceil(2), count),
        Rows::Across => (2 * row, row, count.div_ceil(2)),
    };
    // Numbers that are not negative are in the order of their bits.
    let least = AtomicU32::new(f32::INFINITY.to_bits());
    let (isa, together) = (cpu.isa(), rows_per_task(taken, PASS));
    let pad = match operand {
        Operand::Left => 0,
        Operand::Right => 0x8000,
    };
    operand.with_room(made * count, |words: &mut [f32]| {
        cpu.pool().for_each_chunk(
            bytemuck::cast_slice_mut(words),
            (together * made).max(1),
            |task, words| {
                let elements = &elements[task * together * taken..];
                let found =
                    dispatch_bfloat16_pairs(isa, Pack { elements, row, rows, words: &mut *words, pad });
                least.fetch_min(found.to_bits(), Ordering::Relaxed);
                if found < f32::MIN_POSITIVE {
                    // The instruction takes for zero what is a number of bfloat16, too.
                    pack_one_by_one(elements, row, rows, words, pad);
                }
            },
        );
        let least_exponent = least.load(Ordering::Relaxed) >> (f32::MANTISSA_DIGITS - 1);
        then(Pairs { words, rows, stride: made, least_exponent })
    })
}

/// A word of two numbers.
#[inline(always)]
fn word(upper: f32, lower: f32) -> u32 {
    to_bfloat16(upper).to_bits() | to_bfloat16(lower).to_bits() >> 16
}

/// A word whose lower half is `pad`.
#[inline(always)]
fn last_word(upper: f32, pad: u32) -> u32 {
    to_bfloat16(upper).to_bits() | pad
}

/// What [`Pack`] does, for any numbers.
fn pack_one_by_one(elements: &[f32], row: usize, rows: Rows, words: &mut [u32], pad: u32) {
    match rows {
        Rows::Along => {
            for (words, numbers) in words.chunks_exact_mut(row.div_ceil(2)).zip(elements.chunks_exact(row)) {
                for (to, pair) in words.iter_mut().zip(numbers.chunks(2)) {
                    *to = match pair {
                        [upper, lower] => word(*upper, *lower),
                        _ => last_word(pair[0], pad),
                    };
                }
            }
        }
        Rows::Across => {
            for (words, numbers) in words.chunks_exact_mut(row).zip(elements.chunks(2 * row)) {
                let (uppers, lowers) = numbers.split_at(row);
                for (column, (to, upper)) in words.iter_mut().zip(uppers).enumerate() {
                    *to = match lowers.get(column) {
                        Some(lower) => word(*upper, *lower),
                        None => last_word(*upper, pad),
                    };
                }
            }
        }
    }
}

/// Packs some rows of words; gives the smallest magnitude that is not zero.
struct Pack<'a> {
    elements: &'a [f32],
    row: usize,
    rows: Rows,
    words: &'a mut [u32],
    /// The lower half of a word that only one number is left for.
    pad: u32,
}

/// The smaller of the smallest magnitudes so far and of those of these numbers that are not zero.
#[inline(always)]
fn smaller<V: Vector>(least: V, numbers: V) -> V {
    let size = numbers.abs();
    let counts = V::and(V::gt(size, V::splat(V::Element::ZERO)), V::lt(size, least));
    V::select(counts, size, least)
}

impl Kernel<f32> for Pack<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) -> f32 {
        // SAFETY: entered with instructions for pairs alone.
        unsafe { self.pack::<V::Float32>() }
    }
}

impl Pack<'_> {
    /// # Safety
    /// As [`Decode::add_bfloat16_pairs`].
    #[inline(always)]
    unsafe fn pack<V: Decode>(self) -> f32 {
        let Self { elements, row, rows, words, pad } = self;
        let mut least = V::splat(f32::INFINITY);
        let mut rest = f32::INFINITY;
        let mut one = |number: f32| {
            if number != 0.0 && number.abs() < rest {
                rest = number.abs();
            }
            number
        };
        match rows {
            Rows::Along => {
                let made = row.div_ceil(2);
                for (words, numbers) in words.chunks_exact_mut(made).zip(elements.chunks_exact(row)) {
                    let (mut to, mut from) = (words.chunks_exact_mut(LANES), numbers.chunks_exact(2 * LANES));
                    for (to, from) in to.by_ref().zip(from.by_ref()) {
                        let (first, next) = (V::load(from), V::load(&from[LANES..]));
                        least = smaller(smaller(least, first), next);
                        // SAFETY: the caller's promise; sixteen words.
                        unsafe { V::to_bfloat16_neighbours(first, next).store(to.as_mut_ptr().cast()) };
                    }
                    // As many words as there are pairs, the last of which may be one number.
                    let done = numbers.len() - from.remainder().len();
                    for (to, pair) in words[done / 2..].iter_mut().zip(numbers[done..].chunks(2)) {
                        *to = match pair {
                            [upper, lower] => word(one(*upper), one(*lower)),
                            _ => last_word(one(pair[0]), pad),
                        };
                    }
                }
            }
            Rows::Across => {
                for (words, numbers) in words.chunks_exact_mut(row).zip(elements.chunks(2 * row)) {
                    let (uppers, lowers) = numbers.split_at(row);
                    let whole = if lowers.len() < row { 0 } else { row / LANES * LANES };
                    for column in (0..whole).step_by(LANES) {
                        let (upper, lower) = (V::load(&uppers[column..]), V::load(&lowers[column..]));
                        least = smaller(smaller(least, upper), lower);
                        // SAFETY: the caller's promise; sixteen words.
                        unsafe {
                            V::to_bfloat16_pairs(upper, lower)
                                .store(words[column..][..LANES].as_mut_ptr().cast());
                        }
                    }
                    for column in whole..row {
                        words[column] = match lowers.get(column) {
                            Some(lower) => word(one(uppers[column]), one(*lower)),
                            None => last_word(one(uppers[column]), pad),
                        };
                    }
                }
            }
        }
        // NaN is none of them.
        least.reduce_min().min(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{NoEpilogue, Output, Start, Strided, product_of_pairs, product_reference};
    use crate::ops::testing::{assert_bits, cpus};
    use crate::simd::has_bfloat16_pairs;
    use half::bf16;
    use proptest::prelude::*;

    /// Numbers whose exponents lie in this range, zeros of both signs among them.
    fn numbers(seed: u64, len: usize, exponents: (i32, i32)) -> Vec<f32> {
        let stream = crate::random::Stream::new(seed, 0, 0, crate::random::Use::Initialize);
        let number = |i: usize| {
            let word = stream.word(i as u64);
            let (low, high) = exponents;
            let exponent = low + (word >> 24) as i32 % (high - low + 1);
            let size = match word % 9 {
                0 => 0.0,
                _ => f64::from(1 + (word & 0xFFFF)) / 32_768.0 * f64::from(exponent).exp2(),
            };
            (if word & 0x10_0000 == 0 { size } else { -size }) as f32
        };
        (0..len).map(number).collect()
    }

    fn rounded(numbers: &[f32]) -> Vec<f32> {
        numbers.iter().map(|x| bf16::from_f32(*x).to_f32()).collect()
    }

    fn turned(numbers: &[f32], row: usize) -> Vec<f32> {
        (0..row).flat_map(|column| numbers.iter().skip(column).step_by(row).copied()).collect()
    }

    /// A product in words, of operands that lie either way, is that of rounded numbers.
    #[track_caller]
    fn check((m, k, n): (usize, usize, usize), (a, b): (&[f32], &[f32]), c: &[f32], start: Start) {
        let mut expected = c.to_vec();
        let (plain_a, plain_b) = (rounded(a), rounded(b));
        let operands = (Strided::left(&plain_a, m, k), Strided::right(&plain_b, k, n));
        let output = Output::new(&mut expected, m, n);
        product_reference(&operands.0, &operands.1, start, &NoEpilogue, output);
        let (a_across, b_along) = (turned(a, k), turned(b, n));
        for cpu in cpus().iter().filter(|cpu| has_bfloat16_pairs(cpu.isa())) {
            for a in [(a, k, Rows::Along), (&a_across, m, Rows::Across)] {
                for b in [(b, n, Rows::Across), (&b_along, k, Rows::Along)] {
                    let mut found = c.to_vec();
                    with_pairs(cpu, Operand::Left, a, |a| {
                        with_pairs(cpu, Operand::Right, b, |b| {
                            let output = Output::new(&mut found, m, n);
                            product_of_pairs(cpu, (a, b, k), start, &NoEpilogue, output);
                        });
                    });
                    assert_bits(&found, &expected);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Also where some or all terms, or what sums go on from, are subnormal numbers.
        #[test]
        fn products_of_pairs_are_those_of_rounded_numbers(
            m in 1usize..40, k in 0usize..90, n in 1usize..90, seed: u64,
            exponents in prop::sample::select(vec![(-8, 8), (-64, -55), (-80, -40), (-126, -100), (-140, 3), (40, 70)]),
            others in prop::sample::select(vec![(-3, 3), (-70, -60), (-149, -120)]),
            start in prop::sample::select(vec![Start::Zero, Start::Continue]),
        ) {
            let (a, b) = (numbers(seed, m * k, exponents), numbers(seed ^ 1, k * n, (-8, 3)));
            check((m, k, n), (&a, &b), &numbers(seed ^ 2, m * n, others), start);
        }
    }

    /// Through blocks of k, pieces, panels and columns that are packed.
    #[test]
    fn large_products_of_pairs_are_those_of_rounded_numbers() {
        for (m, k, n) in [(13, 4_101, 37), (530, 70, 140), (65, 515, 1_040), (1_100, 9, 33)] {
            let (a, b) = (numbers(1, m * k, (-8, 8)), numbers(2, k * n, (-8, 8)));
            check((m, k, n), (&a, &b), &numbers(3, m * n, (-4, 4)), Start::Continue);
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        let (m, k, n) = (12, 20, 32);
        let (mut a, b) = (numbers(1, m * k, (-8, 8)), numbers(2, k * n, (-8, 8)));
        (a[3], a[30], a[31]) = (f32::INFINITY, f32::NAN, f32::MAX);
        let (mut expected, mut found) = (vec![0.0; m * n], vec![0.0; m * n]);
        let (plain_a, plain_b) = (rounded(&a), rounded(&b));
        let operands = (Strided::left(&plain_a, m, k), Strided::right(&plain_b, k, n));
        let output = Output::new(&mut expected, m, n);
        product_reference(&operands.0, &operands.1, Start::Zero, &NoEpilogue, output);
        for cpu in cpus().iter().filter(|cpu| has_bfloat16_pairs(cpu.isa())) {
            with_pairs(cpu, Operand::Left, (&a, k, Rows::Along), |a| {
                with_pairs(cpu, Operand::Right, (&b, n, Rows::Across), |b| {
                    let output = Output::new(&mut found, m, n);
                    product_of_pairs(cpu, (a, b, k), Start::Zero, &NoEpilogue, output);
                });
            });
            for (found, expected) in found.iter().zip(&expected) {
                assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan());
            }
        }
    }
}
