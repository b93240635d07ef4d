//! Normalisation on a GPU.

use super::{
    ChannelMoments, ChannelNormalize, GainGradient, Normalize, RunningAverage, Statistics, no_weight,
};
use crate::Result;
use crate::ops::bias::gpu::{share, sum_columns};
use crate::ops::operands::Operands;
use crate::ops::{Direction, segment};
use crate::shader::{Bind, GpuOperation, Recorder, Template};

/// Threads of a workgroup.
const THREADS: usize = 256;

/// `yes` where there is such an operand, else `no`.
fn either(present: bool, yes: &'static str, no: &'static str) -> &'static str {
    if present { yes } else { no }
}

impl GpuOperation for Normalize {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = Operands::default();
        let body = match self.direction {
            Direction::Forward => {
                operands.read(recorder, "x", true)?;
                operands.read(recorder, "gain", self.gain)?;
                operands.read(recorder, "bias", self.bias)?;
                operands.write(recorder, "y", 0)?;
                operands.write(recorder, "inverse", 1)?;
                if self.centred {
                    operands.write(recorder, "means", 2)?;
                }
                include_str!("rows_forward.wgsl")
            }
            Direction::InputGradient => {
                operands.read(recorder, "dy", true)?;
                operands.read(recorder, "x", true)?;
                operands.read(recorder, "inverse", true)?;
                operands.read(recorder, "means", self.centred)?;
                operands.read(recorder, "gain", self.gain)?;
                operands.write(recorder, "dx", 0)?;
                include_str!("rows_backward.wgsl")
            }
            Direction::WeightGradient => return Err(no_weight(self)),
        };
        let lanes = segment::lanes(self.extent(), THREADS);
        let kernel = Template::new(include_str!("rows.wgsl"))
            .constant("THREADS", THREADS)
            .constant("EXTENT", self.extent())
            .constant("CHANNELS", self.set_channels())
            .constant("GROUPS", self.groups)
            .constant("INNER", self.inner)
            .constant("LANES", lanes)
            .float("EPSILON", self.epsilon)
            .section("BINDINGS", &operands.text)
            .section("JOIN", segment::join("set_sum", "f32", lanes, "a + b"))
            .section("BODY", body)
            .section("GAIN", either(self.gain, "gain[channel_of(place, e)]", "1.0"))
            .section("BIAS", either(self.bias, "bias[channel_of(place, e)]", "0.0"))
            .section("MEAN", either(self.centred, "set_sum(thread, sum) / f32(EXTENT)", "0.0"))
            .section("KEEP_MEAN", either(self.centred, "means[place] = mean;", ""))
            .section("KEPT_MEAN", either(self.centred, "means[place]", "0.0"))
            .section("SHIFT", either(self.centred, "set_sum(thread, sum) / f32(EXTENT)", "0.0"))
            .kernel(self.to_string());
        let sets = recorder.rows() * self.outer * self.groups;
        recorder.dispatch(&kernel, &operands.binds, &[sets as u32], sets.div_ceil(THREADS / lanes))
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
    fn new(channels: usize, inner: usize, terms: usize) -> Self {
        // Channels that lie side by side are read side by side.
        let columns = if inner == 1 { segment::lanes(channels, 32) } else { 1 };
        let (part, parts) = share(terms, THREADS / columns, 1);
        Self { columns, part, parts, groups: channels.div_ceil(columns) * parts }
    }
}

impl GpuOperation for ChannelMoments {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let terms = self.count(recorder.rows())?;
        let (mean, variance) = (recorder.write(0)?, recorder.write(1)?);
        let shares = Shares::new(self.channels, self.inner, terms);
        let whole = shares.parts == 1;
        let (means, spreads) = if whole {
            (mean.clone(), variance.clone())
        } else {
            let elements = shares.parts * self.channels;
            (recorder.scratch(elements)?, recorder.scratch(elements)?)
        };
        let kernel = Template::new(include_str!("moments.wgsl"))
            .constant("THREADS", THREADS)
            .constant("COLUMNS", shares.columns)
            .constant("INNER", self.inner)
            .kernel("channel_moments");
        let divisor = if whole { terms as f32 } else { 1.0 };
        let extents = [self.channels, terms, shares.part, shares.parts].map(|extent| extent as u32);
        let constants = [&extents[..], &[divisor.to_bits()]].concat();
        let operands =
            [Bind::Read(recorder.read(0)?), Bind::Write(means.clone()), Bind::Write(spreads.clone())];
        recorder.dispatch(&kernel, &operands, &constants, shares.groups)?;
        if whole {
            return Ok(());
        }
        let kernel =
            Template::new(include_str!("merge.wgsl")).constant("THREADS", THREADS).kernel("channel_moments");
        let operands = [Bind::Read(means), Bind::Read(spreads), Bind::Write(mean), Bind::Write(variance)];
        recorder.dispatch(&kernel, &operands, &extents, self.channels.div_ceil(THREADS))
    }
}

