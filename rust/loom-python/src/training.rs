//! `loom._native.Trainer` and `Evaluator`: the engine's training loop, handed slices of time.
//!
//! A slice runs in the engine without the GIL; between slices Python shows progress, calls
//! callbacks and looks for Ctrl-C.

use crate::arrays::{ExampleArrays, targets_to_numpy, to_numpy};
use crate::error::{detached, exception, from_json};
use crate::exchange::{Communicator, Ways};
use crate::figures::layer_dicts;
use crate::shared::Network;
use loom::train::{
    self as engine, Epoch, Examples, Newest, Rows, StepReport, StepRows, TrainerOptions, TrainingConfig,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Outputs, targets, and weights where samples have any.
type NewestArrays = (Py<PyAny>, Py<PyAny>, Option<Py<PyAny>>);

/// Reads a training config from JSON.
pub fn parse(config: &str) -> PyResult<TrainingConfig> {
    let config: TrainingConfig = from_json(config)?;
    config.validate().map_err(exception)?;
    Ok(config)
}

/// The learning rate of one step by a schedule's JSON.
#[pyfunction]
pub fn schedule_rate(schedule: &str, base: f64, step: u64, total: u64) -> PyResult<f64> {
    let schedule: engine::Schedule = from_json(schedule)?;
    schedule.validate().map_err(exception)?;
    Ok(schedule.rate(base, step, total))
}

/// Borrows an (input, target, weight or None) tuple.
fn borrow<'py>(examples: &Bound<'py, PyTuple>) -> PyResult<ExampleArrays<'py>> {
    let (input, target, weight): (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>) =
        examples.extract()?;
    ExampleArrays::borrow(&input, &target, weight.as_ref())
}

struct State {
    trainer: engine::Trainer,
    config: TrainingConfig,
    epoch: Epoch,
}

/// Trains one network; batches come from arrays, or one by one.
#[pyclass(frozen, module = "loom._native")]
pub struct Trainer {
    network: Py<Network>,
    state: Mutex<State>,
}

#[pymethods]
impl Trainer {
    /// Prepares training on examples like these. `rows` is the size of the data set for
    /// arrays; for batches from an iterable it is 0 and `total_steps` says how many will come. At 1 of
    /// `levels` every layer can be looked at after each step, above also those inside others.
    #[new]
    fn new(
        py: Python<'_>,
        network: Py<Network>,
        config: &str,
        examples: &Bound<'_, PyTuple>,
        total_steps: u64,
        resume: bool,
        levels: usize,
    ) -> PyResult<Self> {
        let config = parse(config)?;
        let arrays = borrow(examples)?;
        let view = arrays.view()?;
        let mut guard = network.get().write()?;
        let target = &mut *guard;
        let settings = config.clone();
        let (trainer, epoch) = detached(py, move || {
            target.build()?;
            engine::check_examples(target, &settings, &view)?;
            let epoch = Epoch::new(&settings, view.rows());
            let total_steps = if total_steps > 0 { total_steps } else { epoch.total_steps(&settings) };
            let options =
                TrainerOptions { total_steps, resume, pin_layers: levels > 0, looks_inside: levels > 1 };
            Ok((engine::Trainer::with_options(target, &settings, &view, options)?, epoch))
        })?;
        drop(guard);
        Ok(Self { network, state: Mutex::new(State { trainer, config, epoch }) })
    }

    /// Steps of one epoch over the arrays.
    fn steps(&self) -> u64 {
        self.lock().epoch.steps()
    }

    /// Draws the order of the epoch the network is in. Examples that may have `changed` since the
    /// last epoch are read anew.
    fn begin_epoch(&self, py: Python<'_>, changed: bool) -> PyResult<()> {
        let guard = self.network.get().read()?;
        let number = guard.optimizer_state().epoch;
        drop(guard);
        detached(py, || {
            let State { trainer, epoch, config, .. } = &mut *self.lock();
            if changed {
                trainer.forget_examples();
            }
            epoch.begin(config, number);
            Ok(())
        })
    }

