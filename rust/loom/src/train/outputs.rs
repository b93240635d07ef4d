//! The losses of several named outputs, which add up to one.
//!
//! Targets come as one row of numbers like the outputs: classes as rows of one number a class.

use super::loss::{LossOptions, loss_op};
use super::weighing::Weighing;
use super::{OutputLoss, Targets, TrainingConfig};
use crate::error::in_context;
use crate::network::{Lowered, NamedOutput, Network};
use crate::ops::loss::validate_targets;
use crate::ops::{Loss, LossFunction, Scale};
use crate::program::{Builder, Kind, Phase, Value};
use crate::tensor::{Elements, Shape, TensorView};
use crate::{Error, Result};
use std::ops::Range;

/// Lowers the loss of every output, and their weighted sum. Returns what the sum is divided by, as the loss of a
/// whole row of outputs.
pub(super) fn lower(
    network: &Network,
    b: &mut Builder,
    lowered: &Lowered,
    config: &TrainingConfig,
    weighing: Weighing,
    gradient: bool,
) -> Result<Loss> {
    b.set_phase(Phase::Loss);
    let all = losses(network, config, weighing, gradient)?;
    let total = network.output_shape().len();
    let targets = b.input("target", Shape::from(total), Kind::Real);
    b.ports.target = Some(targets);
    let weight = (weighing != Weighing::None).then(|| b.input("weight", Shape::from(1), Kind::Real));
    b.ports.sample_weight = weight;
    let (mut rows, mut gradients) = (Vec::new(), Vec::new());
    for (output, OutputOp { op, place, shape, factor }) in lowered.outputs.iter().zip(all) {
        let target = crate::network::slice(b, targets, total, &place, shape.clone());
        let reads: Vec<Value> = [*output, target].into_iter().chain(weight).collect();
        let (losses, gradient) = b.apply_loss(op, &reads, shape.clone());
        rows.push(b.apply(Scale { factor }, &[losses], "row losses", Shape::from(1)));
        if let Some(gradient) = gradient {
            gradients.push(b.apply(Scale { factor }, &[gradient], "gradient", shape));
        }
    }
    let sum = b.sum(&rows).ok_or_else(|| Error::Internal("a network has no output".into()))?;
    b.ports.row_losses = Some(sum);
    b.ports.output_gradient = gradients.first().copied();
    b.ports.output_gradients = gradients;
    whole(network, weighing, gradient)
}

/// One output's loss.
struct OutputOp {
    op: Loss,
    place: Range<usize>,
    shape: Shape,
    /// What the sum of its rows' losses is multiplied by, so that divided as that of the whole row it is the
    /// mean, times the weight.
    factor: f64,
}

fn losses(
    network: &Network,
    config: &TrainingConfig,
    weighing: Weighing,
    gradient: bool,
) -> Result<Vec<OutputOp>> {
    let names = network.named_outputs();
    if config.outputs.len() != names.len() {
        return Err(Error::Value(format!(
            "the network has {} named outputs; give each a loss, got {}",
            names.len(),
            config.outputs.len()
        )));
    }
    if config.tween.is_some() {
        return Err(Error::Value(
            "learning by targets takes a network with one output: what a target means for several is not defined; \
             train it by backpropagation"
                .into(),
        ));
    }
    if config.watch.is_some() {
        return Err(Error::Value(
            "observe measures layers towards one output, and the network has several".into(),
        ));
    }
    if config.class_weight.is_some() {
        return Err(Error::Value(
            "class_weight is of one output's classes, and the network has named outputs; weigh the rows instead".into(),
        ));
    }
    if weighing == Weighing::Steps {
        return Err(Error::Value(
            "the network has named outputs, whose rows have a weight each, not one for every step".into(),
        ));
    }
    let total = network.output_shape().len();
    let places = network.output_places().into_iter().zip(network.named_output_shapes());
    type Given<'a> = ((&'a OutputLoss, (Range<usize>, Shape)), &'a NamedOutput);
    let one = |((OutputLoss { loss, weight }, (place, shape)), named): Given<'_>| {
        let smoothing = if loss.takes_classes() { config.label_smoothing } else { 0.0 };
        let options = LossOptions { label_smoothing: smoothing, class_weight: None };
        let mut op = loss_op(loss.0, &shape, false, weighing, &options, gradient)
            .map_err(|error| in_context(&format!("output \"{}\"", named.name), error))?;
        op.scaled = gradient && network.scales_loss();
        let counted = if loss.0.is_over_classes() { op.outer * op.inner } else { shape.len() };
        let factor = weight * total as f64 / counted as f64;
        Ok(OutputOp { op, place, shape, factor })
    };
    config.outputs.iter().zip(places).zip(names).map(one).collect()
}

/// The loss whose divisor counts as that of a whole row does.
pub(super) fn whole(network: &Network, weighing: Weighing, gradient: bool) -> Result<Loss> {
    let shape = network.output_shape();
    loss_op(LossFunction::MeanSquaredError, shape, false, weighing, &LossOptions::default(), gradient)
}

/// Checks that every output's part of the targets is what its loss takes.
pub(super) fn check(network: &Network, config: &TrainingConfig, targets: &Targets<'_>) -> Result<()> {
    let Targets::Real(view) = targets else { return Ok(()) };
    for (output, named) in losses(network, config, Weighing::None, false)?.iter().zip(network.named_outputs())
    {
        check_part(view, network.output_shape().len(), output)
            .map_err(|error| in_context(&format!("output \"{}\"", named.name), error))?;
    }
    Ok(())
}

fn check_part(view: &TensorView<'_>, total: usize, OutputOp { op, place, .. }: &OutputOp) -> Result<()> {
    match view.elements() {
        Elements::Float32(x) => {
            let part: Vec<f32> = x.chunks_exact(total).flat_map(|row| row[place.clone()].to_vec()).collect();
            validate_targets::<f32>(op, &[], &part, &[])
        }
        Elements::Float64(x) => {
            let part: Vec<f64> = x.chunks_exact(total).flat_map(|row| row[place.clone()].to_vec()).collect();
            validate_targets::<f64>(op, &[], &part, &[])
        }
    }
}
