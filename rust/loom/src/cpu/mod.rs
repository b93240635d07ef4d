//! Runs programs on the processor: the step loop.

mod execute;

pub use execute::execute;

use crate::Result;
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, Engine, Phase, Run};
use crate::simd::Cpu;
use std::ops::RangeInclusive;

/// The processor as an engine: values are in the run itself, and nothing is ever newer elsewhere.
#[derive(Debug)]
pub struct Processor;

impl Engine for Processor {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn execute(
        &self,
        run: &mut Run,
        access: Access<'_>,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
    ) -> Result<()> {
        in_precision!(run.program().precision(), T => execute::<T>(Cpu::global()?, run, access, phases, values))
    }
}
