//! Pooling layers over signals, images and volumes.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::window::{Padding, Window, join, last, ones, split, zeros};
use super::{Context, Forward, Layer, Sample, TargetRules, shape_error, single};
use crate::ops::pool::PoolKind;
use crate::ops::{Direction, Pool};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, extents};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest element of every window: (channels, length) to (channels, length').
pub type MaxPool1D = MaxPool<1>;
/// The largest element of every window: (channels, height, width) to (channels, height', width').
pub type MaxPool2D = MaxPool<2>;
/// The largest element of every window: (channels, depth, height, width) to (channels, depth', height', width').
pub type MaxPool3D = MaxPool<3>;
/// The mean of every window: (channels, length) to (channels, length').
pub type AvgPool1D = AvgPool<1>;
/// The mean of every window: (channels, height, width) to (channels, height', width').
pub type AvgPool2D = AvgPool<2>;
/// The mean of every window: (channels, depth, height, width) to (channels, depth', height', width').
pub type AvgPool3D = AvgPool<3>;
/// The largest element of every channel: (channels, length) to (channels,).
pub type GlobalMaxPool1D = GlobalMaxPool<1>;
/// The largest element of every channel: (channels, height, width) to (channels,).
pub type GlobalMaxPool2D = GlobalMaxPool<2>;
/// The largest element of every channel: (channels, depth, height, width) to (channels,).
pub type GlobalMaxPool3D = GlobalMaxPool<3>;
/// The mean of every channel: (channels, length) to (channels,).
pub type GlobalAvgPool1D = GlobalAvgPool<1>;
/// The mean of every channel: (channels, height, width) to (channels,).
pub type GlobalAvgPool2D = GlobalAvgPool<2>;
/// The mean of every channel: (channels, depth, height, width) to (channels,).
pub type GlobalAvgPool3D = GlobalAvgPool<3>;

settings! {
    /// The largest element of every window over `N` axes: (channels, extents) to (channels, extents').
    ///
    /// Ties go to the first; padding never wins.
    #[derive(Clone, Debug, PartialEq)]
    pub struct MaxPool<const N: usize> "max_pool" {
        /// Extents of the window.
        pool_size: [usize; N] [least 1, most extents::MOST_REACH],
    } optional {
        /// Steps of the window; the window's own size unless given.
        stride: Option<[usize; N]> [least 1, most extents::MOST_REACH] = None,
        /// Added at either end of each axis; at most half the window.
        padding: [usize; N] = [0; N],
        /// Whether the number of windows is rounded up: the last of an axis may end beyond the padding.
        ceil_mode: bool = false; unwritten,
    }
}

settings! {
    /// The mean of every window over `N` axes: (channels, extents) to (channels, extents').
    #[derive(Clone, Debug, PartialEq)]
    pub struct AvgPool<const N: usize> "avg_pool" {
        /// Extents of the window.
        pool_size: [usize; N] [least 1, most extents::MOST_REACH],
    } optional {
        /// Steps of the window; the window's own size unless given.
        stride: Option<[usize; N]> [least 1, most extents::MOST_REACH] = None,
        /// Added at either end of each axis; at most half the window.
        padding: [usize; N] = [0; N],
        /// Whether padding counts as zeros in the mean.
        count_include_pad: bool = true,
        /// Whether the number of windows is rounded up: the last of an axis may end beyond the padding, and what
        /// is beyond does not count.
        ceil_mode: bool = false; unwritten,
    }
}

settings! {
    /// The largest element of every channel: (channels, extents) to (channels,). Ties go to the first.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GlobalMaxPool<const N: usize> "global_max_pool" {}
}

settings! {
    /// The mean of every channel: (channels, extents) to (channels,).
    #[derive(Clone, Debug, PartialEq)]
    pub struct GlobalAvgPool<const N: usize> "global_avg_pool" {}
}

impl<const N: usize> MaxPool<N> {
    /// Windows of this size side by side.
    pub fn new(pool_size: [usize; N]) -> Self {
        Self::with_defaults(pool_size)
    }
}

impl<const N: usize> AvgPool<N> {
    /// Windows of this size side by side.
    pub fn new(pool_size: [usize; N]) -> Self {
        Self::with_defaults(pool_size)
    }
}

fn check_padding<const N: usize>(pool_size: [usize; N], padding: [usize; N]) -> Result<()> {
    if (0..N).any(|axis| padding[axis] > pool_size[axis] / 2) {
        return Err(Error::Value(format!(
            "padding {padding:?} must be at most half of pool_size {pool_size:?}, or windows would hold nothing else"
        )));
    }
    Ok(())
}

impl<const N: usize> Configured for MaxPool<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn validate(&self) -> Result<()> {
        check_padding(self.pool_size, self.padding)
    }

    fn samples() -> Vec<Sample> {
        let overlapping =
            Self { stride: Some(last([2, 1, 2])), padding: last([0, 1, 1]), ..Self::new(last([2, 3, 3])) };
        vec![
            Sample::new(Self::new(ones()), join::<N>(1, [1, 1, 1])),
            Sample::new(Self::new(last([2, 2, 2])), join::<N>(3, [3, 6, 5])),
            Sample::new(
                Self { ceil_mode: true, padding: zeros(), ..overlapping.clone() },
                join::<N>(2, [5, 4, 6]),
            ),
            Sample::new(overlapping, join::<N>(2, [4, 5, 7])),
        ]
    }
}

