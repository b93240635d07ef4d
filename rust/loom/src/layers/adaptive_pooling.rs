//! Pooling to an output of a given size, whatever the input's.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::pooling::Pooling;
use super::resampled::Resampled;
use super::sample::by_axes;
use super::settings::{kind_and_config, settings};
use super::window::{Padding, Window, join, last, lift, ones, split, zeros};
use super::{Context, Forward, Layer, Sample, TargetRules, shape_error, single};
use crate::ops::pool::PoolKind;
use crate::ops::{AdaptiveMax, Direction, Resampling};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, extents};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest element of each of `size` windows: (channels, length) to (channels, size).
pub type AdaptiveMaxPool1D = AdaptiveMaxPool<1>;
/// The largest element of each of `size` windows: (channels, height, width) to (channels, size...).
pub type AdaptiveMaxPool2D = AdaptiveMaxPool<2>;
/// The largest element of each of `size` windows: (channels, depth, height, width) to (channels, size...).
pub type AdaptiveMaxPool3D = AdaptiveMaxPool<3>;
/// The mean of each of `size` windows: (channels, length) to (channels, size).
pub type AdaptiveAvgPool1D = AdaptiveAvgPool<1>;
/// The mean of each of `size` windows: (channels, height, width) to (channels, size...).
pub type AdaptiveAvgPool2D = AdaptiveAvgPool<2>;
/// The mean of each of `size` windows: (channels, depth, height, width) to (channels, size...).
pub type AdaptiveAvgPool3D = AdaptiveAvgPool<3>;

settings! {
    /// The largest element of each of `size` windows that share an input out evenly: (channels, extents) to
    /// (channels, size).
    ///
    /// Window `i` of an axis reaches from `floor(i extent / size)` to before `ceil((i + 1) extent / size)`. Ties go
    /// to the first.
    #[derive(Clone, Debug, PartialEq)]
    pub struct AdaptiveMaxPool<const N: usize> "adaptive_max_pool" {
        /// Extents of the output.
        size: [usize; N] [least 1, most extents::MOST_REACH],
    }
}

settings! {
    /// The mean of each of `size` windows that share an input out evenly: (channels, extents) to (channels, size).
    ///
    /// Window `i` of an axis reaches from `floor(i extent / size)` to before `ceil((i + 1) extent / size)`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct AdaptiveAvgPool<const N: usize> "adaptive_avg_pool" {
        /// Extents of the output.
        size: [usize; N] [least 1, most extents::MOST_REACH],
    }
}

/// Channels and extents of an input that so many windows can be counted in, and the output's shape.
fn output_of<const N: usize>(
    name: &str,
    input: &Shape,
    size: [usize; N],
) -> Result<(usize, [usize; N], Shape)> {
    let (channels, whole) = split::<N>(name, input)?;
    let too_far = |axis: usize| whole[axis].saturating_mul(size[axis]) > extents::MOST_REACH;
    if (0..N).any(too_far) {
        let expected =
            format!("extents that multiplied by size {size:?} are at most {}", extents::MOST_REACH);
        return Err(shape_error(name, &expected, input));
    }
    Ok((channels, whole, Shape::new([&[channels], &size[..]].concat())))
}

/// Windows side by side, where as many of them fill the input: those have kernels that are faster.
fn even<const N: usize>(
    name: &str,
    kind: PoolKind,
    input: &Shape,
    size: [usize; N],
) -> Result<Option<Pooling>> {
    let (_, whole, _) = output_of(name, input, size)?;
    if (0..N).any(|axis| !whole[axis].is_multiple_of(size[axis])) {
        return Ok(None);
    }
    let kernel: [usize; N] = std::array::from_fn(|axis| whole[axis] / size[axis]);
    let padding = Padding::Explicit(zeros());
    let window = Window { kernel, stride: kernel, padding, dilation: ones() };
    Pooling::new(name, kind, input, Some(window), false).map(Some)
}

/// What is tried of either kind: one window, even ones, uneven ones, and more windows than elements.
fn samples<const N: usize, L: Layer + 'static>(of: impl Fn([usize; N]) -> L) -> Vec<Sample> {
    let all = vec![
        Sample::new(of(last([2, 2, 3])), join::<N>(2, [3, 3, 5])),
        Sample::new(of(ones()), join::<N>(2, [2, 3, 4])),
        Sample::new(of(last([2, 2, 3])), join::<N>(1, [2, 4, 6])),
        Sample::new(of(last([1, 4, 5])), join::<N>(2, [2, 3, 3])),
        Sample::new(of(last([1, 2, 4])), join::<N>(1, [1, 2, 19])),
    ];
    by_axes::<N>(all, 1)
}

