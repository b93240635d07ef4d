//! The manual loop: forward with history, backward, clip, apply.

use super::clip::{Clips, Updates, lower_clip, lower_foresight, lower_scale, lower_update};
use super::landing::{count_update, land};
use super::states::take_on_states;
use crate::network::{History, Mode, Network, ProgramKey, check_rows};
use crate::ops::StepValues;
use crate::ops::update::Optimizer;
use crate::precision::in_precision;
use crate::program::{Access, Builder, Kind, LayerPath, Phase, Place, Ports, Program, Rewrites, Value};
use crate::simd::Real;
use crate::state::Registry;
use crate::tensor::{Precision, Shape, Tensor, TensorView, check_finite};
use crate::{Error, Result, extents};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a forward pass with history returns.
#[derive(Clone, Debug)]
pub struct ManualStep {
    /// The network's output.
    pub output: Tensor,
    /// How long the pass took.
    pub duration: Duration,
}

/// A layer's gradient in figures, over all its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientStatistics {
    /// The layer.
    pub path: LayerPath,
    /// Its kind.
    pub kind: &'static str,
    /// The smallest element.
    pub min: f64,
    /// The largest element.
    pub max: f64,
    /// The mean of all elements.
    pub mean: f64,
    /// The L2 norm.
    pub norm: f64,
    /// The norm is below 1e-7.
    pub vanishing: bool,
    /// The norm is above 1e3 or not finite.
    pub exploding: bool,
}

/// Below this norm a layer's gradient counts as vanishing.
const VANISHING_NORM: f64 = 1e-7;
/// Above this norm a layer's gradient counts as exploding.
const EXPLODING_NORM: f64 = 1e3;

impl Network {
    /// A training forward pass: dropout on, history kept for [`backward`](Network::backward) and for
    /// [`layer_value`](Network::layer_value).
    ///
    /// Dropout and Gumbel noise are drawn anew in every pass, keyed by the seed, the committed step and the
    /// passes since: a saved network goes on with the draws that it would have made. Passes that are gone back
    /// through one after the other before [`apply_gradients`](Network::apply_gradients) draw as the parts of
    /// one batch, which is how [`train`](crate::train::train) accumulates.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Value`] and [`Error::NonFinite`] for input that does not fit.
    pub fn forward(&mut self, input: TensorView<'_>) -> Result<ManualStep> {
        self.forward_in(&input, Mode { training: true, ..Mode::default() })
    }

    /// A forward pass as [`predict`](Network::predict) makes it, which draws nothing and moves nothing, with
    /// history kept for [`layer_value`](Network::layer_value), and for [`backward`](Network::backward): the
    /// gradients are those of what was computed, dropout off and running statistics fixed.
    ///
    /// All rows go through the network at once, and whatever layers make of them is kept.
    ///
    /// # Errors
    /// As [`forward`](Network::forward).
    pub fn forward_inference(&mut self, input: TensorView<'_>) -> Result<ManualStep> {
        self.forward_in(&input, Mode::default())
    }

    /// [`forward`](Network::forward), or [`forward_inference`](Network::forward_inference), after which
    /// [`backward`](Network::backward) keeps the gradient of what every layer read for
    /// [`value_at`](Network::value_at).
    ///
    /// # Errors
    /// As `forward`.
    pub fn forward_keeping_gradients(&mut self, input: TensorView<'_>, training: bool) -> Result<ManualStep> {
        self.forward_in(&input, Mode { training, keeps_input_gradients: true, ..Mode::default() })
    }

    fn forward_in(&mut self, input: &TensorView<'_>, mode: Mode) -> Result<ManualStep> {
        self.build()?;
        if mode.training {
            self.thaw_trained()?;
        }
        self.check_input(input)?;
        in_precision!(self.precision, T => self.forward_rows::<T>(input, mode))
    }

