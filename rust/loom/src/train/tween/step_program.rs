//! Lowers a whole step of learning by targets.

use super::targets::Lowering;
use super::{TargetMode, TweenConfig};
use crate::layers::class_extents;
use crate::network::{Backward, FeedbackMap, Lowered, Network};
use crate::ops::pointwise::Activation;
use crate::ops::{Direction, Loss, LossFunction, Pointwise, Softmax, Update};
use crate::program::{Builder, Phase, TargetValue, Value};
use crate::train::clip::{
    Clips, Updates, exempt_parts, lower_clip, lower_look, lower_scale, lower_store_update, lower_updates,
    moved_by,
};
use crate::train::outputs::{AbsorbedBy, whole_target};
use crate::train::plan::{Plan, Turn, top_layer};
use crate::train::{TrainingConfig, Watching};
use crate::{Error, Result};

/// The loss of a program, as it has been lowered.
pub(in crate::train) struct LoweredLoss {
    pub(in crate::train) op: Loss,
    /// Which layers have absorbed it.
    pub(in crate::train) absorbed: AbsorbedBy,
    pub(in crate::train) gradient: Value,
}

/// What an output means, and its target in the same space: probabilities where the loss takes logits,
/// ones and zeros where it takes classes.
pub(in crate::train) fn meaning(
    b: &mut Builder,
    loss: &Loss,
    absorbed: bool,
    output: Value,
) -> Result<[Value; 2]> {
    let missing = || Error::Internal("a training program lacks its target".into());
    let target = b.ports.target.ok_or_else(missing)?;
    let shape = b.shape(output).clone();
    let (outer, classes, inner) = class_extents(&shape);
    let target = whole_target(b, target, &shape, loss.class_targets);
    let value = match loss.function {
        LossFunction::CrossEntropy { .. }
        | LossFunction::KullbackLeibler { .. }
        | LossFunction::Focal { .. }
            if !absorbed =>
        {
            let op = Softmax { direction: Direction::Forward, outer, classes, inner, temperature: 1.0 };
            b.apply(op, &[output], "meaning", shape)
        }
        LossFunction::BinaryCrossEntropy | LossFunction::BinaryFocal { .. } => {
            b.apply(Pointwise::forward(Activation::Sigmoid), &[output], "meaning", shape)
        }
        _ => output,
    };
    Ok([value, target])
}

/// Lowers everything that comes after the loss.
pub(in crate::train) fn lower(
    network: &Network,
    b: &mut Builder,
    lowered: &Lowered,
    config: &TrainingConfig,
    tween: &TweenConfig,
    loss: &LoweredLoss,
    plan: Plan,
) -> Result<()> {
    let turn = plan.turn;
    let gated = tween.watch.link_budget == crate::ops::measure::LinkBudget::Alignment;
    let mut watching = Watching::new(network, &tween.watch, gated)?.over_real_steps(network, lowered);
    let placed = network.layers().collect();
    let top = top_layer(network, loss.absorbed.last);
    let scaled = network.scales_loss();
    let lowering = Lowering { network, config: tween, lowered, placed, top, scaled };
    b.set_phase(Phase::Backward);
    let mut targets: Vec<Option<Value>> = vec![None; lowered.layers.len()];
    if turn != Turn::Feedback {
        lower_targets(&lowering, b, loss, &mut watching, &mut targets)?;
    }
    if turn != Turn::Forward && tween.mode.has_feedback() {
        lowering.learn_feedback(b, 0, Some(&mut watching))?;
    }
    watching.collect(b, lowered, turn != Turn::Feedback, plan.accumulates);
    lower_clip(network, b, Clips::of(config), scaled)?;
    watching.judge(b)?;
    let mut moved = Vec::new();
    if turn != Turn::Forward && tween.mode.has_feedback() {
        moved.extend(
            feedback_updates(&lowering, 0).into_iter().map(|(store, update, _)| (store, update, None)),
        );
    }
    if turn != Turn::Feedback {
        let rule = tween.rule();
        let updates = Updates {
            depth_scale: tween.depth_scale,
            repeat: [0, tween.local_steps as u32],
            ..Updates::new(&rule)
        };
        moved.extend(moved_by(network, &updates));
    }
    lower_look(network, b, moved, Some(&watching))?;
    if turn != Turn::Forward && tween.mode.has_feedback() {
        for number in 0..tween.feedback.steps {
            b.set_phase(Phase::Update);
            if number > 0 {
                b.restart_gradients();
                lowering.learn_feedback(b, number, None)?;
            }
            lower_feedback_updates(&lowering, b, &watching, number as u32);
        }
    }
    if turn != Turn::Feedback {
        lower_local_steps(&lowering, b, loss, &watching, &targets)?;
    }
    Ok(())
}

