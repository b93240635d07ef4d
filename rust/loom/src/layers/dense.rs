//! Fully connected layer.

use super::activation::{activate, activate_backward, linear, range_of};
use super::feedback::learned;
use super::one_input::{Backward, OneInput, one_input};
use super::projection::Projection;
use super::registry::{Configured, config_of};
use super::target::WeightedMean;
use super::{
    Context, Feedback, FeedbackForm, Forward, Layer, ParameterSpec, Sample, TargetRules, shape_error, single,
};
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::Initializer;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// `activation(x W^T + b)` over the last axis: (..., features) to (..., units).
///
/// The outside sees the weight as (units, features), the bias as (units,).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dense {
    /// Extent of the output's last axis.
    pub units: usize,
    /// Applied to every output.
    #[serde(default)]
    pub activation: Activation,
    /// Whether a trained number is added to every unit.
    #[serde(default = "yes")]
    pub bias: bool,
    /// How the weight starts; Xavier normal unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_initializer: Option<Initializer>,
    /// How the bias starts; zeros unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias_initializer: Option<Initializer>,
}

pub(super) fn yes() -> bool {
    true
}

impl Dense {
    /// A linear layer with a bias.
    pub fn new(units: usize) -> Self {
        Self {
            units,
            activation: Activation::default(),
            bias: true,
            weight_initializer: None,
            bias_initializer: None,
        }
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
    fn validate(&self) -> Result<()> {
        if self.units == 0 {
            return Err(Error::Value("units must be at least 1".into()));
        }
        Ok(())
    }

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
    fn kind(&self) -> &'static str {
        "dense"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

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