    fn forward_rows<T: Real>(&mut self, input: &TensorView<'_>, mode: Mode) -> Result<ManualStep> {
        let mode = Mode { keeps: true, pin_layers: true, looks_inside: true, ..mode };
        let training = mode.training;
        let key =
            ProgramKey { backward: true, ..ProgramKey::forward(mode, input.rows().next_power_of_two()) };
        let started = Instant::now();
        let mut run = match self.passes.newest.take() {
            Some(history) if history.key == key => history.run,
            _ => self.programs.lease(&key, &self.device, || self.compile(&key))?,
        };
        if training {
            self.prepare_carried([input.rows()])?;
        }
        run.rows = input.rows();
        run.epoch = self.registry.epoch();
        if let Some(port) = run.program().ports().input {
            input.copy_to(run.write::<T>(port));
        }
        let values = self.manual_values();
        self.keep_back()?;
        let access = Access::Exclusive(&mut self.registry);
        run.execute(access, Phase::Forward..=Phase::Forward, &values)?;
        // Running statistics see every training pass, as elsewhere.
        if let Some(fault) = take_on_states(self, &mut run, &values)? {
            return Err(fault.error_of_call());
        }
        let pass = self.passes.note();
        if training {
            self.registry.begin_carrying();
            self.optimizer_state.forwards += 1;
        }
        // Whatever may be looked at until the next pass.
        let ports = run.program().ports();
        let layers = ports.layers.iter().flat_map(|(_, layer)| {
            [Some(layer.input), layer.preactivation, Some(layer.output)].into_iter().flatten()
        });
        let looked_at: Vec<Value> = ports.output.into_iter().chain(layers).collect();
        run.fetch(&looked_at)?;
        let mut shape = vec![input.rows()];
        shape.extend_from_slice(self.output_shape());
        let output = match run.program().ports().output {
            Some(port) => extents::copied(run.read::<T>(port))?,
            None => Vec::new(),
        };
        let states_moved = false;
        self.passes.newest = Some(History { key, run, values, pass, states_moved, gradient_scale: None });
        Ok(ManualStep { output: Tensor::new(shape, output)?, duration: started.elapsed() })
    }

    fn manual_values(&self) -> StepValues {
        let state = &self.optimizer_state;
        StepValues {
            seed: self.seed,
            step: state.step,
            forwards: state.forwards,
            row_offset: state.manual_rows,
            optimizer_step: state.updates + 1,
            gradients_zeroed: self.registry.gradients_zeroed,
            ..StepValues::default()
        }
    }

    /// Gradients of a loss whose gradient with respect to the newest forward pass's output is
    /// given: adds to the parameters' gradients and returns that of the input.
    ///
    /// # Errors
    /// [`Error::State`] without a forward pass, or when weights, or the running statistics that it read,
    /// have moved since; [`Error::Shape`] and [`Error::NonFinite`] for a gradient that does not fit.
    pub fn backward(&mut self, gradient: TensorView<'_>) -> Result<Tensor> {
        let Some(history) = self.passes.newest.as_ref() else { return Err(no_history()) };
        let run = &history.run;
        if history.states_moved && !history.key.mode.training {
            return Err(Error::State(
                "what layers keep has moved since the forward pass; run forward again before backward".into(),
            ));
        }
        if run.epoch != self.registry.epoch() {
            return Err(Error::State(
                "the weights have moved since the forward pass; run forward again before backward".into(),
            ));
        }
        check_rows(&gradient, self.output_shape(), "gradient")?;
        if gradient.rows() != run.rows {
            return Err(Error::Shape(format!(
                "gradient has {} rows, the forward pass had {}",
                gradient.rows(),
                run.rows
            )));
        }
        check_finite(&gradient, "gradient")?;
        in_precision!(self.precision, T => self.backward_rows::<T>(&gradient))
    }

    fn backward_rows<T: Real>(&mut self, gradient: &TensorView<'_>) -> Result<Tensor> {
        self.registry.prepare_gradients(size_of::<T>())?;
        let row = self.row_shape();
        // Gradients are scaled only while they are computed: what is there already is so in between, too.
        let scale = self.loss_scale().map_or(1.0, |now| f64::from(now.scale));
        if !self.registry.gradients_zeroed {
            self.scale_gradients(scale)?;
        }
        let Some(History { run, values, key, gradient_scale, .. }) = self.passes.newest.as_mut() else {
            return Err(no_history());
        };
        *gradient_scale = None;
        let written = written_stores(run.program());
        self.registry.settle_gradients(|store| written.contains(&store));
        let values = StepValues { gradients_zeroed: self.registry.gradients_zeroed, ..values.clone() };
        let training = key.mode.training;
        let &Ports { output_gradient, input_gradient, .. } = run.program().ports();
        if let Some(port) = output_gradient {
            let scaled = run.write::<T>(port);
            gradient.copy_to(scaled);
            if scale != 1.0 {
                scaled.iter_mut().for_each(|g| *g *= T::from_f64(scale));
            }
        }
        let access = Access::Exclusive(&mut self.registry);
        run.execute(access, Phase::Loss..=Phase::Exchange, &values)?;
        run.fetch(input_gradient.as_slice())?;
        *gradient_scale = Some(scale);
        self.registry.gradients_zeroed = false;
        let mut shape = vec![gradient.rows()];
        shape.extend_from_slice(&row);
        let elements = match input_gradient {
            Some(port) if scale == 1.0 => extents::copied(run.read::<T>(port))?,
            Some(port) => run.read::<T>(port).iter().map(|g| *g * T::from_f64(1.0 / scale)).collect(),
            None => extents::zeros(extents::product(&shape))?,
        };
        self.scale_gradients(1.0 / scale)?;
        let state = &mut self.optimizer_state;
        if training && state.step == values.step {
            // The rows that come next are others, so that they may have the same key.
            state.manual_rows += gradient.rows() as u64;
            state.forwards = values.forwards;
        }
        Tensor::new(shape, elements)
    }

