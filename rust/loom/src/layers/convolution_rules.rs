//! How convolutions learn by targets: the way back through either kind is the other one.

use super::activation::{linear, range_of};
use super::feedback::learned;
use super::window::{join, last};
use super::{Conv, ConvTranspose, Feedback, FeedbackForm, Layer, TargetRules, single};
use crate::ops::pointwise::Activation;
use crate::tensor::Shape;
use serde::Serialize;
use serde::de::DeserializeOwned;

impl<const N: usize> TargetRules for Conv<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
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
        learned(form, self.activation, map, join::<N>(self.filters, geometry.output), input)
    }

    fn without_activation(&self) -> Option<Box<dyn Layer>> {
        linear(self.activation, || self.clone().activation(Activation::Linear))
    }

    fn target_range(&self) -> Option<(f64, f64)> {
        range_of(self.activation)
    }
}

impl<const N: usize> TargetRules for ConvTranspose<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    /// The convolution with the same window.
    fn feedback(&self, inputs: &[Shape], form: FeedbackForm) -> Feedback {
        let (Ok(output), Ok(input)) = (self.output_shape(inputs), single(self.kind(), inputs)) else {
            return Feedback::Unknown;
        };
        let map = |activation| Conv {
            filters: input[0],
            kernel_size: self.kernel_size,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
            groups: self.groups,
            activation,
            bias: self.bias,
            weight_initializer: self.weight_initializer,
            bias_initializer: self.bias_initializer,
        };
        learned(form, self.activation, map, output, input)
    }

    fn without_activation(&self) -> Option<Box<dyn Layer>> {
        linear(self.activation, || self.clone().activation(Activation::Linear))
    }

    fn target_range(&self) -> Option<(f64, f64)> {
        range_of(self.activation)
    }
}
