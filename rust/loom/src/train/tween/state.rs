//! One step of learning by targets, call by call.

use super::TargetMode;
use crate::layers::Feedback;
use crate::network::{KeptStep, Lowered, Mode, Network};
use crate::ops::StepValues;
use crate::ops::measure::{Action, Header};
use crate::precision::in_precision;
use crate::program::{Access, Builder, Phase, Ports, TargetValue, Value};
use crate::simd::Real;
use crate::tensor::{Tensor, TensorView};
use crate::train::landing::Fate;
use crate::train::plan::{Plan, Turn, top_layer};
use crate::train::step::step_values;
use crate::train::weighing::Weighing;
use crate::train::{
    Examples, Rows, StepReport, Targets, Trainer, TrainerOptions, TrainingConfig, check_examples, count_step,
    watch,
};
use crate::{Error, Result};

/// What has been called of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    Nothing,
    Forward,
    Backward,
    Measured,
}

/// How targets pass back through a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// By the gradient of the loss.
    Gradient,
    /// By a rule of its own.
    Rule,
    /// By a feedback map that learns.
    Learned,
    /// By the transpose of its own linear map.
    Transpose,
    /// Unchanged: it has no rule of its own.
    Unchanged,
    /// Not at all: it has no rule, and changes the number of elements; the layer below keeps its output as
    /// its target.
    Stopped,
}

impl Passage {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Passage::Gradient => "gradient",
            Passage::Rule => "rule",
            Passage::Learned => "feedback map",
            Passage::Transpose => "transpose",
            Passage::Unchanged => "unchanged",
            Passage::Stopped => "stopped",
        }
    }
}

/// A network learning by targets, one call at a time: [`forward`](Self::forward),
/// [`backward`](Self::backward), [`measure`](Self::measure), [`apply`](Self::apply), or all four in a
/// [`step`](Self::step).
///
/// What it measures stands in [`Network::measures`]; velocities and feedback maps are the network's, too.
#[derive(Debug)]
pub struct TweenState {
    trainer: Trainer,
    stage: Stage,
    input: Option<Tensor>,
    values: StepValues,
    report: StepReport,
    /// Which layers the newest forward pass has gone through.
    layers: u64,
    /// What a file brought of the step before; until the next forward pass.
    kept: KeptStep,
}

impl TweenState {
    /// For this network; with `resume` what its last training has left goes on, otherwise it is forgotten.
    ///
    /// # Errors
    /// [`Error::Value`] for settings out of range or without [`tween`](TrainingConfig::tween), and
    /// whatever [`Trainer::new`] refuses.
    pub fn new(network: &mut Network, config: &TrainingConfig, resume: bool) -> Result<Self> {
        if config.tween.is_none() {
            return Err(Error::Value("a TweenState needs a config with `tween`".into()));
        }
        config.validate()?;
        network.build()?;
        network.check_single("a TweenState", "; tween() trains it, with targets by the chain rule")?;
        network.thaw_trained()?;
        let plan = Plan {
            capacity: 1,
            class_targets: config.loss.takes_classes(),
            labelled: false,
            weighing: Weighing::None,
            extents: network.extents_key(),
            accumulates: false,
            turn: Turn::default(),
            apart: false,
        };
        let kept = if resume { std::mem::take(&mut network.kept_step) } else { KeptStep::default() };
        let options = TrainerOptions { total_steps: u64::MAX, resume, pin_layers: true, looks_inside: false };
        let trainer = Trainer::with_plan(network, config, plan, options)?;
        let rate = config.learning_rate;
        let program = trainer.run.program();
        let made = program.ports().layers.iter().map(|(_, layer)| &program.value(layer.output).shape[..]);
        // What other layers have made is not this network's.
        let kept = if kept.is_of(made) { kept } else { KeptStep::default() };
        Ok(Self {
            trainer,
            stage: Stage::Nothing,
            input: None,
            values: StepValues::default(),
            report: StepReport { rate, ..StepReport::default() },
            layers: network.registry.epochs_passed,
            kept,
        })
    }

