//! Kernel of collecting.

use super::{Collect, Measure};
use crate::Result;
use crate::cpu::{Args, MAX_READS, Real};
use crate::ops::Operation;

impl Operation for Collect {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let mut sums: [&[T]; MAX_READS] = [&[]; MAX_READS];
        for (number, sums) in sums.iter_mut().enumerate().take(self.entries.len()) {
            *sums = args.read(number);
        }
        let (rows, accumulate) = (args.rows, args.accumulate);
        let memory = args.write::<T>(0);
        for ((entry, elements), sums) in self.entries.iter().zip(sums) {
            let place = &mut memory[self.memory.entry(*entry)..][..Measure::SUMS + 1];
            let count = T::from_f64((rows * elements) as f64);
            for (to, from) in place.iter_mut().zip(sums.iter().chain([&count])) {
                *to = if accumulate { *to + *from } else { *from };
            }
        }
        Ok(())
    }
}
