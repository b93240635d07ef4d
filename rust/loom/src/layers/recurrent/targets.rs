//! How targets pass back through recurrent layers.

use super::stack::{Stack, name};
use super::{Cell, Context, Error, Forward, Result, Shape};
use crate::layers::target::{TANH_RANGE, WeightedMean, clamp};
use crate::ops::{Concat, Slice};
use crate::program::{Builder, Value};

impl Stack {
    /// Between what targets of the output are held: h is bounded by a tanh in all cells but one.
    pub fn target_range(&self) -> Option<(f64, f64)> {
        (self.cell != Cell::Relu).then_some(TANH_RANGE)
    }

    /// The input's weights to the candidate (g of an LSTM, n of a GRU) as one matrix (width, directions x
    /// units) for both directions, as their states stand in the output.
    fn candidate(&self, b: &mut Builder, cx: &Context, layer: usize, width: usize) -> Result<Value> {
        let (units, gates) = (self.units, self.cell.gates());
        // Both the LSTM's and the GRU's is the third gate.
        let place = if gates > 1 { 2 } else { 0 };
        let mut parts = Vec::with_capacity(self.directions);
        for direction in 0..self.directions {
            let weight = cx.master(b, &name("weight_ih", layer, direction))?;
            let (total, start) = (gates * units, place * units);
            let slice = Slice { outer: width, total, start, length: units, guarded: false };
            parts.push(match gates {
                1 => weight,
                _ => b.apply_fixed(slice, &[weight], "candidate", Shape::from([width, units])),
            });
        }
        if let [only] = parts[..] {
            return Ok(only);
        }
        let op = Concat {
            outer: width,
            total: self.directions * units,
            parts: (0..self.directions).map(|direction| (direction * units, units)).collect(),
        };
        let shape = Shape::from([width, self.directions * units]);
        Ok(b.apply_fixed(op, &parts, "candidates", shape))
    }

    /// A target for the input: the mean by the candidate's weights, step by step, from the top of the stack
    /// to its bottom. Of a layer that hands on its last state alone, the last real step gets the target;
    /// earlier steps, and padding, keep what they are.
    pub fn target(&self, b: &mut Builder, cx: &Context, forward: &Forward, target: Value) -> Result<Value> {
        let mut target = target;
        for (layer, lowered) in forward.inner.iter().enumerate().rev() {
            let Some(&x) = lowered.saved.first() else {
                return Err(Error::Internal(format!("{} lost what it has read", self.kind)));
            };
            let width = b.shape(x)[1];
            let mean = WeightedMean {
                weight: self.candidate(b, cx, layer, width)?,
                inputs: width,
                outputs: self.directions * self.units,
                last: layer + 1 == self.layers && !self.return_sequences,
                mask: cx.mask,
            };
            target = mean.lower(b, x, target);
            if layer > 0 {
                target = clamp(b, target, self.target_range());
            }
        }
        Ok(target)
    }
}
