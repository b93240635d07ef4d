//! Backpropagation: forward, loss, backward, clip, update, step after step.

use super::data::gather;
use super::landing::{Fault, repeats};
use super::loss::{LossConfig, LossOptions, loss_op};
use super::lower::compile;
use super::metrics::{ClassAxis, MetricState, Truth};
use super::tween::Turn;
use super::{Examples, OnNonFinite, Rows, TrainingConfig, diagnose};
use crate::layers::class_extents;
use crate::network::{KeptStep, Measures, Network};
use crate::ops::loss::{divisor, validate_targets};
use crate::ops::measure::Action;
use crate::ops::update::Optimizer;
use crate::ops::{Loss, LossFunction, StepValues};
use crate::program::{Access, Phase, Ports, Run, Value};
use crate::simd::Real;
use crate::state::{Notes, OptimizerState};
use crate::tensor::{Precision, Shape, Tensor, TensorView};
use crate::{Error, Result};
use std::sync::Arc;

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// The loss over the step's rows.
    pub loss: f64,
    /// What the summed losses were divided by: the weight of this loss in a mean.
    pub weight: f64,
    /// How many rows there were.
    pub rows: usize,
    /// The learning rate.
    pub rate: f64,
    /// The global gradient norm before clipping, where it was computed.
    pub gradient_norm: Option<f64>,
    /// Whether the step was left out because it was not finite, or exploded.
    pub skipped: bool,
    /// Whether it exploded, and the step before was taken back.
    pub exploded: bool,
}

impl Default for StepReport {
    /// Of a step that has done nothing yet.
    fn default() -> Self {
        Self {
            loss: f64::NAN,
            weight: 0.0,
            rows: 0,
            rate: 0.0,
            gradient_norm: None,
            skipped: false,
            exploded: false,
        }
    }
}

/// Targets of a step, copied out of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedTargets {
    /// Class indices with their extents: rows, and indices a row.
    Classes(Vec<usize>, Vec<i32>),
    /// Numbers like the output.
    Real(Tensor),
}

/// What a compiled training program depends on beside network and config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) capacity: usize,
    pub(super) class_targets: bool,
    pub(super) weighted: bool,
    /// Whether several batches may add up to one update.
    pub(super) accumulates: bool,
    /// What a step learns, where there are feedback maps.
    pub(super) turn: Turn,
    /// Whether every batch brings sequences of its own, though layers are stateful.
    pub(super) apart: bool,
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
    pub(super) total_steps: u64,
    pub(super) pin_layers: bool,
    pub(super) keep_outputs: bool,
    /// Whether batches are taken from a data set that is shuffled, so that no sequence goes on from one to
    /// the next.
    pub(super) shuffled: bool,
    /// Outputs and targets of the newest step's batches but the last.
    earlier: Vec<(Tensor, OwnedTargets)>,
    pub(super) axis: ClassAxis,
    pub(super) frames: super::frames::Frames,
    /// Metrics gathered since they were last reset.
    pub metrics: Vec<MetricState>,
}

impl Trainer {
    /// Prepares training on examples like these.
    ///
    /// `total_steps` is the length of the whole run, for schedules. With `resume`, moments,
    /// counters and the place in the data go on from the network's last training; otherwise
    /// they start afresh. With `pin_layers`, every layer's values can be read after each step.
    ///
    /// # Errors
    /// Whatever [`TrainingConfig::validate`] and [`Network::build`] refuse; [`Error::Shape`] where
    /// examples do not fit the network; [`Error::State`] where a master was dropped, or where
    /// the moments to resume from belong to another optimizer.
    pub fn new(
        network: &mut Network,
        config: &TrainingConfig,
        like: &Examples<'_>,
        total_steps: u64,
        resume: bool,
        pin_layers: bool,
    ) -> Result<Self> {
        config.validate()?;
        network.build()?;
        let plan = Plan {
            capacity: config.batch_size.min(like.rows().max(1)),
            class_targets: like.target.are_classes_for(&config.loss, network.output_shape())?,
            weighted: like.weight.is_some(),
            accumulates: config.accumulate > 1,
            turn: Turn::default(),
            apart: false,
        };
        Self::with_plan(network, config, plan, total_steps, resume, pin_layers)
    }

