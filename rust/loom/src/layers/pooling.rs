//! Pooling layers over images.

use super::conv2d::{Padding, ones, positive, window_geometry};
use super::dense::yes;
use super::registry::{Configured, config_of};
use super::{Context, Forward, Layer, Sample, Want, shape_error, single};
use crate::ops::pool::PoolKind;
use crate::ops::{Direction, Geometry2D, Pool};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The largest element of every window: (channels, height, width) to (channels, height', width').
///
/// Ties go to the first; padding never wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxPool2D {
    /// Height and width of the window.
    pub pool_size: [usize; 2],
    /// Steps of the window; the window's own size unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<[usize; 2]>,
    /// Rows above and below, columns left and right; at most half the window.
    #[serde(default)]
    pub padding: [usize; 2],
}

/// The mean of every window: (channels, height, width) to (channels, height', width').
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AvgPool2D {
    /// Height and width of the window.
    pub pool_size: [usize; 2],
    /// Steps of the window; the window's own size unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<[usize; 2]>,
    /// Rows above and below, columns left and right; at most half the window.
    #[serde(default)]
    pub padding: [usize; 2],
    /// Whether padding counts as zeros in the mean.
    #[serde(default = "yes")]
    pub count_include_pad: bool,
}

/// The mean of every channel: (channels, height, width) to (channels,).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalAvgPool2D {}

impl MaxPool2D {
    /// Windows of this size side by side.
    pub fn new(pool_size: [usize; 2]) -> Self {
        Self { pool_size, stride: None, padding: [0, 0] }
    }
}

impl AvgPool2D {
    /// Windows of this size side by side.
    pub fn new(pool_size: [usize; 2]) -> Self {
        Self { pool_size, stride: None, padding: [0, 0], count_include_pad: true }
    }
}

fn validate_window(pool_size: [usize; 2], stride: Option<[usize; 2]>, padding: [usize; 2]) -> Result<()> {
    positive("pool_size", pool_size)?;
    positive("stride", stride.unwrap_or([1, 1]))?;
    if (0..2).any(|axis| padding[axis] * 2 > pool_size[axis]) {
        return Err(Error::Value(format!(
            "padding {padding:?} must be at most half of pool_size {pool_size:?}, or windows would hold nothing else"
        )));
    }
    Ok(())
}

impl Configured for MaxPool2D {
    fn validate(&self) -> Result<()> {
        validate_window(self.pool_size, self.stride, self.padding)
    }

    fn samples() -> Vec<Sample> {
        let overlapping = Self { stride: Some([1, 2]), padding: [1, 0], ..Self::new([3, 2]) };
        vec![
            Sample::new(Self::new([1, 1]), [1, 1, 1]),
            Sample::new(Self::new([2, 2]), [3, 6, 5]),
            Sample::new(overlapping, [2, 5, 7]),
        ]
    }
}

impl Configured for AvgPool2D {
    fn validate(&self) -> Result<()> {
        validate_window(self.pool_size, self.stride, self.padding)
    }

    fn samples() -> Vec<Sample> {
        let overlapping =
            Self { stride: Some([1, 2]), padding: [1, 1], count_include_pad: false, ..Self::new([3, 2]) };
        vec![
            Sample::new(Self::new([1, 1]), [1, 1, 1]),
            Sample::new(Self::new([2, 2]), [3, 6, 5]),
            Sample::new(Self { padding: [1, 0], ..Self::new([2, 3]) }, [1, 5, 7]),
            Sample::new(overlapping, [2, 5, 7]),
        ]
    }
}

impl Configured for GlobalAvgPool2D {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self {}, [1, 1, 1]), Sample::new(Self {}, [3, 5, 7])]
    }
}

/// Channels and window extents for an image.
fn geometry(
    name: &str,
    input: &Shape,
    pool_size: Option<[usize; 2]>,
    stride: Option<[usize; 2]>,
    padding: [usize; 2],
) -> Result<(usize, Geometry2D)> {
    let &[channels, height, width] = &input[..] else {
        return Err(shape_error(name, "(channels, height, width)", input));
    };
    if input.is_empty() {
        return Err(shape_error(name, "no empty axis", input));
    }
    let kernel = pool_size.unwrap_or([height, width]);
    let padding = Padding::Explicit(padding);
    Ok((channels, window_geometry(name, [height, width], kernel, stride.unwrap_or(kernel), padding, ones())?))
}

fn output_shape(channels: usize, geometry: &Geometry2D) -> Shape {
    Shape::from([channels, geometry.output[0], geometry.output[1]])
}