impl GpuOperation for ChannelNormalize {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = Operands::default();
        let formula = match self.direction {
            Direction::Forward => {
                for name in ["x", "mean", "variance"] {
                    operands.read(recorder, name, true)?;
                }
                operands.read(recorder, "gain", self.gain)?;
                operands.read(recorder, "bias", self.bias)?;
                if self.bias {
                    "(x[i] - mean[channel]) * factor + bias[channel]"
                } else {
                    "(x[i] - mean[channel]) * factor"
                }
            }
            Direction::InputGradient if self.fixed => {
                operands.read(recorder, "dy", true)?;
                operands.read(recorder, "variance", true)?;
                operands.read(recorder, "gain", self.gain)?;
                "dy[i] * factor"
            }
            Direction::InputGradient => {
                for name in ["dy", "x", "mean", "variance", "sums", "products"] {
                    operands.read(recorder, name, true)?;
                }
                operands.read(recorder, "gain", self.gain)?;
                "(dy[i] - sums[channel] / count \
                 - (x[i] - mean[channel]) * inverse * (products[channel] / count)) * factor"
            }
            Direction::WeightGradient => return Err(no_weight(self)),
        };
        let result = recorder.write(0)?;
        let elements = result.elements;
        operands.push("result", Bind::Write(result));
        let kernel = Template::new(include_str!("channels.wgsl"))
            .constant("THREADS", THREADS)
            .float("EPSILON", self.epsilon)
            .section("BINDINGS", &operands.text)
            .section("FACTOR", either(self.gain, "inverse * gain[channel]", "inverse"))
            .section("RESULT", formula)
            .kernel(self.to_string());
        let count = (recorder.rows() * self.inner) as f32;
        let constants = [elements as u32, self.channels as u32, self.inner as u32, count.to_bits()];
        recorder.dispatch(&kernel, &operands.binds, &constants, elements.div_ceil(THREADS))
    }
}

impl GpuOperation for GainGradient {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = Operands::default();
        operands.read(recorder, "dy", true)?;
        operands.read(recorder, "x", true)?;
        let (groups, epsilon, normal) = match self.statistics {
            Statistics::Rows { groups, centred } => {
                operands.read(recorder, "scale", true)?;
                operands.read(recorder, "mean", centred)?;
                let normal =
                    if centred { "(x[i] - mean[place]) * scale[place]" } else { "x[i] * scale[place]" };
                (groups, 0.0, normal)
            }
            Statistics::Channels { epsilon } => {
                operands.read(recorder, "mean", true)?;
                operands.read(recorder, "scale", true)?;
                (1, epsilon, "(x[i] - mean[channel]) * (1.0 / sqrt(scale[channel] + EPSILON))")
            }
        };
        let result = recorder.write(0)?;
        let accumulate = recorder.accumulate();
        let repetitions = recorder.rows() * self.outer;
        let terms = repetitions * self.inner;
        let shares = Shares::new(self.channels, self.inner, terms);
        let whole = shares.parts == 1;
        let sums = if whole { result.clone() } else { recorder.scratch(shares.parts * self.channels)? };
        operands.push("sums", Bind::Write(sums.clone()));
        let kernel = Template::new(include_str!("gain.wgsl"))
            .constant("THREADS", THREADS)
            .constant("COLUMNS", shares.columns)
            .constant("INNER", self.inner)
            .constant("GROUPS", groups)
            .constant("SET_CHANNELS", self.channels / groups)
            .float("EPSILON", epsilon)
            .section("BINDINGS", &operands.text)
            .section("NORMAL", normal)
            .kernel("gain_gradient");
        let extents = [self.channels, terms, shares.part, shares.parts].map(|extent| extent as u32);
        let constants = [&extents[..], &[u32::from(accumulate && whole)]].concat();
        recorder.dispatch(&kernel, &operands.binds, &constants, shares.groups)?;
        match whole {
            true => Ok(()),
            false => sum_columns(recorder, sums, (shares.parts, self.channels), result, accumulate),
        }
    }
}

impl GpuOperation for RunningAverage {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (value, running) = (recorder.read(0)?, recorder.write(0)?);
        let kernel = Template::new(include_str!("running.wgsl"))
            .constant("THREADS", THREADS)
            .kernel("running_average");
        let share = self.share(recorder.rows()) as f32;
        let elements = running.elements;
        let constants = [elements as u32, ((1.0 - self.momentum) as f32).to_bits(), share.to_bits()];
        let operands = [Bind::Read(recorder.control()), Bind::Read(value), Bind::Write(running)];
        recorder.dispatch(&kernel, &operands, &constants, elements.div_ceil(THREADS))
    }
}
