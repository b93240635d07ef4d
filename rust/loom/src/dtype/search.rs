//! Scales by other rules than a type's own: from a percentile of the weights, or with the least squared error.
//!
//! Every group is looked at by itself and in the order of its rows, so that the result is the same on any
//! threads and instruction set.

use super::coding::{Code, Coding, Fit, Statistic};
use super::columns::{COLUMNS, Columns, Importance};
use crate::simd::{Kernel, Real, Vector};
use crate::tensor::Buffer;
use std::cell::Cell;
use std::cmp::Ordering;
use std::marker::PhantomData;

/// The parts that the largest magnitude is cut into for the candidates of a search, and the fewest of them that
/// a candidate has.
const PARTS: usize = 64;
const FEWEST: usize = 6;

thread_local! {
    /// Where a thread puts the numbers of a group in order; it only grows.
    static NUMBERS: Cell<Buffer> = Cell::new(Buffer::default());
}

/// Puts the scales of a percentile in the place of those found by the type's own rule.
pub(super) struct Percentile<'a, T, C> {
    pub(super) at: Columns<'a, T>,
    pub(super) percentile: f64,
    pub(super) coding: PhantomData<C>,
}

/// The percentile of numbers that are not NaN, as NumPy's default has it: linear between order statistics.
/// Puts the numbers in another order.
fn percentile<T: Real>(numbers: &mut [T], percent: f64) -> T {
    let place = (numbers.len() - 1) as f64 * (percent / 100.0);
    let below = place.floor() as usize;
    let compare = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(Ordering::Equal);
    let (_, low, above) = numbers.select_nth_unstable_by(below, compare);
    let low = low.to_f64();
    let high = above.iter().map(|number| number.to_f64()).fold(f64::INFINITY, f64::min);
    if high == f64::INFINITY {
        return T::from_f64(low);
    }
    let part = place - below as f64;
    let distance = high - low;
    T::from_f64(if part >= 0.5 { high - distance * (1.0 - part) } else { low + distance * part })
}

impl<T: Real, C: Coding> Percentile<'_, T, C> {
    pub(super) fn replace(self, scales: &mut [f32]) {
        let rows = self.at.data.len() / self.at.columns;
        let mut memory = NUMBERS.take();
        if memory.len_bytes() < rows * size_of::<T>() {
            memory = Buffer::working::<T>(rows);
        }
        let numbers = &mut memory.as_mut_slice::<T>()[..rows];
        for (column, words) in scales.chunks_exact_mut(C::WORDS).enumerate() {
            for (number, row) in numbers.iter_mut().zip(self.at.rows()) {
                *number = row[column];
            }
            let fit = if C::STATISTIC == Statistic::Extent {
                let low = percentile(numbers, 100.0 - self.percentile);
                let high = percentile(numbers, self.percentile);
                if low < high { C::fit(low, high) } else { None }
            } else if C::STATISTIC == Statistic::Range {
                let low = percentile(numbers, 100.0 - self.percentile).min(T::ZERO);
                let high = percentile(numbers, self.percentile).max(T::ZERO);
                if low == high { None } else { C::fit(low, high) }
            } else {
                numbers.iter_mut().for_each(|number| *number = number.abs());
                let largest = percentile(numbers, self.percentile);
                if largest == T::ZERO { None } else { C::fit(largest, T::ZERO) }
            };
            if let Some(fit) = fit {
                fit.write(words);
            }
        }
        NUMBERS.set(memory);
    }
}

/// Looks for scales with less error than those found by the type's own rule.
pub(super) struct Search<'a, T, C> {
    pub(super) at: Columns<'a, T>,
    pub(super) importance: Importance<'a>,
    pub(super) scales: &'a mut [f32],
    pub(super) coding: PhantomData<C>,
}

/// A code without the bits that do not belong to it.
#[inline(always)]
fn kept<C: Coding>(code: C::Code) -> C::Code {
    if C::BITS < 8 { C::Code::from_low(code.low() & ((1u16 << C::BITS) - 1) as u8) } else { code }
}

