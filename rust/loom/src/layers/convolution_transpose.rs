//! Transposed convolution of signals, images and volumes.

use super::convolution::validate_groups;
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

/// Transposed convolution: (in, length) to (filters, length').
pub type ConvTranspose1D = ConvTranspose<1>;
/// Transposed convolution: (in, height, width) to (filters, height', width').
pub type ConvTranspose2D = ConvTranspose<2>;
/// Transposed convolution: (in, depth, height, width) to (filters, depth', height', width').
pub type ConvTranspose3D = ConvTranspose<3>;

settings! {
    /// The gradient of a convolution's input, used forwards: every element of the input adds a window,
    /// scaled by it, to the output: (in, extents) to (filters, extents').
    ///
    /// extent' = (extent - 1) stride - 2 padding + dilation (kernel - 1) + output padding + 1 along
    /// each axis. The outside sees the weight as (in, filters / groups, kernel extents); a packed
    /// weight with scales by the channel has one for each input channel, its first axis.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ConvTranspose<const N: usize> "conv_transpose" {
        /// Output channels.
        filters: usize [least 1],
        /// Extents of the window.
        kernel_size: [usize; N] [least 1, most extents::MOST_REACH],
    } optional {
        /// Steps of the window.
        stride: [usize; N] [least 1, most extents::MOST_REACH] = [1; N],
        /// Taken away at either end of the output.
        padding: Padding<N> [most extents::MOST_REACH] = Padding::Explicit([0; N]),
        /// Added at the output's end, less than the stride or the dilation: which of the extents that a
        /// convolution maps to the input's is meant.
        output_padding: [usize; N] = [0; N],
        /// Distance between the window's elements.
        dilation: [usize; N] [least 1, most extents::MOST_REACH] = [1; N],
        /// Groups of channels that do not see each other.
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

impl<const N: usize> ConvTranspose<N> {
    /// A linear one with a bias, stride 1 and no padding.
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

    /// With so much added at the output's end.
    pub fn output_padding(self, output_padding: [usize; N]) -> Self {
        Self { output_padding, ..self }
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

    /// The convolution's: its input is this layer's output.
    fn geometry(&self, input: &Shape) -> Result<Geometry> {
        let name = format!("ConvTranspose{N}D");
        let (channels, extents) = split(&name, input)?;
        grouped(&name, self.groups, channels, input)?;
        self.window().back_from(&name, self.filters, extents, self.output_padding)
    }

    fn lowering(&self, input: &Shape) -> Result<Lowering> {
        let geometry = self.geometry(input)?;
        Ok(Lowering {
            geometry,
            transposed: true,
            channels: [self.filters, input[0]],
            groups: self.groups,
            output: join::<N>(self.filters, geometry.input),
            bias: self.bias,
            activation: self.activation,
        })
    }
}

impl<const N: usize> Configured for ConvTranspose<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn validate(&self) -> Result<()> {
        if (0..N).any(|axis| self.output_padding[axis] >= self.stride[axis].max(self.dilation[axis])) {
            return Err(Error::Value(format!(
                "output_padding {:?} must be smaller than stride {:?} or dilation {:?}",
                self.output_padding, self.stride, self.dilation
            )));
        }
        if self.padding == Padding::Named(NamedPadding::Same) && self.output_padding != [0; N] {
            return Err(Error::Value("padding \"same\" leaves nothing for output_padding to say".into()));
        }
        validate_groups(self.filters, self.groups)
    }

    fn samples() -> Vec<Sample> {
        let new = |filters, kernel| Self::new(filters, last(kernel));
        let same = Padding::Named(NamedPadding::Same);
        let doubling = new(4, [3, 3, 3]).stride(last([2, 2, 2])).padding(Padding::Explicit(last([1, 1, 1])));
        vec![
            Sample::new(Self::new(1, ones()), join::<N>(1, [1, 1, 1])),
            Sample::new(new(3, [2, 3, 3]).activation(Activation::Tanh), join::<N>(2, [2, 4, 5])),
            Sample::new(doubling.output_padding(last([0, 1, 1])).groups(2), join::<N>(2, [2, 3, 4])),
            Sample::new(new(2, [2, 2, 3]).dilation(last([1, 2, 2])).without_bias(), join::<N>(3, [2, 3, 4])),
            Sample::new(new(3, [2, 3, 4]).stride(last([1, 2, 3])).padding(same), join::<N>(2, [2, 3, 3])),
            Sample::new(new(4, [1, 3, 3]).groups(4).stride(last([2, 1, 2])), join::<N>(4, [2, 3, 5])),
        ]
    }
}

impl<const N: usize> Layer for ConvTranspose<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        Ok(self.lowering(single(self.kind(), inputs)?)?.output)
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let (channels, filters) = (inputs[0][0], self.filters / self.groups);
        let taps = extents::product(&self.kernel_size);
        let steps = extents::product(&self.stride);
        let extents = [&[channels, filters], &self.kernel_size[..]].concat();
        let weight = ParameterSpec {
            name: "weight".into(),
            layout: Layout::input_major(&extents[..]),
            initializer: self.weight_initializer.unwrap_or(Initializer::HeNormal),
            // With a stride, only some of the taps meet in one output.
            fan_in: (channels / self.groups).saturating_mul(taps.div_ceil(steps)),
            fan_out: filters.saturating_mul(taps),
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

impl<const N: usize> OneInput for ConvTranspose<N> {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        self.lowering(b.shape(x))?.forward(b, cx, x)
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        self.lowering(b.shape(back.x))?.backward(b, back)
    }
}
