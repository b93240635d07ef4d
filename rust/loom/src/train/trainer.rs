//! A trainer: a network's training program, compiled for the batches at hand.

use super::coding::Coding;
use super::frames::Frames;
use super::metrics::{ClassAxis, MetricState};
use super::outputs::TargetRow;
use super::plan::{Plan, Turn};
use super::prepare::{class_axis, prepare_state};
use super::spare::Spare;
use super::step_program::compile;
use super::weighing::Weighing;
use super::{Examples, Rows, TrainingConfig};
use crate::network::{KeptStep, Mode, Network};
use crate::ops::Loss;
use crate::precision::in_precision;
use crate::program::{Run, Value};
use crate::simd::Real;
use crate::state::{Carried, WaitingGradients};
use crate::tensor::{Buffer, Tensor};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least time between two copies of the weights from a device.
pub(super) const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// Targets of a step, copied out of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedTargets {
    /// Class indices with their extents: rows, and indices a row.
    Classes(Vec<usize>, Vec<i32>),
    /// Numbers like the output.
    Real(Tensor),
}

/// What a batch has come to, copied out of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Newest {
    /// (rows, ...) what the network gave; or (places, classes) where places have weights of their own.
    pub output: Tensor,
    /// What that was compared with.
    pub targets: OwnedTargets,
    /// (rows, weights) where outputs have names, as the examples have them; rows and places of other networks that have
    /// a weight of 0 are left out.
    pub weights: Option<Tensor>,
}

/// How a trainer begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainerOptions {
    /// The length of the whole run, of all its epochs, in steps, for schedules.
    pub total_steps: u64,
    /// Whether moments, counters and the place in the data go on from the network's last training; they start
    /// afresh otherwise.
    pub resume: bool,
    /// Whether every layer's values can be read after each step.
    pub pin_layers: bool,
    /// Whether those of layers inside others can.
    pub looks_inside: bool,
}

/// The most programs that wait for extents of the input to come again.
const MOST_IDLE: usize = 16;

/// A program that waits for extents of the input to come again.
#[derive(Debug)]
struct Idle {
    plan: Plan,
    op: Loss,
    run: Run,
}

/// Trains a network by backpropagation, one step at a time.
///
/// [`train`](super::train) drives it over whole data sets.
#[derive(Debug)]
pub struct Trainer {
    pub(super) config: TrainingConfig,
    pub(super) plan: Plan,
    pub(super) op: Loss,
    pub(super) run: Run,
    /// The network's revision that the program is of.
    revision: u64,
    pub(super) total_steps: u64,
    /// Programs for other extents of the input, the one used last at the end.
    idle: Vec<Idle>,
    /// Whose values can be read after each step.
    pub(super) looking: Mode,
    pub(super) keep_outputs: bool,
    /// Whether batches are taken from a data set that is shuffled, so that no sequence goes on from one to
    /// the next.
    pub(super) shuffled: bool,
    /// Outputs and targets of the newest step's batches but the last.
    pub(super) earlier: Vec<Newest>,
    /// Those of all shards of the newest step, where it was cut into shards and somebody looks.
    pub(super) of_shards: Option<Vec<Newest>>,
    /// Runs of the same program, for shards that go through the network together.
    pub(super) beside: Vec<Run>,
    /// What layers carry of all rows, while shards of them go through the network.
    pub(super) whole_carried: Option<(Carried, Vec<Buffer>)>,
    /// What rounding has taken away from gradients that travel in few bits.
    pub(super) coding: Option<Coding>,
    /// Memory for gradients of shards.
    pub(super) spare: Spare,
    /// Where those wait that lie on a device.
    pub(super) waiting: Option<Box<dyn WaitingGradients>>,
    pub(super) class_axis: ClassAxis,
    pub(super) frames: Frames,
    /// When the weights are next copied from a device, so that not all is lost with it.
    pub(super) next_copy: Instant,
    /// Metrics gathered since they were last reset.
    pub metrics: Vec<MetricState>,
}

impl Trainer {
    /// Prepares training on examples like these, afresh; `total_steps` as in [`TrainerOptions`].
    ///
    /// # Errors
    /// As [`with_options`](Self::with_options).
    pub fn new(
        network: &mut Network,
        config: &TrainingConfig,
        like: &Examples<'_>,
        total_steps: u64,
    ) -> Result<Self> {
        let options = TrainerOptions { total_steps, ..TrainerOptions::default() };
        Self::with_options(network, config, like, options)
    }

