//! Tables of vectors: for whole numbers, and back to scores of them.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
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
        adaptable: false,
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

    one_input!();
}

impl OneInput for Embedding {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = self.output_shape(&[b.shape(x).clone()])?;
        let weight = cx.read(b, "weight")?;
        let op = self.op(Direction::Forward, b, x);
        Ok(Forward::new(b.apply(op, &[x, weight], "y", shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        if back.want.parameters {
            let op = self.op(Direction::WeightGradient, b, back.x);
            back.cx.contribute(b, "weight", op, &[back.x, back.gradient])?;
        }
        // A whole number has no gradient.
        Ok(None)
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

    fn product(&self, input: &Shape, direction: Direction) -> Result<Product> {
        match input.last() {
            Some(&width) if width > 0 => {
                Ok(Product::new(direction, input.len() / width, self.vocabulary, width))
            }
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
        self.product(input, Direction::Forward)?;
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

    one_input!();
}

// The table lies as (vocabulary, width), so what a dense layer calls forward is the way back here.
impl OneInput for TiedHead {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = self.output_shape(&[b.shape(x).clone()])?;
        let weight = cx.read(b, "weight")?;
        let mut op = self.product(b.shape(x), Direction::InputGradient)?;
        op.quantized = cx.parameter("weight")?.multiplies_codes_by_rows();
        Ok(Forward::new(b.apply(op, &[x, weight], "y", shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, gradient, .. } = *back;
        let shape = b.shape(x).clone();
        if back.want.parameters {
            let op = self.product(&shape, Direction::WeightGradient)?;
            cx.contribute(b, "weight", op, &[gradient, x])?;
        }
        if !back.want.inputs {
            return Ok(None);
        }
        let weight = cx.read(b, "weight")?;
        let op = self.product(&shape, Direction::Forward)?;
        Ok(Some(b.apply(op, &[gradient, weight], "dx", shape)))
    }
}