    /// The settings it follows.
    pub fn config(&self) -> &TrainingConfig {
        self.trainer.config()
    }

    /// Runs every layer forward, and keeps what each has made. Returns the output.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Value`] and [`Error::NonFinite`] for input that does not fit.
    pub fn forward(&mut self, network: &mut Network, input: TensorView<'_>) -> Result<Tensor> {
        network.check_input(&input)?;
        self.stage = Stage::Nothing;
        self.kept = KeptStep::default();
        self.trainer.fit(network, input.rows(), self.trainer.plan)?;
        network.prepare_carried([input.rows()])?;
        network.passes.note_training();
        network.keep_back()?;
        // A pass that no update follows is drawn anew the next time.
        let forwards = network.optimizer_state.forwards;
        network.optimizer_state.forwards += 1;
        self.values = StepValues {
            forwards,
            batch_rows: input.rows() as u64,
            ..step_values(self.trainer.config(), network, 0, u64::MAX)
        };
        self.report = StepReport { rate: self.values.rate, rows: input.rows(), ..StepReport::default() };
        let output = in_precision!(network.precision(), T => self.run_forward::<T>(network, &input)?);
        self.trainer.run.epoch = network.registry.epoch();
        self.layers = network.registry.epochs_passed;
        self.input = Some(input.to_tensor()?);
        self.stage = Stage::Forward;
        Ok(output)
    }

    fn run_forward<T: Real>(&mut self, network: &mut Network, input: &TensorView<'_>) -> Result<Tensor> {
        self.trainer.fill_input::<T>(input, Rows::First(input.rows()))?;
        self.execute(network, Phase::Forward, Phase::Forward)?;
        let output = self.trainer.run.program().ports().output;
        let output = output.ok_or_else(|| Error::Internal("a training program lacks its output".into()))?;
        self.read(output)
    }

    fn execute(&mut self, network: &mut Network, first: Phase, last: Phase) -> Result<()> {
        let access = Access::Exclusive(&mut network.registry);
        self.trainer.run.execute(access, first..=last, &self.values)
    }

    /// Makes every layer's target for these targets of the output, and each layer's local gradient from
    /// it. Returns the loss.
    ///
    /// # Errors
    /// [`Error::State`] without a forward pass before it, or after the weights have moved;
    /// [`Error::Shape`] and [`Error::Value`] for targets that do not fit.
    pub fn backward(
        &mut self,
        network: &mut Network,
        target: Targets<'_>,
        weight: Option<TensorView<'_>>,
    ) -> Result<f64> {
        self.require(Stage::Forward, "backward", "forward")?;
        self.check_layers(network)?;
        if self.trainer.run.epoch != network.registry.epoch() {
            return Err(Error::State(
                "the weights have moved since the forward pass; call forward again before backward".into(),
            ));
        }
        let Some(input) = self.input.take() else {
            return Err(Error::State("backward needs a forward pass before it".into()));
        };
        let outcome = self.run_backward(network, &Examples { input: input.view(), target, weight });
        self.input = Some(input);
        outcome?;
        self.stage = Stage::Backward;
        Ok(self.report.loss)
    }

    fn run_backward(&mut self, network: &mut Network, examples: &Examples<'_>) -> Result<()> {
        check_examples(network, self.trainer.config(), examples)?;
        let output = network.output_shape();
        let wanted = Plan {
            class_targets: examples.target.are_classes_for(&self.trainer.config().loss, output)?,
            labelled: false,
            weighing: examples.weighing(),
            ..self.trainer.plan
        };
        if wanted != self.trainer.plan {
            // Another program, which has to see the input again.
            self.trainer.fit(network, examples.rows(), wanted)?;
            in_precision!(network.precision(), T => self.run_forward::<T>(network, &examples.input)?);
        }
        in_precision!(network.precision(), T => self.backward_in::<T>(network, examples))
    }

