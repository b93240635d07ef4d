//! Random zeroing of whole channels in training.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::sample::by_axes;
use super::settings::{kind_and_config, settings};
use super::window::{join, split};
use super::{Context, Forward, Layer, Sample, TargetRules, single};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, ops};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Zeroes whole channels of (channels, length) in training.
pub type SpatialDropout1D = SpatialDropout<1>;
/// Zeroes whole channels of (channels, height, width) in training.
pub type SpatialDropout2D = SpatialDropout<2>;
/// Zeroes whole channels of (channels, depth, height, width) in training.
pub type SpatialDropout3D = SpatialDropout<3>;

settings! {
    /// In training, zeroes each channel with probability `rate` and divides the others by `1 - rate`; otherwise
    /// hands its input on (Tompson et al. 2015): (channels, extents) to the same.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SpatialDropout<const N: usize> "spatial_dropout" {
        /// Probability of zeroing, at least 0 and below 1.
        rate: f64 [least 0.0, below 1.0],
    }
}

impl<const N: usize> Configured for SpatialDropout<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn samples() -> Vec<Sample> {
        let all = vec![
            Sample::new(Self { rate: 0.4 }, join::<N>(7, [1, 2, 3])),
            Sample::new(Self { rate: 0.0 }, join::<N>(2, [1, 2, 3])),
            Sample::new(Self { rate: 0.2 }, join::<N>(3, [1, 1, 1])),
        ];
        by_axes::<N>(all, 1)
    }
}

impl<const N: usize> SpatialDropout<N> {
    /// The mask over a value or its gradient, which are left as they are where none is drawn.
    fn drop_out(&self, b: &mut Builder, cx: &Context, x: Value, label: &'static str) -> Value {
        if !cx.training || self.rate == 0.0 {
            return x;
        }
        let shape = b.shape(x).clone();
        let (features, channels) = (shape.len(), shape.first().copied().unwrap_or(1));
        let op = ops::Dropout { rate: self.rate, features, shared: features / channels };
        b.apply(op, &[x], label, shape)
    }
}

impl<const N: usize> Layer for SpatialDropout<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        split::<N>(&format!("SpatialDropout{N}D"), input)?;
        Ok(input.clone())
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl<const N: usize> OneInput for SpatialDropout<N> {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        Ok(Forward::new(self.drop_out(b, cx, x, "y")))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        Ok(Some(self.drop_out(b, back.cx, back.gradient, "dx")))
    }
}
