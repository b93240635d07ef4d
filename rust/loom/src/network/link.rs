//! Links: a cell's output handed to a later cell, beside what flows to it anyway.

use super::placed::Coordinates;
use crate::ops::{Concat, Slice};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a link's value becomes where it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// Added to the target cell's input, whose shape it has.
    Add,
    /// Put behind the target cell's input along one axis.
    Concat,
    /// The second input of those layers of the target cell that take one.
    Context,
}

/// A cell's output handed to another cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The cell whose output is handed over.
    pub source: Coordinates,
    /// The cell that gets it.
    pub target: Coordinates,
    /// What becomes of it there.
    pub combine: Combine,
    /// The axis along which values are put together; the last one, or the channels of images and
    /// volumes, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<usize>,
}

impl Link {
    pub(crate) fn named(&self) -> String {
        format!("the link from cell {} to cell {}", Shape::from(self.source), Shape::from(self.target))
    }

    /// The error of a link whose source's shape cannot be found out.
    pub(crate) fn unknown_source(&self) -> Error {
        Error::Shape(format!("what {} brings depends on itself: its shape cannot be found out", self.named()))
    }

    /// The shape of the target's input once this value has arrived.
    ///
    /// # Errors
    /// [`Error::Shape`] where the two do not fit.
    pub(crate) fn combined_shape(&self, input: &Shape, linked: &Shape) -> Result<Shape> {
        match self.combine {
            Combine::Context => Ok(input.clone()),
            Combine::Add if input == linked => Ok(input.clone()),
            Combine::Add => Err(Error::Shape(format!(
                "{} adds {linked} to the cell's input {input}; shapes must be equal (or use combine=\"concat\")",
                self.named()
            ))),
            Combine::Concat => {
                let joined = Concat::along(&[input, linked], self.axis)
                    .map_err(|why| Error::Shape(format!("{}: {why}", self.named())))?;
                Ok(joined.1)
            }
        }
    }

    /// Lowers the arrival of `linked` at a cell's `input`.
    pub(crate) fn lower(&self, b: &mut Builder, input: Value, linked: Value) -> Result<Value> {
        match self.combine {
            Combine::Context => Ok(input),
            Combine::Add => b
                .sum(&[input, linked])
                .ok_or_else(|| Error::Internal("a sum of two values has no operand".into())),
            Combine::Concat => {
                let shapes = [b.shape(input), b.shape(linked)];
                let (op, shape) = Concat::along(&shapes, self.axis).map_err(Error::Shape)?;
                Ok(b.apply(op, &[input, linked], "joined", shape))
            }
        }
    }

    /// Lowers the gradients of the cell's input and of the linked value from that of what they became.
    pub(crate) fn lower_backward(
        &self,
        b: &mut Builder,
        input: &Shape,
        linked: &Shape,
        gradient: Value,
    ) -> Result<(Value, Option<Value>)> {
        match self.combine {
            Combine::Context => Ok((gradient, None)),
            Combine::Add => Ok((gradient, Some(gradient))),
            Combine::Concat => {
                let (op, _) = Concat::along(&[input, linked], self.axis).map_err(Error::Shape)?;
                let part = |b: &mut Builder, number: usize, shape: &Shape| {
                    b.apply(Slice::of(&op, number), &[gradient], "part", shape.clone())
                };
                let to_input = part(b, 0, input);
                Ok((to_input, Some(part(b, 1, linked))))
            }
        }
    }
}