    fn backward_in<T: Real>(&mut self, network: &mut Network, examples: &Examples<'_>) -> Result<()> {
        let total = self.trainer.fill::<T>(examples, Rows::First(examples.rows()))?;
        if total == 0.0 {
            return Err(Error::Value(
                "every weight of the batch is 0: there is nothing to learn from".into(),
            ));
        }
        self.values.loss_divisor = total;
        network.registry.gradients_zeroed = true;
        self.execute(network, Phase::Loss, Phase::Exchange)?;
        let losses = self.trainer.run.program().ports().row_losses;
        self.trainer.run.fetch(losses.as_slice())?;
        self.report.loss = self.trainer.summed_loss::<T>() / total;
        self.report.weight = total;
        Ok(())
    }

    /// Fills the measures, and looks whether the step before has exploded.
    ///
    /// # Errors
    /// [`Error::State`] without a backward pass before it.
    pub fn measure(&mut self, network: &mut Network) -> Result<()> {
        self.require(Stage::Backward, "measure", "backward")?;
        self.check_layers(network)?;
        self.execute(network, Phase::Verdict, Phase::Verdict)?;
        if self.trainer.recovers() {
            self.report.exploded = watch::judged_action(network)? != Action::Apply;
        }
        if let Some(watch) =
            self.trainer.config.watched().filter(|_| self.trainer.run.program().ports().judges)
        {
            watch::note(network, watch, self.report.loss, self.report.exploded)?;
        }
        self.stage = Stage::Measured;
        Ok(())
    }

    /// Updates every layer from its own local gradient, at this rate or else at the adaptive one; after an
    /// explosion goes back instead. Returns whether it has updated.
    ///
    /// # Errors
    /// [`Error::Value`] for a rate that is negative or not finite, [`Error::State`] before the step was
    /// measured, [`Error::NonFinite`] where the loss is infinite or NaN and nothing is taken back.
    pub fn apply(&mut self, network: &mut Network, rate: Option<f64>) -> Result<bool> {
        self.require(Stage::Measured, "apply", "measure")?;
        self.check_layers(network)?;
        if let Some(rate) = rate {
            if !(rate.is_finite() && rate >= 0.0) {
                return Err(Error::Value(format!("the rate must be finite and at least 0, got {rate}")));
            }
            // The updates multiply by the factor again.
            self.values.rate = rate / network.measures.header(Header::RateFactor);
        }
        self.stage = Stage::Nothing;
        if !self.trainer.recovers() && !self.report.loss.is_finite() {
            return self.trainer.conclude(network, &self.values, self.report, Fate::NonFinite).map(|_| false);
        }
        let was_exploded = self.report.exploded;
        let fate = self.trainer.settle(network, &self.values)?;
        self.report = self.trainer.conclude(network, &self.values, self.report, fate)?;
        if self.report.exploded && !was_exploded {
            let kept = watch::kept_measures(network)?;
            network.measures.note_late_explosion(&kept);
        }
        count_step(network, &self.report);
        Ok(!self.report.skipped)
    }

    /// All four calls. Returns the loss.
    ///
    /// # Errors
    /// Theirs.
    pub fn step(
        &mut self,
        network: &mut Network,
        input: TensorView<'_>,
        target: Targets<'_>,
        weight: Option<TensorView<'_>>,
    ) -> Result<f64> {
        self.forward(network, input)?;
        let loss = self.backward(network, target, weight)?;
        self.measure(network)?;
        self.apply(network, None)?;
        Ok(loss)
    }

    /// Refuses to go on with a step that other layers have begun.
    fn check_layers(&self, network: &Network) -> Result<()> {
        if self.layers == network.registry.epochs_passed && !self.trainer.is_outdated(network) {
            return Ok(());
        }
        Err(Error::State(
            "the network's layers have changed since the forward pass; call forward again".into(),
        ))
    }

