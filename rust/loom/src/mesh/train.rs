//! Learning from a stream of samples while the clock runs.

use super::{Given, Mesh};
use crate::cpu::{Access, StepValues};
use crate::network::{Coordinates, Network};
use crate::ops::measure::{Action, LinkBudget};
use crate::program::{Builder, Kind, Phase, Rewrites, Run};
use crate::tensor::{Precision, Shape, Tensor, TensorView};
use crate::train::{
    LossOptions, OnNonFinite, TargetMode, Targets, TrainingConfig, TweenConfig, Updates, Watching,
    count_update, loss_and_gradient, lower_clip, lower_updates, prepare_state,
};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// How a mesh learns from a stream.
///
/// With a [`TweenConfig`](crate::train::TweenConfig) in `training`, every layer has a chain-rule target at every
/// tick of the window, the output cell's layers too; its rule, depth scale and measures count. Figures of
/// layers are over all ticks of a window, and a window in which the mean gap explodes is taken back along
/// with the update before it.
#[derive(Clone, Debug, PartialEq)]
pub struct SteppingConfig {
    /// Rate, rule, schedule, clipping, loss and what happens to what is not finite; what concerns epochs and
    /// batches is not used, and `seed` is the network's own.
    pub training: TrainingConfig,
    /// Ticks for each sample.
    pub ticks: usize,
    /// Samples, with targets or without, between two updates.
    pub update_every: usize,
    /// The cell whose output is compared with the targets; the last one that has a layer unless given.
    pub output: Option<Coordinates>,
    /// Updates of the whole run, for schedules that end.
    pub total_updates: u64,
}

impl Default for SteppingConfig {
    fn default() -> Self {
        Self {
            training: TrainingConfig::default(),
            ticks: 1,
            update_every: 1,
            output: None,
            total_updates: 0,
        }
    }
}

impl SteppingConfig {
    /// Refuses values that no stream could make right.
    ///
    /// # Errors
    /// [`Error::Value`] naming the setting, what it must be and what it is.
    pub fn validate(&self) -> Result<()> {
        self.training.validate()?;
        for (name, value) in [("ticks", self.ticks), ("update_every", self.update_every)] {
            if value == 0 {
                return Err(Error::Value(format!("{name} must be at least 1, got 0")));
            }
        }
        match &self.training.tween {
            Some(tween) if tween.mode != TargetMode::ChainRule || tween.local_steps > 1 => {
                Err(Error::Value(format!(
                    "a mesh has targets of mode chain_rule alone, with one local step; got {} with {}",
                    tween.mode.name(),
                    tween.local_steps
                )))
            }
            _ => Ok(()),
        }
    }
}

/// What a stream brings at once.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// One row for each of the mesh's.
    pub input: TensorView<'a>,
    /// What the output cell is to hold after the sample's ticks; nothing is learned from without one.
    pub target: Option<Targets<'a>>,
}

/// What training on a stream did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SteppingResult {
    /// The loss of every sample that had a target, in order.
    pub losses: Vec<f64>,
    /// Samples seen.
    pub samples: u64,
    /// Ticks made.
    pub ticks: u64,
    /// Updates made.
    pub updates: u64,
    /// Updates left out because something was not finite.
    pub skipped_updates: u64,
    /// Updates that exploded, left out together with the one before each.
    pub explosions: u64,
    /// Seconds from start to end.
    pub total_time: f64,
}

/// A gradient of the loss that waits for the next update.
#[derive(Debug)]
struct Waiting {
    tick: u64,
    loss: f64,
    gradient: Tensor,
}

/// Trains a mesh sample by sample; [`train_stepping`] drives it over a whole stream.
#[derive(Debug)]
pub struct Stepper {
    config: SteppingConfig,
    output: Coordinates,
    waiting: Vec<Waiting>,
    since_update: usize,
    update: Option<Run>,
    revision: u64,
    /// What training has done so far.
    pub result: SteppingResult,
}

impl Stepper {
    /// Prepares training; with `resume`, moments and counters go on from the network's last training.
    ///
    /// # Errors
    /// Whatever [`SteppingConfig::validate`] refuses; [`Error::Value`] where the mesh's window is shorter than
    /// the ticks between two updates, or the output cell ends in a softmax that the loss computes itself;
    /// [`Error::State`] where there is no output cell.
    pub fn new(network: &mut Network, mesh: &Mesh, config: &SteppingConfig, resume: bool) -> Result<Self> {
        config.validate()?;
        if !mesh.is_training() {
            return Err(Error::State(
                "the mesh is not in training mode; make it with a window, and set training where it was turned off"
                    .into(),
            ));
        }
        let between = config.ticks.saturating_mul(config.update_every);
        if between > mesh.window() {
            return Err(Error::Value(format!(
                "there are {between} ticks between two updates (ticks times update_every), more than the mesh's \
                 window of {}",
                mesh.window()
            )));
        }
        let output = match config.output {
            Some(cell) => cell,
            None => network
                .layers()
                .next_back()
                .and_then(|placed| placed.path().indices().get(..3)?.try_into().ok())
                .ok_or_else(|| Error::State("the network has no layer".into()))?,
        };
        let layers = network.cell_len(output)?;
        let last = network.layer(output, layers.saturating_sub(1))?;
        if last.layer().absorb_loss(&config.training.loss.0).is_some() {
            return Err(Error::Value(format!(
                "cell {} ends in {}, which {} computes itself; leave the layer out, and hand the output to it \
                 for probabilities",
                Shape::from(output),
                last.layer().kind(),
                config.training.loss.name()
            )));
        }
        prepare_state(network, &config.training, resume)?;
        let revision = network.revision;
        Ok(Self {
            config: config.clone(),
            output,
            waiting: Vec::new(),
            since_update: 0,
            update: None,
            revision,
            result: SteppingResult::default(),
        })
    }

