//! Tables of vectors: for whole numbers, and back to scores of them.

use super::registry::Configured;
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, Want, shape_error, single};
use crate::Result;
use crate::ops::{Direction, Gather, Product};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};

settings! {
    /// A vector for each whole number: (...) to (..., width). Stands first in a network, or after layers
    /// that hand elements on as they are.
    ///
    /// The outside sees the `weight` as (vocabulary, width), as PyTorch's `nn.Embedding` has it.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Embedding "embedding" {
        /// Numbers are below this.
        vocabulary: usize [least 1, most MOST],
        /// Extent of a vector.
        width: usize [least 1, most MOST],
    } optional {
        /// How the vectors start; normal with standard deviation 1 / sqrt(width) unless named.
        weight_initializer: Option<Initializer> = None,
    }
}

impl Embedding {
    /// Vectors of this extent for the numbers below `vocabulary`.
    pub fn new(vocabulary: usize, width: usize) -> Self {
        Self::with_defaults(vocabulary, width)
    }

    fn op(&self, direction: Direction, b: &Builder, x: Value) -> Gather {
        Gather { direction, time: b.shape(x).len(), vocabulary: self.vocabulary, width: self.width }
    }
}

/// The parameter of both layers of this file.
fn table(vocabulary: usize, width: usize, initializer: Option<Initializer>) -> Vec<ParameterSpec> {
    vec![ParameterSpec {
        name: "weight".into(),
        layout: Layout::table(vocabulary, width),
        initializer: initializer.unwrap_or(Initializer::Normal { std: 1.0 / (width as f64).sqrt() }),
        fan_in: width,
        fan_out: vocabulary,
        morphable: true,
        decay_exempt: false,
    }]
}

/// The most numbers that the real type of a network holds exactly.
const MOST: usize = 1 << 24;

impl Configured for Embedding {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self::new(1, 1), [1]),
            Sample::new(Self::new(11, 5), [7]),
            Sample::new(
                Self { weight_initializer: Some(Initializer::XavierNormal), ..Self::new(40, 17) },
                [2, 9],
            ),
        ]
    }
}

impl Layer for Embedding {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        Ok(Shape::new([&input[..], &[self.width]].concat()))
    }

    fn parameters(&self, _inputs: &[Shape]) -> Vec<ParameterSpec> {
        table(self.vocabulary, self.width, self.weight_initializer)
    }

    fn index_limit(&self) -> Option<usize> {
        Some(self.vocabulary)
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let shape = self.output_shape(&[b.shape(x).clone()])?;
        let weight = cx.read(b, "weight")?;
        let op = self.op(Direction::Forward, b, x);
        Ok(Forward::new(b.apply(op, &[x, weight], "y", shape)))
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let x = *single(self.kind(), inputs)?;
        if want.parameters {
            let weight = cx.parameter("weight")?;
            let op = self.op(Direction::WeightGradient, b, x);
            b.contribute(op, &[x, gradient], weight.reference, weight.shape.clone());
        }
        // A whole number has no gradient.
        Ok(vec![None])
    }
}

settings! {
    /// A score for each number of a vocabulary, `x weight^T`: (..., width) to (..., vocabulary), with the
    /// table of an embedding, (vocabulary, width), or one of its own.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TiedHead "tied_head" {
        /// Extent of the output's last axis.
        vocabulary: usize [least 1, most MOST],
    } optional {
        /// The embedding whose table it uses: depth, row and column of its cell, and its place there.
        tied_to: Option<[usize; 4]> = None,
        /// How a table of its own starts; normal with standard deviation 1 / sqrt(width) unless named.
        weight_initializer: Option<Initializer> = None,
    }
}

impl TiedHead {
    /// With the table of the embedding there.
    pub fn new(vocabulary: usize, tied_to: [usize; 4]) -> Self {
        Self { tied_to: Some(tied_to), ..Self::with_defaults(vocabulary) }
    }

    /// Width and product rows for each row of the batch.
    fn extents(&self, input: &Shape) -> Result<(usize, usize)> {
        match input.last() {
            Some(width) if *width > 0 => Ok((*width, input.len() / width)),
            _ => Err(shape_error("TiedHead", "at least one axis, (..., width)", input)),
        }
    }
}

impl Configured for TiedHead {
    fn samples() -> Vec<Sample> {
        let own = Self::with_defaults;
        let named = Self { weight_initializer: Some(Initializer::XavierNormal), ..own(19) };
        vec![Sample::new(own(1), [1]), Sample::new(own(7), [5]), Sample::new(named, [3, 33])]
    }
}

impl Layer for TiedHead {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        self.extents(input)?;
        let outer = &input[..input.rank() - 1];
        Ok(Shape::new([outer, &[self.vocabulary]].concat()))
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let width = inputs[0].last().copied().unwrap_or(1);
        table(self.vocabulary, width, self.weight_initializer)
    }

    fn tied_to(&self) -> Option<[usize; 4]> {
        self.tied_to
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    // The table lies as (vocabulary, width), so what a dense layer calls forward is the way back here.
    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let (width, multiplier) = self.extents(b.shape(x))?;
        let shape = self.output_shape(&[b.shape(x).clone()])?;
        let weight = cx.read(b, "weight")?;
        let op = Product::new(Direction::InputGradient, multiplier, self.vocabulary, width);
        Ok(Forward::new(b.apply(op, &[x, weight], "y", shape)))
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let x = *single(self.kind(), inputs)?;
        let (width, multiplier) = self.extents(b.shape(x))?;
        let product = |direction| Product::new(direction, multiplier, self.vocabulary, width);
        if want.parameters {
            let weight = cx.parameter("weight")?;
            let op = product(Direction::WeightGradient);
            b.contribute(op, &[gradient, x], weight.reference, weight.shape.clone());
        }
        if !want.inputs {
            return Ok(vec![None]);
        }
        let weight = cx.read(b, "weight")?;
        let shape = b.shape(x).clone();
        Ok(vec![Some(b.apply(product(Direction::Forward), &[gradient, weight], "dx", shape))])
    }
}
