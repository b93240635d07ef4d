//! Random zeroing in training.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, Sample, TargetRules, single};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, ops};

settings! {
    /// In training, zeroes each element with probability `rate` and divides the others by
    /// `1 - rate`; otherwise hands its input on (Srivastava et al. 2014, inverted form).
    #[derive(Clone, Debug, PartialEq)]
    pub struct Dropout "dropout" {
        /// Probability of zeroing, at least 0 and below 1.
        rate: f64 [least 0.0, below 1.0],
    }
}

impl Configured for Dropout {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self { rate: 0.0 }, [5]), Sample::new(Self { rate: 0.4 }, [3, 7])]
    }
}

impl Dropout {
    /// The mask over a value or its gradient, which are left as they are where none is drawn.
    fn drop_out(&self, b: &mut Builder, cx: &Context, x: Value, label: &'static str) -> Value {
        if !cx.training || self.rate == 0.0 {
            return x;
        }
        let shape = b.shape(x).clone();
        b.apply(ops::Dropout { rate: self.rate, features: shape.len(), shared: 1 }, &[x], label, shape)
    }
}

impl Layer for Dropout {
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

impl OneInput for Dropout {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        Ok(Forward::new(self.drop_out(b, cx, x, "y")))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        Ok(Some(self.drop_out(b, back.cx, back.gradient, "dx")))
    }
}