    /// Runs steps of the epoch over these arrays until it ends, `max_steps` are done, or
    /// `seconds` have passed. Returns what they did, and whether the epoch has ended.
    ///
    /// On a GPU many steps go there at once, over a copy of the arrays; a single step reads the arrays.
    fn run(
        &self,
        py: Python<'_>,
        examples: &Bound<'_, PyTuple>,
        max_steps: u64,
        seconds: f64,
    ) -> PyResult<(Report, bool)> {
        let arrays = borrow(examples)?;
        let view = arrays.view()?;
        let mut guard = self.network.get().write()?;
        let network = &mut *guard;
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        detached(py, || {
            let state = &mut *self.lock();
            let State { trainer, epoch, config, .. } = state;
            let started = Instant::now();
            let mut report = Report::default();
            // The time of every step can only be taken between steps.
            let on_cpu = network.device().is_host();
            if max_steps == 1 || (on_cpu && config.track_perf) {
                while report.steps < max_steps && started.elapsed() < limit {
                    let step_started = Instant::now();
                    let Some(step) = epoch.step(trainer, network, &view)? else { break };
                    report.add(&step, config.track_perf.then(|| step_started.elapsed()));
                }
            } else {
                let steps = epoch.advance(trainer, network, &view, max_steps, limit)?;
                let each = started.elapsed() / u32::try_from(steps.len()).unwrap_or(u32::MAX).max(1);
                steps.iter().for_each(|step| report.add(step, config.track_perf.then_some(each)));
            }
            let done = epoch.is_done(network);
            state.trainer.keep_up(network)?;
            Ok((report, done))
        })
    }

    /// Runs the next step of the epoch over these arrays, cut into shards, of which each process of the communicator
    /// computes its own. Returns what it did, whether the epoch has ended, and what any process wishes, in bits.
    fn run_sharded(
        &self,
        py: Python<'_>,
        examples: &Bound<'_, PyTuple>,
        shards: usize,
        communicator: &Bound<'_, PyAny>,
        wish: u8,
        ways: (String, String),
    ) -> PyResult<(Report, bool, u8)> {
        let arrays = borrow(examples)?;
        let view = arrays.view()?;
        let mut exchange = Communicator::of(communicator, wish, Ways::named(&ways.0, &ways.1))?;
        let mut guard = self.network.get().write()?;
        let network = &mut *guard;
        detached(py, || {
            let state = &mut *self.lock();
            let State { trainer, epoch, config, .. } = state;
            let started = Instant::now();
            let mut report = Report::default();
            if let Some(step) = epoch.step_sharded(trainer, network, &view, shards, &mut exchange)? {
                report.add(&step, config.track_perf.then(|| started.elapsed()));
            }
            trainer.keep_up(network)?;
            Ok((report, epoch.is_done(network), exchange.wishes))
        })
    }

    /// One update from a batch, cut into shards as in `run_sharded`. Where each process has the rows of its own shards
    /// alone, `parts` says how many each of these has, of the first rows here.
    #[expect(clippy::too_many_arguments, reason = "a batch, and who takes part in it")]
    fn step_sharded(
        &self,
        py: Python<'_>,
        examples: &Bound<'_, PyTuple>,
        shards: usize,
        communicator: &Bound<'_, PyAny>,
        wish: u8,
        ways: (String, String),
        parts: Option<Vec<usize>>,
    ) -> PyResult<(Report, u8)> {
        let arrays = borrow(examples)?;
        let view = arrays.view()?;
        let mut exchange = Communicator::of(communicator, wish, Ways::named(&ways.0, &ways.1))?;
        let mut guard = self.network.get().write()?;
        let network = &mut *guard;
        detached(py, || {
            let state = &mut *self.lock();
            let State { trainer, config, .. } = state;
            let started = Instant::now();
            let there = parts.as_ref().map_or(view.rows(), |parts| parts.iter().sum());
            let order: Vec<u32> = (0..there as u32).collect();
            let rows = StepRows { examples: &view, rows: &order, parts: parts.as_deref() };
            if parts.is_none() {
                engine::check_examples(network, config, &view)?;
            }
            let step = trainer.step_sharded(network, &rows, shards, &mut exchange)?;
            engine::count_step(network, &step);
            let mut report = Report::default();
            report.add(&step, config.track_perf.then(|| started.elapsed()));
            trainer.keep_up(network)?;
            Ok((report, exchange.wishes))
        })
    }