    /// Multiplies all gradients by a power of two, in a mixed network on a GPU.
    pub(crate) fn scale_gradients(&mut self, factor: f64) -> Result<()> {
        if factor == 1.0 {
            return Ok(());
        }
        let mut b = Builder::new(self.precision);
        b.set_phase(Phase::Verdict);
        let port = b.input("factor", Shape::from(2), Kind::Real);
        lower_scale(self, &mut b, port);
        let mut run = self.device.run(Arc::new(b.finish(1, &Rewrites::default())?))?;
        run.rows = 1;
        run.write::<f32>(port).copy_from_slice(&[0.0, factor as f32]);
        let access = Access::Exclusive(&mut self.registry);
        run.execute(access, Phase::Verdict..=Phase::Verdict, &StepValues::default())
    }

    /// Forgets all moments. With them the optimizer starts anew: whoever counted its updates on would correct moments
    /// that are gone, and a file would be said to hold them.
    pub(crate) fn restart_optimizer(&mut self) {
        self.registry.clear_moments();
        self.optimizer_state.updates = 0;
    }

    /// Chooses the rule that [`apply_gradients`](Network::apply_gradients) follows, with fresh moments.
    ///
    /// # Errors
    /// [`Error::Value`] for parameters out of range.
    pub fn set_optimizer(&mut self, optimizer: Optimizer) -> Result<()> {
        optimizer.validate()?;
        self.synchronize()?;
        self.restart_optimizer();
        self.optimizer_state.optimizer = optimizer;
        // Trainers that are under way have to make moments anew.
        self.revision += 1;
        Ok(())
    }

    /// Scales all gradients together by `max_norm` / norm where their global L2 norm exceeds
    /// `max_norm`; returns the norm before.
    ///
    /// # Errors
    /// [`Error::Value`] for a limit that is not above zero, [`Error::State`] without gradients,
    /// [`Error::NonFinite`] where the norm is infinite or NaN (gradients stay as they are), unless that
    /// may be for the loss scale, which the next [`apply_gradients`](Network::apply_gradients) will halve.
    pub fn clip_gradients(&mut self, max_norm: f64) -> Result<f64> {
        if max_norm.is_nan() || max_norm <= 0.0 {
            return Err(Error::Value(format!("max_norm must be above 0, got {max_norm}")));
        }
        check_gradients(&self.registry, "clip_gradients")?;
        let values = StepValues { max_norm, ..self.manual_values() };
        let norm = gradient_norm(self, &values)?;
        match norm {
            Some(norm) if norm.is_finite() || self.may_skip() => Ok(norm),
            Some(norm) => Err(Error::NonFinite(format!(
                "the global gradient norm is {norm}; call gradient_stats() for the layer, then zero_gradients()"
            ))),
            None => Ok(0.0),
        }
    }

    /// Updates every trainable parameter from its gradient at this learning rate, then clears the gradients.
    ///
    /// In a mixed network on a GPU, gradients that are not finite are cleared without an update, and the
    /// loss scale is halved; see [`loss_scale`](Network::loss_scale), which counts such steps.
    ///
    /// # Errors
    /// [`Error::Value`] for a rate that is negative or not finite, [`Error::State`] without
    /// gradients or where a master was dropped, [`Error::NonFinite`] where anything would become infinite
    /// or NaN: weights, moments and packed versions are then as before, and the gradients are still there.
    pub fn apply_gradients(&mut self, rate: f64) -> Result<()> {
        if !(rate.is_finite() && rate >= 0.0) {
            return Err(Error::Value(format!("the learning rate must be finite and at least 0, got {rate}")));
        }
        check_gradients(&self.registry, "apply_gradients")?;
        let values = self.manual_values();
        if self.scales_loss() && !gradient_norm(self, &values)?.is_none_or(f64::is_finite) {
            if !self.may_skip() {
                return Err(Error::NonFinite(
                    "the gradients hold NaN or infinity though the loss is not scaled; call gradient_stats() for \
                     the layer, then zero_gradients()"
                        .into(),
                ));
            }
            self.optimizer_state.loss_scale.note_skipped_step();
            self.zero_gradients();
            self.optimizer_state.count_step();
            return Ok(());
        }
        self.keep_back()?;
        let optimizer = self.optimizer_state.optimizer.clone();
        self.registry.prepare_moments(optimizer.slots().len(), self.precision.size())?;
        let values = StepValues { rate, ..self.manual_values() };
        let mut b = Builder::new(self.precision);
        lower_foresight(self, &mut b, &Updates::new(&optimizer))?;
        lower_update(self, &mut b, &optimizer)?;
        let mut run = self.device.run(Arc::new(b.finish(1, &Rewrites::default())?))?;
        run.rows = 1;
        run.execute(Access::Exclusive(&mut self.registry), Phase::Verdict..=Phase::Verdict, &values)?;
        let landed = land(self, &mut run, &values);
        if landed.is_err() {
            self.mend();
        }
        if let Some(fault) = landed? {
            return Err(fault.error_of_update());
        }
        self.registry.gradients_zeroed = true;
        count_update(self);
        Ok(())
    }