    /// [`new`](Self::new) by what a program depends on.
    pub(super) fn with_plan(
        network: &mut Network,
        config: &TrainingConfig,
        plan: Plan,
        total_steps: u64,
        resume: bool,
        pin_layers: bool,
    ) -> Result<Self> {
        prepare_state(network, config, resume)?;
        network.kept_step = KeptStep::default();
        let plan = Plan { turn: config.turn(network.optimizer_state.epoch), ..plan };
        let (program, op) = compile(network, config, plan, pin_layers)?;
        let axis = class_axis(network.output_shape(), &config.loss);
        Ok(Self {
            config: config.clone(),
            plan,
            op,
            run: network.device().run(Arc::new(program))?,
            total_steps,
            pin_layers,
            keep_outputs: false,
            shuffled: false,
            earlier: Vec::new(),
            axis,
            frames: super::frames::Frames::default(),
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

    /// Output and target of each batch of the newest step.
    ///
    /// # Errors
    /// [`Error::State`] before any step.
    pub fn newest(&mut self) -> Result<Vec<(Tensor, OwnedTargets)>> {
        let ports = self.run.program().ports();
        let shown: Vec<Value> = ports.output.into_iter().chain(ports.target).collect();
        self.run.fetch(&shown)?;
        let last = match self.run.program().precision() {
            Precision::Float32 | Precision::Mixed => self.newest_in::<f32>(),
            Precision::Float64 => self.newest_in::<f64>(),
        }?;
        Ok(self.earlier.iter().cloned().chain([last]).collect())
    }

    fn newest_in<T: Real>(&self) -> Result<(Tensor, OwnedTargets)> {
        let program = self.run.program();
        let (Some(output), Some(target), true) =
            (program.ports().output, program.ports().target, self.run.rows > 0)
        else {
            return Err(Error::State("there was no step yet".into()));
        };
        let shape = |value: Value| [&[self.run.rows], &program.value(value).shape[..]].concat();
        let targets = if self.plan.class_targets {
            OwnedTargets::Classes(
                vec![self.run.rows, self.op.outer * self.op.inner],
                self.run.read_indices(target).to_vec(),
            )
        } else {
            OwnedTargets::Real(Tensor::new(shape(target), self.run.read::<T>(target).to_vec())?)
        };
        Ok((Tensor::new(shape(output), self.run.read::<T>(output).to_vec())?, targets))
    }

    /// One update from these batches, whose gradients add up; each goes through the network by itself.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::Value`] for batches that do not fit; [`Error::NonFinite`],
    /// naming the first layer concerned, unless such steps are skipped. The weights are then as before.
    pub fn step(
        &mut self,
        network: &mut Network,
        batches: &[(&Examples<'_>, Rows<'_>)],
    ) -> Result<StepReport> {
        match network.precision() {
            Precision::Float32 | Precision::Mixed => self.step_in::<f32>(network, batches),
            Precision::Float64 => self.step_in::<f64>(network, batches),
        }
    }

    fn step_in<T: Real>(
        &mut self,
        network: &mut Network,
        batches: &[(&Examples<'_>, Rows<'_>)],
    ) -> Result<StepReport> {
        network.note_training_pass();
        let mut values = step_values(&self.config, network, 0, self.total_steps);
        if batches.len() > 1 {
            self.config.check_accumulation()?;
        }
        self.fit_plan(network, batches)?;
        // A single batch is filled once; several are filled again after their weights are summed.
        let mut total = 0.0;
        for &(examples, rows) in batches {
            total += self.fill::<T>(examples, rows)?;
        }
        if total == 0.0 {
            // Every weight is zero: there is nothing to learn from, and no mean.
            return Ok(left_out(network, values.rate));
        }
        values.loss_divisor = total;
        values.batch_rows = batches.iter().map(|(_, rows)| rows.len() as u64).sum();
        self.prepare_carried(network, batches.iter().map(|(_, rows)| rows.len()))?;
        if batches.len() == 1 && self.run.engine().frames().is_some() && !repeats(self.run.program()) {
            self.earlier.clear();
            return self.step_in_frame(network, values, total);
        }
        let mut report = StepReport { loss: 0.0, weight: total, rate: values.rate, ..StepReport::default() };
        network.registry.gradients_zeroed = true;
        self.earlier.clear();
        // What layers keep follows every batch; a bad one takes all of the step back.
        let commits = batches.len() > 1 && self.run.program().commits_states();
        let before = commits.then(|| network.registry.copy_states()).transpose()?;
        for (number, &(examples, rows)) in batches.iter().enumerate() {
            if batches.len() > 1 {
                self.fill::<T>(examples, rows)?;
            }
            let access = Access::Exclusive(&mut network.registry);
            self.run.execute(access, Phase::Forward..=Phase::Loss, &values)?;
            self.fetch_watched()?;
            let loss = self.summed_loss::<T>();
            if !loss.is_finite() && !self.recovers() {
                network.registry.restore_states(before);
                return self.non_finite::<T>(network, report, &values);
            }
            report.loss += loss / total;
            report.rows += rows.len();
            self.update_metrics::<T>();
            if self.keep_outputs && number + 1 < batches.len() {
                self.earlier.push(self.newest_in::<T>()?);
            }
            let access = Access::Exclusive(&mut network.registry);
            self.run.execute(access, Phase::Backward..=Phase::Exchange, &values)?;
            if commits
                && number + 1 < batches.len()
                && let Some(fault) = network.take_on_states(&mut self.run, &values)?
            {
                network.registry.restore_states(before);
                return self.refused(network, report, &values, &fault);
            }
            values.gradients_zeroed = false;
            values.row_offset += rows.len() as u64;
        }
        // Passes that come after the verdict are over the last batch once more.
        values.row_offset -= batches.last().map_or(0, |(_, rows)| rows.len() as u64);
        let access = Access::Exclusive(&mut network.registry);
        self.run.execute(access, Phase::Verdict..=Phase::Verdict, &values)?;
        if let Some(port) = self.run.program().ports().gradient_norm {
            self.run.fetch(&[port])?;
            let norm = self.run.read::<T>(port)[0].to_f64();
            report.gradient_norm = Some(norm);
            if !norm.is_finite() && !self.recovers() {
                network.registry.restore_states(before);
                return self.non_finite::<T>(network, report, &values);
            }
        }
        if let Some(fault) = self.update(network, &values, &mut report)? {
            network.registry.restore_states(before);
            return self.refused(network, report, &values, &fault);
        }
        if report.exploded {
            network.registry.restore_states(before);
        }
        self.note_measures(network, &report)?;
        Ok(report)
    }

    /// Makes room for what layers carry through batches of so many rows, unless each brings sequences of
    /// its own.
    pub(super) fn prepare_carried(
        &self,
        network: &mut Network,
        batches: impl Iterator<Item = usize>,
    ) -> Result<()> {
        if self.plan.apart { Ok(()) } else { network.prepare_carried(batches) }
    }

    /// Counts a step that has landed. What layers carry is then of its batch, or nothing where that brought
    /// sequences of its own.
    pub(super) fn count_landed(&self, network: &mut Network) {
        match self.plan.apart {
            true => network.registry.carried = None,
            false => network.registry.begin_carrying(),
        }
        count_update(network);
    }

    /// Whether steps that go wrong are taken back by the measures' judgement.
    pub(super) fn recovers(&self) -> bool {
        self.run.program().ports().recovers
    }

    /// Runs the updates, and all that follows a good step; counts it. Returns what kept it from landing,
    /// unless that counts as an explosion, which is taken back.
    pub(super) fn update(
        &mut self,
        network: &mut Network,
        values: &StepValues,
        report: &mut StepReport,
    ) -> Result<Option<Fault>> {
        let mut action = match self.recovers() {
            true => network.judged_action()?,
            false => Action::Apply,
        };
        if action == Action::Apply {
            let Some(fault) = network.land(&mut self.run, values)? else {
                self.count_landed(network);
                return Ok(None);
            };
            let rule = self.config.watched().and_then(|watch| watch.explosion);
            let Some(rule) = rule.filter(|_| self.recovers()) else { return Ok(Some(fault)) };
            action = network.judge_again(&rule)?;
        }
        let access = Access::Exclusive(&mut network.registry);
        self.run.execute(access, Phase::Update..=Phase::Update, values)?;
        note_explosion(network, report, action == Action::RollBack);
        network.synchronize_after_rollback()?;
        Ok(None)
    }

    /// Takes note of the newest figures of every layer, where they are measured.
    pub(super) fn note_measures(&self, network: &mut Network, report: &StepReport) -> Result<()> {
        let Some(watch) = self.config.watched().filter(|_| self.run.program().ports().judges) else {
            return Ok(());
        };
        let kept = network.kept_measures()?;
        network.measures.note(watch, report.loss, &kept, report.exploded);
        Ok(())
    }

    /// Makes readable what is looked at after a batch's forward pass: its losses, its output where
    /// metrics or the caller want it, and every layer's where they are pinned.
    pub(super) fn fetch_watched(&mut self) -> Result<()> {
        if !self.run.is_remote() {
            return Ok(());
        }
        let ports = self.run.program().ports();
        let wanted = self.keep_outputs || self.pin_layers || !self.metrics.is_empty();
        let layers = ports.layers.iter().map(|(_, layer)| layer.output);
        let watched: Vec<Value> =
            ports.row_losses.into_iter().chain(ports.output.filter(|_| wanted)).chain(layers).collect();
        self.run.fetch(&watched)
    }

    /// Compiles anew where these batches are larger than any before, or bring weights, or the network
    /// has moved to another device.
    pub(super) fn fit_plan(
        &mut self,
        network: &Network,
        batches: &[(&Examples<'_>, Rows<'_>)],
    ) -> Result<()> {
        let rows = batches.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0);
        let wanted = Plan {
            weighted: self.plan.weighted || batches.iter().any(|(examples, _)| examples.weight.is_some()),
            accumulates: self.plan.accumulates || batches.len() > 1,
            ..self.plan
        };
        self.fit(network, rows, wanted)
    }

    /// Compiles anew unless the program is `wanted` and has room for these rows.
    pub(super) fn fit(&mut self, network: &Network, rows: usize, mut wanted: Plan) -> Result<()> {
        wanted.turn = self.config.turn(network.optimizer_state.epoch);
        wanted.apart = self.shuffled && network.carries;
        if rows > wanted.capacity {
            wanted.capacity = rows.next_power_of_two();
        }
        let moved = !self.run.is_on(network.device());
        if wanted == self.plan && !moved {
            return Ok(());
        }
        if moved {
            self.forget_examples();
        }
        self.plan = wanted;
        let (program, op) = compile(network, &self.config, self.plan, self.pin_layers)?;
        self.op = op;
        self.run = network.device().run(Arc::new(program))?;
        Ok(())
    }

    /// Copies a batch into the run; returns what its summed losses are to be divided by.
    pub(super) fn fill<T: Real>(&mut self, examples: &Examples<'_>, rows: Rows<'_>) -> Result<f64> {
        let ports = BatchPorts::of(self.run.program().ports())?;
        self.fill_input::<T>(&examples.input, rows)?;
        if self.plan.class_targets {
            examples.target.copy_labels(rows, self.run.write_indices(ports.target));
        } else {
            examples.target.copy_real(Some(rows), self.run.write::<T>(ports.target));
        }
        if let Some(port) = ports.sample_weight {
            match &examples.weight {
                Some(weight) => gather(weight, Some(rows), self.run.write::<T>(port)),
                None => self.run.write::<T>(port).fill(T::ONE),
            }
        }
        let labels: &[i32] = if self.plan.class_targets { self.run.read_indices(ports.target) } else { &[] };
        let weights: &[T] = match ports.sample_weight {
            Some(port) => self.run.read(port),
            None => &[],
        };
        Ok(divisor(&self.op, rows.len(), labels, weights))
    }

    /// Copies a batch's inputs into the run.
    pub(super) fn fill_input<T: Real>(&mut self, input: &TensorView<'_>, rows: Rows<'_>) -> Result<()> {
        let ports = BatchPorts::of(self.run.program().ports())?;
        self.run.rows = rows.len();
        if rows.is_empty() {
            return Err(Error::Value("a batch is empty: it has no rows".into()));
        }
        gather(input, Some(rows), self.run.write::<T>(ports.input));
        Ok(())
    }

    pub(super) fn summed_loss<T: Real>(&self) -> f64 {
        match self.run.program().ports().row_losses {
            Some(port) => self.run.read::<T>(port).iter().map(|loss| loss.to_f64()).sum(),
            None => 0.0,
        }
    }

    pub(super) fn update_metrics<T: Real>(&mut self) {
        if self.metrics.is_empty() {
            return;
        }
        let ports = self.run.program().ports();
        let (Some(output), Some(target)) = (ports.output, ports.target) else { return };
        let output = self.run.read::<T>(output);
        let truth = if self.plan.class_targets {
            Truth::Classes(self.run.read_indices(target))
        } else {
            Truth::Real(self.run.read::<T>(target))
        };
        for metric in &mut self.metrics {
            metric.update(output, truth, self.axis);
        }
    }

    /// Leaves the step out, or says where it went wrong. It is left out in any case while the loss
    /// scale may be the reason.
    pub(super) fn non_finite<T: Real>(
        &self,
        network: &mut Network,
        report: StepReport,
        values: &StepValues,
    ) -> Result<StepReport> {
        network.registry.gradients_zeroed = true;
        if network.scales_loss() && network.optimizer_state.loss_scale.may_be_too_large() {
            network.optimizer_state.loss_scale.note_skipped_step();
            return Ok(StepReport { rows: report.rows, ..left_out(network, report.rate) });
        }
        if self.config.on_nonfinite == OnNonFinite::Raise {
            return Err(diagnose::explain::<T>(network, &self.run, report.gradient_norm, values));
        }
        Ok(StepReport {
            gradient_norm: report.gradient_norm,
            rows: report.rows,
            ..left_out(network, report.rate)
        })
    }
}

/// What step number `ahead` from the network's next one on brings along, the divisor of its loss aside.
pub(super) fn step_values(
    config: &TrainingConfig,
    network: &Network,
    ahead: u64,
    total_steps: u64,
) -> StepValues {
    let state = &network.optimizer_state;
    let step = state.step + ahead;
    StepValues {
        seed: config.seed,
        step,
        optimizer_step: state.updates + 1 + ahead,
        rate: config.schedule.rate(config.learning_rate, step, total_steps),
        max_norm: config.gradient_clip.unwrap_or(f64::INFINITY),
        clip_value: config.clip_value.unwrap_or(f64::INFINITY),
        loss_scale: state.loss_scale.scale,
        good_steps: state.loss_scale.good_steps,
        gradients_zeroed: true,
        ..StepValues::default()
    }
}

/// Counts a step that changed the weights.
pub(crate) fn count_update(network: &mut Network) {
    if network.scales_loss() {
        network.optimizer_state.loss_scale.note_good_step();
    }
    network.optimizer_state.updates += 1;
    network.optimizer_state.count_step();
    network.note_updates();
}

/// Counts a step that exploded: the update before it, where it was taken back, is none any more.
pub(super) fn note_explosion(network: &mut Network, report: &mut StepReport, taken_back: bool) {
    network.optimizer_state.count_step();
    network.optimizer_state.updates = network.optimizer_state.updates.saturating_sub(u64::from(taken_back));
    network.note_updates();
    (report.skipped, report.exploded) = (true, true);
}

/// The report of a step that moved nothing. The step counts, so that the next one draws anew;
/// the optimizer's counter stays.
pub(super) fn left_out(network: &mut Network, rate: f64) -> StepReport {
    network.optimizer_state.count_step();
    StepReport {
        loss: f64::NAN,
        weight: 0.0,
        rows: 0,
        rate,
        gradient_norm: None,
        skipped: true,
        exploded: false,
    }
}

/// The values a batch is copied to.
struct BatchPorts {
    input: Value,
    target: Value,
    sample_weight: Option<Value>,
}

impl BatchPorts {
    fn of(ports: &Ports) -> Result<Self> {
        match (ports.input, ports.target) {
            (Some(input), Some(target)) => Ok(Self { input, target, sample_weight: ports.sample_weight }),
            _ => Err(Error::Internal("a training program lacks its ports".into())),
        }
    }
}

/// Makes gradients and moments ready; fresh ones unless resuming.
pub(crate) fn prepare_state(network: &mut Network, config: &TrainingConfig, resume: bool) -> Result<()> {
    let element = network.precision().size();
    let rule = config.rule();
    let slots = rule.slots().len();
    if let Some(tween) = &config.tween {
        let absorbed = network.absorb_loss(&config.loss.0).is_some();
        network.prepare_feedback(tween, network.top_layer(absorbed))?;
    }
    if resume {
        if network.came_without_state && network.optimizer_state.is_fresh() {
            return Err(Error::State(
                "there is nothing to resume: the network came from a file without training state; save with \
                 optimizer=True (in Rust SaveOptions { optimizer: true }) what is to be resumed, or train without \
                 resume to start anew from these weights"
                    .into(),
            ));
        }
        let held = network.optimizer_state.optimizer.slots();
        if network.optimizer_state.updates > 0 && held != rule.slots() {
            return Err(Error::State(format!(
                "the network's optimizer state belongs to {}, which {} cannot go on from; train without resume",
                network.optimizer_state.optimizer.name(),
                rule.name()
            )));
        }
        network.optimizer_state.optimizer = rule.clone();
    } else {
        network.registry.clear_moments();
        network.optimizer_state = OptimizerState { optimizer: rule.clone(), ..OptimizerState::default() };
        network.notes = Notes::default();
        network.came_without_state = false;
    }
    network.history = None;
    network.registry.prepare_gradients(element)?;
    network.registry.prepare_moments(slots, element)?;
    let Some(watch) = config.watched() else { return Ok(()) };
    let trained: Vec<usize> = network.trained_stores().map(|(store, _)| store).collect();
    let registry = &network.registry;
    let of_store = |store: usize| match &config.tween {
        Some(tween) if store >= registry.layer_stores => {
            tween.mode.has_feedback().then(|| tween.feedback.optimizer.clone())
        }
        _ => trained.contains(&store).then(|| rule.clone()),
    };
    let rules: Vec<Option<Optimizer>> = (0..registry.stores.len()).map(of_store).collect();
    network.prepare_watch(&rules, watch.explosion.is_some(), !resume)?;
    if !resume || network.measures.layers != network.layers().count() {
        network.measures = Measures::new(network.layers().count());
    }
    Ok(())
}

/// Checks examples before a long run: extents, weights, labels, and, unless bad steps are to be
/// skipped, that every number is finite.
///
/// # Errors
/// [`Error::Shape`], [`Error::Value`] and [`Error::NonFinite`] saying what does not fit.
pub fn check_examples(network: &Network, config: &TrainingConfig, examples: &Examples<'_>) -> Result<()> {
    let output = network.output_shape();
    let classes = examples.target.are_classes_for(&config.loss, output)?;
    let finite = config.on_nonfinite == OnNonFinite::Raise;
    examples.check(network.input_shape(), output, classes, finite)?;
    // An epoch's order is kept as numbers of 32 bits.
    if u32::try_from(examples.rows()).is_err() {
        let rows = examples.rows();
        return Err(Error::Value(format!("{rows} rows are more than an epoch holds, which is {}", u32::MAX)));
    }
    network.check_indices(&examples.input)?;
    let options =
        LossOptions { label_smoothing: config.label_smoothing, class_weight: config.class_weight.clone() };
    let absorbed = network.absorb_loss(&config.loss.0);
    let op = loss_op(absorbed.unwrap_or(config.loss.0), output, classes, false, &options, false)?;
    match (&examples.target, classes) {
        (super::Targets::Classes { labels, .. }, true) => validate_targets::<f32>(&op, &[], &[], labels),
        (super::Targets::Real(view), _) if finite => match view.elements() {
            crate::tensor::Elements::Float32(targets) => validate_targets::<f32>(&op, &[], targets, &[]),
            crate::tensor::Elements::Float64(targets) => validate_targets::<f64>(&op, &[], targets, &[]),
        },
        _ => Ok(()),
    }
}

/// The metrics' class axis for outputs of this shape under this loss.
pub(super) fn class_axis(output: &Shape, loss: &LossConfig) -> ClassAxis {
    let (_, classes, inner) = class_extents(output);
    let threshold = if loss.0 == LossFunction::BinaryCrossEntropy { 0.0 } else { 0.5 };
    ClassAxis { classes, inner, threshold }
}
