//! Fully connected layer.

use super::activation::{activate, activate_backward, linear, range_of};
use super::feedback::learned;
use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::projection::Projection;
use super::settings::{kind_and_config, settings};
use super::target::WeightedMean;
use super::{
    Context, Feedback, FeedbackForm, Forward, Layer, ParameterSpec, Sample, TargetRules, shape_error, single,
};
use crate::Result;
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::Initializer;

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

    fn projection(&self, input: &Shape) -> Projection {
        Projection {
            weight: "weight".into(),
            bias: self.bias.then(|| "bias".into()),
            inputs: input.last().copied().unwrap_or(1),
            outputs: self.units,
        }
    }
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
        let initializer = self.weight_initializer.unwrap_or(Initializer::XavierNormal);
        self.projection(&inputs[0]).parameters(initializer, self.bias_initializer)
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        self
    }
}

impl TargetRules for Dense {
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
        let features = self.projection(b.shape(x)).inputs;
        let weight = cx.master(b, "weight")?;
        Ok(Some(WeightedMean::new(weight, features, self.units).lower(b, x, target)))
    }

    fn feedback(&self, inputs: &[Shape], form: FeedbackForm) -> Feedback {
        let (Ok(output), Ok(input)) = (self.output_shape(inputs), single(self.kind(), inputs)) else {
            return Feedback::Unknown;
        };
        let units = input.last().copied().unwrap_or(1);
        let map = |activation| Self { units, activation, ..self.clone() };
        learned(form, self.activation, map, output, input)
    }

    fn without_activation(&self) -> Option<Box<dyn Layer>> {
        linear(self.activation, || self.clone().activation(Activation::Linear))
    }

    fn target_range(&self) -> Option<(f64, f64)> {
        range_of(self.activation)
    }
}

impl OneInput for Dense {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let z = self.projection(b.shape(x)).forward(b, cx, x)?;
        Ok(activate(b, self.activation, z))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, want, .. } = *back;
        let dz = activate_backward(b, self.activation, back.forward, back.gradient);
        self.projection(b.shape(x)).backward(b, cx, x, dz, want)
    }
}
