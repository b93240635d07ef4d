//! Batch normalisation.

use super::{affine, read_affine};
use crate::Result;
use crate::layers::kind_registry::Configured;
use crate::layers::one_input::{Backward, OneInput, one_input};
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
use crate::ops::normalize::Statistics;
use crate::ops::whole_batch::Shared;
use crate::ops::{
    BiasGradient, ChannelMoments, ChannelNormalize, Direction, GainGradient, RunningAverage, Sum, WholeBatch,
};
use crate::program::{Builder, Value};
use crate::state::StateSpec;
use crate::tensor::Shape;

settings! {
    /// Normalises each channel to mean 0 and variance 1, then multiplies and shifts it (Ioffe and Szegedy 2015):
    /// (channels, ...), or (features,), each feature a channel, to the same.
    ///
    /// In training mean and biased variance are those of the channel over the whole batch and all its places, and
    /// the running ones move towards them by `momentum`, the variance's unbiased form counting there; more than
    /// one value a channel is needed. At inference the running ones are used. As PyTorch's BatchNorm1d to 3d.
    ///
    /// The outside sees weight, which is the gain, bias, and the states `running_mean` and `running_var` as
    /// (channels,).
    #[derive(Clone, Debug, PartialEq)]
    pub struct BatchNorm "batch_norm" {} optional {
        /// The share of a batch in the running statistics, from 0 to 1.
        momentum: f64 [least 0.0, most 1.0] = 0.1,
        /// Added to the variance; above zero.
        epsilon: f64 [above 0.0] = 1e-5,
        /// Whether a trained gain, `weight`, multiplies every channel.
        gain: bool = true,
        /// Whether a trained bias is added to every channel.
        bias: bool = true,
        /// Whether a step that is cut into shards has the statistics of all of them, and not each its own.
        synchronized: bool = false; unwritten,
    }
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for BatchNorm {
    fn samples() -> Vec<Sample> {
        let default = Self::default;
        vec![
            Sample::new(Self { epsilon: 0.1, ..default() }, [1]),
            Sample::new(Self { epsilon: 1e-2, ..default() }, [19]),
            Sample::new(Self { bias: false, momentum: 0.5, ..default() }, [4, 7]),
            Sample::new(Self { gain: false, epsilon: 1e-3, ..default() }, [3, 5, 3]),
            Sample::new(Self { gain: false, bias: false, ..default() }, [2, 2, 3, 2]),
            Sample::new(Self { synchronized: true, epsilon: 1e-2, ..default() }, [3, 4]),
        ]
    }
}

/// Channels, and the places of each.
fn extents(shape: &Shape) -> (usize, usize) {
    let channels = shape.first().copied().unwrap_or(1);
    (channels, shape.len() / channels)
}

impl BatchNorm {
    fn op(&self, direction: Direction, shape: &Shape, training: bool) -> ChannelNormalize {
        let (channels, inner) = extents(shape);
        let Self { epsilon, gain, bias, .. } = *self;
        ChannelNormalize { direction, channels, inner, epsilon, gain, bias, fixed: !training }
    }
}

impl Layer for BatchNorm {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        if input.rank() == 0 || input.is_empty() {
            return Err(shape_error("BatchNorm", "(features,) or (channels, ...)", input));
        }
        Ok(input.clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        affine(&Shape::from(extents(&inputs[0]).0), self.gain, self.bias)
    }

    fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        let shape = Shape::from(extents(&inputs[0]).0);
        let state =
            |name: &'static str, initial| StateSpec { name: name.into(), shape: shape.clone(), initial };
        vec![state("running_mean", 0.0), state("running_var", 1.0)]
    }

    one_input!();
}

