//! Layers that resample every axis of a channel by itself, one after the other.

use crate::ops::{Direction, Resample, Resampling};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

/// Operations and the shapes that they read and write.
pub(super) struct Resampled {
    steps: Vec<(Resample, [Shape; 2])>,
}

impl Resampled {
    /// What makes (channels, output) of (channels, input): axes that stay as they are are left alone, and those
    /// that become shorter come before those that become longer, the last axis first, so that there is least to do.
    pub fn new(resampling: Resampling, input: &Shape, output: &Shape) -> Self {
        let mut shape = input.to_vec();
        let mut axes: Vec<usize> =
            (1..shape.len()).rev().filter(|axis| input[*axis] != output[*axis]).collect();
        axes.sort_by_key(|axis| output[*axis] > input[*axis]);
        let step = |axis: usize| {
            let before = Shape::new(shape.clone());
            let (outer, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
            shape[axis] = output[axis];
            let (direction, [input, output]) = (Direction::Forward, [input[axis], output[axis]]);
            let op = Resample { direction, resampling, outer, input, output, inner };
            (op, [before, Shape::new(shape.clone())])
        };
        Self { steps: axes.into_iter().map(step).collect() }
    }

    pub fn forward(self, b: &mut Builder, x: Value) -> Value {
        self.steps.into_iter().fold(x, |x, (op, [_, after])| b.apply(op, &[x], "y", after))
    }

    pub fn backward(self, b: &mut Builder, gradient: Value) -> Value {
        let steps = self.steps.into_iter().rev();
        steps.fold(gradient, |dy, (op, [before, _])| b.apply(op.gradient(), &[dy], "dx", before))
    }
}
