//! Learning from a stream of samples while the clock runs.

use super::gradients::scale_of;
use super::lessons::Learning;
use super::wiring::Read;
use super::{Given, Mesh, Sample, SteppingConfig, SteppingResult};
use crate::layers::class_extents;
use crate::network::{Coordinates, Network};
use crate::ops::StepValues;
use crate::ops::measure::LinkBudget;
use crate::program::{Access, Builder, Kind, Phase, Rewrites, Run};
use crate::tensor::{Precision, Shape, Tensor};
use crate::train::{
    Clips, Fate, Fault, LossOptions, OnNonFinite, TargetRow, Targets, TweenConfig, Updates, Watching,
    count_update, land, land_carefully, loss_and_gradient, losses_and_gradients, lower_clip, lower_foresight,
    lower_updates, own_loss_and_gradient, prepare_state, settle, watch,
};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// A gradient of the loss that waits for the next update.
#[derive(Debug)]
struct Waiting {
    tick: u64,
    loss: f64,
    /// By what each of the cells that are compared hands on.
    gradients: Vec<Tensor>,
    /// What the output was to be, where targets are made from that.
    aim: Option<Tensor>,
}

/// Trains a mesh sample by sample; [`train_stepping`] drives it over a whole stream.
#[derive(Debug)]
pub struct Stepper {
    config: SteppingConfig,
    /// What is compared with targets: one cell, or those of the network's named outputs.
    cells: Vec<Coordinates>,
    waiting: Vec<Waiting>,
    since_update: usize,
    update: Option<Run>,
    /// The updates of further local steps, and the layers that they move.
    further: Option<(Vec<bool>, Vec<Run>)>,
    /// What looks whether gradients are finite, where losses are scaled.
    norm: Option<Run>,
    /// How layers learn, where targets are kept.
    learning: Option<Learning>,
    revision: u64,
    /// What training has done so far.
    pub result: SteppingResult,
}

