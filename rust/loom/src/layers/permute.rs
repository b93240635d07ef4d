//! Axes in another order.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Feedback, FeedbackForm, Forward, Layer, Sample, TargetRules, shape_error, single};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, ops};

settings! {
    /// A sample with its axes in another order: axis `i` of the output is axis `axes[i]` of the input, both
    /// counted from 0 without the batch.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Permute "permute" {
        /// Each axis once.
        axes: Vec<usize>,
    }
}

impl Permute {
    fn op(&self, shape: &Shape) -> ops::Permute {
        ops::Permute { extents: shape.to_vec(), order: self.axes.clone() }
    }

    /// `y` with the axes of `x`, in their order.
    fn put_back(&self, b: &mut Builder, x: Value, y: Value, label: &'static str) -> Value {
        let shape = b.shape(x).clone();
        b.apply(self.op(&shape).inverse(), &[y], label, shape)
    }
}

impl Configured for Permute {
    fn validate(&self) -> Result<()> {
        let count = self.axes.len();
        if count == 0 || (0..count).any(|axis| !self.axes.contains(&axis)) {
            return Err(Error::Value(format!(
                "axes must name each axis from 0 on once, such as [1, 0], got {:?}",
                self.axes
            )));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self { axes: vec![0] }, [3]),
            Sample::new(Self { axes: vec![1, 0] }, [3, 5]),
            Sample::new(Self { axes: vec![2, 0, 1] }, [2, 3, 4]),
        ]
    }
}

impl Layer for Permute {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        if input.rank() != self.axes.len() {
            return Err(shape_error("Permute", &format!("{} axes", self.axes.len()), input));
        }
        Ok(Shape::new(self.op(input).permuted()))
    }

    fn keeps_elements(&self) -> bool {
        true
    }

    fn is_stepwise(&self) -> bool {
        self.axes.first() == Some(&0)
    }

    fn moved_axis(&self, axis: usize) -> usize {
        self.axes.iter().position(|from| *from == axis).unwrap_or(axis)
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        self
    }
}

impl TargetRules for Permute {
    /// The target with its axes put back.
    fn target(
        &self,
        b: &mut Builder,
        _cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        target: Value,
    ) -> Result<Option<Value>> {
        let x = *single(self.kind(), inputs)?;
        Ok(Some(self.put_back(b, x, target, "target")))
    }

    fn feedback(&self, _inputs: &[Shape], _form: FeedbackForm) -> Feedback {
        Feedback::Backward
    }
}

impl OneInput for Permute {
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        let op = self.op(b.shape(x));
        let shape = Shape::new(op.permuted());
        Ok(Forward::new(b.apply(op, &[x], "permuted", shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        Ok(Some(self.put_back(b, back.x, back.gradient, "dx")))
    }
}
