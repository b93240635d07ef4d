//! All axes of a row made one.

use super::one_input::{Backward, OneInput, one_input};
use super::registry::{Configured, config_of};
use super::target_rules::Linear;
use super::{Context, Forward, Layer, Sample, TargetRules, single};
use crate::Result;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use serde::{Deserialize, Serialize};

/// (a, b, ...) to (a b ...,): the same memory, no work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flatten {}

impl Configured for Flatten {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self {}, [1]), Sample::new(Self {}, [2, 3, 5])]
    }
}

impl Layer for Flatten {
    fn kind(&self) -> &'static str {
        "flatten"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

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