impl Stepper {
    /// Prepares training; with `resume`, moments and counters go on from the network's last training.
    ///
    /// # Errors
    /// Whatever [`SteppingConfig::validate`] refuses; [`Error::Value`] where the mesh's window is shorter than
    /// the ticks between two updates, or the output cell ends in a softmax that the loss computes itself, or
    /// hands on the network's input alone; [`Error::Index`] where there is no such cell.
    pub fn new(network: &mut Network, mesh: &Mesh, config: &SteppingConfig, resume: bool) -> Result<Self> {
        config.validate()?;
        if !mesh.is_training() {
            return Err(Error::State(
                "the mesh is not in training mode; make it with a window, and set training where it was turned off"
                    .into(),
            ));
        }
        network.thaw_trained()?;
        let between = config.ticks.saturating_mul(config.update_every);
        if between > mesh.window() {
            return Err(Error::Value(format!(
                "there are {between} ticks between two updates (ticks times update_every), more than the mesh's \
                 window of {}",
                mesh.window()
            )));
        }
        let cells: Vec<Coordinates> = match (config.output, network.named_outputs()) {
            (Some(cell), _) => vec![cell],
            (None, []) => vec![network.grid().map(|extent| extent - 1)],
            (None, outputs) => {
                // What several outputs cannot be learned by is refused here.
                TargetRow::with(network, &config.training, false)?;
                outputs.iter().map(|output| output.cell).collect()
            }
        };
        // Where there are several outputs, none is the one that targets start from.
        let mut number = None;
        for (place, cell) in cells.iter().enumerate() {
            let last = last_layer(network, mesh, *cell)?;
            number = last.filter(|_| config.output.is_some() || network.named_outputs().is_empty());
            let training = &config.training;
            let (loss, own) = match training.outputs.get(place) {
                Some(output) => (output.loss, &output.own_loss),
                None => (training.loss, &training.own_loss),
            };
            // Where links arrive behind a softmax, the loss is not computed from its input.
            if let Some(last) = last.and_then(|number| network.layers().nth(number)).filter(|_| own.is_none())
                && last.layer().absorb_loss(&loss.0).is_some()
            {
                return Err(Error::Value(format!(
                    "cell {} ends in {}, which {} computes itself; leave the layer out, and hand the output to it \
                     for probabilities",
                    Shape::from(*cell),
                    last.layer().kind(),
                    loss.name()
                )));
            }
        }
        prepare_state(network, &config.training, resume)?;
        let revision = network.revision;
        let learning = config.training.tween.as_ref().and_then(|tween| Learning::of(tween, number));
        Ok(Self {
            config: config.clone(),
            cells,
            waiting: Vec::new(),
            since_update: 0,
            update: None,
            further: None,
            norm: None,
            learning,
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
        self.take_up(network)?;
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

    /// Makes ready for a network that has changed, or that something else has trained since: an update would move
    /// moments that are no more. Moments that there are, and counters, go on.
    fn take_up(&mut self, network: &mut Network) -> Result<()> {
        if self.revision == network.revision {
            return Ok(());
        }
        network.build()?;
        network.thaw_trained()?;
        let training = &self.config.training;
        let held = network.registry.moments.iter().any(|moments| !moments.is_empty());
        if held && training.rule().slots().is_empty() && training.watched().is_none() {
            // Nothing is moved beside the weights: whoever else trains the network keeps its moments.
            network.registry.prepare_gradients(network.precision().size())?;
        } else {
            prepare_state(network, training, true)?;
        }
        (self.update, self.further, self.norm) = (None, None, None);
        self.revision = network.revision;
        Ok(())
    }

    /// The loss of what the output cell holds now; its gradient then waits for the next update.
    fn compare(&mut self, network: &Network, mesh: &Mesh, target: &Targets<'_>) -> Result<f64> {
        let training = &self.config.training;
        let outputs: Vec<Tensor> =
            self.cells.iter().map(|cell| mesh.output(network, *cell)).collect::<Result<_>>()?;
        let named = self.config.output.is_none() && !network.named_outputs().is_empty();
        let (loss, gradients) = if named {
            losses_and_gradients(network, training, &outputs, target)?
        } else if let Some(own) = &training.own_loss {
            let (loss, gradient) = own_loss_and_gradient(own, outputs[0].view(), target)?;
            (loss, vec![gradient])
        } else {
            let options = LossOptions {
                label_smoothing: training.label_smoothing,
                class_weight: training.class_weight.clone(),
            };
            let (loss, gradient) =
                loss_and_gradient(training.loss, outputs[0].view(), target, None, &options)?;
            (loss, vec![gradient])
        };
        if !loss.is_finite() && !self.recovers() && training.on_nonfinite == OnNonFinite::Raise {
            return Err(Error::NonFinite(format!(
                "the loss is {loss} at tick {}; lower learning_rate or set gradient_clip",
                mesh.ticks()
            )));
        }
        let layerwise = self.learning.as_ref().is_some_and(Learning::is_layerwise);
        let aim = match layerwise {
            true => Some(meant(target, &outputs[0], training.loss.takes_classes())?),
            false => None,
        };
        self.waiting.push(Waiting { tick: mesh.ticks(), loss, gradients, aim });
        self.result.losses.push(loss);
        Ok(loss)
    }

    /// Updates the weights by the mean gradient of the losses since the last update; nothing where there is none. After
    /// an update that was left out or taken back the mesh is at rest, if it held what is not finite.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn update(&mut self, network: &mut Network, mesh: &mut Mesh) -> Result<()> {
        let failed = |result: &SteppingResult| result.skipped_updates + result.explosions;
        let before = failed(&self.result);
        self.update_by_waiting(network, mesh)?;
        if failed(&self.result) > before { mesh.rest_if_not_finite(network) } else { Ok(()) }
    }

    fn update_by_waiting(&mut self, network: &mut Network, mesh: &mut Mesh) -> Result<()> {
        self.since_update = 0;
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.take_up(network)?;
        let mut waiting = std::mem::take(&mut self.waiting);
        let finite = |gradient: &Tensor| gradient.view().first_non_finite().is_none();
        let finite = waiting.iter().all(|waiting| waiting.gradients.iter().all(finite));
        if !finite && !self.recovers() {
            return self.leave_out(network, "the gradient of the loss");
        }
        let count = waiting.len();
        let loss = waiting.iter().map(|waiting| waiting.loss).sum::<f64>() / count as f64;
        mesh.check_trains()?;
        mesh.forget_given();
        mesh.measure(network, self.config.training.watched());
        mesh.learn_by(self.learning.clone());
        mesh.take_targets()?;
        mesh.ask_for_input(false)?;
        let all = waiting.iter_mut().flat_map(|waiting| &mut waiting.gradients);
        all.for_each(|gradient| divide(gradient, count as f64));
        let now = mesh.ticks();
        let age_of = |tick: u64| (now - tick) as usize;
        let mut given = Vec::with_capacity(count * self.cells.len());
        for Waiting { tick, gradients, .. } in &waiting {
            for (cell, gradient) in self.cells.iter().zip(gradients) {
                given.push(Given { cell: *cell, age: age_of(*tick), gradient: gradient.view() });
            }
        }
        mesh.give(network, &given)?;
        for Waiting { tick, aim, .. } in &waiting {
            if let Some(aim) = aim {
                mesh.aim(network, age_of(*tick), &aim.view())?;
            }
        }
        network.zero_gradients();
        let batch_rows = (mesh.rows() * count) as u64;
        mesh.go_back(network, batch_rows)?;
        if network.scales_loss() {
            network.scale_gradients(1.0 / scale_of(network))?;
            if !self.is_finite(network)? {
                return self.leave_out(network, "the gradient norm");
            }
        }
        self.apply(network, mesh, loss, batch_rows)
    }

    /// Whether updates that go wrong are taken back by the measures' judgement.
    fn recovers(&self) -> bool {
        self.config.training.watched().is_some_and(|watch| watch.explosion.is_some())
    }

    /// Clips, judges and updates by the gradients there are.
    fn apply(&mut self, network: &mut Network, mesh: &mut Mesh, loss: f64, batch_rows: u64) -> Result<()> {
        let known = self.update.take().filter(|_| self.revision == network.revision);
        let mut run = match known {
            Some(run) => run,
            None => {
                self.further = None;
                self.revision = network.revision;
                self.compile(network, 0, None)?
            }
        };
        let fate = self.settle(network, mesh, &mut run, loss, batch_rows);
        self.update = Some(run);
        let exploded = match fate? {
            Fate::NonFinite => return self.leave_out(network, "the gradient norm"),
            Fate::Refused(fault) => return self.refuse(network, &fault),
            fate => fate == Fate::Exploded,
        };
        network.zero_gradients();
        if exploded {
            self.result.explosions += 1;
        } else {
            count_update(network);
            self.result.updates += 1;
        }
        match self.config.training.watched() {
            Some(watch) => watch::note(network, watch, loss, exploded),
            None => Ok(()),
        }
    }

    /// Lands an update, all its local steps or none, or takes back the one before.
    fn settle(
        &mut self,
        network: &mut Network,
        mesh: &mut Mesh,
        run: &mut Run,
        loss: f64,
        batch_rows: u64,
    ) -> Result<Fate> {
        let rule = self.config.training.watched().and_then(|watch| watch.explosion);
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
            max_norm: training.largest_norm().unwrap_or(f64::INFINITY),
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
        if !norm.is_finite() && rule.is_none() {
            return Ok(Fate::NonFinite);
        }
        settle(network, run, &values, rule, |network, run| match self.local_steps() {
            1 => land(network, run, &values),
            _ => land_carefully(network, &run.program().clone(), |network| {
                let access = Access::Exclusive(&mut network.registry);
                run.execute(access, Phase::Update..=Phase::Commit, &values)?;
                self.step_again(network, mesh, &values, batch_rows)
            }),
        })
    }

    /// Leaves an update out that could not land, or says why.
    fn refuse(&mut self, network: &mut Network, fault: &Fault) -> Result<()> {
        network.zero_gradients();
        let step = network.optimizer_state.step;
        if self.config.training.on_nonfinite == OnNonFinite::Raise {
            return Err(fault.error(step));
        }
        network.optimizer_state.count_step();
        self.result.skipped_updates += 1;
        Ok(())
    }

    /// Local steps of each update.
    fn local_steps(&self) -> u32 {
        self.config.training.tween.as_ref().map_or(1, |tween| tween.local_steps as u32)
    }

    /// Takes the local steps after the first.
    fn step_again(
        &mut self,
        network: &mut Network,
        mesh: &mut Mesh,
        values: &StepValues,
        batch_rows: u64,
    ) -> Result<()> {
        for number in 1..self.local_steps() {
            let moved = mesh.step_again(network, batch_rows)?;
            if self.further.as_ref().is_none_or(|(known, _)| *known != moved) {
                let numbers = 1..self.local_steps();
                let runs = numbers.map(|number| self.compile(network, number, Some(&moved)));
                let runs = runs.collect::<Result<_>>()?;
                self.further = Some((moved, runs));
            }
            if let Some(run) = self.further.as_mut().and_then(|(_, runs)| runs.get_mut(number as usize - 1)) {
                run.rows = 1;
                let access = Access::Exclusive(&mut network.registry);
                run.execute(access, Phase::Update..=Phase::Commit, values)?;
            }
        }
        Ok(())
    }

    /// Lowers the update of one local step, the first with the judgement before it; of all layers, unless
    /// it moves some only.
    fn compile(&self, network: &Network, number: u32, only: Option<&[bool]>) -> Result<Run> {
        let training = &self.config.training;
        let mut b = Builder::new(network.precision());
        let gated = |tween: &TweenConfig| tween.watch.link_budget == LinkBudget::Alignment;
        let mut watching = match training.watched() {
            Some(watch) => Some(Watching::new(network, watch, training.tween.as_ref().is_some_and(gated))?),
            None => None,
        };
        if number == 0 {
            if watching.is_some() {
                b.ports.row_losses = Some(b.input("losses", Shape::from(1), Kind::Real));
            }
            let norm = training.largest_norm().is_some() || training.on_nonfinite == OnNonFinite::Skip;
            let clips = Clips { norm, elements: training.clip_value.is_some() };
            lower_clip(network, &mut b, clips, false)?;
            if let Some(watching) = &mut watching {
                watching.judge_ticks(&mut b)?;
            }
        }
        let rule = training.rule();
        let depth_scale = training.tween.as_ref().map_or(training.depth_scale, |tween| tween.depth_scale);
        let updates = Updates {
            depth_scale,
            watching: watching.as_ref(),
            repeat: [number, self.local_steps()],
            only,
            ..Updates::new(&rule)
        };
        if number == 0 {
            lower_foresight(network, &mut b, &updates)?;
        }
        lower_updates(network, &mut b, &updates)?;
        network.device().run(Arc::new(b.finish(1, &Rewrites::default())?))
    }

    /// Whether gradients are finite, before anything judges them: where losses are scaled, the scale may
    /// have been too large, which is no explosion.
    fn is_finite(&mut self, network: &mut Network) -> Result<bool> {
        if self.norm.is_none() || self.revision != network.revision {
            let mut b = Builder::new(network.precision());
            lower_clip(network, &mut b, Clips::NORM, false)?;
            self.norm = Some(network.device().run(Arc::new(b.finish(1, &Rewrites::default())?))?);
        }
        let Some(run) = &mut self.norm else {
            return Err(Error::Internal("a stepper lost its norm".into()));
        };
        run.rows = 1;
        let Some(port) = run.program().ports().gradient_norm else { return Ok(true) };
        let values = StepValues { max_norm: f64::INFINITY, ..StepValues::default() };
        run.execute(Access::Exclusive(&mut network.registry), Phase::Verdict..=Phase::Verdict, &values)?;
        run.fetch(&[port])?;
        Ok(run.read::<f32>(port)[0].is_finite())
    }

    fn leave_out(&mut self, network: &mut Network, what: &str) -> Result<()> {
        network.zero_gradients();
        network.optimizer_state.count_step();
        self.result.skipped_updates += 1;
        if network.loss_scale().is_some_and(|now| now.may_be_too_large()) {
            network.optimizer_state.loss_scale.note_skipped_step();
            return Ok(());
        }
        match self.config.training.on_nonfinite {
            OnNonFinite::Skip => Ok(()),
            OnNonFinite::Raise => Err(Error::NonFinite(format!(
                "{what} is not finite; lower learning_rate or set gradient_clip"
            ))),
        }
    }
}

/// The last layer of a cell that is compared with targets, by number; none where links arrive behind it.
fn last_layer(network: &Network, mesh: &Mesh, cell: Coordinates) -> Result<Option<usize>> {
    match mesh.read_of(network, cell)? {
        Read::Layer(number) => Ok(Some(*number)),
        read if read.reads_layers() => Ok(None),
        _ => Err(Error::Value(format!(
            "cell {} hands on nothing but the network's input, from which no layer can learn; name another cell as \
             the output",
            Shape::from(cell)
        ))),
    }
}

/// A target in the space of what the output means: ones and zeros where it is `classes`.
fn meant(target: &Targets<'_>, output: &Tensor, classes: bool) -> Result<Tensor> {
    let elements: Vec<f64> = match target {
        Targets::Real(values) => {
            let mut elements = vec![0.0; values.elements().len()];
            values.copy_to(&mut elements);
            elements
        }
        Targets::Classes { labels, .. } if !classes => labels.iter().map(|label| f64::from(*label)).collect(),
        Targets::Classes { labels, .. } => {
            let (_, classes, inner) = class_extents(&Shape::from(&output.shape()[1..]));
            let mut elements = vec![0.0; output.shape().iter().product()];
            for (place, label) in labels.iter().enumerate() {
                let (outer, within) = (place / inner, place % inner);
                if let Some(element) = elements.get_mut((outer * classes + *label as usize) * inner + within)
                {
                    *element = 1.0;
                }
            }
            elements
        }
    };
    Tensor::new(output.shape().to_vec(), elements)
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