impl<T: Real, C: Coding> Search<'_, T, C> {
    /// The weighted squared errors of the columns' weights under these scales.
    #[inline(always)]
    fn errors(&self, fits: &[Fit], errors: &mut [f64]) {
        errors.fill(0.0);
        for (number, row) in self.at.rows().enumerate() {
            let weight = self.importance.row(number);
            for ((error, value), fit) in errors.iter_mut().zip(row).zip(fits) {
                let held: T = C::number(kept::<C>(C::code(*value, *fit)), *fit);
                let off = value.to_f64() - held.to_f64();
                *error += off * off * weight;
            }
        }
    }

    /// The scales that fit these scales' codes best; for types without a zero point.
    #[inline(always)]
    fn refit(&self, fits: &mut [Fit]) {
        let (mut above, mut below) = ([0.0f64; COLUMNS], [0.0f64; COLUMNS]);
        for (number, row) in self.at.rows().enumerate() {
            let weight = self.importance.row(number);
            let sums = above.iter_mut().zip(&mut below);
            for (((above, below), value), fit) in sums.zip(row).zip(fits.iter()) {
                let unit = Fit { scale: 1.0, zero: 0 };
                let held = C::number::<T>(kept::<C>(C::code(*value, *fit)), unit).to_f64();
                *above += held * value.to_f64() * weight;
                *below += held * held * weight;
            }
        }
        for ((fit, above), below) in fits.iter_mut().zip(above).zip(below) {
            let scale = (above / below) as f32;
            if above > 0.0 && scale.is_finite() {
                fit.scale = scale.max(f32::MIN_POSITIVE);
            }
        }
    }
}

impl<T: Real, C: Coding> Kernel<T> for Search<'_, T, C> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let count = self.scales.len() / C::WORDS;
        let (mut low, mut high) = match C::STATISTIC {
            Statistic::Extent => ([T::INFINITY; COLUMNS], [-T::INFINITY; COLUMNS]),
            _ => ([T::ZERO; COLUMNS], [T::ZERO; COLUMNS]),
        };
        for row in self.at.rows() {
            for ((low, high), value) in low.iter_mut().zip(&mut high).zip(&row[..count]) {
                *low = value.min(*low);
                *high = value.max(*high);
            }
        }
        let mut best = [Fit::default(); COLUMNS];
        for (fit, words) in best.iter_mut().zip(self.scales.chunks_exact(C::WORDS)) {
            *fit = Fit::read(words);
        }
        let mut least = [0.0f64; COLUMNS];
        self.errors(&best[..count], &mut least[..count]);
        let mut tried = best;
        let mut errors = [0.0f64; COLUMNS];
        let mut keep = |tried: &[Fit], errors: &mut [f64], best: &mut [Fit]| {
            self.errors(tried, errors);
            let found = least.iter_mut().zip(best).zip(errors.iter().zip(tried));
            for ((least, best), (error, fit)) in found {
                if *error < *least {
                    (*least, *best) = (*error, *fit);
                }
            }
        };
        for parts in (FEWEST..PARTS).rev() {
            let (part, half) = (T::constant(parts as f64 / PARTS as f64), T::constant(0.5));
            for ((fit, low), high) in tried[..count].iter_mut().zip(&low).zip(&high) {
                let found = match C::STATISTIC {
                    Statistic::Range => C::fit(*low * part, *high * part),
                    // From both ends towards the middle.
                    Statistic::Extent => {
                        let middle = (*low * half + *high * half) * (T::ONE - part);
                        C::fit(*low * part + middle, *high * part + middle)
                    }
                    _ => C::fit((-*low).max(*high) * part, T::ZERO),
                };
                *fit = found.unwrap_or(*fit);
            }
            keep(&tried[..count], &mut errors[..count], &mut best[..count]);
        }
        if C::WORDS == 1 {
            tried = best;
            self.refit(&mut tried[..count]);
            keep(&tried[..count], &mut errors[..count], &mut best[..count]);
        }
        for (words, fit) in self.scales.chunks_exact_mut(C::WORDS).zip(&best) {
            fit.write(words);
        }
    }
}
