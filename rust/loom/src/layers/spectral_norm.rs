//! A layer whose weight is divided by its largest singular value.

use super::chain::{Chain, goes_as_its_layers};
use super::kind_registry::Configured;
use super::remade::{self, WEIGHT, extents};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, StateSpec, Want};
use crate::Result;
use crate::ops::{self, Direction, Sum};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

/// The name of what power iterations have come to.
const VECTOR: &str = "left_vector";

settings! {
    /// One layer whose weight is divided by its largest singular value, of the matrix with a row for each output, as
    /// a power iteration estimates it (Miyato et al. 2018).
    ///
    /// The parameter `0.weight` is the weight before that. The state `left_vector` (outputs,) is where iterations have
    /// got to; every step of training makes one more, and inference goes on from there without keeping it.
    #[derive(Clone, Debug)]
    pub struct SpectralNorm "spectral_norm" {
        /// The layer: dense, or a convolution.
        layers: Chain [least 1, most 1],
    }
}

impl SpectralNorm {
    /// This layer.
    pub fn new(layer: impl Into<Chain>) -> Self {
        Self::with_defaults(layer.into())
    }
}

impl Configured for SpectralNorm {
    fn validate(&self) -> Result<()> {
        remade::validate(&self.layers)
    }

    fn samples() -> Vec<Sample> {
        remade::samples(Self::new)
    }
}

impl Layer for SpectralNorm {
    kind_and_config!();

    goes_as_its_layers!();

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        remade::parameters(&self.layers, inputs)
    }

    fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        let specs = self.layers.parameters(inputs);
        let weight = specs.iter().find(|spec| spec.name == WEIGHT);
        let state = |spec: &ParameterSpec| StateSpec {
            name: VECTOR.into(),
            shape: Shape::from(spec.layout.storage_matrix().1),
            initial: 1.0,
        };
        weight.map(state).into_iter().collect()
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let (rows, columns) = extents(cx)?;
        let state = cx.state(b, VECTOR)?;
        // The state may move on before gradients are made, which are those of what has been read.
        let vector = b.apply_fixed(Sum { operands: 1 }, &[state], "vector", Shape::from(columns));
        let reads = [cx.read(b, WEIGHT)?, vector];
        let op = ops::SpectralNorm { direction: Direction::Forward, rows, columns };
        let results = [
            ("weight", Shape::from([rows, columns])),
            ("left", Shape::from(columns)),
            ("right", Shape::from(rows)),
            ("sizes", Shape::from(2)),
        ];
        let [weight, left, right, sizes] = b.apply_several_fixed(op, &reads, results);
        if cx.training {
            b.commit(Sum { operands: 1 }, &[left], &[state]);
        }
        let inner = remade::forward(&self.layers, b, cx, inputs, weight)?;
        Ok(Forward {
            output: inner.output,
            saved: vec![weight, vector, left, right, sizes],
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
        let trained = cx.parameter(WEIGHT)?.trained;
        let [weight, vector, left, right, sizes] = [0, 1, 2, 3, 4].map(|place| forward.saved[place]);
        let went = (inputs, &forward.inner[0], gradient);
        let (input, dy) = remade::backward(&self.layers, b, (cx, trained), went, weight, want)?;
        if let Some(dy) = dy {
            let (rows, columns) = extents(cx)?;
            let reads = [cx.read(b, WEIGHT)?, vector, left, right, sizes, dy];
            let op = ops::SpectralNorm { direction: Direction::InputGradient, rows, columns };
            let results = [("dw", Shape::from([rows, columns])), ("working", Shape::from(2 * rows))];
            let [dw, _] = b.apply_several_fixed(op, &reads, results);
            cx.contribute(b, WEIGHT, Sum { operands: 1 }, &[dw])?;
        }
        Ok(vec![input])
    }
}
