//! Random zeroing in training.

use super::registry::{Configured, config_of};
use super::{Context, Feedback, FeedbackForm, Forward, Layer, Sample, Want, single};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, ops};
use serde::{Deserialize, Serialize};

/// In training, zeroes each element with probability `rate` and divides the others by
/// `1 - rate`; otherwise hands its input on (Srivastava et al. 2014, inverted form).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Probability of zeroing, at least 0 and below 1.
    pub rate: f64,
}

impl Configured for Dropout {
    fn validate(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.rate) {
            return Err(Error::Value(format!("rate must be at least 0 and below 1, got {}", self.rate)));
        }
        Ok(())
    }

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
    fn kind(&self) -> &'static str {
        "dropout"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

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
