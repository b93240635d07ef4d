//! All axes of a row made one.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, Sample, TargetRules, single};
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

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl OneInput for Flatten {
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        let shape = Shape::from([b.shape(x).len()]);
        Ok(Forward::new(b.reshape(x, shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let shape = b.shape(back.x).clone();
        Ok(Some(b.reshape(back.gradient, shape)))
    }
}
