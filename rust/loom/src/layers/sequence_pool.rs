//! One vector of a whole sequence.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{forms, kind_and_config, names, settings};
use super::{Context, Forward, Layer, Sample, Steps, TargetRules, mask_of, shape_error, single};
use crate::Result;
use crate::ops::{Mix, MixPart, PooledSteps, StepWeights};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

forms! {
    PooledSteps => names(&[PooledSteps::First, PooledSteps::Mean, PooledSteps::Last]),
}

settings! {
    /// One vector of a sequence, (time, width) to (width,): its first step, its last one, or the mean of all.
    ///
    /// Inside a mask the steps that are padding do not count; of a sequence of nothing else zeros are made.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SequencePool "sequence_pool" {
        /// Which steps are taken.
        steps: PooledSteps,
    }
}

impl Configured for SequencePool {
    fn samples() -> Vec<Sample> {
        let of = |steps| Self { steps };
        vec![
            Sample::new(of(PooledSteps::Mean), [5, 7]),
            Sample::new(of(PooledSteps::First), [1, 1]),
            Sample::new(of(PooledSteps::Last), [3, 2]),
            Sample::new(of(PooledSteps::Mean), [6, 3]).masked(),
            Sample::new(of(PooledSteps::First), [4, 3]).masked(),
            Sample::new(of(PooledSteps::Last), [4, 19]).masked(),
        ]
    }
}

impl Layer for SequencePool {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        match &input[..] {
            [time, width] if *time > 0 && *width > 0 => Ok(Shape::from(*width)),
            _ => Err(shape_error("SequencePool", "(time, width)", input)),
        }
    }

    fn steps(&self) -> Steps {
        Steps::Pooled
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl OneInput for SequencePool {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let (time, width) = (b.shape(x)[0], b.shape(x)[1]);
        let mask = mask_of(cx, b, "SequencePool", b.shape(x))?;
        let op = StepWeights { of: self.steps, steps: time, masked: mask.is_some() };
        let weights = b.apply(op, &[mask.unwrap_or(x)], "weights", Shape::from(time));
        let mix = Mix { part: MixPart::Forward, branches: time, len: width };
        Ok(Forward::saving(b.apply(mix, &[weights, x], "y", Shape::from(width)), vec![weights]))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let shape = b.shape(back.x).clone();
        let mix = Mix { part: MixPart::BranchGradient, branches: shape[0], len: shape[1] };
        Ok(Some(b.apply(mix, &[back.forward.saved[0], back.gradient], "dx", shape)))
    }
}