    /// The settings this follows.
    pub fn config(&self) -> &SteppingConfig {
        &self.config
    }

    /// Changes the rate that the schedule starts from.
    ///
    /// # Errors
    /// [`Error::Value`] for one that is negative or not finite.
    pub fn set_learning_rate(&mut self, rate: f64) -> Result<()> {
        let mut config = self.config.clone();
        config.training.learning_rate = rate;
        config.validate()?;
        self.config = config;
        Ok(())
    }

    /// Shows a sample to the mesh for its ticks and learns from its target, if it has one; returns the loss
    /// then.
    ///
    /// # Errors
    /// As [`Mesh::set_input`] and [`Mesh::backward`]; [`Error::NonFinite`] for a loss or gradient that is not
    /// finite, unless such updates are skipped.
    pub fn step(
        &mut self,
        network: &mut Network,
        mesh: &mut Mesh,
        sample: &Sample<'_>,
    ) -> Result<Option<f64>> {
        mesh.set_input(network, sample.input.clone())?;
        mesh.tick(network, self.config.ticks)?;
        self.result.samples += 1;
        self.result.ticks += self.config.ticks as u64;
        self.since_update += 1;
        let loss = match &sample.target {
            Some(target) => Some(self.compare(network, mesh, target)?),
            None => None,
        };
        if self.since_update >= self.config.update_every {
            self.update(network, mesh)?;
        }
        Ok(loss)
    }

    /// The loss of what the output cell holds now; its gradient then waits for the next update.
    fn compare(&mut self, network: &Network, mesh: &Mesh, target: &Targets<'_>) -> Result<f64> {
        let output = mesh.output(network, self.output)?;
        let training = &self.config.training;
        let options = LossOptions {
            label_smoothing: training.label_smoothing,
            class_weight: training.class_weight.clone(),
        };
        let (loss, gradient) = loss_and_gradient(training.loss, output.view(), target, None, &options)?;
        if !loss.is_finite() && !self.recovers() && training.on_nonfinite == OnNonFinite::Raise {
            return Err(Error::NonFinite(format!(
                "the loss is {loss} at tick {}; lower learning_rate or set gradient_clip",
                mesh.ticks()
            )));
        }
        self.waiting.push(Waiting { tick: mesh.ticks(), loss, gradient });
        self.result.losses.push(loss);
        Ok(loss)
    }

