//! Channels as places of an image, and back.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::window::split;
use super::{Context, Feedback, FeedbackForm, Forward, Layer, Sample, TargetRules, shape_error, single};
use crate::ops::Permute;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Result, extents};

settings! {
    /// Every `factor` x `factor` channels as one with `factor` times the extents: (factor^2 channels, height,
    /// width) to (channels, factor x height, factor x width) (Shi et al. 2016).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PixelShuffle "pixel_shuffle" {
        /// How many times larger height and width become.
        factor: usize [least 1, most extents::MOST_REACH],
    }
}

settings! {
    /// What undoes `PixelShuffle`: (channels, factor x height, factor x width) to (factor^2 channels, height,
    /// width).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PixelUnshuffle "pixel_unshuffle" {
        /// How many times smaller height and width become.
        factor: usize [least 1, most extents::MOST_REACH],
    }
}

/// The permutation that a layer is, of an input of a certain shape.
struct Shuffling {
    op: Permute,
    output: Shape,
}

/// From (channels, factor, factor, height, width) to (channels, height, factor, width, factor).
fn spread(channels: usize, factor: usize, height: usize, width: usize) -> Permute {
    Permute { extents: vec![channels, factor, factor, height, width], order: vec![0, 3, 1, 4, 2] }
}

impl PixelShuffle {
    fn shuffling(&self, input: &Shape) -> Result<Shuffling> {
        let (channels, [height, width]) = split::<2>("PixelShuffle", input)?;
        let factor = self.factor;
        let square = factor.saturating_mul(factor);
        if channels % square != 0 {
            let expected = format!("a multiple of {square} channels, the square of its factor");
            return Err(shape_error("PixelShuffle", &expected, input));
        }
        let channels = channels / square;
        let output = [channels, height.saturating_mul(factor), width.saturating_mul(factor)];
        Ok(Shuffling { op: spread(channels, factor, height, width), output: output.into() })
    }
}

impl PixelUnshuffle {
    fn shuffling(&self, input: &Shape) -> Result<Shuffling> {
        let (channels, [height, width]) = split::<2>("PixelUnshuffle", input)?;
        let factor = self.factor;
        if height % factor != 0 || width % factor != 0 {
            let expected = format!("a height and a width that its factor {factor} divides");
            return Err(shape_error("PixelUnshuffle", &expected, input));
        }
        let (height, width) = (height / factor, width / factor);
        let output = [channels.saturating_mul(factor).saturating_mul(factor), height, width];
        Ok(Shuffling { op: spread(channels, factor, height, width).inverse(), output: output.into() })
    }
}

impl Configured for PixelShuffle {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self { factor: 2 }, [8, 2, 3]),
            Sample::new(Self { factor: 3 }, [9, 1, 2]),
            Sample::new(Self { factor: 1 }, [2, 3, 2]),
        ]
    }
}

impl Configured for PixelUnshuffle {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self { factor: 2 }, [2, 4, 6]),
            Sample::new(Self { factor: 3 }, [1, 3, 6]),
            Sample::new(Self { factor: 1 }, [2, 3, 2]),
        ]
    }
}

/// The layer that a struct's `shuffling` describes.
macro_rules! layer {
    ($layer:ident) => {
        impl Layer for $layer {
            kind_and_config!();

            fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
                Ok(self.shuffling(single(self.kind(), inputs)?)?.output)
            }

            fn keeps_elements(&self) -> bool {
                true
            }

            one_input!();

            fn target_rules(&self) -> &dyn TargetRules {
                self
            }
        }

        impl $layer {
            /// `y` in the places of `x`.
            fn put_back(&self, b: &mut Builder, x: Value, y: Value, label: &'static str) -> Result<Value> {
                let shape = b.shape(x).clone();
                Ok(b.apply(self.shuffling(&shape)?.op.inverse(), &[y], label, shape))
            }
        }

        impl TargetRules for $layer {
            /// The target in the places of the input.
            fn target(
                &self,
                b: &mut Builder,
                _cx: &Context,
                inputs: &[Value],
                _forward: &Forward,
                target: Value,
            ) -> Result<Option<Value>> {
                let x = *single(self.kind(), inputs)?;
                self.put_back(b, x, target, "target").map(Some)
            }

            fn feedback(&self, _inputs: &[Shape], _form: FeedbackForm) -> Feedback {
                Feedback::Backward
            }
        }

        impl OneInput for $layer {
            fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
                let Shuffling { op, output } = self.shuffling(b.shape(x))?;
                Ok(Forward::new(b.apply(op, &[x], "y", output)))
            }

            fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
                self.put_back(b, back.x, back.gradient, "dx").map(Some)
            }
        }
    };
}

layer!(PixelShuffle);
layer!(PixelUnshuffle);
