//! Signals, images and volumes with more elements along every axis.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::resampled::Resampled;
use super::sample::by_axes;
use super::settings::{Form, SettingValue, json, kind_and_config, settings};
use super::window::{join, last, split};
use super::{Context, Forward, Layer, Sample, TargetRules, single};
use crate::ops::Resampling;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, extents};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// More elements: (channels, length) to (channels, scale x length).
pub type UpSampling1D = UpSampling<1>;
/// More elements: (channels, height, width) to (channels, scale x height, scale x width).
pub type UpSampling2D = UpSampling<2>;
/// More elements: (channels, depth, height, width) to (channels, scale x depth, ...).
pub type UpSampling3D = UpSampling<3>;

/// What lies between the elements of `N` axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation<const N: usize> {
    /// The nearest one.
    #[default]
    Nearest,
    /// The mean of those around, by their distance: "linear", "bilinear" or "trilinear".
    Linear,
}

impl<const N: usize> Interpolation<N> {
    fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Linear => ["linear", "bilinear", "trilinear"][N - 1],
        }
    }
}

impl<const N: usize> Serialize for Interpolation<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de, const N: usize> Deserialize<'de> for Interpolation<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let given = String::deserialize(deserializer)?;
        let mut all = [Self::Nearest, Self::Linear].into_iter();
        all.find(|mode| mode.name() == given).ok_or_else(|| {
            let (nearest, linear) = (Self::Nearest.name(), Self::Linear.name());
            D::Error::custom(format!("mode must be \"{nearest}\" or \"{linear}\", got \"{given}\""))
        })
    }
}

impl<const N: usize> SettingValue for Interpolation<N> {
    fn form() -> Form {
        Form::Name { names: [Self::Nearest, Self::Linear].iter().map(json).collect() }
    }
}

settings! {
    /// Every axis of a channel with `scale` times as many elements: (channels, extents) to (channels, scale x
    /// extents).
    ///
    /// Elements are taken for areas whose edges stay where they are, so that corners are not aligned.
    #[derive(Clone, Debug, PartialEq)]
    pub struct UpSampling<const N: usize> "up_sampling" {
        /// How many elements each becomes along each axis.
        scale: [usize; N] [least 1, most extents::MOST_REACH],
    } optional {
        /// What lies between elements.
        mode: Interpolation<N> = Interpolation::Nearest,
    }
}

impl<const N: usize> UpSampling<N> {
    /// So many nearest neighbours along each axis.
    pub fn new(scale: [usize; N]) -> Self {
        Self::with_defaults(scale)
    }

    fn resampled(&self, input: &Shape) -> Result<Resampled>
    where
        [usize; N]: Serialize + DeserializeOwned,
    {
        let resampling = match self.mode {
            Interpolation::Nearest => Resampling::Nearest,
            Interpolation::Linear => Resampling::Linear,
        };
        Ok(Resampled::new(resampling, input, &self.output_shape(std::slice::from_ref(input))?))
    }
}

impl<const N: usize> Configured for UpSampling<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn samples() -> Vec<Sample> {
        let linear = |scale| Self { mode: Interpolation::Linear, ..Self::new(last(scale)) };
        let all = vec![
            Sample::new(linear([2, 2, 2]), join::<N>(2, [2, 2, 3])),
            Sample::new(Self::new(last([1, 3, 2])), join::<N>(3, [2, 2, 5])),
            Sample::new(linear([2, 1, 3]), join::<N>(1, [1, 3, 4])),
            Sample::new(Self::new(last([2, 2, 1])), join::<N>(2, [2, 1, 3])),
        ];
        by_axes::<N>(all, 2)
    }
}

impl<const N: usize> Layer for UpSampling<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let (channels, extents) = split::<N>(&format!("UpSampling{N}D"), single(self.kind(), inputs)?)?;
        let scaled = |axis: usize| extents[axis].saturating_mul(self.scale[axis]);
        Ok(Shape::new([channels].into_iter().chain((0..N).map(scaled)).collect::<Vec<_>>()))
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl<const N: usize> OneInput for UpSampling<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        Ok(Forward::new(self.resampled(b.shape(x))?.forward(b, x)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        Ok(Some(self.resampled(b.shape(back.x))?.backward(b, back.gradient)))
    }
}