    /// Updates the weights by the mean gradient of the losses since the last update; nothing where there is none.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn update(&mut self, network: &mut Network, mesh: &mut Mesh) -> Result<()> {
        self.since_update = 0;
        let mut waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let finite = waiting.iter().all(|waiting| waiting.gradient.view().first_non_finite().is_none());
        if !finite && !self.recovers() {
            return self.leave_out(network, "the gradient of the loss");
        }
        let count = waiting.len();
        let loss = waiting.iter().map(|waiting| waiting.loss).sum::<f64>() / count as f64;
        mesh.check_trains(network)?;
        mesh.forget_given();
        for waiting in &mut waiting {
            divide(&mut waiting.gradient, count as f64);
            let age = (mesh.ticks() - waiting.tick) as usize;
            let given = Given { cell: self.output, age, gradient: waiting.gradient.view() };
            mesh.give(network, &given)?;
        }
        network.zero_gradients();
        mesh.measure(network, self.config.training.watched());
        mesh.go_back(network, (mesh.rows() * count) as u64)?;
        self.apply(network, loss)
    }

    /// Whether updates that go wrong are taken back by the measures' judgement.
    fn recovers(&self) -> bool {
        self.config.training.watched().is_some_and(|watch| watch.explosion.is_some())
    }

    /// Clips, judges and updates by the gradients there are.
    fn apply(&mut self, network: &mut Network, loss: f64) -> Result<()> {
        if self.update.is_none() || self.revision != network.revision {
            self.update = Some(self.compile(network)?);
            self.revision = network.revision;
        }
        let recovers = self.recovers();
        let Some(run) = &mut self.update else {
            return Err(Error::Internal("a stepper lost its update".into()));
        };
        run.rows = 1;
        if let Some(port) = run.program().ports().row_losses {
            match network.precision {
                Precision::Float32 | Precision::Mixed => run.write::<f32>(port)[0] = loss as f32,
                Precision::Float64 => run.write::<f64>(port)[0] = loss,
            }
        }
        let training = &self.config.training;
        let state = &network.optimizer_state;
        let values = StepValues {
            seed: network.seed(),
            step: state.step,
            optimizer_step: state.updates + 1,
            rate: training.schedule.rate(training.learning_rate, state.step, self.config.total_updates),
            max_norm: training.gradient_clip.unwrap_or(f64::INFINITY),
            clip_value: training.clip_value.unwrap_or(f64::INFINITY),
            gradients_zeroed: false,
            ..StepValues::default()
        };
        run.execute(Access::Exclusive(&mut network.registry), Phase::Verdict..=Phase::Verdict, &values)?;
        let norm = run.program().ports().gradient_norm;
        run.fetch(norm.as_slice())?;
        let norm = norm.map_or(0.0, |port| match network.precision {
            Precision::Float32 | Precision::Mixed => f64::from(run.read::<f32>(port)[0]),
            Precision::Float64 => run.read::<f64>(port)[0],
        });
        if !norm.is_finite() && !recovers {
            return self.leave_out(network, "the gradient norm");
        }
        let action = if recovers { network.judged_action()? } else { Action::Apply };
        let last = if action == Action::Apply { Phase::Commit } else { Phase::Update };
        run.execute(Access::Exclusive(&mut network.registry), Phase::Update..=last, &values)?;
        network.zero_gradients();
        let exploded = action != Action::Apply;
        if exploded {
            let state = &mut network.optimizer_state;
            state.step += 1;
            state.updates = state.updates.saturating_sub(u64::from(action == Action::RollBack));
            network.synchronize_after_rollback()?;
            self.result.explosions += 1;
        } else {
            count_update(network);
            self.result.updates += 1;
        }
        if let Some(watch) = self.config.training.watched() {
            let kept = network.kept_measures()?;
            network.measures.note(watch, loss, &kept, exploded);
        }
        Ok(())
    }

    fn compile(&self, network: &Network) -> Result<Run> {
        let training = &self.config.training;
        let mut b = Builder::new(network.precision());
        let gated = |tween: &TweenConfig| tween.watch.link_budget == LinkBudget::Alignment;
        let mut watching = match training.watched() {
            Some(watch) => Some(Watching::new(network, watch, training.tween.as_ref().is_some_and(gated))?),
            None => None,
        };
        if watching.is_some() {
            b.ports.row_losses = Some(b.input("losses", Shape::from(1), Kind::Real));
        }
        let norm = training.gradient_clip.is_some() || training.on_nonfinite == OnNonFinite::Skip;
        lower_clip(network, &mut b, [norm, training.clip_value.is_some()], false)?;
        if let Some(watching) = &mut watching {
            watching.judge_ticks(&mut b)?;
        }
        let rule = training.rule();
        let depth_scale = training.tween.as_ref().map_or(training.depth_scale, |tween| tween.depth_scale);
        let updates = Updates { depth_scale, watching: watching.as_ref(), ..Updates::new(&rule) };
        lower_updates(network, &mut b, &updates)?;
        network.device().run(Arc::new(b.finish(1, &Rewrites::default())))
    }

    fn leave_out(&mut self, network: &mut Network, what: &str) -> Result<()> {
        network.zero_gradients();
        network.optimizer_state.step += 1;
        self.result.skipped_updates += 1;
        match self.config.training.on_nonfinite {
            OnNonFinite::Skip => Ok(()),
            OnNonFinite::Raise => Err(Error::NonFinite(format!(
                "{what} is not finite; lower learning_rate or set gradient_clip"
            ))),
        }
    }
}

fn divide(tensor: &mut Tensor, divisor: f64) {
    match tensor {
        Tensor::Float32(_, elements) => elements.iter_mut().for_each(|x| *x /= divisor as f32),
        Tensor::Float64(_, elements) => elements.iter_mut().for_each(|x| *x /= divisor),
    }
}

/// Trains a mesh on a stream of samples by truncated backpropagation through time: each sample is the input
/// for some ticks, after which the output cell is compared with its target; every so many samples the mean
/// gradient goes back through the window and the weights move. What is left at the end makes a last update.
///
/// # Errors
/// As [`Stepper::new`] and [`Stepper::step`]; the mesh and the network then stand where they had come to.
pub fn train_stepping<'a>(
    network: &mut Network,
    mesh: &mut Mesh,
    stream: impl IntoIterator<Item = Sample<'a>>,
    config: &SteppingConfig,
) -> Result<SteppingResult> {
    let started = Instant::now();
    let mut stepper = Stepper::new(network, mesh, config, false)?;
    for sample in stream {
        stepper.step(network, mesh, &sample)?;
    }
    stepper.update(network, mesh)?;
    stepper.result.total_time = started.elapsed().as_secs_f64();
    Ok(stepper.result)
}
