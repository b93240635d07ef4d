//! Learning by targets that are kept for every tick of the window: several local steps toward them, and
//! layerwise ones.

use super::gradients::scale_of;
use super::lower::{Again, Tick, output_of};
use super::run::run_ticks;
use super::{Mesh, content};
use crate::layers::Want;
use crate::network::{Network, Watch, at_layer};
use crate::ops::{Combination, StepValues, Term};
use crate::program::{Builder, Phase, Program, Run, Value};
use crate::state::Member;
use crate::tensor::TensorView;
use crate::train::{TargetMode, TweenConfig, Watching};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How layers learn by targets that are kept for every tick of the window.
///
/// The output's last layer has a chain-rule target in every mode: it learns from the loss.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Learning {
    mode: TargetMode,
    watch: Watch,
    clamp: f64,
    /// The output's last layer, by number; none where links arrive behind it.
    output: Option<usize>,
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
    start: Option<Run>,
    /// Hands a layer's target on to the layer before it, by layer, the last one first.
    passes: Vec<(usize, Run)>,
    /// All layers' first step, with their measures.
    first: Option<Run>,
    /// A layer's further steps, by layer.
    steps: Vec<(usize, Run)>,
}

impl Tick<'_> {
    /// What lets the targets of a window start: what each layer held, and for the output that less the
    /// gradient of the loss.
    fn start(&self, learning: &Learning) -> Result<Program> {
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
    fn pass(&self, learning: &Learning, layer: usize, aims: usize) -> Result<Program> {
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
    fn first(&self, learning: &Learning) -> Result<Program> {
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
            self.contribute(&mut b, learning, layer, &again, gradient)?;
            b.read_instead(again.forward.output, held);
        }
        watching.collect_tick(&mut b);
        b.prune();
        b.finish(self.rows, &self.network.rewrites)
    }

    /// A further step of a layer: from what it makes now of what it had read, toward its target.
    fn further(&self, learning: &Learning, layer: usize) -> Result<Program> {
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

impl Mesh {
    /// Says how layers learn when gradients next go back.
    pub(super) fn learn_by(&mut self, learning: Option<Learning>) {
        if learning != self.learning {
            self.learning = learning;
            self.backward = None;
            self.lessons = None;
        }
    }

    /// Makes room for targets, where there is none yet.
    pub(super) fn take_targets(&mut self) -> Result<()> {
        let Some(learning) = self.learning.clone() else { return Ok(()) };
        while self.targets.len() < self.wiring.shapes.len() {
            let shape = self.wiring.shapes[self.targets.len()].clone();
            let member = Member { shape, slots: self.turns };
            let number = self.ring_mut()?.add(member)?;
            self.targets.push(number);
        }
        if let Some(output) = learning.output.filter(|_| learning.is_layerwise())
            && self.aims.is_none_or(|(layer, _)| layer != output)
        {
            let member = Member { shape: self.wiring.shapes[output].clone(), slots: self.turns };
            self.aims = Some((output, self.ring_mut()?.add(member)?));
        }
        Ok(())
    }

    /// Lays ready what the output was to be so many ticks ago.
    pub(super) fn aim(&mut self, network: &Network, age: usize, target: &TensorView<'_>) -> Result<()> {
        self.take_targets()?;
        let Some((_, member)) = self.aims else {
            return Err(Error::Internal("a mesh has no room for what its output is to be".into()));
        };
        let content = content(network.precision(), target)?;
        self.ring_mut()?.upload(member, age, content.bytes());
        Ok(())
    }

    /// For each layer, how many ticks ago what is given now reaches it, the newest first.
    pub(super) fn reached_ages(&self) -> Vec<Vec<usize>> {
        let mut ages = vec![Vec::new(); self.wiring.shapes.len()];
        let mut sent = vec![false; self.wiring.edges.len()];
        for age in 0..self.reach {
            let tick = self.tick - age as u64;
            let mut sending = vec![false; sent.len()];
            for (layer, ages) in ages.iter_mut().enumerate() {
                let given = self.given_ticks.contains(&(layer, tick));
                if given || self.wiring.edges_to(layer).any(|edge| sent[edge]) {
                    ages.push(age);
                    self.wiring.edges_of(layer).for_each(|edge| sending[edge] = true);
                }
            }
            sent = sending;
        }
        ages
    }

    fn run_of(&self, network: &Network, program: Program) -> Result<Run> {
        let mut run = network.device().run(Arc::new(program))?;
        run.rows = self.rows;
        Ok(run)
    }

    /// Makes layerwise targets for all that what is given reaches, measures them, and contributes every
    /// layer's first step.
    pub(super) fn teach_layerwise(&mut self, network: &mut Network, batch_rows: u64) -> Result<()> {
        let (Some(learning), Some((output, aims))) = (self.learning.clone(), self.aims) else {
            return Err(Error::Internal("layerwise targets were not prepared".into()));
        };
        self.reached = self.reached_ages();
        network.registry.prepare_gradients(network.precision().size())?;
        let mut lessons = self.lessons.take().unwrap_or_default();
        if lessons.first.is_none() {
            let tick = self.lowering(network);
            lessons.start = Some(self.run_of(network, tick.start(&learning)?)?);
            for layer in (1..=output).rev() {
                let run = self.run_of(network, tick.pass(&learning, layer, aims)?)?;
                lessons.passes.push((layer, run));
            }
            lessons.first = Some(self.run_of(network, tick.first(&learning)?)?);
        }
        let all: Vec<usize> = (0..self.reach).collect();
        let outcome = self.with_ring(network, |mesh, network| {
            let fresh = network.registry.gradients_zeroed;
            if let Some(run) = &mut lessons.start {
                run_ticks(mesh, run, network, &all, &StepValues { batch_rows, ..StepValues::default() })?;
            }
            for (layer, run) in &mut lessons.passes {
                // What reaches the oldest tick would go on to one that is not kept.
                let ages: Vec<usize> =
                    mesh.reached[*layer].iter().copied().filter(|age| age + 1 < mesh.reach).collect();
                run_ticks(mesh, run, network, &ages, &StepValues { batch_rows, ..StepValues::default() })?;
            }
            if let Some(run) = &mut lessons.first {
                let values = StepValues { batch_rows, gradients_zeroed: fresh, ..StepValues::default() };
                run_ticks(mesh, run, network, &all, &values)?;
            }
            network.registry.gradients_zeroed = false;
            Ok(())
        });
        self.lessons = Some(lessons);
        outcome
    }

    /// Replaces all gradients by those of a further step of every layer that targets have reached toward
    /// them; returns the layers whose weights it moves.
    pub(super) fn step_again(&mut self, network: &mut Network, batch_rows: u64) -> Result<Vec<bool>> {
        let Some(learning) = self.learning.clone() else {
            return Err(Error::Internal("a mesh takes several local steps without targets".into()));
        };
        let mut lessons = self.lessons.take().unwrap_or_default();
        if lessons.steps.is_empty() {
            let tick = self.lowering(network);
            for (layer, placed) in network.layers().enumerate() {
                if network.is_trained(placed) {
                    lessons.steps.push((layer, self.run_of(network, tick.further(&learning, layer)?)?));
                }
            }
        }
        let mut moved = BTreeSet::new();
        let outcome = self.with_ring(network, |mesh, network| {
            for (layer, run) in &mut lessons.steps {
                let store = network.layers().nth(*layer).and_then(|placed| placed.store);
                let ages = &mesh.reached[*layer];
                if !ages.is_empty() {
                    // Of layers that share their weights the first one starts anew.
                    let gradients_zeroed = moved.insert(store);
                    let values = StepValues { batch_rows, gradients_zeroed, ..StepValues::default() };
                    run_ticks(mesh, run, network, ages, &values)?;
                }
            }
            Ok(())
        });
        self.lessons = Some(lessons);
        outcome?;
        network.scale_gradients(1.0 / scale_of(network))?;
        Ok(network.layers().map(|placed| placed.store.is_some() && moved.contains(&placed.store)).collect())
    }
}