    /// Prepares training on examples like these.
    ///
    /// # Errors
    /// Whatever [`TrainingConfig::validate`] and [`Network::build`] refuse; [`Error::Shape`] where
    /// examples do not fit the network; [`Error::State`] where a master was dropped, or where
    /// the moments to resume from belong to another optimizer.
    pub fn with_options(
        network: &mut Network,
        config: &TrainingConfig,
        like: &Examples<'_>,
        options: TrainerOptions,
    ) -> Result<Self> {
        config.validate()?;
        network.build()?;
        network.thaw_trained()?;
        let plan = Plan {
            capacity: config.batch_size.min(like.rows().max(1)),
            class_targets: like.target.are_classes_for(&config.loss, network.output_shape())?,
            labelled: TargetRow::of(network, config, &like.target)?.is_some_and(|row| row.labelled),
            weighing: like.weighing(),
            extents: network.extents_key(),
            accumulates: config.accumulate > 1,
            turn: Turn::default(),
            apart: false,
        };
        Self::with_plan(network, config, plan, options)
    }

    /// [`with_options`](Self::with_options) by what a program depends on.
    pub(super) fn with_plan(
        network: &mut Network,
        config: &TrainingConfig,
        plan: Plan,
        TrainerOptions { total_steps, resume, pin_layers, looks_inside }: TrainerOptions,
    ) -> Result<Self> {
        prepare_state(network, config, resume)?;
        network.kept_step = KeptStep::default();
        let plan = Plan { turn: config.turn(network.optimizer_state.epoch), ..plan };
        let looking = Mode { pin_layers, looks_inside, ..Mode::default() };
        let (program, op) = compile(network, config, plan, looking)?;
        let class_axis = class_axis(network.output_shape(), config)?;
        let schedule = config.schedule.clone().with_epochs_of(total_steps / config.epochs);
        Ok(Self {
            config: TrainingConfig { schedule, ..config.clone() },
            plan,
            op,
            run: network.device().run(Arc::new(program))?,
            revision: network.revision,
            total_steps,
            idle: Vec::new(),
            looking,
            keep_outputs: false,
            shuffled: false,
            earlier: Vec::new(),
            of_shards: None,
            beside: Vec::new(),
            whole_carried: None,
            coding: None,
            spare: Spare::default(),
            waiting: None,
            class_axis,
            frames: Frames::default(),
            next_copy: Instant::now() + LEAST_PAUSE,
            metrics: config.metrics.iter().copied().map(MetricState::new).collect(),
        })
    }

    /// The settings this trainer follows.
    pub fn config(&self) -> &TrainingConfig {
        &self.config
    }

    /// Changes the rate that the schedule starts from.
    ///
    /// # Errors
    /// [`Error::Value`] for one that is negative or not finite.
    pub fn set_learning_rate(&mut self, rate: f64) -> Result<()> {
        let config = TrainingConfig { learning_rate: rate, ..self.config.clone() };
        config.validate()?;
        self.config = config;
        Ok(())
    }

    /// The run of the newest step, for looking at its values.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Keeps the outputs of every batch of a step, for [`newest`](Self::newest); only those of the last otherwise.
    pub fn keep_outputs(&mut self, keep: bool) {
        self.keep_outputs = keep;
    }

    /// What each batch of the newest step has come to, without rows, steps and pixels of weight 0.
    ///
    /// # Errors
    /// [`Error::State`] before any step.
    pub fn newest(&mut self) -> Result<Vec<Newest>> {
        if let Some(shown) = &self.of_shards {
            return Ok(shown.clone());
        }
        let ports = self.run.program().ports();
        let shown: Vec<Value> = ports.output.into_iter().chain(ports.target).collect();
        self.run.fetch(&shown)?;
        let last = in_precision!(self.run.program().precision(), T => self.newest_in::<T>())?;
        Ok(self.earlier.iter().cloned().chain([last]).collect())
    }

