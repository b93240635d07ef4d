//! What a training makes sure of before its first step: gradients, moments, examples that fit.

use super::loss::{LossOptions, loss_op};
use super::metrics::ClassAxis;
use super::outputs::TargetRow;
use super::plan::top_layer;
use super::tween::{TargetMode, feedback};
use super::weighing::Weighing;
use super::{Examples, OnNonFinite, OwnLossConfig, Targets, TrainingConfig, outputs, watch};
use crate::layers::class_extents;
use crate::network::{Measures, Network};
use crate::ops::loss::validate_targets;
use crate::ops::update::Optimizer;
use crate::state::{Notes, OptimizerState};
use crate::tensor::{Elements, Shape};
use crate::{Error, Result};

/// Makes gradients and moments ready; fresh ones unless resuming.
pub(crate) fn prepare_state(network: &mut Network, config: &TrainingConfig, resume: bool) -> Result<()> {
    // What a device alone has is of the training before.
    network.synchronize()?;
    if let Some(tween) = &config.tween {
        if tween.mode != TargetMode::ChainRule {
            let what = format!(
                "{} passes targets back from one output through one layer after another, and",
                tween.mode.name()
            );
            network.check_single(&what, "; use chain_rule, whose targets follow gradients")?;
        }
        network.check_fixed("learning by targets")?;
        network.check_no_adapters("learning by targets")?;
    }
    let element = network.precision().size();
    let rule = config.rule();
    let slots = rule.slots().len();
    if let Some(tween) = &config.tween {
        let absorbed = network.absorb_loss(&config.loss.0).is_some();
        feedback::prepare(network, tween, top_layer(network, absorbed))?;
    }
    let to_split = network.registry.to_split.take();
    if resume && network.registry.owned.is_some() && to_split.is_none() {
        return Err(Error::State(
            "each process holds a part of the optimizer's moments alone, since a training has ended early or layers \
             have changed within it; load its newest state, or train without resume"
                .into(),
        ));
    }
    if resume {
        if network.optimizer_state.lacks_its_past() {
            return Err(Error::State(
                "there is nothing to resume: the network came from a file without training state; save with \
                 optimizer=True (in Rust SaveOptions::resumable()) what is to be resumed, or train without \
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
        // Trainers that are under way have to make sure of theirs.
        network.revision += 1;
        network.optimizer_state = OptimizerState { optimizer: rule.clone(), ..OptimizerState::default() };
        network.notes = Notes::default();
    }
    network.passes.newest = None;
    if let Some((rank, ranks, gradients)) = to_split {
        network.split_moments(rank, ranks);
        network.registry.splits_gradients = gradients;
    }
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
    let inside = watch::inside(network, watch.depth)?;
    let names: Vec<String> = inside.into_iter().map(|(_, name)| name).collect();
    watch::prepare(network, &rules, names.len(), watch.explosion.is_some(), !resume)?;
    let layers = network.layers().count();
    if !resume || network.measures.layers != layers || network.measures.inner != names {
        network.measures = Measures::new(layers, names);
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
    let of_outputs = TargetRow::of(network, config, &examples.target)?;
    let row = of_outputs.map(|row| Shape::from(row.total));
    let mut weights: Vec<usize> = [network.output_steps(), network.output_weights()]
        .iter()
        .filter(|counts| !counts.is_empty())
        .map(|counts| counts.iter().sum())
        .collect();
    weights.dedup();
    examples.check(&network.row_shape(), row.as_ref().unwrap_or(output), &weights, classes, finite)?;
    // An epoch's order is kept as numbers of 32 bits.
    if u32::try_from(examples.rows()).is_err() {
        let rows = examples.rows();
        return Err(Error::Value(format!("{rows} rows are more than an epoch holds, which is {}", u32::MAX)));
    }
    network.check_indices(&examples.input)?;
    if let Some(row) = of_outputs {
        return outputs::check(network, config, row, &examples.target);
    }
    let options =
        LossOptions { label_smoothing: config.label_smoothing, class_weight: config.class_weight.clone() };
    let absorbed = network.absorb_loss(&config.loss.0);
    let op = loss_op(absorbed.unwrap_or(config.loss.0), output, classes, Weighing::None, &options, false)?;
    match (&examples.target, classes) {
        (Targets::Classes { .. }, true) if matches!(config.own_loss, Some(OwnLossConfig::Labelled(_))) => {
            Ok(())
        }
        (Targets::Classes { labels, .. }, true) => validate_targets::<f32>(&op, &[], &[], labels),
        (Targets::Real(view), _) if finite => match view.elements() {
            Elements::Float32(targets) => validate_targets::<f32>(&op, &[], targets, &[]),
            Elements::Float64(targets) => validate_targets::<f64>(&op, &[], targets, &[]),
        },
        _ => Ok(()),
    }
}

/// The metrics' class axis for outputs of this shape under the config's loss.
///
/// # Errors
/// [`Error::Value`] for a metric that cannot be of such outputs.
pub(super) fn class_axis(output: &Shape, config: &TrainingConfig) -> Result<ClassAxis> {
    let (_, classes, inner) = class_extents(output);
    let zero = config.loss.0.decides_at_zero();
    let axis =
        ClassAxis { classes, inner, threshold: if zero { 0.0 } else { 0.5 }, labels: zero && classes > 1 };
    config.metrics.iter().try_for_each(|metric| metric.check(axis))?;
    Ok(axis)
}
