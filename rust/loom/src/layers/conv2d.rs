//! Two-dimensional convolution.

use super::activation::{activate, activate_backward};
use super::dense::{with_bias, yes};
use super::registry::{Configured, config_of};
use super::{Context, Forward, Layer, ParameterSpec, Sample, Want, shape_error, single};
use crate::ops::pointwise::Activation;
use crate::ops::{BiasAdd, BiasGradient, Convolution, Direction, Geometry2D};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::train::Initializer;
use crate::weights::Layout;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Zeros around an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Padding {
    /// Rows above and below, columns left and right.
    Explicit([usize; 2]),
    /// By name: as many as keep height / stride, or none.
    Named(NamedPadding),
}

/// Padding by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedPadding {
    /// The output has ceil(extent / stride) rows and columns; an odd border is larger at the end.
    Same,
    /// No padding.
    Valid,
}

impl Default for Padding {
    fn default() -> Self {
        Padding::Explicit([0, 0])
    }
}

/// `activation(conv(x, W) + b)`: (in, height, width) to (filters, height', width').
///
/// height' = floor((height + 2 padding - dilation (kernel - 1) - 1) / stride) + 1. The
/// outside sees the weight as (filters, in / groups, kernel height, kernel width).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conv2D {
    /// Output channels.
    pub filters: usize,
    /// Height and width of the window.
    pub kernel_size: [usize; 2],
    /// Steps of the window.
    #[serde(default = "ones")]
    pub stride: [usize; 2],
    /// Zeros around the image.
    #[serde(default)]
    pub padding: Padding,
    /// Distance between the window's elements.
    #[serde(default = "ones")]
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    #[serde(default = "one")]
    pub groups: usize,
    /// Applied to every output.
    #[serde(default)]
    pub activation: Activation,
    /// Whether a trained number is added to every filter.
    #[serde(default = "yes")]
    pub bias: bool,
    /// How the weight starts; He normal unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_initializer: Option<Initializer>,
    /// How the bias starts; zeros unless named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias_initializer: Option<Initializer>,
}

pub(super) fn ones() -> [usize; 2] {
    [1, 1]
}

fn one() -> usize {
    1
}

impl Conv2D {
    /// A linear convolution with a bias, stride 1 and no padding.
    pub fn new(filters: usize, kernel_size: [usize; 2]) -> Self {
        Self {
            filters,
            kernel_size,
            stride: ones(),
            padding: Padding::default(),
            dilation: ones(),
            groups: 1,
            activation: Activation::default(),
            bias: true,
            weight_initializer: None,
            bias_initializer: None,
        }
    }

    /// With this activation.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// With this padding.
    pub fn padding(self, padding: Padding) -> Self {
        Self { padding, ..self }
    }

    /// With these steps of the window.
    pub fn stride(self, stride: [usize; 2]) -> Self {
        Self { stride, ..self }
    }