/// The layer of a struct with a `size`.
macro_rules! layer {
    ($layer:ident, $name:literal) => {
        impl<const N: usize> $layer<N> {
            /// Windows that make an output of these extents.
            pub fn new(size: [usize; N]) -> Self {
                Self::with_defaults(size)
            }

            fn name() -> String {
                format!("{}{N}D", $name)
            }
        }

        impl<const N: usize> Configured for $layer<N>
        where
            [usize; N]: Serialize + DeserializeOwned,
        {
            fn samples() -> Vec<Sample> {
                samples(Self::new)
            }
        }

        impl<const N: usize> Layer for $layer<N>
        where
            [usize; N]: Serialize + DeserializeOwned,
        {
            kind_and_config!();

            fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
                let input = single(self.kind(), inputs)?;
                // What is pooled at once is refused here for what that refuses.
                even(&Self::name(), Self::KIND_OF_POOL, input, self.size)?;
                self.check(input)?;
                Ok(output_of(&Self::name(), input, self.size)?.2)
            }

            one_input!();

            fn target_rules(&self) -> &dyn TargetRules {
                &Linear
            }
        }
    };
}

layer!(AdaptiveMaxPool, "AdaptiveMaxPool");
layer!(AdaptiveAvgPool, "AdaptiveAvgPool");

impl<const N: usize> AdaptiveMaxPool<N> {
    const KIND_OF_POOL: PoolKind = PoolKind::Max;

    /// Refuses channels whose places 32 bits do not count.
    fn check(&self, input: &Shape) -> Result<()> {
        if extents::product(&input[1..]) > extents::MOST_REACH {
            let expected = format!("at most {} elements a channel", extents::MOST_REACH);
            return Err(shape_error(&Self::name(), &expected, input));
        }
        Ok(())
    }

    fn op(&self, input: &Shape) -> Result<AdaptiveMax> {
        let (channels, whole, _) = output_of(&Self::name(), input, self.size)?;
        let (input, output) = (lift(whole, 1), lift(self.size, 1));
        Ok(AdaptiveMax { direction: Direction::Forward, channels, input, output })
    }
}

impl<const N: usize> OneInput for AdaptiveMaxPool<N> {
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        let input = b.shape(x).clone();
        if let Some(pooling) = even(&Self::name(), PoolKind::Max, &input, self.size)? {
            return Ok(pooling.forward(b, x));
        }
        let (.., output) = output_of(&Self::name(), &input, self.size)?;
        let (y, indices) = b.apply_indexed(self.op(&input)?, &[x], "y", output);
        Ok(Forward::saving(y, vec![indices]))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let input = b.shape(back.x).clone();
        if let Some(pooling) = even(&Self::name(), PoolKind::Max, &input, self.size)? {
            return Ok(Some(pooling.backward(b, back)));
        }
        let op = AdaptiveMax { direction: Direction::InputGradient, ..self.op(&input)? };
        let reads = [&[back.gradient], &back.forward.saved[..]].concat();
        Ok(Some(b.apply(op, &reads, "dx", input)))
    }
}

impl<const N: usize> AdaptiveAvgPool<N> {
    const KIND_OF_POOL: PoolKind = PoolKind::Average { count_padding: true };

    fn check(&self, _input: &Shape) -> Result<()> {
        Ok(())
    }

    fn resampled(&self, input: &Shape) -> Result<Resampled> {
        let (.., output) = output_of(&Self::name(), input, self.size)?;
        Ok(Resampled::new(Resampling::Means, input, &output))
    }
}

impl<const N: usize> OneInput for AdaptiveAvgPool<N> {
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        let input = b.shape(x).clone();
        match even(&Self::name(), Self::KIND_OF_POOL, &input, self.size)? {
            Some(pooling) => Ok(pooling.forward(b, x)),
            None => Ok(Forward::new(self.resampled(&input)?.forward(b, x))),
        }
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let input = b.shape(back.x).clone();
        match even(&Self::name(), Self::KIND_OF_POOL, &input, self.size)? {
            Some(pooling) => Ok(Some(pooling.backward(b, back))),
            None => Ok(Some(self.resampled(&input)?.backward(b, back.gradient))),
        }
    }
}