impl<const N: usize> Configured for AvgPool<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn validate(&self) -> Result<()> {
        if self.ceil_mode && self.count_include_pad && self.padding != zeros() {
            return Err(Error::Value(
                "with ceil_mode, padding does not count: set count_include_pad to false, or padding to 0"
                    .into(),
            ));
        }
        check_padding(self.pool_size, self.padding)
    }

    fn samples() -> Vec<Sample> {
        let overlapping = Self {
            stride: Some(last([2, 1, 2])),
            padding: last([1, 1, 1]),
            count_include_pad: false,
            ..Self::new(last([2, 3, 3]))
        };
        let bordered = Self { padding: last([0, 1, 1]), ..Self::new(last([1, 2, 3])) };
        vec![
            Sample::new(Self::new(ones()), join::<N>(1, [1, 1, 1])),
            Sample::new(Self::new(last([2, 2, 2])), join::<N>(3, [3, 6, 5])),
            Sample::new(bordered, join::<N>(1, [2, 5, 7])),
            Sample::new(Self { ceil_mode: true, ..overlapping.clone() }, join::<N>(2, [4, 6, 4])),
            Sample::new(Self { ceil_mode: true, ..Self::new(last([2, 3, 2])) }, join::<N>(1, [3, 4, 5])),
            Sample::new(overlapping, join::<N>(2, [3, 5, 7])),
        ]
    }
}

impl<const N: usize> Configured for GlobalMaxPool<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self {}, join::<N>(1, [1, 1, 1])), Sample::new(Self {}, join::<N>(3, [2, 5, 7]))]
    }
}

impl<const N: usize> Configured for GlobalAvgPool<N>
where
    [usize; N]: Serialize + DeserializeOwned,
{
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self {}, join::<N>(1, [1, 1, 1])), Sample::new(Self {}, join::<N>(3, [2, 5, 7]))]
    }
}

/// A window side by side with the next unless it has a stride of its own.
fn window_of<const N: usize>(
    kernel: [usize; N],
    stride: Option<[usize; N]>,
    padding: [usize; N],
) -> Window<N> {
    let padding = Padding::Explicit(padding);
    Window { kernel, stride: stride.unwrap_or(kernel), padding, dilation: ones() }
}

/// Pooling of an input of a certain shape.
pub(super) struct Pooling {
    op: Pool,
    /// The output's extents.
    output: Shape,
}

