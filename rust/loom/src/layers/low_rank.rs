//! The product of low rank that stands beside a weight: an adapter (LoRA, Hu et al. 2022), which may give outputs lengths
//! of its own (DoRA, Liu et al. 2024).

use super::{BoundAdapter, BoundParameter, Context};
use crate::Result;
use crate::ops::{self, BiasGradient, Decode, Direction, OutputLengths, Product, WithLengths};
use crate::program::{Builder, LayerPath, Value};
use crate::tensor::Shape;

/// Where the dropout of adapters begins to count within a layer, which is beyond the places of layers inside it.
const DRAWS: usize = 1 << 20;

/// `scale x A^T B^T` over the last axis, with A (rank, inputs) and B (outputs, rank).
pub(super) struct LowRank<'a> {
    pub adapter: &'a BoundAdapter,
    /// Extent of the last axis of x.
    pub inputs: usize,
    /// Extent of the last axis of the result.
    pub outputs: usize,
}

impl LowRank<'_> {
    fn rank(&self) -> usize {
        self.adapter.down.shape.len() / self.inputs
    }

    /// What is added to the outputs.
    pub fn forward(&self, b: &mut Builder, cx: &Context, x: Value) -> Value {
        let hidden = self.hidden(b, cx, x);
        let shape = with_last(b.shape(x), self.outputs);
        let up = self.adapter.up.read(b);
        let op = Product::new(Direction::Forward, shape.len() / self.outputs, self.rank(), self.outputs);
        b.apply(op, &[hidden, up], "adapted", shape)
    }

    /// Pushes the gradients of A and B.
    pub fn contribute(&self, b: &mut Builder, cx: &Context, x: Value, gradient: Value) {
        let hidden = self.hidden(b, cx, x);
        let steps = b.shape(x).len() / self.inputs;
        let op = Product::new(Direction::WeightGradient, steps, self.rank(), self.outputs);
        self.adapter.up.contribute(b, op, &[hidden, gradient]);
        if !self.adapter.down.trained {
            return;
        }
        let of_hidden = self.hidden_gradient(b, x, gradient);
        let read = self.drop_out(b, cx, x);
        let op = Product::new(Direction::WeightGradient, steps, self.inputs, self.rank());
        self.adapter.down.contribute(b, op, &[read, of_hidden]);
    }

    /// What is added to the gradient of the input.
    pub fn input_gradient(&self, b: &mut Builder, cx: &Context, x: Value, gradient: Value) -> Value {
        let of_hidden = self.hidden_gradient(b, x, gradient);
        let shape = b.shape(x).clone();
        let down = self.adapter.down.read(b);
        let op = Product::new(Direction::InputGradient, shape.len() / self.inputs, self.inputs, self.rank());
        let dx = b.apply(op, &[of_hidden, down], "dx", shape);
        self.drop_out(b, cx, dx)
    }

    /// `scale x A^T`, made once.
    fn hidden(&self, b: &mut Builder, cx: &Context, x: Value) -> Value {
        let key = (self.adapter.down.reference, x);
        if let Some(known) = b.made_beside(key) {
            return known;
        }
        let read = self.drop_out(b, cx, x);
        let shape = with_last(b.shape(x), self.rank());
        let down = self.adapter.down.read(b);
        let op = Product::new(Direction::Forward, shape.len() / self.rank(), self.inputs, self.rank());
        let hidden = b.apply(op, &[read, down], "low rank", shape);
        let hidden = self.scaled(b, hidden);
        b.make_beside(key, hidden);
        hidden
    }

    /// The gradient of `x A^T`, made once.
    fn hidden_gradient(&self, b: &mut Builder, x: Value, gradient: Value) -> Value {
        let key = (self.adapter.up.reference, gradient);
        if let Some(known) = b.made_beside(key) {
            return known;
        }
        let shape = with_last(b.shape(x), self.rank());
        let up = self.adapter.up.read(b);
        let op = Product::new(Direction::InputGradient, shape.len() / self.rank(), self.rank(), self.outputs);
        let made = b.apply(op, &[gradient, up], "low rank gradient", shape);
        let made = self.scaled(b, made);
        b.make_beside(key, made);
        made
    }

    fn scaled(&self, b: &mut Builder, x: Value) -> Value {
        if self.adapter.scale == 1.0 {
            return x;
        }
        let shape = b.shape(x).clone();
        b.apply(ops::Scale { factor: self.adapter.scale }, &[x], "scaled", shape)
    }

    /// The mask over what is read, or over its gradient: drawn anew each time, always the same.
    fn drop_out(&self, b: &mut Builder, cx: &Context, x: Value) -> Value {
        let rate = self.adapter.dropout;
        if !cx.training || rate == 0.0 {
            return x;
        }
        let shape = b.shape(x).clone();
        let outside = b.layer();
        b.set_layer(Some(self.draws_at(&cx.path)));
        let op = ops::Dropout { rate, features: shape.len(), shared: 1 };
        let kept = b.apply(op, &[x], "kept", shape);
        b.set_layer(outside);
        kept
    }

    /// Masks are keyed by a path of their own: those of two adapters of one layer are not the same.
    fn draws_at(&self, layer: &LayerPath) -> LayerPath {
        layer.inner(DRAWS + self.adapter.number)
    }
}

