//! Kernel of collecting.

use super::{Collect, Entry, Measure, MeasureMemory};
use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;

/// Brings the sums in operands `first` and on into the memory.
pub(super) fn collect<T: Real>(
    layout: MeasureMemory,
    entries: &[Entry],
    args: &Args<'_>,
    first: usize,
    memory: &mut [T],
) {
    for (number, entry) in entries.iter().enumerate() {
        let place = &mut memory[layout.entry(*entry)..][..Measure::SUMS];
        for (to, from) in place.iter_mut().zip(args.read::<T>(first + number)) {
            *to = if args.accumulate { *to + *from } else { *from };
        }
    }
}

impl Operation for Collect {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let memory = args.write::<T>(0);
        collect(self.memory, &self.entries, args, 0, memory);
        Ok(())
    }
}