fn average_forward(
    b: &mut Builder,
    x: Value,
    channels: usize,
    geometry: Geometry2D,
    count_padding: bool,
) -> Value {
    let kind = PoolKind::Average { count_padding };
    let shape = output_shape(channels, &geometry);
    b.apply(
        Pool { direction: Direction::Forward, kind, geometry, channels, derivative: None },
        &[x],
        "y",
        shape,
    )
}

fn average_backward(
    b: &mut Builder,
    x: Value,
    gradient: Value,
    channels: usize,
    geometry: Geometry2D,
    count_padding: bool,
) -> Value {
    let kind = PoolKind::Average { count_padding };
    let shape = b.shape(x).clone();
    b.apply(
        Pool { direction: Direction::InputGradient, kind, geometry, channels, derivative: None },
        &[gradient],
        "dx",
        shape,
    )
}

impl Layer for MaxPool2D {
    fn kind(&self) -> &'static str {
        "max_pool2d"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        let (channels, geometry) =
            geometry("MaxPool2D", input, Some(self.pool_size), self.stride, self.padding)?;
        Ok(output_shape(channels, &geometry))
    }

    fn forward(&self, b: &mut Builder, _cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let (channels, geometry) =
            geometry("MaxPool2D", b.shape(x), Some(self.pool_size), self.stride, self.padding)?;
        let shape = output_shape(channels, &geometry);
        let op =
            Pool { direction: Direction::Forward, kind: PoolKind::Max, geometry, channels, derivative: None };
        let (y, indices) = b.apply_indexed(op, &[x], "y", shape);
        Ok(Forward::saving(y, vec![indices]))
    }

    fn backward(
        &self,
        b: &mut Builder,
        _cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        if !want.inputs {
            return Ok(vec![None]);
        }
        let x = *single(self.kind(), inputs)?;
        let shape = b.shape(x).clone();
        let (channels, geometry) =
            geometry("MaxPool2D", &shape, Some(self.pool_size), self.stride, self.padding)?;
        let op = Pool {
            direction: Direction::InputGradient,
            kind: PoolKind::Max,
            geometry,
            channels,
            derivative: None,
        };
        Ok(vec![Some(b.apply(op, &[gradient, forward.saved[0]], "dx", shape))])
    }
}

impl Layer for AvgPool2D {
    fn kind(&self) -> &'static str {
        "avg_pool2d"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        let (channels, geometry) =
            geometry("AvgPool2D", input, Some(self.pool_size), self.stride, self.padding)?;
        Ok(output_shape(channels, &geometry))
    }

    fn forward(&self, b: &mut Builder, _cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let (channels, geometry) =
            geometry("AvgPool2D", b.shape(x), Some(self.pool_size), self.stride, self.padding)?;
        Ok(Forward::new(average_forward(b, x, channels, geometry, self.count_include_pad)))
    }

    fn backward(
        &self,
        b: &mut Builder,
        _cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        if !want.inputs {
            return Ok(vec![None]);
        }
        let x = *single(self.kind(), inputs)?;
        let (channels, geometry) =
            geometry("AvgPool2D", b.shape(x), Some(self.pool_size), self.stride, self.padding)?;
        Ok(vec![Some(average_backward(b, x, gradient, channels, geometry, self.count_include_pad))])
    }
}

impl Layer for GlobalAvgPool2D {
    fn kind(&self) -> &'static str {
        "global_avg_pool2d"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let (channels, _) = geometry("GlobalAvgPool2D", single(self.kind(), inputs)?, None, None, [0, 0])?;
        Ok(Shape::from([channels]))
    }

    fn forward(&self, b: &mut Builder, _cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let (channels, geometry) = geometry("GlobalAvgPool2D", b.shape(x), None, None, [0, 0])?;
        let y = average_forward(b, x, channels, geometry, true);
        Ok(Forward::new(b.reshape(y, Shape::from([channels]))))
    }

    fn backward(
        &self,
        b: &mut Builder,
        _cx: &Context,
        inputs: &[Value],
        _forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        if !want.inputs {
            return Ok(vec![None]);
        }
        let x = *single(self.kind(), inputs)?;
        let (channels, geometry) = geometry("GlobalAvgPool2D", b.shape(x), None, None, [0, 0])?;
        let gradient = b.reshape(gradient, output_shape(channels, &geometry));
        Ok(vec![Some(average_backward(b, x, gradient, channels, geometry, true))])
    }
}
