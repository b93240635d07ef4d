//! Normalisation on a GPU.

use super::{
    ChannelMoments, ChannelNormalize, GainGradient, Normalize, RunningAverage, Statistics, no_weight,
};
use crate::Result;
use crate::ops::bias::gpu::{share, sum_columns, unit};
use crate::ops::{Direction, segment};
use crate::shader::{GpuOperation, Operand, Recorder, Shader, THREADS};

/// `yes` where there is such an operand, else `no`.
pub(super) fn either(present: bool, yes: &'static str, no: &'static str) -> &'static str {
    if present { yes } else { no }
}

impl GpuOperation for Normalize {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        self.record_with_residual(recorder, None)
    }
}

impl Normalize {
    /// Records it with a value that is added to the gradient.
    pub(in crate::ops) fn record_with_residual(
        &self,
        recorder: &mut Recorder<'_>,
        residual: Option<&Operand>,
    ) -> Result<()> {
        if self.record_kept(recorder, residual)? {
            return Ok(());
        }
        let shader = Shader::new(self.to_string(), include_str!("rows.wgsl"));
        let (gain, bias) = (self.gain.then_some("gain"), self.bias.then_some("bias"));
        let mean = either(self.centred, "set_sum(thread, sum) / f32(EXTENT)", "0.0");
        let shader = match self.direction {
            Direction::Forward => {
                let shader = shader
                    .section("BODY", include_str!("rows_forward.wgsl"))
                    .section("BIAS", either(self.bias, "bias[channel_of(place, e)]", "0.0"))
                    .section("MEAN", mean)
                    .section("KEEP_MEAN", either(self.centred, "means[place] = mean;", ""))
                    .float("EPSILON", self.epsilon)
                    .reads(recorder, ["x"].into_iter().chain(gain).chain(bias))?
                    .write("y", "f32", recorder.write(0)?)
                    .write("inverse", "f32", recorder.write(1)?);
                match self.centred {
                    true => shader.write("means", "f32", recorder.write(2)?),
                    false => shader,
                }
            }
            Direction::InputGradient => {
                let means = self.centred.then_some("means");
                let shader = match residual {
                    Some(residual) => shader.read("residual", "f32", residual.clone()),
                    None => shader,
                };
                shader
                    .section("BODY", include_str!("rows_backward.wgsl"))
                    .section("RESIDUAL", either(residual.is_some(), " + residual[base + e]", ""))
                    .section("KEPT_MEAN", either(self.centred, "means[place]", "0.0"))
                    .section("SHIFT", mean)
                    .reads(recorder, ["dy", "x", "inverse"].into_iter().chain(means).chain(gain))?
                    .write("dx", "f32", recorder.write(0)?)
            }
            Direction::WeightGradient => return Err(no_weight(self)),
        };
        let lanes = segment::lanes(self.extent(), THREADS);
        let sets = recorder.rows() * self.outer * self.groups;
        shader
            .constant("EXTENT", self.extent())
            .constant("CHANNELS", self.set_channels())
            .constant("GROUPS", self.groups)
            .constant("INNER", self.inner)
            .constant("LANES", lanes)
            .section("JOIN", segment::join("set_sum", "f32", lanes, "a + b"))
            .section("GAIN", either(self.gain, "gain[channel_of(place, e)]", "1.0"))
            // Of the whole batch.
            .number("sets", sets)
            .groups(recorder, sets.div_ceil(THREADS / lanes))
    }
}

/// How sums of `terms` numbers a channel are shared out among workgroups.
struct Shares {
    /// Channels of a workgroup.
    columns: usize,
    /// Terms of a part, and parts.
    part: usize,
    parts: usize,
    /// Workgroups.
    groups: usize,
}

impl Shares {
    /// Of channels, or of units of so many that lie side by side.
    fn new(channels: usize, wide: usize, inner: usize, terms: usize) -> Self {
        // Channels that lie side by side are read side by side.
        let columns = if inner == 1 { segment::lanes(channels, 32 / wide) } else { 1 };
        let (part, parts) = share(terms, THREADS / columns, wide);
        Self { columns, part, parts, groups: channels.div_ceil(columns) * parts }
    }
}

impl GpuOperation for ChannelMoments {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let terms = self.count(recorder.rows())?;
        let (mean, variance) = (recorder.write(0)?, recorder.write(1)?);
        let shares = Shares::new(self.channels, 1, self.inner, terms);
        let whole = shares.parts == 1;
        let (means, spreads) = if whole {
            (mean.clone(), variance.clone())
        } else {
            let elements = shares.parts * self.channels;
            (recorder.scratch(elements)?, recorder.scratch(elements)?)
        };
        let extents = |shader: Shader| {
            shader
                .number("channels", self.channels)
                // Numbers of a channel, and of a part of them.
                .number("terms", terms)
                .number("part", shares.part)
                .number("parts", shares.parts)
        };
        let shader = Shader::new("channel_moments", include_str!("moments.wgsl"))
            .constant("COLUMNS", shares.columns)
            .constant("INNER", self.inner)
            .read("x", "f32", recorder.read(0)?)
            // (parts, channels)
            .write("means", "f32", means.clone())
            .write("spreads", "f32", spreads.clone());
        // What squared distances are divided by.
        let divisor = if whole { terms as f64 } else { 1.0 };
        extents(shader).real("divisor", divisor).groups(recorder, shares.groups)?;
        if whole {
            return Ok(());
        }
        let shader = Shader::new("channel_moments", include_str!("merge.wgsl"))
            .read("means", "f32", means)
            .read("spreads", "f32", spreads)
            .write("mean", "f32", mean)
            .write("variance", "f32", variance);
        extents(shader).elements(recorder, self.channels)
    }
}

