//! Kernel of dropout.

use super::Dropout;
use crate::Result;
use crate::ops::element_loops::TRANSCENDENTAL;
use crate::ops::{Args, Operation};
use crate::random::{Stream, Use};
use crate::simd::{Kernel, Real, Vector};

/// Elements whose words are drawn together: 16 blocks of the generator.
const DRAW: usize = 64;

impl Operation for Dropout {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let y = args.write::<T>(0);
        let isa = args.cpu.isa();
        let stream = Stream::new(args.values.seed, args.values.pass_number(), args.path, Use::Dropout);
        let (threshold, factor) = (self.threshold(), T::from_f64(1.0 / (1.0 - self.rate)));
        let before = args.values.row_offset * self.features as u64;
        args.cpu.pool().for_each_chunk(y, TRANSCENDENTAL, |task, y| {
            let start = task * TRANSCENDENTAL;
            let x = &x[start..][..y.len()];
            let index = before + start as u64;
            if self.shared == 1 {
                T::dispatch(isa, Drop { x, y, stream, index, threshold, factor });
            } else {
                drop_together(x, y, &stream, (index, self.shared as u64), (threshold, factor));
            }
        });
        Ok(())
    }
}

impl Dropout {
    /// Words of the generator below this drop their element.
    pub(super) fn threshold(&self) -> u32 {
        Self::threshold_of(self.rate)
    }

    /// The same for a rate.
    pub(in crate::ops) fn threshold_of(rate: f64) -> u32 {
        // A cast saturates, so that a rate just below 1 does not wrap around.
        (rate * (1u64 << 32) as f64).round() as u32
    }
}

/// Some elements, the first of them element `index` of the batch, of which `shared` have one word. One product
/// an element is the same in all instruction sets.
fn drop_together<T: Real>(
    mut x: &[T],
    mut y: &mut [T],
    stream: &Stream,
    (mut index, shared): (u64, u64),
    (threshold, factor): (u32, T),
) {
    while !y.is_empty() {
        let (group, before) = (index / shared, index % shared);
        let word = stream.block((group / 4) as u32)[(group % 4) as usize];
        let count = ((shared - before) as usize).min(y.len());
        let (y_now, y_later) = y.split_at_mut(count);
        let (x_now, x_later) = x.split_at(count);
        if word < threshold {
            y_now.fill(T::ZERO);
        } else {
            for (y, x) in y_now.iter_mut().zip(x_now) {
                *y = *x * factor;
            }
        }
        (x, y, index) = (x_later, y_later, index + count as u64);
    }
}

/// Some elements of [`Dropout`], the first of them element `index` of the batch.
struct Drop<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    stream: Stream,
    index: u64,
    threshold: u32,
    factor: T,
}

