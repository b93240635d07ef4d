//! The lowering that rules for targets share: means of the targets of a layer's output, weighted by the
//! matrix between its input and its output.

use super::Context;
use crate::Result;
use crate::ops::{AbsoluteSums, Combination, Direction, MeanTarget, Product};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

/// What targets of a layer that ends in tanh are held between: where tanh gets for good.
pub(super) const TANH_RANGE: (f64, f64) = (-0.95, 0.95);
/// The same for a layer that ends in the logistic sigmoid.
pub(super) const SIGMOID_RANGE: (f64, f64) = (0.05, 0.95);

/// A matrix between the features of a layer's input and those of its output, as weights for means.
pub(super) struct WeightedMean {
    /// The matrix (inputs, outputs), plain and without a batch axis.
    pub weight: Value,
    /// Features of the input.
    pub inputs: usize,
    /// Features of the output.
    pub outputs: usize,
    /// Whether the output is that of the last step alone.
    pub last: bool,
    /// Which steps are real, where some may be padding.
    pub mask: Option<Value>,
}

impl WeightedMean {
    /// Over every step of the input.
    pub fn new(weight: Value, inputs: usize, outputs: usize) -> Self {
        Self { weight, inputs, outputs, last: false, mask: None }
    }

    /// `t_in[j] = sum_o w[o, j] t[o] / sum_o |w[o, j]|` at each step of `x` that has a target, and what `x`
    /// holds where it has none or the weights have next to no sum.
    pub fn lower(&self, b: &mut Builder, x: Value, target: Value) -> Value {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let shape = b.shape(x).clone();
        let count = b.shape(target).len() / outputs;
        let product = Product::new(Direction::InputGradient, count, inputs, outputs);
        let sums = b.apply(product, &[target, self.weight], "target sums", Shape::from([count, inputs]));
        let op = AbsoluteSums { inputs, outputs };
        let weights = b.apply_fixed(op, &[self.weight], "weight sums", Shape::from([inputs]));
        let (steps, mask) = (shape.len() / inputs, self.mask.is_some());
        let op = MeanTarget { steps, features: inputs, last: self.last, mask };
        let reads: Vec<Value> = [sums, weights, x].into_iter().chain(self.mask).collect();
        b.apply(op, &reads, "target", shape)
    }
}

/// A target held between the bounds of what is to produce it, where there are any.
pub(super) fn clamp(b: &mut Builder, target: Value, range: Option<(f64, f64)>) -> Value {
    let Some((low, high)) = range else { return target };
    let shape = b.shape(target).clone();
    b.apply(Combination::clamp(low, high), &[target], "target", shape)
}

impl Context {
    /// The master of the parameter of this name, whatever the forward pass reads.
    ///
    /// # Errors
    /// As [`parameter`](Self::parameter).
    pub fn master(&self, b: &mut Builder, name: &str) -> Result<Value> {
        let parameter = self.parameter(name)?;
        Ok(b.parameter(parameter.reference, parameter.shape.clone(), None))
    }
}
