//! A layer whose weight is made of directions and lengths.

use super::chain::{Chain, goes_as_its_layers};
use super::kind_registry::Configured;
use super::remade::{self, WEIGHT, extents};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, Want};
use crate::Result;
use crate::ops::{self, Direction, Sum};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};

/// The name of the lengths.
const GAIN: &str = "gain";

settings! {
    /// One layer whose weight is `gain v / |v|`, each output's by itself (Salimans and Kingma 2016).
    ///
    /// The parameter `0.weight` is v, whose length does not matter; the `gain` (outputs,) begins with the lengths that
    /// v has, so that the layer begins as it would without.
    #[derive(Clone, Debug)]
    pub struct WeightNorm "weight_norm" {
        /// The layer: dense, or a convolution.
        layers: Chain [least 1, most 1],
    }
}

impl WeightNorm {
    /// This layer.
    pub fn new(layer: impl Into<Chain>) -> Self {
        Self::with_defaults(layer.into())
    }
}

impl Configured for WeightNorm {
    fn validate(&self) -> Result<()> {
        remade::validate(&self.layers)
    }

    fn samples() -> Vec<Sample> {
        remade::samples(Self::new)
    }
}

impl Layer for WeightNorm {
    kind_and_config!();

    goes_as_its_layers!();

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let mut specs = remade::parameters(&self.layers, inputs);
        let Some(place) = specs.iter().position(|spec| spec.name == WEIGHT) else { return specs };
        let (_, columns) = specs[place].layout.storage_matrix();
        let gain = ParameterSpec {
            name: GAIN.into(),
            layout: Layout::plain([columns]),
            initializer: Initializer::Lengths,
            morphable: false,
            decay_exempt: true,
            adaptable: false,
            ..specs[place].clone()
        };
        // Right behind the weight, whose lengths it begins with.
        specs.insert(place + 1, gain);
        specs
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let (rows, columns) = extents(cx)?;
        let reads = [cx.read(b, WEIGHT)?, cx.read(b, GAIN)?];
        let op = ops::WeightNorm { direction: Direction::Forward, rows, columns };
        let results = [("weight", Shape::from([rows, columns])), ("lengths", Shape::from(columns))];
        let [weight, lengths] = b.apply_several_fixed(op, &reads, results);
        let inner = remade::forward(&self.layers, b, cx, inputs, weight)?;
        Ok(Forward {
            output: inner.output,
            saved: vec![weight, lengths],
            preactivation: None,
            inner: vec![inner],
            note: None,
        })
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
        let trained = cx.parameter(WEIGHT)?.trained || cx.parameter(GAIN)?.trained;
        let (weight, lengths) = (forward.saved[0], forward.saved[1]);
        let went = (inputs, &forward.inner[0], gradient);
        let (input, dw) = remade::backward(&self.layers, b, (cx, trained), went, weight, want)?;
        if let Some(dw) = dw {
            let (rows, columns) = extents(cx)?;
            let reads = [cx.read(b, WEIGHT)?, cx.read(b, GAIN)?, lengths, dw];
            let op = ops::WeightNorm { direction: Direction::InputGradient, rows, columns };
            let results = [("dv", Shape::from([rows, columns])), ("dgain", Shape::from(columns))];
            let [dv, dgain] = b.apply_several_fixed(op, &reads, results);
            cx.contribute(b, WEIGHT, Sum { operands: 1 }, &[dv])?;
            cx.contribute(b, GAIN, Sum { operands: 1 }, &[dgain])?;
        }
        Ok(vec![input])
    }
}
