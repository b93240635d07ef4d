//! Encoding of types whose elements are coded one by one: scales are found in one pass, cut into columns, and
//! codes made in a second, cut into runs.

use super::coding::{Coding, Fit, Statistic, pack};
use super::columns::{COLUMNS, Columns, Importance};
use super::format::{Refusal, Target};
use super::grouping::Extents;
use super::groups::{Fits, Grid, RUN};
use super::rule::{Calibration, Rule};
use super::search::{Percentile, Search};
use crate::random::Stream;
use crate::simd::{Cpu, Isa, Kernel, Real, Vector};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements that one task encodes: a multiple of [`RUN`].
const CHUNK: usize = 1 << 14;
/// Lanes that a mean is summed in.
const LANES: usize = 16;
/// A power of two that keeps sums of any numbers of a precision finite.
const SHRINK: f64 = 1.0 / (1u64 << 62) as f64;

fn for_each_chunk<A: Send>(
    cpu: Option<&Cpu>,
    data: &mut [A],
    chunk: usize,
    body: &(dyn Fn(usize, &mut [A]) + Sync),
) {
    match cpu {
        Some(cpu) if data.len() > chunk => cpu.pool().for_each_chunk(data, chunk, body),
        _ => data.chunks_mut(chunk).enumerate().for_each(|(task, piece)| body(task, piece)),
    }
}

pub(super) fn encode<T: Real, C: Coding>(
    packing: &Extents,
    cpu: Option<&Cpu>,
    rule: &Rule<'_>,
    data: &[T],
    target: Target<'_>,
) -> Result<(), Refusal> {
    let Target { bytes, scales } = target;
    let isa = cpu.map_or(Isa::portable(), Cpu::isa);
    let grid = Grid::of(packing);
    let refused = AtomicBool::new(false);
    let refuse = |fine: bool| {
        if !fine {
            refused.store(true, Ordering::Relaxed);
        }
    };
    if C::WORDS > 0 && !data.is_empty() {
        let of_block = grid.block * grid.columns;
        let blocks = data.chunks(of_block).zip(scales.chunks_mut(grid.columns * C::WORDS));
        for (number, (data, scales)) in blocks.enumerate() {
            let importance = Importance::of(packing, rule, number * grid.block, data.len() / grid.columns);
            for_each_chunk(cpu, scales, COLUMNS * C::WORDS, &|task, scales| {
                let columns = Columns { data, columns: grid.columns, first: task * COLUMNS };
                let found = Find::<T, C> { at: columns, scales: &mut *scales, coding: PhantomData };
                let fine = T::dispatch_single(isa, found);
                refuse(fine);
                if !fine {
                    return;
                }
                match rule.calibration {
                    Calibration::AbsMax => {}
                    Calibration::Percentile(percentile) => {
                        Percentile::<T, C> { at: columns, percentile, coding: PhantomData }.replace(scales);
                    }
                    Calibration::Mse => T::dispatch_single(
                        isa,
                        Search::<T, C> { at: columns, importance, scales, coding: PhantomData },
                    ),
                }
            });
        }
    }
    let scales = &*scales;
    for_each_chunk(cpu, bytes, CHUNK * C::BITS / 8, &|task, bytes| {
        let first = task * CHUNK;
        let data = &data[first..data.len().min(first + CHUNK)];
        let draws = rule.draws;
        let coding = PhantomData;
        refuse(T::dispatch_single(isa, Encode::<T, C> { grid, data, scales, first, draws, bytes, coding }));
    });
    if refused.load(Ordering::Relaxed) { Err(first_refusal::<T, C>(data)) } else { Ok(()) }
}

/// Looks for the first element that was refused, once it is known that there is one.
#[cold]
fn first_refusal<T: Real, C: Coding>(data: &[T]) -> Refusal {
    if let Some(index) = data.iter().position(|value| !value.is_finite()) {
        return Refusal::NonFinite { index };
    }
    let overflows = |value: &T| match C::STATISTIC {
        Statistic::None => !C::holds(C::code(*value, Fit::default())),
        Statistic::Range | Statistic::Extent => C::fit(value.min(T::ZERO), value.max(T::ZERO)).is_none(),
        Statistic::Largest | Statistic::Mean => C::fit(value.abs(), T::ZERO).is_none(),
    };
    // Numbers that are held by themselves may be too far from each other.
    let largest = || {
        let magnitudes = data.iter().map(|value| value.abs().to_f64()).enumerate();
        magnitudes.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map_or(0, |(index, _)| index)
    };
    Refusal::Overflow { index: data.iter().position(overflows).unwrap_or_else(largest) }
}

/// The scales of some columns of the rows of one group by the type's own rule; false where an element is not
/// finite or no scale will do.
struct Find<'a, T, C> {
    at: Columns<'a, T>,
    scales: &'a mut [f32],
    coding: PhantomData<C>,
}

