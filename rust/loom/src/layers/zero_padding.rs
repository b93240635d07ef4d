//! Zeros around signals, images and volumes.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::window::{join, last, split};
use super::{Context, Forward, Layer, Sample, TargetRules, single};
use crate::ops::{Concat, Slice};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, extents};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Zeros around every channel: (channels, length) to (channels, length').
pub type ZeroPadding1D = ZeroPadding<1>;
/// Zeros around every channel: (channels, height, width) to (channels, height', width').
pub type ZeroPadding2D = ZeroPadding<2>;
/// Zeros around every channel: (channels, depth, height, width) to (channels, depth', height', width').
pub type ZeroPadding3D = ZeroPadding<3>;

settings! {
    /// Zeros around every channel over `N` axes: (channels, extents) to (channels, before + extents + after).
    #[derive(Clone, Debug, PartialEq)]
    pub struct ZeroPadding<const N: usize> "zero_padding" {
        /// Zeros before the first element of each axis.
        before: [usize; N] [most extents::MOST_REACH],
    } optional {
        /// Zeros after the last element of each axis; as many as before the first unless given.
        after: Option<[usize; N]> [most extents::MOST_REACH] = None,
    }
}

impl<const N: usize> ZeroPadding<N> {
    /// So many zeros at either end of each axis.
    pub fn new(padding: [usize; N]) -> Self {
        Self::with_defaults(padding)
    }

    /// Where a row's elements stand in the padded one, axis by axis: what takes them out again, and the shapes
    /// without the axis' zeros and with them.
    fn places(&self, input: &Shape) -> Vec<(Slice, [Shape; 2])> {
        let after = self.after.unwrap_or(self.before);
        let mut shape = input.to_vec();
        let mut places = Vec::new();
        for axis in (0..N).rev().filter(|axis| self.before[*axis] + after[*axis] > 0) {
            let inside = Shape::new(shape.clone());
            let (outer, inner) =
                (shape[..=axis].iter().product(), shape[axis + 2..].iter().product::<usize>());
            let (start, length) = (self.before[axis] * inner, shape[axis + 1] * inner);
            shape[axis + 1] += self.before[axis] + after[axis];
            let slice = Slice { outer, total: shape[axis + 1] * inner, start, length, guarded: false };
            places.push((slice, [inside, Shape::new(shape.clone())]));
        }
        places
    }
}

impl<const N: usize> Configured for ZeroPadding<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn samples() -> Vec<Sample> {
        let uneven = Self { after: Some(last([0, 2, 1])), ..Self::new(last([1, 0, 2])) };
        vec![
            Sample::new(Self::new([1; N]), join::<N>(1, [1, 1, 1])),
            Sample::new(uneven, join::<N>(3, [2, 3, 5])),
            Sample::new(Self::new(last([0, 0, 3])), join::<N>(2, [2, 2, 17])),
            Sample::new(Self::new([0; N]), join::<N>(2, [1, 2, 3])),
        ]
    }
}

impl<const N: usize> Layer for ZeroPadding<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let (channels, extents) = split::<N>(&format!("ZeroPadding{N}D"), single(self.kind(), inputs)?)?;
        let after = self.after.unwrap_or(self.before);
        let padded =
            |axis: usize| extents[axis].saturating_add(self.before[axis]).saturating_add(after[axis]);
        Ok(Shape::new([channels].into_iter().chain((0..N).map(padded)).collect::<Vec<_>>()))
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl<const N: usize> OneInput for ZeroPadding<N> {
    fn lower(&self, b: &mut Builder, _cx: &Context, mut x: Value) -> Result<Forward> {
        for (Slice { outer, total, start, length, .. }, [_, padded]) in self.places(&b.shape(x).clone()) {
            x = b.apply(Concat { outer, total, parts: vec![(start, length)] }, &[x], "y", padded);
        }
        Ok(Forward::new(x))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let mut gradient = back.gradient;
        for (slice, [inside, _]) in self.places(&b.shape(back.x).clone()).into_iter().rev() {
            gradient = b.apply(slice, &[gradient], "dx", inside);
        }
        Ok(Some(gradient))
    }
}