/// Makes all targets, measures them, and contributes to all parameters from each layer's own loss.
fn lower_targets(
    lowering: &Lowering<'_>,
    b: &mut Builder,
    loss: &LoweredLoss,
    watching: &mut Watching<'_>,
    targets: &mut [Option<Value>],
) -> Result<()> {
    let Lowering { network, config, lowered, top, .. } = lowering;
    let meant = meaning(b, &loss.op, loss.absorbed.last, lowered.output)?;
    let pins = !b.ports.layers.is_empty();
    if config.mode == TargetMode::ChainRule {
        let term = watching.target_term();
        let wants_values = config.local_steps > 1;
        watching.ask_inside(b);
        let mut made: Vec<(usize, Value)> = Vec::new();
        let mut observe = |b: &mut Builder, layer: usize, gradient: Value| {
            if layer < *top {
                watching.gradient(b, lowered, layer, gradient);
            }
            if layer < *top && wants_values && network.is_trained(lowering.placed[layer]) {
                targets[layer] = Some(lowering.moved(b, layer, gradient, term));
            }
            if pins {
                made.push((layer, gradient));
            }
        };
        let wanted = Backward {
            skips_last: loss.absorbed.last,
            of_outputs: b.ports.output_gradients.clone(),
            absorbed: loss.absorbed.layers(),
            observe: Some(&mut observe),
            ..Backward::default()
        };
        b.cells = Some(Vec::new());
        lowered.backward(network, b, loss.gradient, wanted)?;
        watching.cells(b, network, term);
        watching.inside(b, term);
        if pins {
            let gradients = made.iter().filter(|(layer, _)| *layer < *top);
            b.ports.targets =
                gradients.map(|(layer, value)| (*layer, TargetValue::Gradient(*value, term))).collect();
        }
    } else {
        let mut target = meant[1];
        watching.ask_inside(b);
        lowering.learn(b, *top, &lowered.layers[*top].forward, loss.gradient)?;
        let term = watching.target_term();
        watching.inside(b, term);
        b.cells = Some(Vec::new());
        for layer in (0..*top).rev() {
            target = match config.mode {
                TargetMode::Layerwise => lowering.layerwise(b, layer + 1, target)?,
                _ if layer + 1 == *top => {
                    let gradient = lowering.back(b, *top, loss.gradient)?.ok_or_else(|| {
                        Error::Internal("the last layer made no gradient of its input".into())
                    })?;
                    lowering.first_target(b, layer, gradient)
                }
                _ => lowering.difference(b, layer + 1, target)?,
            };
            watching.target(b, lowered, layer, [lowering.output(layer), target]);
            targets[layer] = Some(target);
            if network.is_trained(lowering.placed[layer]) {
                let gradient = lowering.local_gradient(b, lowering.output(layer), target);
                watching.ask_inside(b);
                lowering.learn(b, layer, &lowered.layers[layer].forward, gradient)?;
                watching.inside(b, lowering.cell_term());
            }
        }
        watching.cells(b, network, lowering.cell_term());
        if pins {
            let values = targets.iter().enumerate();
            b.ports.targets =
                values.filter_map(|(layer, value)| Some((layer, TargetValue::Value((*value)?)))).collect();
        }
    }
    // Where the last layer has absorbed the loss, the one below it means the same; where links arrive behind
    // the last layer, none does.
    for layer in *top..lowered.layers.len() {
        watching.target(b, lowered, layer, meant);
        if pins {
            b.ports.targets.push((layer, TargetValue::Value(meant[1])));
        }
    }
    for (layer, meant) in loss.absorbed.meanings(b) {
        watching.target(b, lowered, layer, meant);
    }
    b.set_layer(None);
    Ok(())
}