impl OneInput for BatchNorm {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = b.shape(x).clone();
        let (channels, inner) = extents(&shape);
        let (running_mean, running_variance) = (cx.state(b, "running_mean")?, cx.state(b, "running_var")?);
        let (mean, variance) = if cx.training {
            let moments = ChannelMoments { channels, inner, part: self.synchronized };
            let extent = || Shape::from(channels);
            let results = [("mean", extent()), ("variance", extent())];
            let [mean, variance] = b.apply_several_fixed(moments, &[x], results);
            let average = |unbiased| RunningAverage { momentum: self.momentum, unbiased };
            if self.synchronized {
                let op = WholeBatch { channels, of: Shared::Moments { inner } };
                let results = [("mean", extent()), ("variance", extent()), ("unbiased", extent())];
                let [mean, variance, unbiased] = b.apply_several_fixed(op, &[mean, variance], results);
                b.commit(average(None), &[mean], &[running_mean]);
                b.commit(average(None), &[unbiased], &[running_variance]);
                (mean, variance)
            } else {
                b.commit(average(None), &[mean], &[running_mean]);
                b.commit(average(Some(inner)), &[variance], &[running_variance]);
                (mean, variance)
            }
        } else {
            (running_mean, running_variance)
        };
        let mut reads = vec![x, mean, variance];
        reads.extend(read_affine(b, cx, self.gain, self.bias)?);
        let y = b.apply(self.op(Direction::Forward, &shape, cx.training), &reads, "y", shape);
        Ok(Forward::saving(y, vec![mean, variance]))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, gradient, want, .. } = *back;
        let shape = b.shape(x).clone();
        let (channels, inner) = extents(&shape);
        let (mean, variance) = (back.forward.saved[0], back.forward.saved[1]);
        let gain = read_affine(b, cx, self.gain, false)?;
        // The gradients of bias and gain, which the input's needs too where the statistics are the batch's.
        let wanted = want.parameters && (self.gain || self.bias);
        let mut sums = None;
        if wanted || cx.training {
            let extent = Shape::from(channels);
            let op = BiasGradient { outer: 1, channels, inner };
            let sum = b.apply_fixed(op, &[gradient], "sum", extent.clone());
            let statistics = Statistics::Channels { epsilon: self.epsilon };
            let op = GainGradient { outer: 1, channels, inner, statistics };
            let product = b.apply_fixed(op, &[gradient, x, mean, variance], "product", extent);
            sums = Some((sum, product));
        }
        if let (Some((sum, product)), true) = (sums, want.parameters) {
            for (name, present, value) in [("bias", self.bias, sum), ("weight", self.gain, product)] {
                if present {
                    cx.contribute(b, name, Sum { operands: 1 }, &[value])?;
                }
            }
        }
        if !want.inputs {
            return Ok(None);
        }
        if let (Some((sum, product)), true) = (sums, cx.training && self.synchronized) {
            let op = WholeBatch { channels, of: Shared::Sums };
            let results = [("sum", Shape::from(channels)), ("product", Shape::from(channels))];
            let [sum, product] = b.apply_several_fixed(op, &[sum, product], results);
            sums = Some((sum, product));
        }
        let mut reads = match sums {
            Some((sum, product)) if cx.training => vec![gradient, x, mean, variance, sum, product],
            _ => vec![gradient, variance],
        };
        reads.extend(gain);
        let op = self.op(Direction::InputGradient, &shape, cx.training);
        Ok(Some(b.apply(op, &reads, "dx", shape)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Precision;
    use crate::{Network, tensor_view};

    #[test]
    fn one_value_a_channel_is_refused_in_training_and_nothing_moves() -> Result<()> {
        let mut network = Network::with_options(3, [1, 1, 1], Precision::Float32, 1)?;
        network.add([0, 0, 0], BatchNorm::default())?;
        network.build()?;
        let error = network.forward(tensor_view(&[1, 3], &[1.0f32, 2.0, 3.0])?).unwrap_err();
        assert!(error.to_string().contains("more than one value a channel"), "{error}");
        assert_eq!(network.state([0, 0, 0], 0, "running_mean")?.to_f64(), [0.0; 3]);
        // At inference one row is as good as many.
        let y = network.predict(tensor_view(&[1, 3], &[1.0f32, 2.0, 3.0])?)?.to_f64();
        assert!((y[2] - 3.0 / (1.0f64 + 1e-5).sqrt()).abs() < 1e-6);
        Ok(())
    }
}