    /// One update from these batches, whose gradients add up.
    fn step(&self, py: Python<'_>, batches: Vec<Bound<'_, PyTuple>>) -> PyResult<Report> {
        let arrays = batches.iter().map(borrow).collect::<PyResult<Vec<_>>>()?;
        let views = arrays.iter().map(ExampleArrays::view).collect::<PyResult<Vec<Examples<'_>>>>()?;
        let mut guard = self.network.get().write()?;
        let network = &mut *guard;
        detached(py, || {
            let state = &mut *self.lock();
            let State { trainer, config, .. } = state;
            let started = Instant::now();
            for view in &views {
                engine::check_examples(network, config, view)?;
            }
            let batches: Vec<_> = views.iter().map(|view| (view, Rows::First(view.rows()))).collect();
            let step = trainer.step(network, &batches)?;
            engine::count_step(network, &step);
            let mut report = Report::default();
            report.add(&step, config.track_perf.then(|| started.elapsed()));
            state.trainer.keep_up(network)?;
            Ok(report)
        })
    }

    /// Closes the epoch: its mean loss, and each metric over what was learned from.
    fn end_epoch(&self) -> PyResult<(f64, Vec<(&'static str, f64)>)> {
        let mut guard = self.network.get().write()?;
        let loss = engine::end_epoch(&mut guard);
        let trainer = &mut self.lock().trainer;
        let metrics = trainer.metrics.iter().map(|metric| (metric.metric().name(), metric.value())).collect();
        trainer.metrics.iter_mut().for_each(engine::MetricState::reset);
        Ok((loss, metrics))
    }

    /// Keeps the outputs of every batch of a step for `newest`, instead of only the last one's.
    fn keep_outputs(&self) {
        self.lock().trainer.keep_outputs(true);
    }

    /// Output and target of each batch of the newest step that was kept, without what has a weight of 0; of named
    /// outputs all rows, and their weights.
    fn newest(&self, py: Python<'_>) -> PyResult<Vec<NewestArrays>> {
        let batches = self.lock().trainer.newest().map_err(exception)?;
        let arrays = |newest: Newest| {
            let weights = newest.weights.map(|weights| to_numpy(py, weights)).transpose()?;
            Ok((to_numpy(py, newest.output)?, targets_to_numpy(py, newest.targets)?, weights))
        };
        batches.into_iter().map(arrays).collect()
    }

    /// Each layer's statistics in the newest step, as deep as the trainer looks.
    fn layer_statistics(&self, py: Python<'_>) -> PyResult<Vec<Py<PyDict>>> {
        let guard = self.network.get().read()?;
        let layers = guard.statistics_inside(self.lock().trainer.run());
        layer_dicts(py, &layers)
    }
}

impl Trainer {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one or several steps did.
#[pyclass(frozen, get_all, module = "loom._native")]
#[derive(Default)]
pub struct Report {
    /// How many steps there were, those left out counted in.
    steps: u64,
    /// How many of them were left out because they were not finite.
    skipped: u64,
    /// How many of those exploded, and were taken back.
    exploded: u64,
    /// How many rows they took in.
    rows: u64,
    /// The newest step's loss: NaN where it was not finite or exploded, 0 where no sample counts.
    loss: f64,
    /// The sum of the steps' losses, each times its weight.
    loss_sum: f64,
    /// The sum of those weights.
    weight: f64,
    /// The learning rate of the newest step.
    rate: f64,
    /// Its gradient norm before clipping, where it was computed.
    gradient_norm: Option<f64>,
    /// The seconds of each step, where the config asks for them.
    times: Vec<f64>,
    /// Where they went in steps that were cut into shards: the parts' names and seconds, and bytes that travelled.
    parts: Vec<Vec<(&'static str, f64)>>,
}

impl Report {
    fn add(&mut self, step: &StepReport, duration: Option<Duration>) {
        self.steps += 1;
        self.rows += step.rows as u64;
        self.rate = step.rate;
        self.gradient_norm = step.gradient_norm;
        self.loss = if step.exploded { f64::NAN } else { step.loss };
        if let Some(duration) = duration {
            self.times.push(duration.as_secs_f64());
            self.parts.extend(step.times.map(|times| times.named().to_vec()));
        }
        self.exploded += u64::from(step.exploded);
        if step.skipped {
            self.skipped += 1;
        } else {
            self.loss_sum += step.loss * step.weight;
            self.weight += step.weight;
        }
    }
}

/// Checks examples as training would, and changes nothing but that the network is built.
#[pyfunction]
pub fn check_examples(
    py: Python<'_>,
    network: &Bound<'_, Network>,
    config: &str,
    examples: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    let config = parse(config)?;
    let arrays = borrow(examples)?;
    let view = arrays.view()?;
    network.get().look_built(py, move |network| engine::check_examples(network, &config, &view))
}

/// Gathers loss and metrics without learning.
#[pyclass(frozen, module = "loom._native")]
pub struct Evaluator {
    network: Py<Network>,
    evaluator: Mutex<engine::Evaluator>,
}

#[pymethods]
impl Evaluator {
    /// For this network, with the loss and metrics of a training config in JSON.
    #[new]
    fn new(py: Python<'_>, network: Py<Network>, config: &str) -> PyResult<Self> {
        let config = parse(config)?;
        let evaluator =
            network.get().look_built(py, move |engine| engine::Evaluator::new(engine, &config))?;
        Ok(Self { network, evaluator: Mutex::new(evaluator) })
    }

