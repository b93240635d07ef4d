//! A weight with or without a bias, inside layers that have several.

use super::{Context, ParameterSpec, Want};
use crate::Result;
use crate::ops::{BiasAdd, BiasGradient, Direction, Product};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};

/// `x W^T + b` over the last axis, with parameters `NAME_weight` (outputs, inputs) and `NAME_bias`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Projection {
    /// What its parameters' names begin with.
    pub name: &'static str,
    /// Extent of the last axis of x.
    pub inputs: usize,
    /// Extent of the last axis of the result.
    pub outputs: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

impl Projection {
    fn weight(&self) -> String {
        format!("{}_weight", self.name)
    }

    fn bias(&self) -> String {
        format!("{}_bias", self.name)
    }

    /// Its parameters.
    pub fn parameters(&self, initializer: Initializer) -> Vec<ParameterSpec> {
        let weight = ParameterSpec {
            name: self.weight().into(),
            layout: Layout::input_major([self.outputs, self.inputs]),
            initializer,
            fan_in: self.inputs,
            fan_out: self.outputs,
            morphable: true,
            decay_exempt: false,
        };
        let bias = self.bias.then(|| ParameterSpec {
            name: self.bias().into(),
            layout: Layout::plain([self.outputs]),
            initializer: Initializer::Zeros,
            morphable: false,
            decay_exempt: true,
            ..weight.clone()
        });
        std::iter::once(weight).chain(bias).collect()
    }

    fn multiplier(&self, b: &Builder, x: Value, features: usize) -> usize {
        b.shape(x).len() / features
    }

    /// The result.
    pub fn forward(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Value> {
        let multiplier = self.multiplier(b, x, self.inputs);
        let shape = Shape::from([multiplier, self.outputs]);
        let weight = cx.read(b, &self.weight())?;
        let product = Product::new(Direction::Forward, multiplier, self.inputs, self.outputs);
        let z = b.apply(product, &[x, weight], "z", shape.clone());
        if !self.bias {
            return Ok(z);
        }
        let bias = cx.read(b, &self.bias())?;
        let add = BiasAdd { outer: multiplier, channels: self.outputs, inner: 1 };
        Ok(b.apply(add, &[z, bias], "z", shape))
    }

    /// The weight's master (inputs, outputs), whatever the forward pass reads.
    pub fn master(&self, b: &mut Builder, cx: &Context) -> Result<Value> {
        cx.master(b, &self.weight())
    }

    /// Pushes the parameters' gradients, and returns the input's where it is wanted.
    pub fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        x: Value,
        gradient: Value,
        want: Want,
    ) -> Result<Option<Value>> {
        let multiplier = self.multiplier(b, x, self.inputs);
        let product = |direction| Product::new(direction, multiplier, self.inputs, self.outputs);
        if want.parameters {
            if self.bias {
                let bias = cx.parameter(&self.bias())?;
                let op = BiasGradient { outer: multiplier, channels: self.outputs, inner: 1 };
                b.contribute(op, &[gradient], bias.reference, bias.shape.clone());
            }
            let weight = cx.parameter(&self.weight())?;
            let op = product(Direction::WeightGradient);
            b.contribute(op, &[x, gradient], weight.reference, weight.shape.clone());
        }
        if !want.inputs {
            return Ok(None);
        }
        let weight = cx.read(b, &self.weight())?;
        let shape = b.shape(x).clone();
        Ok(Some(b.apply(product(Direction::InputGradient), &[gradient, weight], "dx", shape)))
    }
}
