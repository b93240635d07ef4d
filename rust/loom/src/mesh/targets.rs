//! Learning by targets that are kept for every tick of the window: several local steps toward them, and
//! layerwise ones.

use super::gradients::scale_of;
use super::lessons::Learning;
use super::run::run_ticks;
use super::{Mesh, content};
use crate::network::Network;
use crate::ops::StepValues;
use crate::program::{Program, Run};
use crate::state::Member;
use crate::tensor::TensorView;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

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
