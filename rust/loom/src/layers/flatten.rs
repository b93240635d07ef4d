//! All axes of a row made one.

use super::registry::Configured;
use super::settings::{kind_and_config, settings};
use super::{Context, Feedback, FeedbackForm, Forward, Layer, Sample, Want, single};
use crate::Result;
use crate::program::{Builder, Value};
use crate::tensor::Shape;

settings! {
    /// (a, b, ...) to (a b ...,): the same memory, no work.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Flatten "flatten" {}
}

impl Configured for Flatten {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self {}, [1]), Sample::new(Self {}, [2, 3, 5])]
    }
}

impl Layer for Flatten {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        Ok(Shape::from([single(self.kind(), inputs)?.len()]))
    }

    fn keeps_elements(&self) -> bool {
        true
    }

    fn forward(&self, b: &mut Builder, _cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let shape = Shape::from([b.shape(x).len()]);
        Ok(Forward::new(b.reshape(x, shape)))
    }

    fn backward(
        &self,
        b: &mut Builder,
        _cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let shape = b.shape(*single(self.kind(), inputs)?).clone();
        Ok(vec![want.inputs.then(|| b.reshape(gradient, shape))])
    }

    fn feedback(&self, _inputs: &[Shape], _form: FeedbackForm) -> Feedback {
        Feedback::Backward
    }
}
