//! A row's elements seen with other extents.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, Sample, TargetRules, shape_error, single};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, extents};

settings! {
    /// Gives a row the extents `shape`; one of them may be -1, to be worked out.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Reshape "reshape" {
        /// Extents of one row, without the batch axis.
        shape: Vec<i64> [least -1],
    }
}

impl Reshape {
    /// To these extents.
    pub fn new(shape: impl Into<Vec<i64>>) -> Self {
        Self { shape: shape.into() }
    }
}

impl Configured for Reshape {
    fn validate(&self) -> Result<()> {
        let open = self.shape.iter().filter(|extent| **extent == -1).count();
        if open > 1 || self.shape.contains(&0) {
            return Err(Error::Value(format!(
                "shape {:?} must have extents of at least 1, but for one that may be -1",
                self.shape
            )));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self { shape: vec![3, -1, 2] }, [4, 9]),
            Sample::new(Self { shape: vec![6] }, [2, 3]),
        ]
    }
}

impl Layer for Reshape {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        let given: Vec<usize> =
            self.shape.iter().filter_map(|extent| usize::try_from(*extent).ok()).collect();
        let known = extents::product(&given);
        let open = if known > 0 && input.len().is_multiple_of(known) { input.len() / known } else { 0 };
        let extents: Vec<usize> =
            self.shape.iter().map(|extent| if *extent < 0 { open } else { *extent as usize }).collect();
        let shape = Shape::new(extents);
        if shape.len() != input.len() || shape.is_empty() {
            let expected = format!("as many elements as {:?} has", self.shape);
            return Err(shape_error("Reshape", &expected, input));
        }
        Ok(shape)
    }

    fn keeps_elements(&self) -> bool {
        true
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl OneInput for Reshape {
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        let shape = self.output_shape(&[b.shape(x).clone()])?;
        Ok(Forward::new(b.reshape(x, shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let shape = b.shape(back.x).clone();
        Ok(Some(b.reshape(back.gradient, shape)))
    }
}
