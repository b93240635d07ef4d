//! Lowers a whole training step: the network, its loss, and what the trainer does with gradients.

use super::TrainingConfig;
use super::clip::{Clips, Updates, lower_clip, lower_foresight, lower_updates};
use super::loss::{LossOptions, loss_op};
use super::outputs::{self, AbsorbedBy};
use super::own_loss::Wanted;
use super::penalize::lower_penalties;
use super::plan::{Plan, top_layer};
use super::tween::{self, LoweredLoss, meaning};
use super::watch::Watching;
use super::weighing::Weighing;
use crate::Result;
use crate::layers::class_extents;
use crate::network::{Backward, Lowered, Mode, Network, Observe};
use crate::ops::Loss;
use crate::program::{Builder, Kind, Phase, Program, Rewrites, Value};
use crate::tensor::Shape;

/// Lowers the loss after the network, absorbed by its last layer, or the last of each named output, where that can be.
///
/// `class_targets` says whether targets are class indices; of named outputs, whether those whose losses take classes
/// are told indices. Returns the loss operation and who has absorbed it.
pub(super) fn lower_loss(
    network: &Network,
    b: &mut Builder,
    lowered: &Lowered,
    config: &TrainingConfig,
    class_targets: bool,
    weighing: Weighing,
    gradient: bool,
) -> Result<(Loss, AbsorbedBy)> {
    if !network.named_outputs().is_empty() {
        let (op, outputs) = outputs::lower(network, b, lowered, config, weighing, (class_targets, gradient))?;
        return Ok((op, AbsorbedBy { last: false, outputs }));
    }
    b.set_phase(Phase::Loss);
    if let Some(own) = &config.own_loss {
        let shape = b.shape(lowered.output).clone();
        let target = if class_targets {
            let (outer, _, inner) = class_extents(&shape);
            b.input("target", Shape::from(outer * inner), Kind::Index)
        } else {
            b.input("target", shape, Kind::Real)
        };
        b.ports.target = Some(target);
        let weights = weighing.count();
        let weight = (weights > 0).then(|| b.input("weight", Shape::from(weights), Kind::Real));
        b.ports.sample_weight = weight;
        let scaled = gradient && network.scales_loss();
        let made = own.lower(b, lowered.output, target, Wanted { weight, weighing, gradient, scaled })?;
        b.ports.row_losses = Some(made.row_losses);
        b.ports.output_gradient = made.output_gradient;
        return Ok((made.op, AbsorbedBy::default()));
    }
    let absorbed = network.absorb_loss(&config.loss.0);
    let (function, scores) = match absorbed {
        Some(function) => (function, lowered.last_input()),
        None => (config.loss.0, lowered.output),
    };
    let shape = b.shape(scores).clone();
    let options =
        LossOptions { label_smoothing: config.label_smoothing, class_weight: config.class_weight.clone() };
    let mut op = loss_op(function, &shape, class_targets, weighing, &options, gradient)?;
    op.scaled = gradient && network.scales_loss();
    let target = if class_targets {
        b.input("target", Shape::from(op.outer * op.inner), Kind::Index)
    } else {
        b.input("target", shape.clone(), Kind::Real)
    };
    b.ports.target = Some(target);
    let mut reads = vec![scores, target];
    if op.weights() > 0 {
        let weight = b.input("weight", Shape::from(op.weights()), Kind::Real);
        b.ports.sample_weight = Some(weight);
        reads.push(weight);
    }
    let (row_losses, output_gradient) = b.apply_loss(op.clone(), &reads, shape);
    b.ports.row_losses = Some(row_losses);
    b.ports.output_gradient = output_gradient;
    Ok((op, AbsorbedBy { last: absorbed.is_some(), ..AbsorbedBy::default() }))
}

/// A training program, and its loss.
pub(super) fn compile(
    network: &Network,
    config: &TrainingConfig,
    plan: Plan,
    looking: Mode,
) -> Result<(Program, Loss)> {
    let mut b = Builder::new(network.precision());
    b.saved_activations = config.saved_activations;
    let mode = Mode { training: true, apart: plan.apart, ..looking };
    let lowered = Lowered::forward(network, &mut b, mode)?;
    let classes = plan.class_targets || plan.labelled;
    let (op, absorbed) = lower_loss(network, &mut b, &lowered, config, classes, plan.weighing, true)?;
    let gradient = b.ports.output_gradient;
    match (&config.tween, gradient) {
        (Some(tween), Some(gradient)) => {
            let loss = LoweredLoss { op: op.clone(), absorbed, gradient };
            tween::lower(network, &mut b, &lowered, config, tween, &loss, plan)?;
        }
        _ => lower_backprop(network, &mut b, &lowered, config, (&op, &absorbed), plan)?,
    }
    // A gradient that goes straight into its update cannot wait for those of other batches; and it
    // saves memory traffic on a CPU, where a GPU rather makes all updates at once.
    let update = network.rewrites.update && !plan.accumulates && network.device().is_host();
    let rewrites = Rewrites { update, ..network.rewrites };
    Ok((b.finish(plan.capacity, &rewrites)?, op))
}

/// Lowers everything that comes after the loss in backpropagation.
fn lower_backprop(
    network: &Network,
    b: &mut Builder,
    lowered: &Lowered,
    config: &TrainingConfig,
    (op, absorbed): (&Loss, &AbsorbedBy),
    plan: Plan,
) -> Result<()> {
    let mut watching = match &config.watch {
        Some(watch) => Some(Watching::new(network, watch, false)?.over_real_steps(network, lowered)),
        None => None,
    };
    if let Some(gradient) = b.ports.output_gradient {
        let top = top_layer(network, absorbed.last);
        if let Some(watching) = &watching {
            watching.ask_inside(b);
        }
        let mut observe = |b: &mut Builder, layer: usize, gradient: Value| {
            if let Some(watching) = watching.as_mut().filter(|_| layer < top) {
                watching.gradient(b, lowered, layer, gradient);
            }
        };
        let watches = config.watch.is_some();
        let observe: Option<Observe<'_>> = if watches { Some(&mut observe) } else { None };
        let of_outputs = b.ports.output_gradients.clone();
        let wanted = Backward {
            skips_last: absorbed.last,
            observe,
            of_outputs,
            absorbed: absorbed.layers(),
            ..Backward::default()
        };
        b.cells = watches.then(Vec::new);
        lowered.backward(network, b, gradient, wanted)?;
        if let Some(watching) = &mut watching {
            let term = watching.target_term();
            watching.cells(b, network, term);
            watching.inside(b, term);
            // Where the last layer has absorbed the loss, the one below it means the same; where links arrive
            // behind the last layer, or there are several outputs, none does.
            let meaning_it = top..lowered.layers.len();
            if !meaning_it.is_empty() {
                let meant = meaning(b, op, absorbed.last, lowered.output)?;
                meaning_it.for_each(|layer| watching.target(b, lowered, layer, meant));
            }
            for (layer, meant) in absorbed.meanings(b) {
                watching.target(b, lowered, layer, meant);
            }
        }
    }
    if let Some(watching) = &mut watching {
        watching.collect(b, lowered, true, plan.accumulates);
    }
    lower_penalties(network, b, config)?;
    lower_clip(network, b, Clips::of(config), network.scales_loss())?;
    if let Some(watching) = &watching {
        watching.judge(b)?;
    }
    let updates = Updates {
        depth_scale: config.depth_scale,
        watching: watching.as_ref(),
        ..Updates::new(&config.optimizer)
    };
    lower_foresight(network, b, &updates)?;
    lower_updates(network, b, &updates)
}
