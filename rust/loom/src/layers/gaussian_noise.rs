//! Normal noise in training.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, Sample, TargetRules, single};
use crate::ops::Sum;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, ops};

/// What tells the layer's noise from others of its place; learning by targets counts its own from 0.
const PURPOSE: u32 = u32::MAX;

settings! {
    /// In training, adds to every element a normal number of its own with mean 0; otherwise hands its input on.
    ///
    /// The noise is a function of (seed, committed step, layer, row, element), so runs repeat.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GaussianNoise "gaussian_noise" {
        /// Standard deviation, at least 0.
        standard_deviation: f64 [least 0.0],
    }
}

impl Configured for GaussianNoise {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self { standard_deviation: 0.4 }, [3, 7]),
            Sample::new(Self { standard_deviation: 0.0 }, [5]),
            Sample::new(Self { standard_deviation: 0.1 }, [2, 3, 3]),
        ]
    }
}

impl Layer for GaussianNoise {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        single(self.kind(), inputs).cloned()
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl OneInput for GaussianNoise {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        if !cx.training || self.standard_deviation == 0.0 {
            return Ok(Forward::new(x));
        }
        let shape = b.shape(x).clone();
        let op =
            ops::GaussianNoise { scale: self.standard_deviation, purpose: PURPOSE, features: shape.len() };
        let noise = b.apply(op, &[], "noise", shape.clone());
        Ok(Forward::new(b.apply(Sum { operands: 2 }, &[x, noise], "y", shape)))
    }

    fn lower_backward(&self, _b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        Ok(Some(back.gradient))
    }
}