impl<T: Real, C: Coding> Find<'_, T, C> {
    /// The sums of magnitudes times `factor`: 16 lanes by row, then one tree.
    #[inline(always)]
    fn sums(&self, factor: T, sums: &mut [T]) {
        let mut lanes = [[T::ZERO; COLUMNS]; LANES];
        for (row, values) in self.at.rows().enumerate() {
            for (sum, value) in lanes[row % LANES][..sums.len()].iter_mut().zip(values) {
                *sum += value.abs() * factor;
            }
        }
        for half in [8, 4, 2, 1] {
            let (low, high) = lanes.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
            }
        }
        sums.copy_from_slice(&lanes[0][..sums.len()]);
    }
}

impl<T: Real, C: Coding> Kernel<T> for Find<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> bool {
        let count = self.scales.len() / C::WORDS;
        let (mut first, mut second) = match C::STATISTIC {
            Statistic::Extent => ([T::INFINITY; COLUMNS], [-T::INFINITY; COLUMNS]),
            _ => ([T::ZERO; COLUMNS], [T::ZERO; COLUMNS]),
        };
        let (first, second) = (&mut first[..count], &mut second[..count]);
        let mut fine = true;
        for row in self.at.rows() {
            let row = &row[..count];
            if matches!(C::STATISTIC, Statistic::Range | Statistic::Extent) {
                for ((low, high), value) in first.iter_mut().zip(second.iter_mut()).zip(row) {
                    fine &= value.abs() < T::INFINITY;
                    *low = value.min(*low);
                    *high = value.max(*high);
                }
            } else {
                for (largest, value) in first.iter_mut().zip(row) {
                    let magnitude = value.abs();
                    fine &= magnitude < T::INFINITY;
                    *largest = magnitude.max(*largest);
                }
            }
        }
        if C::STATISTIC == Statistic::Mean && fine {
            let elements = T::from_usize(self.at.data.len() / self.at.columns);
            self.sums(T::ONE, first);
            let mut shrunk = [T::ZERO; COLUMNS];
            if first.iter().any(|sum| !sum.is_finite()) {
                self.sums(T::constant(SHRINK), &mut shrunk[..count]);
            }
            for (sum, shrunk) in first.iter_mut().zip(shrunk) {
                if !sum.is_finite() {
                    // Rounding may have brought the mean above all of the numbers.
                    let mean = shrunk / elements / T::constant(SHRINK);
                    *sum = if mean.is_finite() { mean } else { T::from_f64(f64::from(f32::MAX)) };
                } else if *sum > T::ZERO {
                    // A mean that is too small for a number is not that of zeros.
                    *sum = (*sum / elements).max(T::MIN_POSITIVE);
                }
            }
        }
        let numbers = first.iter().zip(second.iter());
        for (words, (first, second)) in self.scales.chunks_exact_mut(C::WORDS).zip(numbers) {
            let found = C::fit(*first, *second);
            // Where there is no scale, any number will do: the result is refused.
            fine &= found.is_some();
            let fit = found.unwrap_or(Fit { scale: 1.0, zero: 0 });
            fit.write(words);
        }
        fine
    }
}

/// Elements that follow each other, coded; false where a code stands for no finite number.
pub(super) struct Encode<'a, T, C> {
    pub(super) grid: Grid,
    pub(super) data: &'a [T],
    pub(super) scales: &'a [f32],
    /// The number of the first element.
    pub(super) first: usize,
    /// What is drawn from, element by element, to round.
    pub(super) draws: Option<Stream>,
    pub(super) bytes: &'a mut [u8],
    pub(super) coding: PhantomData<C>,
}

impl<T: Real, C: Coding> Kernel<T> for Encode<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> bool {
        let mut fits = Fits::NEW;
        let mut codes = [C::Code::default(); RUN];
        let mut drawn = [0.0f32; RUN];
        let mut fine = true;
        let runs = self.data.chunks(RUN).zip(self.bytes.chunks_mut(RUN * C::BITS / 8));
        for (number, (data, bytes)) in runs.enumerate() {
            let codes = &mut codes[..data.len()];
            fits.fill(C::WORDS, self.grid, self.scales, self.first + number * RUN, data.len());
            for ((code, value), fit) in codes.iter_mut().zip(data).zip(fits.iter()) {
                *code = C::code(*value, fit);
                if C::STATISTIC == Statistic::None {
                    // NaN is caught on the value: its bits may have been carried past the exponent.
                    fine &= C::holds(*code) & value.is_finite();
                }
            }
            if let Some(draws) = self.draws {
                let drawn = &mut drawn[..data.len()];
                draws.fill_uniform_f32((self.first + number * RUN) as u64, drawn);
                for (((code, value), fit), drawn) in codes.iter_mut().zip(data).zip(fits.iter()).zip(drawn) {
                    *code = C::drawn(*value, fit, *drawn);
                }
            }
            pack::<C>(codes, bytes);
        }
        fine
    }
}
