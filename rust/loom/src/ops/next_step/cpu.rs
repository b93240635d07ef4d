//! Going on by the best class, on the CPU.

use super::{Choose, Recall};
use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;

impl Operation for Choose {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (y, chosen) = (args.read::<T>(0), args.write::<T>(0));
        let place = (args.values.position as usize + self.time).min(self.capacity);
        for (y, chosen) in y.chunks_exact(self.classes).zip(chosen.chunks_exact_mut(self.capacity + 1)) {
            let mut best = 0;
            for (number, value) in y.iter().enumerate() {
                if *value > y[best] {
                    best = number;
                }
            }
            let finite = y.iter().all(|value| value.to_f64().is_finite());
            chosen[place] = if finite { T::from_usize(best) } else { T::from_f64(-1.0) };
        }
        Ok(())
    }
}

impl Operation for Recall {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (chosen, x) = (args.read::<T>(0), args.write::<T>(0));
        let place = (args.values.position as usize).min(self.capacity);
        for (x, chosen) in x.iter_mut().zip(chosen.chunks_exact(self.capacity + 1)) {
            *x = chosen[place];
        }
        Ok(())
    }
}
