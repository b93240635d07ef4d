//! What layers are given to read: ranges and mean squares, measured over data.

use super::Network;
use super::lower::Lowered;
use super::mode::Mode;
use super::placed::{InputRange, PlacedLayer, at_layer};
use super::programs::ProgramKey;
use crate::ops::{Direction, Op, StepValues};
use crate::precision::in_precision;
use crate::program::{Access, Builder, ParameterRef, Phase, Place, Value};
use crate::simd::Real;
use crate::tensor::TensorView;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counts of magnitudes by the upper bits of single precision: sign aside, 8 of exponent and 8 of fraction.
#[derive(Debug)]
struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: f64,
}

/// Lower bits that a magnitude's bin does not tell apart.
const DROPPED: u32 = 15;

impl Histogram {
    fn new() -> Self {
        Self { counts: vec![0; 1 << (31 - DROPPED)], total: 0, largest: 0.0 }
    }

    fn count(&mut self, value: f64) {
        let magnitude = value.abs();
        self.largest = self.largest.max(magnitude);
        self.counts[((magnitude as f32).min(f32::MAX).to_bits() >> DROPPED) as usize] += 1;
        self.total += 1;
    }

    /// The magnitude that about so many are below.
    fn at(&self, rank: f64) -> f64 {
        let mut below = 0;
        for (bin, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            if rank < (below + count) as f64 {
                let edge = |bin: usize| f64::from(f32::from_bits((bin as u32) << DROPPED).min(f32::MAX));
                let part = (rank - below as f64 + 0.5) / *count as f64;
                let found = edge(bin) + (edge(bin + 1) - edge(bin)) * part.clamp(0.0, 1.0);
                return found.min(self.largest);
            }
            below += count;
        }
        self.largest
    }

    fn percentile(&self, percent: f64) -> f64 {
        if percent == 100.0 {
            return self.largest;
        }
        self.at(self.total.saturating_sub(1) as f64 * (percent / 100.0))
    }
}

/// Sums of squares of features, and of how many numbers each.
#[derive(Debug, Default)]
struct Squares {
    sums: Vec<f64>,
    counts: Vec<u64>,
}

impl Squares {
    /// Adds stretches of `inner` numbers, each of the next feature, round and round.
    fn add<T: Real>(&mut self, values: &[T], features: usize, inner: usize) {
        // Where the features are the steps of a sequence, others may have had more.
        let held = self.sums.len().max(features);
        self.sums.resize(held, 0.0);
        self.counts.resize(held, 0);
        for (number, stretch) in values.chunks(inner.max(1)).enumerate() {
            let sum: f64 = stretch.iter().map(|x| x.to_f64() * x.to_f64()).sum();
            self.sums[number % features] += sum;
        }
        let count = (values.len() / features.max(1)) as u64;
        self.counts[..features].iter_mut().for_each(|all| *all += count);
    }

    fn means(&self) -> impl Iterator<Item = f64> + '_ {
        self.sums.iter().zip(&self.counts).map(|(sum, count)| sum / (*count).max(1) as f64)
    }
}

/// A product or convolution, by what it reads.
#[derive(Debug)]
struct Reading {
    parameter: ParameterRef,
    input: Value,
    /// Features of the input, how many numbers of each follow each other, and rows of the weight that each
    /// has in each group of channels.
    features: usize,
    inner: usize,
    taps: usize,
    groups: usize,
}

/// What multiplies weights in a program that was lowered forwards.
fn readings(b: &Builder) -> Vec<Reading> {
    let reading = |step: &crate::program::Step| {
        let [input, weight, ..] = step.reads[..] else { return None };
        let parameter = match b.info(weight).place {
            Place::Master(parameter) | Place::Version(parameter, _) => parameter,
            _ => return None,
        };
        parameter.parameter?;
        let (features, inner, taps, groups) = match &step.op {
            Op::Product(op) if op.direction == Direction::Forward => (op.inputs, 1, 1, 1),
            Op::Convolution(op) if op.direction == Direction::Forward => {
                (op.inputs, op.geometry.volumes().0, op.geometry.taps(), op.groups)
            }
            _ => return None,
        };
        Some(Reading { parameter, input, features, inner, taps, groups })
    };
    b.steps().iter().filter_map(reading).collect()
}

impl Reading {
    /// What the errors of each row of the weight count: a row is a feature of one group at one tap.
    fn of_rows(&self, squares: &Squares) -> Vec<f32> {
        let means: Vec<f64> = squares.means().collect();
        let per_group = self.features / self.groups.max(1);
        let feature = |row: usize| {
            let of_groups = means.iter().skip(row).step_by(per_group.max(1));
            (of_groups.sum::<f64>() / self.groups.max(1) as f64).min(f64::from(f32::MAX)) as f32
        };
        (0..per_group).flat_map(|row| std::iter::repeat_n(feature(row), self.taps)).collect()
    }
}

impl PlacedLayer {
    /// Features of its input, and how many numbers of each follow each other.
    fn features(&self) -> (usize, usize) {
        let Some(shape) = self.input_shape() else { return (1, 1) };
        let channels_first = shape.rank() > 2 || shape.rank() == 2 && self.layer.kind().ends_with("1d");
        match (channels_first, shape.first(), shape.last()) {
            (true, Some(channels), _) => (*channels, shape.len() / channels),
            (_, _, Some(features)) => (*features, 1),
            _ => (1, 1),
        }
    }
}

/// What is measured of one layer's input.
#[derive(Debug)]
struct Measured {
    histogram: Histogram,
    squares: Squares,
}

/// What layers are given to read, measured over some rows after others: see [`Network::calibrate`].
///
/// Between them an input of open extents may be given others.
#[derive(Debug)]
pub struct InputRanges {
    percent: f64,
    revision: Option<u64>,
    measured: Vec<Measured>,
    squares: BTreeMap<(usize, Option<usize>), Squares>,
    readings: Vec<Reading>,
}

