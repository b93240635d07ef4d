//! Putting values side by side, and taking them apart again.

mod cpu;
mod gpu;

use crate::tensor::Shape;
use std::fmt;

/// Writes each operand to a place of its own in every row of the result: `outer` times over,
/// `total` elements long. What no operand covers becomes zero.
///
/// Operands: (outer, part) each, at most eight. Result: (outer, total). All have a batch axis, or all
/// have none. By itself it copies elements as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concat {
    /// How often the pattern repeats in a row: the product of the axes before the joined one.
    pub outer: usize,
    /// Elements of the result in each repetition.
    pub total: usize,
    /// Where each operand starts and how many elements it has, in each repetition; in rising order.
    pub parts: Vec<(usize, usize)>,
}

/// Takes one part out of every row: what [`Concat`] has put there.
///
/// Operand: (outer, total). Result: (outer, length). Both have a batch axis, or neither has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// How often the pattern repeats in a row.
    pub outer: usize,
    /// Elements of the operand in each repetition.
    pub total: usize,
    /// Where the part starts in each repetition.
    pub start: usize,
    /// How many elements it has in each repetition.
    pub length: usize,
    /// Whether it writes nothing on a GPU after a step that was found bad: for what outlives the step.
    pub guarded: bool,
}

impl Concat {
    /// The axis along which shapes of a rank are joined: unless one is given, the last, or the first (the
    /// channels) where there are three or more.
    pub(crate) fn axis_of(rank: usize, axis: Option<usize>) -> usize {
        axis.unwrap_or(if rank >= 3 { 0 } else { rank.saturating_sub(1) })
    }

    /// Puts values of these shapes side by side along an axis (`axis_of`). Returns the joined
    /// shape as well.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn along(shapes: &[&Shape], axis: Option<usize>) -> Result<(Self, Shape), String> {
        let Some(first) = shapes.first() else { return Err("there is nothing to put together".into()) };
        let rank = first.rank();
        let axis = Self::axis_of(rank, axis);
        if axis >= rank {
            return Err(format!("shape {first} has no axis {axis}"));
        }
        for shape in shapes {
            let fits = shape.rank() == rank && (0..rank).all(|i| i == axis || shape[i] == first[i]);
            if !fits {
                return Err(format!(
                    "{first} and {shape} differ in another axis than {axis}, along which they are joined"
                ));
            }
        }
        let inner: usize = first[axis + 1..].iter().product();
        let mut parts = Vec::with_capacity(shapes.len());
        let mut total = 0;
        for shape in shapes {
            parts.push((total, shape[axis] * inner));
            total += shape[axis] * inner;
        }
        let mut joined = first.to_vec();
        joined[axis] = total / inner.max(1);
        Ok((Self { outer: first[..axis].iter().product(), total, parts }, Shape::new(joined)))
    }
}

impl Slice {
    /// What takes operand `number` of `concat` out of its result.
    pub fn of(concat: &Concat, number: usize) -> Self {
        let (start, length) = concat.parts[number];
        Self { outer: concat.outer, total: concat.total, start, length, guarded: false }
    }

    /// What takes `length` elements from element `start` on out of rows of `total`, to keep them beyond the step.
    pub fn kept(total: usize, start: usize, length: usize) -> Self {
        Self { outer: 1, total, start, length, guarded: true }
    }
}

impl fmt::Display for Concat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "concat {}x{}", self.outer, self.total)?;
        self.parts.iter().try_for_each(|(start, length)| write!(f, " {start}+{length}"))
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slice {}x{} {}+{}", self.outer, self.total, self.start, self.length)
    }
}

#[cfg(test)]
mod tests;