    fn require(&self, stage: Stage, call: &str, before: &str) -> Result<()> {
        if self.stage == stage {
            return Ok(());
        }
        Err(Error::State(format!("{call} comes after {before}; call {before} first")))
    }

    /// What every layer has made in the newest forward pass, the batch axis first.
    ///
    /// # Errors
    /// [`Error::State`] before any.
    pub fn activations(&mut self) -> Result<Vec<Tensor>> {
        if !self.kept.activations.is_empty() {
            return Ok(self.kept.activations.clone());
        }
        if self.input.is_none() {
            return Err(Error::State("there is no forward pass to look at; call forward first".into()));
        }
        let ports = self.trainer.run.program().ports();
        let outputs: Vec<Value> = ports.layers.iter().map(|(_, layer)| layer.output).collect();
        outputs.into_iter().map(|output| self.read(output)).collect()
    }

    /// The targets of every layer's output in the newest backward pass, the batch axis first; the last, and
    /// that below a softmax which has absorbed the loss, is what the output's meaning is compared with, unless
    /// links arrive behind the last layer. What no target comes back to keeps what it made.
    ///
    /// # Errors
    /// [`Error::State`] before any.
    pub fn targets(&mut self) -> Result<Vec<Tensor>> {
        if !self.kept.targets.is_empty() {
            return Ok(self.kept.targets.clone());
        }
        self.require_targets()?;
        let ports = self.trainer.run.program().ports().clone();
        let mut found = Vec::with_capacity(ports.layers.len());
        for (layer, (_, values)) in ports.layers.iter().enumerate() {
            found.push(match target_of(&ports, layer) {
                Some(TargetValue::Value(value)) => self.read(value)?,
                Some(TargetValue::Gradient(value, term)) => {
                    let (output, gradient) = (self.read(values.output)?, self.read(value)?);
                    moved(output, term.value(&self.values), &gradient)?
                }
                None => self.read(values.output)?,
            });
        }
        Ok(found)
    }

    /// The gradients of the loss with respect to every layer's output, in chain-rule mode.
    ///
    /// # Errors
    /// [`Error::State`] in other modes, and before any backward pass.
    pub fn chain_gradients(&mut self) -> Result<Vec<Tensor>> {
        if self.mode() != Some(TargetMode::ChainRule) {
            return Err(Error::State("only chain_rule makes gradients of the loss for every layer".into()));
        }
        if !self.kept.chain_gradients.is_empty() {
            return Ok(self.kept.chain_gradients.clone());
        }
        self.require_targets()?;
        let ports = self.trainer.run.program().ports().clone();
        let mut found = Vec::with_capacity(ports.layers.len());
        for (layer, (_, values)) in ports.layers.iter().enumerate() {
            match (target_of(&ports, layer), ports.output_gradient) {
                (Some(TargetValue::Gradient(gradient, _)), _) => found.push(self.read(gradient)?),
                // The layer that learns from the loss itself; a softmax behind it is one with the loss.
                (Some(TargetValue::Value(_)), Some(gradient)) => {
                    found.push(self.read(gradient)?);
                    break;
                }
                _ => found.push(zeros_like(self.read(values.output)?)),
            }
        }
        Ok(found)
    }

    /// What the newest step's layers made, for a file.
    pub(crate) fn kept_step(&mut self) -> Result<KeptStep> {
        let has_targets = self.require_targets().is_ok() || !self.kept.targets.is_empty();
        let mut kept = KeptStep::default();
        if self.input.is_some() || !self.kept.activations.is_empty() {
            kept.activations = self.activations()?;
        }
        if has_targets {
            kept.targets = self.targets()?;
            if self.mode() == Some(TargetMode::ChainRule) {
                kept.chain_gradients = self.chain_gradients()?;
            }
        }
        Ok(kept)
    }