    pub(super) fn newest_in<T: Real>(&self) -> Result<Newest> {
        let program = self.run.program();
        let (Some(output), Some(target), true) =
            (program.ports().output, program.ports().target, self.run.rows > 0)
        else {
            return Err(Error::State("there was no step yet".into()));
        };
        let shape = |value: Value| [&[self.run.rows], &program.value(value).shape[..]].concat();
        let (of_output, of_target) = (&program.value(output).shape, &program.value(target).shape);
        if let Some(counted) = self.counted::<T>() {
            let (output, targets) = counted.owned(of_output, of_target)?;
            return Ok(Newest { output, targets, weights: None });
        }
        // Where outputs have names, each may leave out other rows.
        let of_outputs = program.ports().sample_weight.filter(|_| !self.config.outputs.is_empty());
        let weights =
            of_outputs.map(|weights| Tensor::new(shape(weights), self.run.read::<T>(weights).to_vec()));
        let targets = if self.plan.class_targets {
            OwnedTargets::Classes(
                vec![self.run.rows, self.op.outer * self.op.inner],
                self.run.read_indices(target).to_vec(),
            )
        } else {
            OwnedTargets::Real(Tensor::new(shape(target), self.run.read::<T>(target).to_vec())?)
        };
        let output = Tensor::new(shape(output), self.run.read::<T>(output).to_vec())?;
        Ok(Newest { output, targets, weights: weights.transpose()? })
    }

    /// Whether steps that go wrong are taken back by the measures' judgement.
    pub(super) fn recovers(&self) -> bool {
        self.run.program().ports().recovers
    }

    /// Reads the examples anew before the next step: they have changed, or are others. A device that holds none
    /// always does.
    pub fn forget_examples(&mut self) {
        self.frames.resident = None;
    }

    /// Compiles anew where these batches are larger than any before, or bring weights, or the network
    /// has changed or moved to another device.
    pub(super) fn fit_plan(
        &mut self,
        network: &mut Network,
        batches: &[(&Examples<'_>, Rows<'_>)],
    ) -> Result<()> {
        let rows = batches.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0);
        let wanted = Plan {
            weighing: batches
                .iter()
                .fold(self.known_weighing(network), |all, (examples, _)| all.or(examples.weighing())),
            accumulates: self.plan.accumulates || batches.len() > 1,
            ..self.plan
        };
        self.fit(network, rows, wanted)
    }

    /// What weights the program takes, which other extents of the input do not have.
    pub(super) fn known_weighing(&self, network: &Network) -> Weighing {
        if network.extents_key() == self.plan.extents { self.plan.weighing } else { Weighing::None }
    }

    /// Whether the network has changed since the program was compiled, in what programs depend on.
    pub(super) fn is_outdated(&self, network: &Network) -> bool {
        self.revision != network.revision
    }

    /// Makes ready for a network that has changed: a step of the program before would read weights as they were
    /// packed then, and move masters without packing them anew. Moments, counters and the place in the data go on.
    fn take_up(&mut self, network: &mut Network) -> Result<()> {
        network.build()?;
        network.thaw_trained()?;
        prepare_state(network, &self.config, true)?;
        self.class_axis = class_axis(network.output_shape(), &self.config)?;
        self.forget_examples();
        self.idle.clear();
        self.beside.clear();
        (self.coding, self.spare, self.waiting) = (None, Spare::default(), None);
        Ok(())
    }

    /// Compiles anew unless the program is `wanted`, of the network as it is, and has room for these rows.
    pub(super) fn fit(&mut self, network: &mut Network, rows: usize, mut wanted: Plan) -> Result<()> {
        let outdated = self.is_outdated(network);
        if outdated {
            self.take_up(network)?;
        }
        wanted.turn = self.config.turn(network.optimizer_state.epoch);
        wanted.apart = self.shuffled && network.carries;
        wanted.extents = network.extents_key();
        if rows > wanted.capacity {
            wanted.capacity = rows.next_power_of_two();
        }
        let moved = !self.run.is_on(network.device());
        if wanted == self.plan && !moved && !outdated {
            return Ok(());
        }
        if moved {
            self.forget_examples();
            self.idle.clear();
            self.waiting = None;
        }
        let resized = wanted.extents != self.plan.extents;
        let again = self.idle.iter().position(|idle| resized && idle.plan == wanted);
        let next = match again {
            Some(place) => self.idle.remove(place),
            None => {
                let (program, op) = compile(network, &self.config, wanted, self.looking)?;
                Idle { plan: wanted, op, run: network.device().run(Arc::new(program))? }
            }
        };
        self.revision = network.revision;
        let plan = std::mem::replace(&mut self.plan, next.plan);
        let op = std::mem::replace(&mut self.op, next.op);
        let run = std::mem::replace(&mut self.run, next.run);
        if resized {
            self.class_axis = class_axis(network.output_shape(), &self.config)?;
        }
        if resized && !moved && !outdated {
            self.forget_examples();
            if self.idle.len() >= MOST_IDLE {
                self.idle.remove(0);
            }
            self.idle.push(Idle { plan, op, run });
        }
        Ok(())
    }
}
