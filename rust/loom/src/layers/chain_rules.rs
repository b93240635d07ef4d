//! How layers in a row learn by targets: by the rules of each, from the last to the first.

use super::chain::inputs_of;
use super::target::clamp;
use super::{Chain, Context, Feedback, FeedbackForm, Forward, Layer, Reshape, Sequential, TargetRules};
use crate::Result;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use std::sync::Arc;

impl TargetRules for Chain {
    /// A target for the input from one for what the last layer makes, by each layer's rule from the last to
    /// the first and between the bounds of each. It passes through layers without a rule; where one of
    /// those makes more or fewer elements than it reads, what it has read stays as it is.
    fn target(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        target: Value,
    ) -> Result<Option<Value>> {
        let outside = b.layer();
        let mut target = target;
        for (number, layer) in self.layers().iter().enumerate().rev() {
            let cx = cx.inner(number, &number.to_string());
            b.set_layer(Some(cx.path.clone()));
            let value = if number == 0 { inputs[0] } else { forward.inner[number - 1].output };
            let operands = inputs_of(layer.takes_context(), value, inputs);
            let made = layer.target_rules().target(b, &cx, &operands, &forward.inner[number], target)?;
            target = made.unwrap_or_else(|| pass(b, target, value));
            if let Some(below) = number.checked_sub(1) {
                target = clamp(b, target, self.layers()[below].target_rules().target_range());
            }
        }
        b.set_layer(outside);
        Ok(Some(target))
    }

    /// What leads back through all layers: their maps in the reverse order, where each has one or leaves
    /// its elements in their order.
    fn feedback(&self, inputs: &[Shape], form: FeedbackForm) -> Feedback {
        let (shapes, false) = (self.shapes(inputs), self.takes_context()) else { return Feedback::Unknown };
        let Ok((shapes, _)) = shapes else { return Feedback::Unknown };
        let mut maps: Vec<Arc<dyn Layer>> = Vec::with_capacity(self.layers().len());
        let (mut linear, mut mapped) = (true, true);
        for (layer, inputs) in self.layers().iter().zip(&shapes).rev() {
            match layer.target_rules().feedback(inputs, form) {
                Feedback::Learned(map) => {
                    maps.push(Sequential::joined(map));
                    linear = false;
                }
                Feedback::Backward if matches!(layer.kind(), "flatten" | "reshape") => {
                    let extents: Vec<i64> = inputs[0].iter().map(|extent| *extent as i64).collect();
                    maps.push(Arc::new(Reshape::new(extents)));
                }
                Feedback::Backward => mapped = false,
                Feedback::Unknown => return Feedback::Unknown,
            }
        }
        match (linear, mapped) {
            (true, _) => Feedback::Backward,
            (false, true) => Feedback::Learned(vec![Arc::new(Sequential::new(Self::new(maps)))]),
            (false, false) => Feedback::Unknown,
        }
    }

    /// What targets of the last layer that changes elements are held between.
    fn target_range(&self) -> Option<(f64, f64)> {
        self.layers().iter().rev().find(|layer| !layer.keeps_elements())?.target_rules().target_range()
    }
}

/// A layer's target as that of its input, where it has as many elements; else the input.
fn pass(b: &mut Builder, target: Value, input: Value) -> Value {
    let shape = b.shape(input).clone();
    match b.shape(target) {
        same if *same == shape => target,
        other if other.len() == shape.len() => b.reshape(target, shape),
        _ => input,
    }
}