    fn mode(&self) -> Option<TargetMode> {
        self.trainer.config().tween.as_ref().map(|tween| tween.mode)
    }

    fn require_targets(&self) -> Result<()> {
        if self.report.loss.is_nan() && self.report.weight == 0.0 {
            return Err(Error::State("there are no targets to look at; call backward first".into()));
        }
        Ok(())
    }

    fn read(&mut self, value: Value) -> Result<Tensor> {
        let run = &mut self.trainer.run;
        run.fetch(&[value])?;
        let shape = [&[run.rows], &run.program().value(value).shape[..]].concat();
        in_precision!(run.program().precision(), T => Tensor::new(shape, run.read::<T>(value).to_vec()))
    }
}

fn zeros_like(tensor: Tensor) -> Tensor {
    match tensor {
        Tensor::Float32(shape, elements) => Tensor::Float32(shape, vec![0.0; elements.len()]),
        Tensor::Float64(shape, elements) => Tensor::Float64(shape, vec![0.0; elements.len()]),
    }
}

/// A layer's target in a program; `None` where nothing comes back to it, as below a layer that reads indices.
fn target_of(ports: &Ports, layer: usize) -> Option<TargetValue> {
    ports.targets.iter().find(|(of, _)| *of == layer).map(|(_, target)| *target)
}

/// `tensor + factor * by`, element by element.
fn moved(tensor: Tensor, factor: f64, by: &Tensor) -> Result<Tensor> {
    match (tensor, by) {
        (Tensor::Float32(shape, mut elements), Tensor::Float32(_, by)) => {
            elements.iter_mut().zip(by).for_each(|(x, by)| *x = (factor as f32).mul_add(*by, *x));
            Tensor::new(shape, elements)
        }
        (Tensor::Float64(shape, mut elements), Tensor::Float64(_, by)) => {
            elements.iter_mut().zip(by).for_each(|(x, by)| *x = factor.mul_add(*by, *x));
            Tensor::new(shape, elements)
        }
        _ => Err(Error::Internal("values of one run differ in precision".into())),
    }
}

impl Network {
    /// How targets pass back through each layer when it learns this way.
    ///
    /// # Errors
    /// Whatever [`build`](Network::build) refuses, and [`Error::Internal`] where a layer cannot be lowered.
    pub fn target_passages(&mut self, config: &TrainingConfig) -> Result<Vec<Passage>> {
        self.build()?;
        let Some(tween) = &config.tween else { return Ok(vec![Passage::Gradient; self.layers().count()]) };
        let top = top_layer(self, self.absorb_loss(&config.loss.0).is_some());
        let mut b = Builder::new(self.precision());
        let lowered = Lowered::forward(self, &mut b, Mode { training: true, ..Mode::default() })?;
        let mut found = Vec::new();
        for (number, placed) in self.layers().enumerate() {
            let below_top = number < top && number > 0;
            found.push(match tween.mode.feedback_form() {
                None if tween.mode == TargetMode::ChainRule => Passage::Gradient,
                Some(_) if !below_top => Passage::Gradient,
                Some(form) => match placed.layer.target_rules().feedback(&placed.input_shapes(), form) {
                    Feedback::Learned(_) => Passage::Learned,
                    Feedback::Backward => Passage::Transpose,
                    Feedback::Unknown => Passage::Stopped,
                },
                None => {
                    let layer = &lowered.layers[number];
                    let output = layer.forward.output;
                    let rules = placed.layer.target_rules();
                    let own = rules.target(&mut b, &layer.context, &layer.inputs, &layer.forward, output)?;
                    let same = b.shape(output).len() == b.shape(layer.inputs[0]).len();
                    match (own, same) {
                        (Some(_), _) => Passage::Rule,
                        (None, true) => Passage::Unchanged,
                        (None, false) => Passage::Stopped,
                    }
                }
            });
        }
        Ok(found)
    }
}