/// The updates of one step of all feedback maps, each with its store and its layer.
fn feedback_updates(lowering: &Lowering<'_>, number: u32) -> Vec<(usize, Update, usize)> {
    let feedback = &lowering.config.feedback;
    let update = |map: &FeedbackMap| {
        let store = &lowering.network.registry.stores[map.store];
        let placed = lowering.placed[map.of];
        let output: Vec<_> = placed.output_shape.iter().cloned().collect();
        let update = Update {
            rate: Some(feedback.rate),
            repeat: [number, feedback.steps as u32],
            offsets: store.parameters().iter().map(|parameter| parameter.offset).collect(),
            exempt: exempt_parts(&feedback.optimizer, store, &map.layer.parameters(&output)),
            ..Update::new(feedback.optimizer.clone(), store.len())
        };
        (map.store, update, map.of)
    };
    lowering.network.feedback.maps.iter().map(update).collect()
}

fn lower_feedback_updates(lowering: &Lowering<'_>, b: &mut Builder, watching: &Watching<'_>, number: u32) {
    for (store, update, layer) in feedback_updates(lowering, number) {
        b.set_layer(Some(lowering.placed[layer].path.clone()));
        lower_store_update(lowering.network, b, store, update, Some(watching), None);
    }
    b.set_layer(None);
}

/// The updates of all layers, and the steps toward the same targets after the first.
fn lower_local_steps(
    lowering: &Lowering<'_>,
    b: &mut Builder,
    loss: &LoweredLoss,
    watching: &Watching<'_>,
    targets: &[Option<Value>],
) -> Result<()> {
    let Lowering { network, config, top, .. } = lowering;
    let rule = config.rule();
    let steps = config.local_steps as u32;
    for number in 0..steps {
        if number > 0 {
            b.set_phase(Phase::Update);
            b.restart_gradients();
            for (layer, target) in targets.iter().enumerate().take(*top + 1) {
                if !network.is_trained(lowering.placed[layer]) {
                    continue;
                }
                let forward = lowering.again(b, layer, None)?;
                let gradient = match *target {
                    Some(target) => Some(lowering.local_gradient(b, forward.output, target)),
                    None if layer == *top => loss.again(b, forward.output),
                    None => None,
                };
                if let Some(gradient) = gradient {
                    lowering.learn(b, layer, &forward, gradient)?;
                }
            }
            b.set_layer(None);
            if let Some(factor) = b.ports.gradient_norm.filter(|_| lowering.scaled) {
                lower_scale(network, b, factor);
            }
        }
        let updates = Updates {
            depth_scale: config.depth_scale,
            watching: Some(watching),
            repeat: [number, steps],
            ..Updates::new(&rule)
        };
        lower_updates(network, b, &updates)?;
    }
    Ok(())
}

impl LoweredLoss {
    /// The gradient of the loss for another output of the layer that it starts from.
    fn again(&self, b: &mut Builder, output: Value) -> Option<Value> {
        let reads: Vec<Value> =
            [Some(output), b.ports.target, b.ports.sample_weight].into_iter().flatten().collect();
        let shape = b.shape(output).clone();
        b.apply_loss(self.op.clone(), &reads, shape).1
    }
}
