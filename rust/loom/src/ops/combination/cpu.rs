//! Kernel of the combination.

use super::Combination;
use crate::Result;
use crate::ops::element_loops::{PASS, load, store};
use crate::ops::{Args, MAX_READS, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for Combination {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let mut terms: [(T, &[T]); MAX_READS] = [(T::ZERO, &[]); MAX_READS];
        for (number, (slot, term)) in terms.iter_mut().zip(&self.terms).enumerate() {
            *slot = (T::from_f64(term.value(args.values)), args.read(number));
        }
        let terms = &terms[..self.terms.len()];
        let range = self.range.map(|(least, greatest)| (T::from_f64(least), T::from_f64(greatest)));
        let isa = args.cpu.isa();
        let y = args.write::<T>(0);
        args.cpu.pool().for_each_chunk(y, PASS, |task, y| {
            T::dispatch(isa, Part { terms, range, y, start: task * PASS });
        });
        Ok(())
    }
}

/// Some elements, from element `start` on.
struct Part<'a, T> {
    terms: &'a [(T, &'a [T])],
    range: Option<(T, T)>,
    y: &'a mut [T],
    start: usize,
}

impl<T: Real> Kernel<T> for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Some(((first, x), others)) = self.terms.split_first() else { return };
        let mut at = self.start;
        for y in self.y.chunks_mut(LANES) {
            let end = at + y.len();
            let mut sum = V::splat(*first) * load::<V>(&x[at..end]);
            for (factor, x) in others {
                sum = V::splat(*factor).mul_add(load::<V>(&x[at..end]), sum);
            }
            if let Some((least, greatest)) = self.range {
                // The sum stands second, so that a NaN stays one.
                sum = V::splat(least).max(V::splat(greatest).min(sum));
            }
            store(sum, y);
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::combination::Term;
    use crate::ops::testing::{Setting, assert_bits, numbers};

    #[test]
    fn it_is_the_sum_in_order() {
        for len in [1, 16, 37, 40_000] {
            let x: Vec<Vec<f64>> = (0..3).map(|seed| numbers(seed, len)).collect();
            let terms = [
                Term::fixed(1.0),
                Term::fixed(-0.1).times_rows(),
                Term::fixed(0.5).over_rows().times_scale(true).over_scale(false),
            ];
            let mut setting = Setting::new(1, &[&x[0], &x[1], &x[2]], &[len]);
            (setting.values.batch_rows, setting.values.loss_scale) = (8, 4.0);
            let expected: Vec<f64> = (0..len)
                .map(|i| (0.5f64 / 8.0).mul_add(x[2][i], (-0.8f64).mul_add(x[1][i], x[0][i])))
                .collect();
            let found = setting.result(&Combination::new(terms));
            // The factor of the third does not know a scale: the last call has taken it out.
            assert_bits(&found, &expected);
            let range = Combination { range: Some((-0.25, 0.5)), ..Combination::new(terms) };
            let clamped: Vec<f64> = expected.iter().map(|y| y.clamp(-0.25, 0.5)).collect();
            assert_bits(&setting.result(&range), &clamped);
        }
    }

    #[test]
    fn scales_and_nan() {
        let mut setting = Setting::new(1, &[&[1.0f32, f32::NAN, 9.0]], &[3]);
        (setting.values.batch_rows, setting.values.loss_scale) = (4, 2.0);
        let term = Term::fixed(1.0).over_rows().times_scale(true);
        let found = setting.result(&Combination { terms: vec![term], range: Some((-1.0, 1.0)) });
        assert_eq!(found[0], 0.5);
        assert!(found[1].is_nan());
        assert_eq!(found[2], 1.0);
    }
}