    /// Whether gradients that are not finite may be the loss scale's fault.
    fn may_skip(&self) -> bool {
        self.loss_scale().is_some_and(|now| now.may_be_too_large())
    }

    /// Forgets all gradients.
    pub fn zero_gradients(&mut self) {
        self.registry.gradients_zeroed = true;
        self.optimizer_state.pass_rows_again();
    }

    /// Each trainable layer's gradient in figures.
    ///
    /// # Errors
    /// [`Error::State`] without gradients.
    pub fn gradient_statistics(&self) -> Result<Vec<GradientStatistics>> {
        check_gradients(&self.registry, "gradient_stats")?;
        self.trained_stores()
            .map(|(store, placed)| {
                let gradient = gradient_elements(self, store)?;
                let count = gradient.len().max(1) as f64;
                let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
                Ok(GradientStatistics {
                    path: placed.path.clone(),
                    kind: placed.layer.kind(),
                    min: gradient.iter().copied().fold(f64::INFINITY, f64::min),
                    max: gradient.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    mean: gradient.iter().sum::<f64>() / count,
                    norm,
                    vanishing: norm < VANISHING_NORM,
                    exploding: !norm.is_finite() || norm > EXPLODING_NORM,
                })
            })
            .collect()
    }
}

fn check_gradients(registry: &Registry, call: &str) -> Result<()> {
    if registry.gradients_zeroed || registry.gradients.is_empty() {
        return Err(Error::State(format!("{call} needs gradients; call backward first")));
    }
    Ok(())
}

/// The stores whose gradients a program writes: not those of layers that are frozen.
fn written_stores(program: &Program) -> HashSet<usize> {
    let written = program.steps().iter().flat_map(|step| &step.writes);
    let store = |value: &Value| match program.value(program.owner(*value)).place {
        Place::Gradient(parameter) => Some(parameter.store),
        _ => None,
    };
    written.filter_map(store).collect()
}

/// The norm of all gradients, where there are any, which are scaled so that it is at most `max_norm`.
fn gradient_norm(network: &mut Network, values: &StepValues) -> Result<Option<f64>> {
    let mut b = Builder::new(network.precision);
    lower_clip(network, &mut b, Clips::NORM, false)?;
    let mut run = network.device.run(Arc::new(b.finish(1, &Rewrites::default())?))?;
    let norm = run.program().ports().gradient_norm;
    run.execute(Access::Exclusive(&mut network.registry), Phase::Verdict..=Phase::Verdict, values)?;
    run.fetch(norm.as_slice())?;
    Ok(norm.map(|port| match network.precision {
        Precision::Float32 | Precision::Mixed => f64::from(run.read::<f32>(port)[0]),
        Precision::Float64 => run.read::<f64>(port)[0],
    }))
}

/// A store's gradient without the padding between parameters.
fn gradient_elements(network: &Network, store: usize) -> Result<Vec<f64>> {
    let gradient = network.registry.gradient(store)?;
    let flat: Vec<f64> = match network.precision {
        Precision::Float32 | Precision::Mixed => {
            gradient.as_slice::<f32>().iter().map(|g| f64::from(*g)).collect()
        }
        Precision::Float64 => gradient.as_slice::<f64>().to_vec(),
    };
    let parameters = network.registry.stores[store].parameters().iter();
    Ok(parameters.flat_map(|info| flat[info.offset..info.offset + info.len()].iter().copied()).collect())
}

fn no_history() -> Error {
    Error::State("backward needs a forward pass before it; call forward first".into())
}
