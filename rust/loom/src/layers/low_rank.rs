//! The product of low rank that stands beside a weight: an adapter (LoRA, Hu et al. 2022).

use super::{BoundAdapter, Context};
use crate::ops::{self, Direction, Product};
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

fn with_last(shape: &Shape, extent: usize) -> Shape {
    let mut extents = shape.to_vec();
    if let Some(last) = extents.last_mut() {
        *last = extent;
    }
    Shape::new(extents)
}