/// `(magnitude / |W + scale B A|) (x W^T + scale x A^T B^T)` over the last axis, output by output, the length as a constant.
pub(super) struct Decomposed<'a> {
    pub low_rank: LowRank<'a>,
    /// What lengths outputs are given, (outputs,).
    pub magnitude: &'a BoundParameter,
    /// The name of W in the layer.
    pub weight: &'a str,
}

impl Decomposed<'_> {
    /// The outputs, of those of both products.
    pub fn forward(&self, b: &mut Builder, cx: &Context, x: Value, products: [Value; 2]) -> Result<Value> {
        let shape = b.shape(products[0]).clone();
        let sum = b.apply(ops::Sum { operands: 2 }, &products, "directions", shape);
        b.make_beside((self.magnitude.reference, x), sum);
        self.with_lengths(b, cx, sum)
    }

    /// Pushes the gradients of A, B and the magnitude; the gradient of the sum of both products.
    pub fn contribute(&self, b: &mut Builder, cx: &Context, x: Value, gradient: Value) -> Result<Value> {
        let outputs = self.low_rank.outputs;
        let directions = b
            .made_beside((self.magnitude.reference, x))
            .ok_or_else(|| crate::Error::Internal("directions were lost".into()))?;
        if self.magnitude.trained {
            let lengths = self.lengths(b, cx)?;
            let shape = b.shape(gradient).clone();
            let op = BiasGradient { outer: shape.len() / outputs, channels: outputs, inner: 1 };
            let by_length = WithLengths { direction: Direction::WeightGradient, outputs };
            let shares = b.apply(by_length, &[directions, gradient, lengths], "shares", shape);
            self.magnitude.contribute(b, op, &[shares]);
        }
        let of_product = self.product_gradient(b, cx, gradient)?;
        self.low_rank.contribute(b, cx, x, of_product);
        Ok(of_product)
    }

    /// The gradient of the sum of both products, made once.
    pub fn product_gradient(&self, b: &mut Builder, cx: &Context, gradient: Value) -> Result<Value> {
        let key = (self.magnitude.reference, gradient);
        if let Some(known) = b.made_beside(key) {
            return Ok(known);
        }
        let made = self.with_lengths(b, cx, gradient)?;
        b.make_beside(key, made);
        Ok(made)
    }

    fn with_lengths(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Value> {
        let magnitude = self.magnitude.read(b);
        let lengths = self.lengths(b, cx)?;
        let shape = b.shape(x).clone();
        let op = WithLengths { direction: Direction::Forward, outputs: self.low_rank.outputs };
        Ok(b.apply(op, &[x, magnitude, lengths], "with lengths", shape))
    }

    /// The lengths of `W + scale B A`, made once.
    fn lengths(&self, b: &mut Builder, cx: &Context) -> Result<Value> {
        let weight = cx.parameter(self.weight)?;
        let read = weight.read(b);
        let key = (self.magnitude.reference, read);
        if let Some(known) = b.made_beside(key) {
            return Ok(known);
        }
        let plain = match weight.active {
            Some(_) if weight.reads_packed => b.apply_fixed(Decode, &[read], "decoded", weight.shape.clone()),
            _ => read,
        };
        let LowRank { adapter, inputs, outputs } = self.low_rank;
        let op = OutputLengths { inputs, outputs, rank: self.low_rank.rank(), scale: adapter.scale };
        let reads = [plain, adapter.down.read(b), adapter.up.read(b)];
        let lengths = b.apply_fixed(op, &reads, "lengths", Shape::from(outputs));
        b.make_beside(key, lengths);
        Ok(lengths)
    }
}

fn with_last(shape: &Shape, extent: usize) -> Shape {
    let mut extents = shape.to_vec();
    if let Some(last) = extents.last_mut() {
        *last = extent;
    }
    Shape::new(extents)
}