    /// Takes in examples, at most `batch_size` rows at a time.
    fn update(&self, py: Python<'_>, examples: &Bound<'_, PyTuple>, batch_size: usize) -> PyResult<()> {
        let arrays = borrow(examples)?;
        let view = arrays.view()?;
        let guard = self.network.get().read()?;
        let network = &*guard;
        detached(py, || {
            let mut evaluator = self.evaluator.lock().unwrap_or_else(PoisonError::into_inner);
            evaluator.update(network, &view, batch_size)
        })
    }

    /// The mean loss, and each metric.
    fn finish(&self) -> PyResult<(f64, Vec<(&'static str, f64)>)> {
        let evaluator = self.evaluator.lock().unwrap_or_else(PoisonError::into_inner);
        let found = evaluator.finish().map_err(exception)?;
        Ok((found.loss, found.metrics))
    }
}

/// A loss of an output by itself, and its gradient with respect to the output.
#[pyfunction]
#[pyo3(signature = (loss, output, target, weight, label_smoothing, class_weight))]
pub fn loss_and_gradient(
    py: Python<'_>,
    loss: &str,
    output: &Bound<'_, PyAny>,
    target: &Bound<'_, PyAny>,
    weight: Option<Vec<f64>>,
    label_smoothing: f64,
    class_weight: Option<Vec<f64>>,
) -> PyResult<(f64, Py<PyAny>)> {
    if let Ok(engine::OwnLossConfig::Expression(text)) = from_json(loss) {
        let output = crate::arrays::RealArray::borrow(output)?;
        let target = crate::arrays::TargetArray::borrow(target)?;
        let (output, target) = (output.view()?, target.view()?);
        let made = detached(py, move || {
            engine::expression_loss_and_gradient(&text, output, &target, weight.as_deref())
        });
        let (value, gradient) = made?;
        return Ok((value, to_numpy(py, gradient)?));
    }
    let loss: engine::LossConfig = from_json(loss)?;
    let output = crate::arrays::RealArray::borrow(output)?;
    let target = crate::arrays::TargetArray::borrow(target)?;
    let (output, target) = (output.view()?, target.view()?);
    let options = engine::LossOptions { label_smoothing, class_weight };
    let (value, gradient) =
        detached(py, move || engine::loss_and_gradient(loss, output, &target, weight.as_deref(), &options))?;
    Ok((value, to_numpy(py, gradient)?))
}

/// The mean of an expression over all elements of outputs and targets.
#[pyfunction]
pub fn expression_mean(
    py: Python<'_>,
    expression: &str,
    output: &Bound<'_, PyAny>,
    target: &Bound<'_, PyAny>,
) -> PyResult<f64> {
    let output = crate::arrays::RealArray::borrow(output)?;
    let target = crate::arrays::TargetArray::borrow(target)?;
    let (output, target) = (output.view()?, target.view()?);
    detached(py, move || engine::expression_mean(expression, output, &target))
}

/// Refuses a text that is no expression of outputs and targets.
#[pyfunction]
pub fn check_expression(expression: &str) -> PyResult<()> {
    engine::check_expression(expression).map_err(exception)
}