impl<T: Real> Kernel<T> for Drop<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (mut x, mut y) = (self.x, self.y);
        let mut block = (self.index / 4) as u32;
        let mut skip = (self.index % 4) as usize;
        while !y.is_empty() {
            let drawn = self.stream.blocks::<{ DRAW / 4 }>(block);
            let mut kept = [T::ZERO; DRAW];
            for (word, drawn) in drawn.iter().enumerate() {
                for (j, drawn) in drawn.iter().enumerate() {
                    kept[4 * j + word] = if *drawn < self.threshold { T::ZERO } else { T::ONE };
                }
            }
            let count = (DRAW - skip).min(y.len());
            let (y_now, y_later) = y.split_at_mut(count);
            let (x_now, x_later) = x.split_at(count);
            for ((y, x), kept) in y_now.iter_mut().zip(x_now).zip(&kept[skip..]) {
                // Selected, not multiplied: a dropped infinity is a zero.
                *y = if *kept == T::ZERO { T::ZERO } else { *x * self.factor };
            }
            (x, y) = (x_later, y_later);
            block = block.wrapping_add((DRAW / 4) as u32);
            skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, numbers};
    use proptest::prelude::*;

    fn setting<T: Real>(rows: usize, x: &[T], row_offset: u64) -> Setting<T> {
        let mut setting = Setting::new(rows, &[x], &[x.len()]);
        setting.path = 0xABCD;
        setting.values.seed = 0x1234_5678_9ABC;
        setting.values.step = 5;
        setting.values.row_offset = row_offset;
        setting
    }

    fn check<T: Real>(rows: usize, (groups, shared): (usize, usize), rate: f64, row_offset: u64) {
        let features = groups * shared;
        let mut x = numbers::<T>(13, rows * features);
        x[0] = T::INFINITY;
        let stream = Stream::new(0x1234_5678_9ABC, 5, 0xABCD, Use::Dropout);
        let factor = T::from_f64(1.0 / (1.0 - rate));
        let expected: Vec<T> = (0..x.len())
            .map(|i| {
                let word = stream.word(row_offset * groups as u64 + (i / shared) as u64);
                if (f64::from(word)) < rate * 2f64.powi(32) { T::ZERO } else { x[i] * factor }
            })
            .collect();
        assert_bits(&setting(rows, &x, row_offset).result(&Dropout { rate, features, shared }), &expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_mask_is_that_of_the_stream(
            rows in 1..6usize,
            groups in 1..150usize,
            shared in prop_oneof![Just(1), 2..40usize],
            rate in (0..1024u32).prop_map(|rate| f64::from(rate) / 1024.0),
            row_offset in 0..1000u64,
        ) {
            check::<f32>(rows, (groups, shared), rate, row_offset);
            check::<f64>(rows, (groups, shared), rate, row_offset);
        }

        #[test]
        fn a_batch_in_parts_has_the_mask_of_the_whole(
            groups in 1..50usize,
            shared in 1..4usize,
            cut in 1..6usize,
        ) {
            let features = groups * shared;
            let (rows, op) = (7, Dropout { rate: 0.4, features, shared });
            let x = numbers::<f32>(14, rows * features);
            let whole = setting(rows, &x, 0).result(&op);
            let (head, tail) = x.split_at(cut * features);
            let mut parts = setting(cut, head, 0).result(&op);
            parts.extend(setting(rows - cut, tail, cut as u64).result(&op));
            assert_bits(&parts, &whole);
        }
    }

    #[test]
    fn large_extents_are_cut_into_tasks() {
        check::<f32>(50, (333, 1), 0.25, 3);
        check::<f32>(50, (33, 11), 0.25, 3);
        check::<f32>(3, (5, 9001), 0.25, 3);
    }

    #[test]
    fn about_the_rate_is_dropped_and_the_mean_is_kept() {
        let (rows, features, rate) = (200, 500, 0.3);
        let y =
            setting(rows, &vec![1.0_f64; rows * features], 0).result(&Dropout { rate, features, shared: 1 });
        let dropped = y.iter().filter(|y| **y == 0.0).count() as f64 / y.len() as f64;
        // Six standard deviations of a binomial count.
        assert!((dropped - rate).abs() < 6.0 * (rate * (1.0 - rate) / y.len() as f64).sqrt(), "{dropped}");
        let mean = y.iter().sum::<f64>() / y.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn masks_differ_between_seeds_steps_and_layers() {
        let (x, op) = (vec![1.0_f32; 256], Dropout { rate: 0.5, features: 256, shared: 1 });
        let base = setting(1, &x, 0);
        let mut others = [base.clone(), base.clone(), base.clone()];
        others[0].values.seed += 1;
        others[1].values.step += 1;
        others[2].path += 1;
        let mask = base.result(&op);
        assert_bits(&base.result(&op), &mask);
        for other in others {
            let differing = other.result(&op).iter().zip(&mask).filter(|(a, b)| a != b).count();
            assert!((60..196).contains(&differing), "{differing}");
        }
    }

    #[test]
    fn a_rate_just_below_one_drops_nearly_everything() {
        let op = Dropout { rate: 1.0 - 1e-12, features: 4, shared: 1 };
        assert_eq!(op.threshold(), u32::MAX);
        assert_eq!(Dropout { rate: 0.0, features: 4, shared: 1 }.threshold(), 0);
        assert_eq!(Dropout { rate: 0.5, features: 4, shared: 1 }.threshold(), 1 << 31);
    }
}
