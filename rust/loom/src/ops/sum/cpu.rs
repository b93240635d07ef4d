//! Kernel of the sum.

use super::Sum;
use crate::Result;
use crate::ops::element_loops::PASS;
use crate::ops::{Args, MAX_READS, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for Sum {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let mut operands: [&[T]; MAX_READS] = [&[]; MAX_READS];
        for (i, operand) in operands[..self.operands].iter_mut().enumerate() {
            *operand = args.read(i);
        }
        let operands = &operands[..self.operands];
        let (isa, accumulate) = (args.cpu.isa(), args.accumulate);
        let y = args.write::<T>(0);
        args.cpu.pool().for_each_chunk(y, PASS, |task, y| {
            T::dispatch(isa, Add { operands, y, start: task * PASS, accumulate });
        });
        Ok(())
    }
}

/// Some elements of [`Sum`], from element `start` on.
struct Add<'a, T> {
    operands: &'a [&'a [T]],
    y: &'a mut [T],
    start: usize,
    accumulate: bool,
}

impl<T: Real> Kernel<T> for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Some((x, others)) = self.operands.split_first() else { return };
        let mut at = self.start;
        let mut y = self.y.chunks_exact_mut(LANES);
        for y in y.by_ref() {
            let mut sum = V::load(&x[at..]);
            for x in others {
                sum = sum + V::load(&x[at..]);
            }
            if self.accumulate {
                sum = V::load(y) + sum;
            }
            sum.store(y);
            at += LANES;
        }
        let y = y.into_remainder();
        if !y.is_empty() {
            let mut sum = V::load_partial(&x[at..]);
            for x in others {
                sum = sum + V::load_partial(&x[at..]);
            }
            if self.accumulate {
                sum = V::load_partial(y) + sum;
            }
            sum.store_partial(y);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, numbers};
    use proptest::prelude::*;

    fn check<T: Real>(operands: usize, len: usize) {
        let x: Vec<Vec<T>> = (0..operands).map(|i| numbers(i as u64, len)).collect();
        let reads: Vec<&[T]> = x.iter().map(Vec::as_slice).collect();
        let expected: Vec<T> = (0..len).map(|i| x[1..].iter().fold(x[0][i], |sum, x| sum + x[i])).collect();
        let mut setting = Setting::new(1, &reads, &[len]);
        assert_bits(&setting.result(&Sum { operands }), &expected);
        setting.accumulate = true;
        let added: Vec<T> = expected.iter().map(|sum| T::from_f64(-77.0) + *sum).collect();
        assert_bits(&setting.result(&Sum { operands }), &added);
    }

    proptest! {
        #[test]
        fn operands_are_added_from_left_to_right(operands in 1..=MAX_READS, len in 0..200usize) {
            check::<f32>(operands, len);
            check::<f64>(operands, len);
        }
    }

    #[test]
    fn long_sums_are_cut_into_tasks() {
        check::<f32>(3, 3 * PASS + 7);
    }
}
