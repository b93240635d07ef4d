//! Signals, images and volumes without their edges.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::sample::by_axes;
use super::settings::{kind_and_config, settings};
use super::window::{join, last, split};
use super::{Context, Forward, Layer, Sample, TargetRules, shape_error, single};
use crate::ops::{Concat, Slice};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, extents};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Without edges: (channels, length) to (channels, length - before - after).
pub type Crop1D = Crop<1>;
/// Without edges: (channels, height, width) to (channels, height', width').
pub type Crop2D = Crop<2>;
/// Without edges: (channels, depth, height, width) to (channels, depth', height', width').
pub type Crop3D = Crop<3>;

settings! {
    /// Every channel without its edges over `N` axes: (channels, extents) to (channels, extents - before - after).
    #[derive(Clone, Debug, PartialEq)]
    pub struct Crop<const N: usize> "crop" {
        /// Elements left out before the first that stays, along each axis.
        before: [usize; N] [most extents::MOST_REACH],
    } optional {
        /// Elements left out after the last that stays; as many as before the first unless given.
        after: Option<[usize; N]> [most extents::MOST_REACH] = None,
    }
}

impl<const N: usize> Crop<N> {
    /// So many elements less at either end of each axis.
    pub fn new(edges: [usize; N]) -> Self {
        Self::with_defaults(edges)
    }

    /// What takes out the elements that stay, axis by axis, and the shapes that it reads and writes.
    fn places(&self, input: &Shape) -> Vec<(Slice, [Shape; 2])> {
        let after = self.after.unwrap_or(self.before);
        let mut shape = input.to_vec();
        let mut places = Vec::new();
        // The first axis first: its rows are whole, and what they leave out need not be read again.
        for axis in (0..N).filter(|axis| self.before[*axis] + after[*axis] > 0) {
            let whole = Shape::new(shape.clone());
            let (outer, inner) =
                (shape[..=axis].iter().product(), shape[axis + 2..].iter().product::<usize>());
            let (total, start) = (shape[axis + 1] * inner, self.before[axis] * inner);
            shape[axis + 1] -= self.before[axis] + after[axis];
            let slice = Slice { outer, total, start, length: shape[axis + 1] * inner, guarded: false };
            places.push((slice, [whole, Shape::new(shape.clone())]));
        }
        places
    }
}

impl<const N: usize> Configured for Crop<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn samples() -> Vec<Sample> {
        let uneven = Self { after: Some(last([0, 2, 1])), ..Self::new(last([1, 0, 2])) };
        let all = vec![
            Sample::new(Self::new([1; N]), join::<N>(1, [3, 3, 3])),
            Sample::new(uneven, join::<N>(3, [2, 3, 5])),
            Sample::new(Self::new(last([0, 0, 3])), join::<N>(2, [2, 2, 23])),
            Sample::new(Self::new([0; N]), join::<N>(2, [1, 2, 3])),
        ];
        by_axes::<N>(all, 2)
    }
}

impl<const N: usize> Layer for Crop<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let (name, input) = (format!("Crop{N}D"), single(self.kind(), inputs)?);
        let (channels, extents) = split::<N>(&name, input)?;
        let after = self.after.unwrap_or(self.before);
        let edges: Vec<usize> = (0..N).map(|axis| self.before[axis].saturating_add(after[axis])).collect();
        if (0..N).any(|axis| extents[axis] <= edges[axis]) {
            let expected = format!("extents above {edges:?}, which it takes away");
            return Err(shape_error(&name, &expected, input));
        }
        let left = (0..N).map(|axis| extents[axis] - edges[axis]);
        Ok(Shape::new([channels].into_iter().chain(left).collect::<Vec<_>>()))
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl<const N: usize> OneInput for Crop<N> {
    fn lower(&self, b: &mut Builder, _cx: &Context, mut x: Value) -> Result<Forward> {
        for (slice, [_, left]) in self.places(&b.shape(x).clone()) {
            x = b.apply(slice, &[x], "y", left);
        }
        Ok(Forward::new(x))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let mut gradient = back.gradient;
        for (slice, [whole, _]) in self.places(&b.shape(back.x).clone()).into_iter().rev() {
            let Slice { outer, total, start, length, .. } = slice;
            let op = Concat { outer, total, parts: vec![(start, length)] };
            gradient = b.apply(op, &[gradient], "dx", whole);
        }
        Ok(Some(gradient))
    }
}
