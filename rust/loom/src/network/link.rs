//! Links: a cell's output handed to a later cell, beside what flows to it anyway.

use super::placed::Coordinates;
use crate::ops::pointwise::Activation;
use crate::ops::{Concat, Direction, Gate, Slice};
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
    /// Multiplied to the target cell's input, whose shape it has.
    Multiply,
    /// The second input of those layers of the target cell that take one.
    Context,
    /// Takes the place of what flows to the target cell, so that a branch begins there. It is the first link that
    /// arrives.
    Replace,
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

/// Multiplies element by element.
fn product(direction: Direction) -> Gate {
    Gate { direction, activation: Activation::Linear }
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
            Combine::Replace => Ok(linked.clone()),
            Combine::Add | Combine::Multiply if input == linked => Ok(input.clone()),
            Combine::Add | Combine::Multiply => Err(Error::Shape(format!(
                "{} {} {linked} to the cell's input {input}; shapes must be equal (or use combine=\"concat\")",
                self.named(),
                if self.combine == Combine::Add { "adds" } else { "multiplies" }
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
            Combine::Replace => Ok(linked),
            Combine::Multiply => {
                let shape = b.shape(input).clone();
                Ok(b.apply(product(Direction::Forward), &[input, linked], "product", shape))
            }
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

    /// Lowers the gradients of the cell's input and of the linked value from that of what they became. `values` are
    /// the two, which only a link that multiplies reads.
    pub(crate) fn lower_backward(
        &self,
        b: &mut Builder,
        [input, linked]: [&Shape; 2],
        values: Option<[Value; 2]>,
        gradient: Value,
    ) -> Result<(Option<Value>, Option<Value>)> {
        match self.combine {
            Combine::Context => Ok((Some(gradient), None)),
            Combine::Replace => Ok((None, Some(gradient))),
            Combine::Add => Ok((Some(gradient), Some(gradient))),
            Combine::Multiply => {
                let [one, other] =
                    values.ok_or_else(|| Error::Internal("a link lacks what it multiplies".into()))?;
                let labels = ["dinput", "dlinked"].map(|label| (label, input.clone()));
                let gate = product(Direction::InputGradient);
                let made = b.apply_several(gate, &[one, other, gradient], labels);
                Ok((Some(made[0]), Some(made[1])))
            }
            Combine::Concat => {
                let (op, _) = Concat::along(&[input, linked], self.axis).map_err(Error::Shape)?;
                let part = |b: &mut Builder, number: usize, shape: &Shape| {
                    b.apply(Slice::of(&op, number), &[gradient], "part", shape.clone())
                };
                let to_input = part(b, 0, input);
                Ok((Some(to_input), Some(part(b, 1, linked))))
            }
        }
    }
}