impl Pooling {
    /// Windows of a size, or one over everything that leaves only the channels.
    pub(super) fn new<const N: usize>(
        name: &str,
        kind: PoolKind,
        input: &Shape,
        window: Option<Window<N>>,
        rounded_up: bool,
    ) -> Result<Self> {
        let (channels, whole) = split(name, input)?;
        let window = window.unwrap_or_else(|| window_of(whole, None, zeros()));
        let geometry = match rounded_up {
            true => window.over_rounded_up(name, channels, whole)?,
            false => window.over(name, channels, whole)?,
        };
        // The places of maxima are kept as whole numbers of 32 bits.
        if kind == PoolKind::Max && geometry.volumes().0 > extents::MOST_REACH {
            return Err(shape_error(
                name,
                &format!("at most {} elements a channel", extents::MOST_REACH),
                input,
            ));
        }
        let output = join::<N>(channels, geometry.output);
        Ok(Self {
            op: Pool { direction: Direction::Forward, kind, geometry, channels, derivative: None },
            output,
        })
    }

    /// Windows over everything.
    fn global<const N: usize>(name: &str, kind: PoolKind, input: &Shape) -> Result<Self> {
        let made = Self::new::<N>(name, kind, input, None, false)?;
        Ok(Self { output: Shape::from([input[0]]), ..made })
    }

    pub(super) fn forward(self, b: &mut Builder, x: Value) -> Forward {
        match self.op.kind {
            PoolKind::Max => {
                let (y, indices) = b.apply_indexed(self.op, &[x], "y", self.output);
                Forward::saving(y, vec![indices])
            }
            PoolKind::Average { .. } => Forward::new(b.apply(self.op, &[x], "y", self.output)),
        }
    }

    pub(super) fn backward(self, b: &mut Builder, back: &Backward<'_>) -> Value {
        let shape = b.shape(back.x).clone();
        let op = Pool { direction: Direction::InputGradient, ..self.op };
        let reads = [&[back.gradient], &back.forward.saved[..]].concat();
        b.apply(op, &reads, "dx", shape)
    }
}

/// The layer that a struct's `pooling` describes.
macro_rules! layer {
    ($layer:ident) => {
        impl<const N: usize> Layer for $layer<N>
        where
            [usize; N]: Serialize + DeserializeOwned,
        {
            kind_and_config!();

            fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
                Ok(self.pooling(single(self.kind(), inputs)?)?.output)
            }

            one_input!();

            fn target_rules(&self) -> &dyn TargetRules {
                &Linear
            }
        }

        impl<const N: usize> OneInput for $layer<N> {
            fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
                Ok(self.pooling(b.shape(x))?.forward(b, x))
            }

            fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
                Ok(Some(self.pooling(b.shape(back.x))?.backward(b, back)))
            }
        }
    };
}

layer!(MaxPool);
layer!(AvgPool);
layer!(GlobalMaxPool);
layer!(GlobalAvgPool);

impl<const N: usize> MaxPool<N> {
    fn pooling(&self, input: &Shape) -> Result<Pooling> {
        let window = window_of(self.pool_size, self.stride, self.padding);
        Pooling::new(&format!("MaxPool{N}D"), PoolKind::Max, input, Some(window), self.ceil_mode)
    }
}

impl<const N: usize> AvgPool<N> {
    fn pooling(&self, input: &Shape) -> Result<Pooling> {
        // Beyond the padding nothing counts.
        let kind = PoolKind::Average { count_padding: self.count_include_pad && !self.ceil_mode };
        let window = window_of(self.pool_size, self.stride, self.padding);
        Pooling::new(&format!("AvgPool{N}D"), kind, input, Some(window), self.ceil_mode)
    }
}

impl<const N: usize> GlobalMaxPool<N> {
    fn pooling(&self, input: &Shape) -> Result<Pooling> {
        Pooling::global::<N>(&format!("GlobalMaxPool{N}D"), PoolKind::Max, input)
    }
}

impl<const N: usize> GlobalAvgPool<N> {
    fn pooling(&self, input: &Shape) -> Result<Pooling> {
        let kind = PoolKind::Average { count_padding: true };
        Pooling::global::<N>(&format!("GlobalAvgPool{N}D"), kind, input)
    }
}
