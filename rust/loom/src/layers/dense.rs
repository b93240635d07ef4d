//! Fully connected layer.

use super::activation::{activate, activate_backward, linear, range_of};
use super::feedback::{in_form, learned};
use super::registry::Configured;
use super::settings::{kind_and_config, settings};
use super::target::WeightedMean;
use super::{
    Context, Feedback, FeedbackForm, Forward, Layer, ParameterSpec, Sample, Want, shape_error, single,
};
use crate::Result;
use crate::ops::pointwise::Activation;
use crate::ops::{BiasAdd, BiasGradient, Direction, Product};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};

settings! {
    /// `activation(x W^T + b)` over the last axis: (..., features) to (..., units).
    ///
    /// The outside sees the weight as (units, features), the bias as (units,).
    #[derive(Clone, Debug, PartialEq)]
    pub struct Dense "dense" {
        /// Extent of the output's last axis.
        units: usize [least 1],
    } optional {
        /// Applied to every output.
        activation: Activation = Activation::Linear,
        /// Whether a trained number is added to every unit.
        bias: bool = true,
        /// How the weight starts; Xavier normal unless named.
        weight_initializer: Option<Initializer> = None,
        /// How the bias starts; zeros unless named.
        bias_initializer: Option<Initializer> = None,
    }
}

impl Dense {
    /// A linear layer with a bias.
    pub fn new(units: usize) -> Self {
        Self::with_defaults(units)
    }

    /// With this activation.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }
}

/// A layer's weight, and a bias of `channels` that starts at zero unless told otherwise, if there is one.
pub(super) fn with_bias(
    weight: ParameterSpec,
    bias: bool,
    channels: usize,
    initializer: Option<Initializer>,
) -> Vec<ParameterSpec> {
    let bias = bias.then(|| ParameterSpec {
        name: "bias".into(),
        layout: Layout::plain([channels]),
        initializer: initializer.unwrap_or(Initializer::Zeros),
        morphable: false,
        decay_exempt: true,
        ..weight.clone()
    });
    std::iter::once(weight).chain(bias).collect()
}

impl Configured for Dense {
    fn samples() -> Vec<Sample> {
        let wide = Self { weight_initializer: Some(Initializer::Normal { std: 0.3 }), ..Dense::new(19) };
        vec![
            Sample::new(Dense::new(1), [1]),
            Sample::new(Dense::new(5).activation(Activation::Tanh), [7]),
            Sample::new(wide.activation(Activation::Gelu), [3, 33]),
            Sample::new(Dense::new(4).without_bias().activation(Activation::Silu), [2, 3, 5]),
        ]
    }
}

impl Layer for Dense {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        let (features, outer) = input
            .split_last()
            .ok_or_else(|| shape_error("Dense", "at least one axis, (..., features)", input))?;
        if *features == 0 {
            return Err(shape_error("Dense", "at least one feature", input));
        }
        Ok(Shape::new([outer, &[self.units]].concat()))
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let features = inputs[0].last().copied().unwrap_or(1);
        let weight = ParameterSpec {
            name: "weight".into(),
            layout: Layout::input_major([self.units, features]),
            initializer: self.weight_initializer.unwrap_or(Initializer::XavierNormal),
            fan_in: features,
            fan_out: self.units,
            morphable: true,
            decay_exempt: false,
        };
        with_bias(weight, self.bias, self.units, self.bias_initializer)
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let shape = self.output_shape(&[b.shape(x).clone()])?;
        let (multiplier, features) = self.extents(b, x);
        let weight = cx.read(b, "weight")?;
        let product = Product::new(Direction::Forward, multiplier, features, self.units);
        let mut z = b.apply(product, &[x, weight], "z", shape.clone());
        if self.bias {
            let bias = cx.read(b, "bias")?;
            let add = BiasAdd { outer: multiplier, channels: self.units, inner: 1 };
            z = b.apply(add, &[z, bias], "z", shape);
        }
        Ok(activate(b, self.activation, z))
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let x = *single(self.kind(), inputs)?;
        let (multiplier, features) = self.extents(b, x);
        let dz = activate_backward(b, self.activation, forward, gradient);
        if want.parameters {
            if self.bias {
                let bias = cx.parameter("bias")?;
                let op = BiasGradient { outer: multiplier, channels: self.units, inner: 1 };
                b.contribute(op, &[dz], bias.reference, bias.shape.clone());
            }
            let weight = cx.parameter("weight")?;
            let op = Product::new(Direction::WeightGradient, multiplier, features, self.units);
            b.contribute(op, &[x, dz], weight.reference, weight.shape.clone());
        }
        if !want.inputs {
            return Ok(vec![None]);
        }
        let weight = cx.read(b, "weight")?;
        let shape = b.shape(x).clone();
        let op = Product::new(Direction::InputGradient, multiplier, features, self.units);
        Ok(vec![Some(b.apply(op, &[dz, weight], "dx", shape))])
    }

    /// The mean by the weight.
    fn target(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        target: Value,
    ) -> Result<Option<Value>> {
        let x = *single(self.kind(), inputs)?;
        let (_, features) = self.extents(b, x);
        let weight = cx.master(b, "weight")?;
        Ok(Some(WeightedMean::new(weight, features, self.units).lower(b, x, target)))
    }

    fn feedback(&self, inputs: &[Shape], form: FeedbackForm) -> Feedback {
        let (Ok(output), Ok(input)) = (self.output_shape(inputs), single(self.kind(), inputs)) else {
            return Feedback::Unknown;
        };
        let units = input.last().copied().unwrap_or(1);
        let map = |activation| Self { units, activation, ..self.clone() };
        learned(in_form(form, self.activation, map), output, input)
    }

    fn without_activation(&self) -> Option<Box<dyn Layer>> {
        linear(self.activation, || self.clone().activation(Activation::Linear))
    }

    fn target_range(&self) -> Option<(f64, f64)> {
        range_of(self.activation)
    }
}

impl Dense {
    /// Product rows for each row of the batch, and features.
    fn extents(&self, b: &Builder, x: Value) -> (usize, usize) {
        let shape = b.shape(x);
        let features = shape.last().copied().unwrap_or(1);
        (shape.len() / features, features)
    }
}
