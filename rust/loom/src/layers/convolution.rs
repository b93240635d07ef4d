//! Convolution of signals, images and volumes.

use super::convolution_lower::Lowering;
use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::projection::with_bias;
use super::settings::{kind_and_config, settings};
use super::window::{NamedPadding, Padding, Window, grouped, join, last, ones, split};
use super::{Context, Forward, Layer, ParameterSpec, Sample, TargetRules, single};
use crate::ops::Geometry;
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result, extents};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// `activation(conv(x, W) + b)`: (in, length) to (filters, length').
pub type Conv1D = Conv<1>;
/// `activation(conv(x, W) + b)`: (in, height, width) to (filters, height', width').
pub type Conv2D = Conv<2>;
/// `activation(conv(x, W) + b)`: (in, depth, height, width) to (filters, depth', height', width').
pub type Conv3D = Conv<3>;

settings! {
    /// `activation(conv(x, W) + b)` over `N` axes: (in, extents) to (filters, extents').
    ///
    /// extent' = floor((extent + 2 padding - dilation (kernel - 1) - 1) / stride) + 1 along each
    /// axis. The outside sees the weight as (filters, in / groups, kernel extents).
    #[derive(Clone, Debug, PartialEq)]
    pub struct Conv<const N: usize> "conv" {
        /// Output channels.
        filters: usize [least 1],
        /// Extents of the window.
        kernel_size: [usize; N] [least 1, most extents::MOST_REACH],
    } optional {
        /// Steps of the window.
        stride: [usize; N] [least 1, most extents::MOST_REACH] = [1; N],
        /// Zeros around the input.
        padding: Padding<N> [most extents::MOST_REACH] = Padding::Explicit([0; N]),
        /// Distance between the window's elements.
        dilation: [usize; N] [least 1, most extents::MOST_REACH] = [1; N],
        /// Groups of channels that do not see each other; as many as channels make it depthwise.
        groups: usize [least 1] = 1,
        /// Applied to every output.
        activation: Activation = Activation::Linear,
        /// Whether a trained number is added to every filter.
        bias: bool = true,
        /// How the weight starts; He normal unless named.
        weight_initializer: Option<Initializer> = None,
        /// How the bias starts; zeros unless named.
        bias_initializer: Option<Initializer> = None,
    }
}

/// Refuses filters that groups do not divide.
pub(super) fn validate_groups(filters: usize, groups: usize) -> Result<()> {
    if !filters.is_multiple_of(groups) {
        return Err(Error::Value(format!("filters ({filters}) must be a multiple of groups ({groups})")));
    }
    Ok(())
}

impl<const N: usize> Conv<N> {
    /// A linear convolution with a bias, stride 1 and no padding.
    pub fn new(filters: usize, kernel_size: [usize; N]) -> Self {
        Self::with_defaults(filters, kernel_size)
    }

    /// With this activation.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// With this padding.
    pub fn padding(self, padding: Padding<N>) -> Self {
        Self { padding, ..self }
    }

    /// With these steps of the window.
    pub fn stride(self, stride: [usize; N]) -> Self {
        Self { stride, ..self }
    }

    /// With this distance between the window's elements.
    pub fn dilation(self, dilation: [usize; N]) -> Self {
        Self { dilation, ..self }
    }

    /// With channels split into groups.
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    pub(super) fn window(&self) -> Window<N> {
        let Self { kernel_size: kernel, stride, padding, dilation, .. } = *self;
        Window { kernel, stride, padding, dilation }
    }

    pub(super) fn geometry(&self, input: &Shape) -> Result<Geometry> {
        let name = format!("Conv{N}D");
        let (channels, extents) = split(&name, input)?;
        grouped(&name, self.groups, channels, input)?;
        self.window().over(&name, channels, extents)
    }

    fn lowering(&self, input: &Shape) -> Result<Lowering> {
        let geometry = self.geometry(input)?;
        Ok(Lowering {
            geometry,
            transposed: false,
            channels: [input[0], self.filters],
            groups: self.groups,
            output: join::<N>(self.filters, geometry.output),
            bias: self.bias,
            activation: self.activation,
        })
    }
}

impl<const N: usize> Configured for Conv<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn validate(&self) -> Result<()> {
        validate_groups(self.filters, self.groups)
    }

    fn samples() -> Vec<Sample> {
        let new = |filters, kernel| Self::new(filters, last(kernel));
        let same = Padding::Named(NamedPadding::Same);
        let bordered = new(6, [3, 3, 3]).padding(Padding::Explicit(last([1, 1, 2])));
        let strided = new(4, [2, 2, 3]).stride(last([2, 2, 1])).padding(same);
        vec![
            Sample::new(Self::new(1, ones()), join::<N>(1, [1, 1, 1])),
            Sample::new(new(3, [2, 3, 3]).activation(Activation::Tanh), join::<N>(2, [3, 5, 6])),
            Sample::new(strided.groups(2), join::<N>(2, [4, 7, 5])),
            Sample::new(bordered.dilation(last([1, 2, 2])), join::<N>(3, [3, 6, 5])),
            Sample::new(new(4, [3, 3, 3]).groups(4).without_bias(), join::<N>(4, [3, 6, 6])),
            Sample::new(new(6, [1, 3, 3]).groups(3).padding(same), join::<N>(3, [2, 5, 18])),
            Sample::new(new(2, [1, 1, 5]).stride(last([1, 1, 3])), join::<N>(1, [1, 2, 50])),
        ]
    }
}

impl<const N: usize> Layer for Conv<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        Ok(self.lowering(single(self.kind(), inputs)?)?.output)
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let group_inputs = inputs[0][0] / self.groups;
        let taps = extents::product(&self.kernel_size);
        let extents = [&[self.filters, group_inputs], &self.kernel_size[..]].concat();
        let weight = ParameterSpec {
            name: "weight".into(),
            layout: Layout::input_major(&extents[..]),
            initializer: self.weight_initializer.unwrap_or(Initializer::HeNormal),
            fan_in: group_inputs.saturating_mul(taps),
            fan_out: (self.filters / self.groups).saturating_mul(taps),
            morphable: true,
            decay_exempt: false,
            adaptable: false,
        };
        with_bias(weight, self.bias.then(|| "bias".into()), self.filters, self.bias_initializer)
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        self
    }
}

impl<const N: usize> OneInput for Conv<N> {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        self.lowering(b.shape(x))?.forward(b, cx, x)
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        self.lowering(b.shape(back.x))?.backward(b, back)
    }
}
