//! A weight with or without a bias, by itself or among others of a layer.

use super::low_rank::{Decomposed, LowRank};
use super::{Context, ParameterSpec, Want};
use crate::ops::{BiasAdd, BiasGradient, Direction, Product};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result};
use std::borrow::Cow;

/// `x W^T + b` over the last axis, with parameters (outputs, inputs) and (outputs,).
#[derive(Clone, Debug)]
pub(super) struct Projection {
    /// The weight's name.
    pub weight: Cow<'static, str>,
    /// The bias's name, if there is one.
    pub bias: Option<Cow<'static, str>>,
    /// Extent of the last axis of x.
    pub inputs: usize,
    /// Extent of the last axis of the result.
    pub outputs: usize,
}

impl Projection {
    /// One with parameters `NAME_weight` and `NAME_bias`.
    pub fn named(name: &str, inputs: usize, outputs: usize, bias: bool) -> Self {
        let bias = bias.then(|| format!("{name}_bias").into());
        Self { weight: format!("{name}_weight").into(), bias, inputs, outputs }
    }

    /// Its parameters; the bias starts at zero unless told otherwise.
    pub fn parameters(&self, initializer: Initializer, bias: Option<Initializer>) -> Vec<ParameterSpec> {
        let weight = ParameterSpec {
            name: self.weight.clone(),
            layout: Layout::input_major([self.outputs, self.inputs]),
            initializer,
            fan_in: self.inputs,
            fan_out: self.outputs,
            morphable: true,
            decay_exempt: false,
            adaptable: true,
        };
        with_bias(weight, self.bias.clone(), self.outputs, bias)
    }

    /// The result.
    pub fn forward(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Value> {
        let mut extents = b.shape(x).to_vec();
        if let Some(last) = extents.last_mut() {
            *last = self.outputs;
        }
        let shape = Shape::new(extents);
        let weight = cx.read(b, &self.weight)?;
        let mut z = b.apply(self.product(b, x, Direction::Forward), &[x, weight], "z", shape.clone());
        if let Some(decomposed) = self.decomposed(cx) {
            let low_rank = decomposed.low_rank.forward(b, cx, x);
            z = decomposed.forward(b, cx, x, [z, low_rank])?;
        }
        let z = match &self.bias {
            None => z,
            Some(bias) => {
                let bias = cx.read(b, bias)?;
                let add = BiasAdd { outer: shape.len() / self.outputs, channels: self.outputs, inner: 1 };
                b.apply(add, &[z, bias], "z", shape)
            }
        };
        let mut parts = vec![z];
        for low_rank in self.added(cx) {
            parts.push(low_rank.forward(b, cx, x));
        }
        b.sum(&parts).ok_or_else(|| Error::Internal("a product was lost".into()))
    }

    /// What is added to outputs as it is.
    fn added<'a>(&'a self, cx: &'a Context) -> impl Iterator<Item = LowRank<'a>> {
        cx.adapters_of(&self.weight).filter(|adapter| adapter.magnitude.is_none()).map(|adapter| LowRank {
            adapter,
            inputs: self.inputs,
            outputs: self.outputs,
        })
    }

    /// What is added before outputs are given lengths, and these.
    fn decomposed<'a>(&'a self, cx: &'a Context) -> Option<Decomposed<'a>> {
        cx.adapters_of(&self.weight).find_map(|adapter| {
            let magnitude = adapter.magnitude.as_ref()?;
            let low_rank = LowRank { adapter, inputs: self.inputs, outputs: self.outputs };
            Some(Decomposed { low_rank, magnitude, weight: &self.weight })
        })
    }

    /// Pushes the parameters' gradients, the bias's before the weight's: one kernel may make both.
    pub fn contribute(&self, b: &mut Builder, cx: &Context, x: Value, gradient: Value) -> Result<()> {
        let product = self.product(b, x, Direction::WeightGradient);
        if let Some(bias) = &self.bias {
            let op = BiasGradient { outer: product.multiplier, channels: self.outputs, inner: 1 };
            cx.contribute(b, bias, op, &[gradient])?;
        }
        for low_rank in self.added(cx) {
            low_rank.contribute(b, cx, x, gradient);
        }
        let mut of_product = gradient;
        if let Some(decomposed) = self.decomposed(cx) {
            of_product = decomposed.contribute(b, cx, x, gradient)?;
        }
        cx.contribute(b, &self.weight, product, &[x, of_product])
    }

    /// The gradient of the input.
    pub fn input_gradient(&self, b: &mut Builder, cx: &Context, x: Value, gradient: Value) -> Result<Value> {
        let weight = cx.read(b, &self.weight)?;
        let shape = b.shape(x).clone();
        let decomposed = self.decomposed(cx);
        let of_product = match &decomposed {
            Some(decomposed) => decomposed.product_gradient(b, cx, gradient)?,
            None => gradient,
        };
        let own = b.apply(self.product(b, x, Direction::InputGradient), &[of_product, weight], "dx", shape);
        let mut parts = vec![own];
        if let Some(decomposed) = decomposed {
            parts.push(decomposed.low_rank.input_gradient(b, cx, x, of_product));
        }
        for low_rank in self.added(cx) {
            parts.push(low_rank.input_gradient(b, cx, x, gradient));
        }
        b.sum(&parts).ok_or_else(|| Error::Internal("a gradient was lost".into()))
    }

    /// Pushes the parameters' gradients, and returns the input's, where they are wanted.
    pub fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        x: Value,
        gradient: Value,
        want: Want,
    ) -> Result<Option<Value>> {
        if want.parameters {
            self.contribute(b, cx, x, gradient)?;
        }
        want.inputs.then(|| self.input_gradient(b, cx, x, gradient)).transpose()
    }

    fn product(&self, b: &Builder, x: Value, direction: Direction) -> Product {
        Product::new(direction, b.shape(x).len() / self.inputs, self.inputs, self.outputs)
    }
}

/// A layer's weight, and a bias of `channels` that starts at zero unless told otherwise, if there is one.
pub(super) fn with_bias(
    weight: ParameterSpec,
    bias: Option<Cow<'static, str>>,
    channels: usize,
    initializer: Option<Initializer>,
) -> Vec<ParameterSpec> {
    let bias = bias.map(|name| ParameterSpec {
        name,
        layout: Layout::plain([channels]),
        initializer: initializer.unwrap_or(Initializer::Zeros),
        morphable: false,
        decay_exempt: true,
        adaptable: false,
        ..weight.clone()
    });
    std::iter::once(weight).chain(bias).collect()
}
