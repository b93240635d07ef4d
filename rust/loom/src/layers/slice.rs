//! A range of one axis.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, Sample, TargetRules, shape_error, single};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, ops};

settings! {
    /// The elements of one axis from `start` on, before `stop`, every `step`-th of them, as Python's slices count:
    /// from the end where a number is negative, and no further than the axis goes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Slice "slice" {
    } optional {
        /// The first element that is taken.
        start: i64 = 0,
        /// The first that is not any more; the axis's end unless given.
        stop: Option<i64> = None,
        /// How far elements that are taken lie apart.
        step: usize [least 1, most crate::extents::MOST_REACH] = 1,
        /// The axis, counted without the batch; from the last where it is negative.
        axis: i64 = -1,
    }
}

/// One of the operations that take a range out of an axis.
enum Part {
    /// Elements without a gap.
    Taken(ops::Slice),
    /// Zeros behind the last element, so that all steps are whole.
    Filled(ops::Concat),
}

impl Slice {
    /// Those from `start` on that lie before `stop`, along an axis.
    pub fn new(start: i64, stop: Option<i64>, axis: i64) -> Self {
        Self { start, stop, axis, ..Self::with_defaults() }
    }

    /// The axis of shapes of a rank; `None` where there is none.
    fn axis_of(&self, rank: usize) -> Option<usize> {
        let axis = usize::try_from(self.axis);
        let counted = axis.or_else(|_| {
            let back = usize::try_from(self.axis.unsigned_abs());
            back.map(|back| rank.checked_sub(back).unwrap_or(rank))
        });
        counted.ok().filter(|axis| *axis < rank)
    }

    /// The first element of an axis of this extent that is taken, and how many are.
    fn range(&self, extent: usize) -> (usize, usize) {
        let place = |number: i64| {
            let apart = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
            if number < 0 { extent.saturating_sub(apart) } else { apart.min(extent) }
        };
        let (start, stop) = (place(self.start), self.stop.map_or(extent, place));
        (start, stop.saturating_sub(start).div_ceil(self.step.max(1)))
    }

    /// What takes the range out, one operation after the other, with the shapes that each reads and writes.
    fn parts(&self, input: &Shape) -> Result<Vec<(Part, [Shape; 2])>> {
        let axis = self.axis_of(input.rank()).ok_or_else(|| Error::Internal("an axis is gone".into()))?;
        let (outer, inner): (usize, usize) =
            (input[..axis].iter().product(), input[axis + 1..].iter().product());
        let extent = input[axis];
        let (start, count) = self.range(extent);
        let shaped = |extent: usize| {
            let mut shape = input.to_vec();
            shape[axis] = extent;
            Shape::new(shape)
        };
        // Of one element no other is apart, however far others would be.
        let step = if count > 1 { self.step } else { 1 };
        let whole = count * step;
        let there = whole.min(extent - start);
        let mut parts = Vec::new();
        if there < extent {
            let op = ops::Slice {
                outer,
                total: extent * inner,
                start: start * inner,
                length: there * inner,
                guarded: false,
            };
            parts.push((Part::Taken(op), [input.clone(), shaped(there)]));
        }
        if there < whole {
            let op = ops::Concat { outer, total: whole * inner, parts: vec![(0, there * inner)] };
            parts.push((Part::Filled(op), [shaped(there), shaped(whole)]));
        }
        if step > 1 {
            let (total, outer) = (step * inner, outer * count);
            let op = ops::Slice { outer, total, start: 0, length: inner, guarded: false };
            parts.push((Part::Taken(op), [shaped(whole), shaped(count)]));
        }
        Ok(parts)
    }
}

impl Configured for Slice {
    fn samples() -> Vec<Sample> {
        let steps = |start, stop, step, axis| Self { step, ..Self::new(start, stop, axis) };
        vec![
            Sample::new(Self::new(1, Some(3), -1), [5]),
            Sample::new(Self::new(0, None, 0), [2, 3]),
            Sample::new(Self::new(-2, None, 0), [4, 3]),
            Sample::new(steps(1, Some(-1), 2, 1), [2, 6, 3]),
            Sample::new(steps(1, None, 3, -1), [2, 6]),
            Sample::new(steps(0, Some(40), 2, 0), [5, 2, 2, 3]),
            Sample::new(steps(3, None, 1 << 30, 0), [7, 2]),
        ]
    }
}

impl Layer for Slice {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        let Some(axis) = self.axis_of(input.rank()) else {
            return Err(shape_error("Slice", &format!("an axis {}", self.axis), input));
        };
        let (_, count) = self.range(input[axis]);
        if count == 0 {
            let stop = self.stop.map_or(String::new(), |stop| stop.to_string());
            return Err(Error::Shape(format!(
                "Slice takes elements {}:{stop} of axis {axis}, of which {input} has none",
                self.start
            )));
        }
        let mut shape = input.to_vec();
        shape[axis] = count;
        Ok(Shape::new(shape))
    }

    fn is_stepwise(&self) -> bool {
        // Counted from the last, the axis may be time.
        self.axis > 0
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl OneInput for Slice {
    fn lower(&self, b: &mut Builder, _cx: &Context, mut x: Value) -> Result<Forward> {
        for (part, [_, made]) in self.parts(&b.shape(x).clone())? {
            x = match part {
                Part::Taken(op) => b.apply(op, &[x], "y", made),
                Part::Filled(op) => b.apply(op, &[x], "filled", made),
            };
        }
        Ok(Forward::new(x))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let mut gradient = back.gradient;
        for (part, [read, _]) in self.parts(&b.shape(back.x).clone())?.into_iter().rev() {
            gradient = match part {
                Part::Taken(ops::Slice { outer, total, start, length, .. }) => {
                    let op = ops::Concat { outer, total, parts: vec![(start, length)] };
                    b.apply(op, &[gradient], "dx", read)
                }
                Part::Filled(ops::Concat { outer, total, parts }) => {
                    let op = ops::Slice { outer, total, start: 0, length: parts[0].1, guarded: false };
                    b.apply(op, &[gradient], "dfilled", read)
                }
            };
        }
        Ok(Some(gradient))
    }
}
