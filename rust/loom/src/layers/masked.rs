//! Padding that the layers inside leave out.

use super::chain::Chain;
use super::registry::{Configured, config_of};
use super::{Context, Dense, Forward, Layer, MaskedSoftmax, ParameterSpec, Sample, Want, shape_error};
use crate::ops::StepMask;
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::state::{CarriedSpec, StateSpec};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Layers in a row that leave out the padding of sequences: a step whose every feature equals `value`.
///
/// Recurrent layers hold their state over padding, attention gives it no weight, and what either makes of padding
/// is zeros; layers that work on each step by itself compute it like any other. The input is (time, ...).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Masked {
    /// The layers, first to last.
    pub layers: Chain,
    /// What padding consists of.
    #[serde(default)]
    pub value: f64,
}

impl Masked {
    /// These layers, with zeros as padding.
    pub fn new(layers: impl Into<Chain>) -> Self {
        Self { layers: layers.into(), value: 0.0 }
    }

    fn masked(&self, b: &mut Builder, cx: &Context, x: Value) -> Context {
        let shape = b.shape(x);
        let steps = shape[0];
        let op = StepMask { steps, width: shape.len() / steps.max(1), value: self.value };
        let mask = b.apply(op, &[x], "mask", Shape::from(steps));
        Context { mask: Some(mask), ..cx.clone() }
    }
}

impl Configured for Masked {
    fn validate(&self) -> Result<()> {
        if self.layers.is_empty() {
            return Err(Error::Value("layers must be at least one".into()));
        }
        if !self.value.is_finite() {
            return Err(Error::Value(format!("value must be finite, got {}", self.value)));
        }
        self.layers.validate()
    }

    fn samples() -> Vec<Sample> {
        let dense = Dense::new(3).activation(Activation::Tanh);
        vec![
            Sample::new(Self::new(dense.clone()), [4, 2]).masked(),
            Sample::new(Self { value: -1.0, ..Self::new(dense) }, [1, 1]),
            Sample::new(Self::new(MaskedSoftmax { axis: 0, ..MaskedSoftmax::default() }), [7, 3]).masked(),
            Sample::new(Self::new(MaskedSoftmax::default()), [4, 5]).masked(),
        ]
    }
}

impl Layer for Masked {
    fn kind(&self) -> &'static str {
        "masked"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        if inputs[0].rank() == 0 {
            return Err(shape_error("Masked", "(time, ...)", &inputs[0]));
        }
        self.layers.output_shape(inputs)
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        self.layers.parameters(inputs)
    }

    fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        self.layers.states(inputs)
    }

    fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        self.layers.carried(inputs, length)
    }

    fn takes_context(&self) -> bool {
        self.layers.takes_context()
    }

    fn index_limit(&self) -> Option<usize> {
        self.layers.index_limit()
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let cx = self.masked(b, cx, inputs[0]);
        let mask = cx.mask.into_iter().collect();
        let inner = self.layers.forward(b, &cx, inputs)?;
        Ok(Forward { output: inner.output, saved: mask, preactivation: None, inner: vec![inner] })
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
        let cx = Context { mask: forward.saved.first().copied(), ..cx.clone() };
        let made = self.layers.backward(b, &cx, inputs, &forward.inner[0], gradient, want)?;
        Ok(vec![made.input, made.context])
    }
}