impl GpuOperation for ChannelNormalize {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (names, formula) = match self.direction {
            Direction::Forward if self.bias => {
                (&["x", "mean", "variance"][..], "(x[i] - mean[channel]) * factor + bias[channel]")
            }
            Direction::Forward => (&["x", "mean", "variance"][..], "(x[i] - mean[channel]) * factor"),
            Direction::InputGradient if self.fixed => (&["dy", "variance"][..], "dy[i] * factor"),
            Direction::InputGradient => (
                &["dy", "x", "mean", "variance", "sums", "products"][..],
                "(dy[i] - sums[channel] / count \
                 - (x[i] - mean[channel]) * inverse * (products[channel] / count)) * factor",
            ),
            Direction::WeightGradient => return Err(no_weight(self)),
        };
        let bias = (self.bias && self.direction == Direction::Forward).then_some("bias");
        let names = names.iter().copied().chain(self.gain.then_some("gain")).chain(bias);
        let result = recorder.write(0)?;
        let elements = result.elements;
        Shader::new(self.to_string(), include_str!("channels.wgsl"))
            .float("EPSILON", self.epsilon)
            .section("FACTOR", either(self.gain, "inverse * gain[channel]", "inverse"))
            .section("RESULT", formula)
            .reads(recorder, names)?
            .write("result", "f32", result)
            .number("elements", elements)
            .number("channels", self.channels)
            // Neighbouring elements of one channel.
            .number("inner", self.inner)
            // How many numbers a channel has.
            .real("count", (recorder.rows() * self.inner) as f64)
            .elements(recorder, elements)
    }
}

impl GpuOperation for GainGradient {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (names, groups, epsilon, normal) = match self.statistics {
            Statistics::Rows { groups, centred: true } => {
                (&["dy", "x", "scale", "mean"][..], groups, 0.0, "(x[i] - mean[place]) * scale[place]")
            }
            Statistics::Rows { groups, centred: false } => {
                (&["dy", "x", "scale"][..], groups, 0.0, "x[i] * scale[place]")
            }
            Statistics::Channels { epsilon } => {
                let normal = "(x[i] - mean[channel]) * (1.0 / sqrt(scale[channel] + EPSILON))";
                (&["dy", "x", "mean", "scale"][..], 1, epsilon, normal)
            }
        };
        let result = recorder.write(0)?;
        let accumulate = recorder.accumulate();
        let repetitions = recorder.rows() * self.outer;
        let terms = repetitions * self.inner;
        // Channels side by side go in fours.
        let wide = if self.inner == 1 && (self.channels / groups).is_multiple_of(4) { 4 } else { 1 };
        let channels = self.channels / wide;
        let shares = Shares::new(channels, wide, self.inner, terms);
        let unit = unit(wide);
        let whole = shares.parts == 1;
        let sums = if whole { result.clone() } else { recorder.scratch(shares.parts * self.channels)? };
        let mut shader = Shader::new("gain_gradient", include_str!("gain.wgsl"))
            .constant("COLUMNS", shares.columns)
            .constant("INNER", self.inner)
            .constant("GROUPS", groups)
            .constant("SET_CHANNELS", channels / groups)
            .float("EPSILON", epsilon)
            .section("UNIT", unit)
            .section("NORMAL", normal);
        for (number, name) in names.iter().enumerate() {
            // Statistics of sets are numbers by themselves.
            let of_set = number > 1 && matches!(self.statistics, Statistics::Rows { .. });
            shader = shader.read(name, if of_set { "f32" } else { unit }, recorder.read(number)?);
        }
        shader
            .write("sums", unit, sums.clone())
            .number("channels", channels)
            // Numbers of a channel, and of a part of them.
            .number("terms", terms)
            .number("part", shares.part)
            .number("parts", shares.parts)
            .number("accumulate", accumulate && whole)
            .groups(recorder, shares.groups)?;
        match whole {
            true => Ok(()),
            false => sum_columns(recorder, sums, (shares.parts, self.channels), result, accumulate),
        }
    }
}

impl GpuOperation for RunningAverage {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (value, running) = (recorder.read(0)?, recorder.write(0)?);
        let elements = running.elements;
        Shader::new("running_average", include_str!("running.wgsl"))
            .control(recorder)
            .read("value", "f32", value)
            .write("running", "f32", running)
            .number("elements", elements)
            .real("kept", 1.0 - self.momentum)
            .real("share", self.share(recorder.rows()))
            .elements(recorder, elements)
    }
}
