//! Padding that the layers inside leave out.

use super::chain::{Chain, holds_as_its_layers};
use super::kind_registry::Configured;
use super::settings::{kind_and_config, settings};
use super::{Context, Dense, Forward, Layer, MaskedSoftmax, Sample, Steps, Want, shape_error};
use crate::Result;
use crate::ops::StepMask;
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::tensor::Shape;

settings! {
    /// Layers in a row that leave out the padding of sequences: a step whose every feature equals `value`.
    ///
    /// Recurrent layers hold their state over padding, attention gives it no weight, and what either makes of padding
    /// is zeros; layers that work on each step by itself compute it like any other. The input is (time, ...).
    #[derive(Clone, Debug)]
    pub struct Masked "masked" {
        /// The layers, first to last.
        layers: Chain [least 1],
    } optional {
        /// What padding consists of.
        value: f64 = 0.0,
    }
}

impl Masked {
    /// These layers, with zeros as padding.
    pub fn new(layers: impl Into<Chain>) -> Self {
        Self::with_defaults(layers.into())
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
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        if inputs[0].rank() == 0 {
            return Err(shape_error("Masked", "(time, ...)", &inputs[0]));
        }
        self.layers.output_shape(inputs)
    }

    holds_as_its_layers!();

    fn steps(&self) -> Steps {
        // It finds padding itself.
        Steps::Whole
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let cx = self.masked(b, cx, inputs[0]);
        let mask = cx.mask.into_iter().collect();
        let inner = self.layers.forward(b, &cx, inputs)?;
        Ok(Forward { output: inner.output, saved: mask, preactivation: None, inner: vec![inner], note: None })
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
