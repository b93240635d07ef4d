//! Convolution of signals, images and volumes.

use super::activation::{activate, activate_backward, linear, range_of};
use super::dense::with_bias;
use super::feedback::{in_form, learned};
use super::registry::Configured;
use super::settings::{kind_and_config, settings};
use super::window::{NamedPadding, Padding, Window, grouped, join, last, ones, split};
use super::{
    Context, ConvTranspose, Feedback, FeedbackForm, Forward, Layer, ParameterSpec, Sample, Want, single,
};
use crate::ops::pointwise::Activation;
use crate::ops::{BiasAdd, BiasGradient, Convolution, Direction, Geometry};
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

    fn window(&self) -> Window<N> {
        let Self { kernel_size: kernel, stride, padding, dilation, .. } = *self;
        Window { kernel, stride, padding, dilation }
    }

    fn geometry(&self, input: &Shape) -> Result<Geometry> {
        let name = format!("Conv{N}D");
        let (channels, extents) = split(&name, input)?;
        grouped(&name, self.groups, channels, input)?;
        self.window().over(&name, channels, extents)
    }

    fn op(&self, direction: Direction, geometry: Geometry, inputs: usize) -> Convolution {
        Convolution {
            direction,
            geometry,
            inputs,
            outputs: self.filters,
            groups: self.groups,
            bias: false,
            activation: None,
            mixed: false,
            quantized: false,
        }
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
        let geometry = self.geometry(single(self.kind(), inputs)?)?;
        Ok(join::<N>(self.filters, geometry.output))
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
        };
        with_bias(weight, self.bias, self.filters, self.bias_initializer)
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let geometry = self.geometry(b.shape(x))?;
        let op = self.op(Direction::Forward, geometry, b.shape(x)[0]);
        let shape = join::<N>(self.filters, geometry.output);
        let weight = cx.read(b, "weight")?;
        let z = b.apply(op, &[x, weight], "z", shape);
        let z = if self.bias { add_bias(b, cx, z)? } else { z };
        Ok(activate(b, self.activation, z))
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let x = *single(self.kind(), inputs)?;
        let shape = b.shape(x).clone();
        let geometry = self.geometry(&shape)?;
        let dz = activate_backward(b, self.activation, forward, gradient);
        if want.parameters {
            if self.bias {
                bias_gradient(b, cx, dz)?;
            }
            let weight = cx.parameter("weight")?;
            let op = self.op(Direction::WeightGradient, geometry, shape[0]);
            b.contribute(op, &[x, dz], weight.reference, weight.shape.clone());
        }
        if !want.inputs {
            return Ok(vec![None]);
        }
        let weight = cx.read(b, "weight")?;
        let op = self.op(Direction::InputGradient, geometry, shape[0]);
        Ok(vec![Some(b.apply(op, &[dz, weight], "dx", shape))])
    }

    /// The transposed convolution with the same window. Where padding by name is uneven it is an element
    /// off, so that no weight makes it the transpose.
    fn feedback(&self, inputs: &[Shape], form: FeedbackForm) -> Feedback {
        let Ok(input) = single(self.kind(), inputs) else { return Feedback::Unknown };
        let Ok(geometry) = self.geometry(input) else { return Feedback::Unknown };
        let Self { kernel_size, stride, dilation, groups, .. } = *self;
        let Some(back) = self.window().undone(last(geometry.input), last(geometry.output)) else {
            return Feedback::Unknown;
        };
        if !back.aligned && form == FeedbackForm::TransposedJacobian {
            return Feedback::Unknown;
        }
        let map = |activation| ConvTranspose {
            filters: input[0],
            kernel_size,
            stride,
            padding: back.padding,
            output_padding: back.output_padding,
            dilation,
            groups,
            activation,
            bias: self.bias,
            weight_initializer: self.weight_initializer,
            bias_initializer: self.bias_initializer,
        };
        learned(in_form(form, self.activation, map), join::<N>(self.filters, geometry.output), input)
    }

    fn without_activation(&self) -> Option<Box<dyn Layer>> {
        linear(self.activation, || self.clone().activation(Activation::Linear))
    }

    fn target_range(&self) -> Option<(f64, f64)> {
        range_of(self.activation)
    }
}

/// `z` with a number added to every channel.
pub(super) fn add_bias(b: &mut Builder, cx: &Context, z: Value) -> Result<Value> {
    let bias = cx.read(b, "bias")?;
    let shape = b.shape(z).clone();
    let op = BiasAdd { outer: 1, channels: shape[0], inner: shape[1..].iter().product() };
    Ok(b.apply(op, &[z, bias], "z", shape))
}

/// Contributes the gradient of what [`add_bias`] added.
pub(super) fn bias_gradient(b: &mut Builder, cx: &Context, dz: Value) -> Result<()> {
    let bias = cx.parameter("bias")?;
    let shape = b.shape(dz);
    let op = BiasGradient { outer: 1, channels: shape[0], inner: shape[1..].iter().product() };
    b.contribute(op, &[dz], bias.reference, bias.shape.clone());
    Ok(())
}
