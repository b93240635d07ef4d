//! The programs of learning by targets that are kept for every tick of the window.

use super::tick::{Again, Tick, output_of};
use crate::Result;
use crate::layers::Want;
use crate::network::{Watch, at_layer};
use crate::ops::{Combination, Term};
use crate::program::{Builder, Phase, Program, Run, Value};
use crate::train::{TargetMode, TweenConfig, Watching};

/// How layers learn by targets that are kept for every tick of the window.
///
/// The output's last layer has a chain-rule target in every mode: it learns from the loss.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Learning {
    pub(super) mode: TargetMode,
    pub(super) watch: Watch,
    pub(super) clamp: f64,
    /// The output's last layer, by number; none where links arrive behind it.
    pub(super) output: Option<usize>,
}

impl Learning {
    /// What a tween config needs, if targets are to be kept for it; the last layer of the output by number.
    pub(super) fn of(tween: &TweenConfig, output: Option<usize>) -> Option<Self> {
        (tween.local_steps > 1 || tween.mode == TargetMode::Layerwise).then(|| Self {
            mode: tween.mode,
            watch: tween.watch.clone(),
            clamp: tween.activation_clamp,
            output,
        })
    }

    /// Whether targets are layerwise ones.
    pub(super) fn is_layerwise(&self) -> bool {
        self.mode == TargetMode::Layerwise
    }

    /// Whether a layer's own loss knows no derivatives.
    fn is_linear(&self, layer: usize) -> bool {
        self.is_layerwise() && Some(layer) != self.output
    }
}

/// Programs of single layers, for ticks that targets have reached, and of all layers.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    /// Makes every target what the layer held, the output's its chain-rule target.
    pub(super) start: Option<Run>,
    /// Hands a layer's target on to the layer before it, by layer, the last one first.
    pub(super) passes: Vec<(usize, Run)>,
    /// All layers' first step, with their measures.
    pub(super) first: Option<Run>,
    /// A layer's further steps, by layer.
    pub(super) steps: Vec<(usize, Run)>,
}