    /// With this distance between the window's elements.
    pub fn dilation(self, dilation: [usize; 2]) -> Self {
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

    fn geometry(&self, input: &Shape) -> Result<Geometry2D> {
        let &[channels, height, width] = &input[..] else {
            return Err(shape_error("Conv2D", "(channels, height, width)", input));
        };
        if channels == 0 || !channels.is_multiple_of(self.groups) {
            let expected = format!("channels that {} groups divide", self.groups);
            return Err(shape_error("Conv2D", &expected, input));
        }
        window_geometry("Conv2D", [height, width], self.kernel_size, self.stride, self.padding, self.dilation)
    }

    fn op(&self, direction: Direction, geometry: Geometry2D, inputs: usize) -> Convolution {
        Convolution {
            direction,
            geometry,
            inputs,
            outputs: self.filters,
            groups: self.groups,
            bias: false,
            activation: None,
            mixed: false,
        }
    }
}

/// The extents of a window sliding over an image of `input` rows and columns.
pub(super) fn window_geometry(
    kind: &str,
    input: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: Padding,
    dilation: [usize; 2],
) -> Result<Geometry2D> {
    let mut output = [0; 2];
    let mut before = [0; 2];
    for axis in 0..2 {
        let reach = dilation[axis] * (kernel[axis] - 1) + 1;
        (before[axis], output[axis]) = match padding {
            Padding::Named(NamedPadding::Same) => {
                let output = input[axis].div_ceil(stride[axis]);
                let total = ((output.max(1) - 1) * stride[axis] + reach).saturating_sub(input[axis]);
                (total / 2, output)
            }
            Padding::Named(NamedPadding::Valid) | Padding::Explicit(_) => {
                let pad = if let Padding::Explicit(pad) = padding { pad[axis] } else { 0 };
                let padded = input[axis] + 2 * pad;
                (pad, if padded < reach { 0 } else { (padded - reach) / stride[axis] + 1 })
            }
        };
        if output[axis] == 0 {
            let side = ["height", "width"][axis];
            return Err(Error::Shape(format!(
                "{kind}: a window that reaches over {reach} does not fit a {side} of {} with this padding; \
                 use a smaller kernel or dilation, or more padding",
                input[axis]
            )));
        }
    }
    Ok(Geometry2D { input, output, kernel, stride, padding: before, dilation })
}

/// Refuses windows without extent.
pub(super) fn positive(what: &str, extents: [usize; 2]) -> Result<()> {
    if extents.contains(&0) {
        return Err(Error::Value(format!("{what} must be at least 1, got {extents:?}")));
    }
    Ok(())
}

impl Configured for Conv2D {
    fn validate(&self) -> Result<()> {
        positive("kernel_size", self.kernel_size)?;
        positive("stride", self.stride)?;
        positive("dilation", self.dilation)?;
        if self.groups == 0 || self.filters == 0 || !self.filters.is_multiple_of(self.groups) {
            return Err(Error::Value(format!(
                "filters ({}) must be a positive multiple of groups ({})",
                self.filters, self.groups
            )));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        let same = Padding::Named(NamedPadding::Same);
        vec![
            Sample::new(Conv2D::new(1, [1, 1]), [1, 1, 1]),
            Sample::new(Conv2D::new(3, [3, 3]).activation(Activation::Tanh), [2, 5, 6]),
            Sample::new(Conv2D::new(4, [2, 3]).stride([2, 1]).padding(same).groups(2), [2, 7, 5]),
            Sample::new(
                Conv2D::new(6, [3, 3]).padding(Padding::Explicit([2, 1])).dilation([2, 1]),
                [3, 6, 5],
            ),
            Sample::new(Conv2D::new(4, [3, 3]).groups(4).without_bias(), [4, 6, 6]),
        ]
    }
}

impl Layer for Conv2D {
    fn kind(&self) -> &'static str {
        "conv2d"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let [height, width] = self.geometry(single(self.kind(), inputs)?)?.output;
        Ok(Shape::from([self.filters, height, width]))
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let [kernel_height, kernel_width] = self.kernel_size;
        let group_inputs = inputs[0][0] / self.groups;
        let weight = ParameterSpec {
            name: "weight".into(),
            layout: Layout::input_major([self.filters, group_inputs, kernel_height, kernel_width]),
            initializer: self.weight_initializer.unwrap_or(Initializer::HeNormal),
            fan_in: group_inputs * kernel_height * kernel_width,
            fan_out: self.filters / self.groups * kernel_height * kernel_width,
            morphable: true,
        };
        with_bias(weight, self.bias, self.filters, self.bias_initializer)
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let geometry = self.geometry(b.shape(x))?;
        let channels = b.shape(x)[0];
        let [height, width] = geometry.output;
        let shape = Shape::from([self.filters, height, width]);
        let weight = cx.read(b, "weight")?;
        let op = self.op(Direction::Forward, geometry, channels);
        let mut z = b.apply(op, &[x, weight], "z", shape.clone());
        if self.bias {
            let bias = cx.read(b, "bias")?;
            z = b.apply(
                BiasAdd { outer: 1, channels: self.filters, inner: height * width },
                &[z, bias],
                "z",
                shape,
            );
        }
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
        let geometry = self.geometry(b.shape(x))?;
        let shape = b.shape(x).clone();
        let channels = shape[0];
        let [height, width] = geometry.output;
        let dz = activate_backward(b, self.activation, forward, gradient);
        if want.parameters {
            if self.bias {
                let bias = cx.parameter("bias")?;
                let op = BiasGradient { outer: 1, channels: self.filters, inner: height * width };
                b.contribute(op, &[dz], bias.reference, bias.shape.clone());
            }
            let weight = cx.parameter("weight")?;
            let op = self.op(Direction::WeightGradient, geometry, channels);
            b.contribute(op, &[x, dz], weight.reference, weight.shape.clone());
        }
        if !want.inputs {
            return Ok(vec![None]);
        }
        let weight = cx.read(b, "weight")?;
        let op = self.op(Direction::InputGradient, geometry, channels);
        Ok(vec![Some(b.apply(op, &[dz, weight], "dx", shape))])
    }
}
