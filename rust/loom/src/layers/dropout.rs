//! Random zeroing in training.

use super::registry::Configured;
use super::settings::{kind_and_config, settings};
use super::{Context, Feedback, FeedbackForm, Forward, Layer, Sample, Want, single};
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
    fn op(&self, b: &Builder, x: Value) -> ops::Dropout {
        ops::Dropout { rate: self.rate, features: b.shape(x).len() }
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

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        if !cx.training || self.rate == 0.0 {
            return Ok(Forward::new(x));
        }
        let (op, shape) = (self.op(b, x), b.shape(x).clone());
        Ok(Forward::new(b.apply(op, &[x], "y", shape)))
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        if !want.inputs {
            return Ok(vec![None]);
        }
        if !cx.training || self.rate == 0.0 {
            return Ok(vec![Some(gradient)]);
        }
        let x = *single(self.kind(), inputs)?;
        let (op, shape) = (self.op(b, x), b.shape(x).clone());
        Ok(vec![Some(b.apply(op, &[gradient], "dx", shape))])
    }

    fn feedback(&self, _inputs: &[Shape], _form: FeedbackForm) -> Feedback {
        Feedback::Backward
    }
}