impl Network {
    /// Measures, over these rows in inference, what every layer is given to read: the largest magnitude, a
    /// percentile of the magnitudes above 0 and up to 100, and the mean square of each feature. What was
    /// measured before is replaced.
    ///
    /// From here on, searches for the scales of least error weigh the error of each weight of a product or a
    /// convolution by the mean square of what it multiplies; packed weights that were made so are made anew.
    ///
    /// # Errors
    /// [`Error::Value`] for a percentage or a batch size out of range, [`Error::NonFinite`] naming a layer that
    /// is given infinity or NaN to read, and as [`predict`](Network::predict). Nothing has changed then.
    pub fn calibrate(&mut self, input: TensorView<'_>, percent: f64, batch_size: usize) -> Result<()> {
        let mut ranges = InputRanges::new(percent)?;
        ranges.add(self, input, batch_size)?;
        self.take_ranges(&ranges)
    }

    /// Replaces what was measured before by these.
    ///
    /// # Errors
    /// [`Error::State`] where nothing was measured, or the layers have changed since. Nothing has changed then.
    pub fn take_ranges(&mut self, ranges: &InputRanges) -> Result<()> {
        if ranges.revision != Some(self.revision) {
            return Err(Error::State(
                "nothing was measured of the layers as they are now; measure some rows first".into(),
            ));
        }
        for (placed, measured) in self.cells.iter_mut().flatten().zip(&ranges.measured) {
            placed.range = Some(InputRange {
                largest: measured.histogram.largest,
                percent: ranges.percent,
                percentile: measured.histogram.percentile(ranges.percent),
                mean_squares: measured.squares.means().collect(),
            });
        }
        for reading in &ranges.readings {
            let ParameterRef { store, parameter } = reading.parameter;
            let found = ranges.squares.get(&(store, parameter));
            let (Some(index), Some(found)) = (parameter, found) else { continue };
            self.registry.stores[store].set_importance(index, reading.of_rows(found))?;
        }
        self.refresh_versions()
    }
}

impl InputRanges {
    /// One that has measured nothing, for a percentile above 0 and up to 100.
    ///
    /// # Errors
    /// [`Error::Value`] for another.
    pub fn new(percent: f64) -> Result<Self> {
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(Error::Value(format!("a percentile is above 0 and up to 100, got {percent}")));
        }
        Ok(Self {
            percent,
            revision: None,
            measured: Vec::new(),
            squares: BTreeMap::new(),
            readings: Vec::new(),
        })
    }

    /// Measures what layers are given to read over these rows, too, so many at a time.
    ///
    /// # Errors
    /// [`Error::Value`] for no batch size, [`Error::NonFinite`] naming a layer that is given infinity or NaN to read,
    /// and as [`predict`](Network::predict).
    pub fn add(&mut self, network: &mut Network, input: TensorView<'_>, batch_size: usize) -> Result<()> {
        if batch_size == 0 {
            return Err(Error::Value("batch_size must be at least 1".into()));
        }
        network.build()?;
        network.check_input(&input)?;
        network.synchronize()?;
        if self.revision != Some(network.revision) {
            let fresh = |_| Measured { histogram: Histogram::new(), squares: Squares::default() };
            self.measured = (0..network.layers().count()).map(fresh).collect();
            self.squares.clear();
            self.revision = Some(network.revision);
        }
        in_precision!(network.precision, T => self.add_in::<T>(network, &input, batch_size))
    }

    fn add_in<T: Real>(&mut self, network: &Network, input: &TensorView<'_>, batch: usize) -> Result<()> {
        network.passes.note();
        let capacity = batch.min(input.rows()).next_power_of_two();
        let mode = Mode { training: false, pin_layers: true, ..Mode::default() };
        let key = ProgramKey::forward(mode, capacity);
        let mut b = Builder::new(network.precision());
        Lowered::forward(network, &mut b, key.mode)?;
        self.readings = readings(&b);
        self.readings.iter().for_each(|reading| b.pin(reading.input));
        let mut run = network.device.run(Arc::new(b.finish(capacity, &network.rewrites)?))?;
        let inputs: Vec<Value> = run.program().ports().layers.iter().map(|(_, layer)| layer.input).collect();
        let looked_at: Vec<Value> =
            inputs.iter().copied().chain(self.readings.iter().map(|reading| reading.input)).collect();
        for start in (0..input.rows()).step_by(batch) {
            let end = input.rows().min(start.saturating_add(batch));
            run.rows = end - start;
            if let Some(port) = run.program().ports().input {
                input.slice_rows(start..end).copy_to(run.write::<T>(port));
            }
            let values = StepValues { seed: network.seed, ..StepValues::default() };
            run.execute(Access::Shared(&network.registry), Phase::Forward..=Phase::Forward, &values)?;
            run.fetch(&looked_at)?;
            for ((placed, value), measured) in network.layers().zip(&inputs).zip(&mut self.measured) {
                let values = run.read::<T>(*value);
                if let Some(wrong) = values.iter().find(|x| !x.is_finite()) {
                    let error =
                        format!("the layer is given {wrong} to read, so its range cannot be measured");
                    return Err(at_layer(placed, Error::NonFinite(error)));
                }
                values.iter().for_each(|x| measured.histogram.count(x.to_f64()));
                let (features, inner) = placed.features();
                measured.squares.add(values, features, inner);
            }
            for reading in &self.readings {
                let found =
                    self.squares.entry((reading.parameter.store, reading.parameter.parameter)).or_default();
                found.add(run.read::<T>(reading.input), reading.features, reading.inner);
            }
        }
        Ok(())
    }
}