impl Tick<'_> {
    /// What lets the targets of a window start: what each layer held, and for the output that less the
    /// gradient of the loss.
    pub(super) fn start(&self, learning: &Learning) -> Result<Program> {
        let mut b = Builder::new(self.network.precision());
        b.set_phase(Phase::Forward);
        for (layer, &member) in self.targets.iter().enumerate() {
            b.set_layer(Some(self.placed(layer)?.path().clone()));
            let shape = &self.wiring.shapes[layer];
            let held = b.ring("held", shape.clone(), output_of(layer), 0);
            match self.given.get(&layer) {
                Some(given) if Some(layer) == learning.output => {
                    let gradient = b.ring("given", shape.clone(), *given, 0);
                    self.keep_target(&mut b, &learning.watch, (held, gradient), member);
                }
                _ => b.settle(held, "target", member, 0),
            }
        }
        b.finish(self.rows, &self.network.rewrites)
    }

    /// Hands a target on from a layer to the one that it had read from, one tick earlier; the output's comes
    /// from `aims`.
    pub(super) fn pass(&self, learning: &Learning, layer: usize, aims: usize) -> Result<Program> {
        let mut b = Builder::new(self.network.precision());
        b.suppress_commits(true);
        let Again { placed, context, inputs, forward } = self.again(&mut b, layer)?;
        b.set_phase(Phase::Backward);
        let from = if Some(layer) == learning.output { aims } else { self.targets[layer] };
        let target = b.ring("target", self.wiring.shapes[layer].clone(), from, 0);
        let own = placed
            .layer()
            .target_rules()
            .target(&mut b, &context, &inputs, &forward, target)
            .map_err(|error| at_layer(placed, error))?;
        let shape = b.shape(inputs[0]).clone();
        let value = match own {
            Some(value) => Some(value),
            None if b.shape(target).len() == shape.len() => Some(b.reshape(target, shape.clone())),
            // There is no way back: the layer before keeps what it held.
            None => None,
        };
        let value = match value {
            Some(value) => {
                let range = self.placed(layer - 1)?.layer().target_rules().target_range();
                let (least, greatest) = range.unwrap_or((-learning.clamp, learning.clamp));
                b.apply(Combination::clamp(least, greatest), &[value], "target", shape)
            }
            None => inputs[0],
        };
        b.settle(value, "target", self.targets[layer - 1], 1);
        b.prune();
        b.finish(self.rows, &self.network.rewrites)
    }

    /// The first step of all layers toward layerwise targets, from what they held, and their measures.
    pub(super) fn first(&self, learning: &Learning) -> Result<Program> {
        let mut b = Builder::new(self.network.precision());
        b.suppress_commits(true);
        let mut watching = Watching::new(self.network, &learning.watch, false)?;
        for (layer, &member) in self.targets.iter().enumerate() {
            let again = self.again(&mut b, layer)?;
            b.set_phase(Phase::Backward);
            let shape = self.wiring.shapes[layer].clone();
            let held = b.ring("held", shape.clone(), output_of(layer), 0);
            let target = b.ring("target", shape.clone(), member, 0);
            watching.tick_target(&mut b, layer, [again.inputs[0], held], target);
            let gradient = match self.given.get(&layer) {
                Some(given) if Some(layer) == learning.output => b.ring("given", shape, *given, 0),
                _ => {
                    let op = self.away(1.0);
                    b.apply(op, &[held, target], "local gradient", shape)
                }
            };
            watching.ask_inside(&mut b);
            self.contribute(&mut b, learning, layer, &again, gradient)?;
            let moved_by = if Some(layer) == learning.output { learning.watch.gradient_scale } else { 1.0 };
            let term = Term::fixed(-moved_by).times_rows().over_scale(self.network.scales_loss());
            watching.tick_inside(&mut b, term);
            b.read_instead(again.forward.output, held);
        }
        watching.collect_tick(&mut b);
        b.prune();
        b.finish(self.rows, &self.network.rewrites)
    }

    /// A further step of a layer: from what it makes now of what it had read, toward its target.
    pub(super) fn further(&self, learning: &Learning, layer: usize) -> Result<Program> {
        let mut b = Builder::new(self.network.precision());
        b.suppress_commits(true);
        let again = self.again(&mut b, layer)?;
        b.set_phase(Phase::Backward);
        let shape = self.wiring.shapes[layer].clone();
        let target = b.ring("target", shape.clone(), self.targets[layer], 0);
        // Half the square, over what a chain-rule target was moved by.
        let factor = if learning.is_linear(layer) { 1.0 } else { 1.0 / learning.watch.gradient_scale };
        let op = self.away(factor);
        let gradient = b.apply(op, &[again.forward.output, target], "local gradient", shape);
        self.contribute(&mut b, learning, layer, &again, gradient)?;
        b.prune();
        b.finish(self.rows, &self.network.rewrites)
    }

    /// The gradient of a local loss: so many times the distance from the target, over the batch.
    fn away(&self, factor: f64) -> Combination {
        let scaled = self.network.scales_loss();
        Combination::new([factor, -factor].map(|x| Term::fixed(x).over_rows().times_scale(scaled)))
    }

    /// Contributes to a layer's parameters from the gradient of its own loss.
    fn contribute(
        &self,
        b: &mut Builder,
        learning: &Learning,
        layer: usize,
        again: &Again<'_>,
        gradient: Value,
    ) -> Result<()> {
        let placed = again.placed;
        if !self.network.is_trained(placed) {
            return Ok(());
        }
        let linear = match learning.is_linear(layer) {
            true => placed.layer().target_rules().without_activation(),
            false => None,
        };
        let rule = linear.as_deref().unwrap_or(placed.layer());
        let want = Want { inputs: false, parameters: true };
        rule.backward(b, &again.context, &again.inputs, &again.forward, gradient, want)
            .map_err(|error| at_layer(placed, error))?;
        Ok(())
    }
}
