//! Lowers one tick: every layer from what its sources held after the tick before, forwards and backwards.

use super::wiring::{Read, Wiring};
use crate::layers::{BoundState, Carrying, Context, Forward, Want};
use crate::network::{Mode, Network, PlacedLayer, Watch, at_layer, row_of};
use crate::ops::{Combination, Sum, Term};
use crate::program::{Builder, Phase, Program, Value};
use crate::train::Watching;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// The member of the ring that holds the network's input until it is changed.
pub(super) const HELD_INPUT: usize = 0;
/// The member that keeps the inputs of past ticks.
pub(super) const INPUT: usize = 1;

/// The member that keeps a layer's outputs.
pub(super) fn output_of(layer: usize) -> usize {
    2 + layer
}

/// The member that keeps what a stateful layer has left at past ticks, by its number in the wiring.
pub(super) fn carried_in(wiring: &Wiring, number: usize) -> usize {
    output_of(wiring.inputs.len()) + number
}

/// One tick of a network, to be lowered whole or in parts.
pub(super) struct Tick<'a> {
    pub(super) network: &'a Network,
    pub(super) wiring: &'a Wiring,
    pub(super) rows: usize,
    pub(super) training: bool,
    /// The members that hold given gradients, by layer.
    pub(super) given: &'a BTreeMap<usize, usize>,
    /// What is measured while gradients go back.
    pub(super) watch: Option<&'a Watch>,
    /// The members that hold the targets of layers, by layer, where they are kept.
    pub(super) targets: &'a [usize],
    /// The members that take the gradients of what the network's input was, by who reads it; none where
    /// nobody asks.
    pub(super) input_gradients: &'a [usize],
}

/// How gradients reach the sources of what a layer reads, while it is lowered.
struct Sending<'a> {
    /// The layer's edges that are left.
    edges: &'a mut dyn Iterator<Item = usize>,
    /// Where gradients of the network's input go, as often as the layer reads it.
    inputs: &'a mut dyn Iterator<Item = usize>,
}

/// A layer that has computed its part of a tick again, from what it had read.
pub(super) struct Again<'a> {
    pub(super) placed: &'a PlacedLayer,
    pub(super) context: Context,
    pub(super) inputs: Vec<Value>,
    pub(super) forward: Forward,
}

impl<'a> Tick<'a> {
    pub(super) fn placed(&self, layer: usize) -> Result<&'a PlacedLayer> {
        let placed = self.network.layers().nth(layer);
        placed.ok_or_else(|| Error::Internal(format!("there is no layer {layer}")))
    }

    /// The member that holds the gradients sent along an edge.
    pub(super) fn edge(&self, number: usize) -> usize {
        carried_in(self.wiring, self.wiring.carried.len()) + number
    }

    /// What a layer knows while it lowers itself.
    fn context(&self, placed: &PlacedLayer, layer: usize, carrying: Carrying) -> Context {
        let bound = |number: usize| {
            let (_, spec) = &self.wiring.carried[number];
            let (name, shape) = (spec.name.clone(), spec.shape.clone());
            BoundState { name, number: carried_in(self.wiring, number), shape }
        };
        let carried = self.wiring.carried_by(layer).map(bound).collect();
        let mode = Mode { training: self.training, ..Mode::default() };
        Context { carried, carrying, ..self.network.context(placed, mode) }
    }

    /// The value that a layer reads; the network's input from this member.
    fn lower_read(&self, b: &mut Builder, read: &Read, input: usize) -> Result<Value> {
        match read {
            Read::Input => Ok(b.ring("input", self.network.input_shape().clone(), input, 0)),
            Read::Entered(entry) => {
                let row = b.ring("input", self.network.input_shape().clone(), input, 0);
                Ok(entry.lower(b, row))
            }
            Read::Layer(layer) => {
                Ok(b.ring("held", self.wiring.shapes[*layer].clone(), output_of(*layer), 1))
            }
            Read::Arrived { link, input: own, linked } => {
                let own = self.lower_read(b, own, input)?;
                let linked = self.lower_read(b, linked, input)?;
                link.lower(b, own, linked)
            }
        }
    }

    /// These layers' part of a tick; with `keep_input`, the input of this tick is kept, too.
    pub(super) fn forward(&self, layers: &[usize], keep_input: bool) -> Result<Program> {
        let mut b = Builder::new(self.network.precision());
        b.set_phase(Phase::Forward);
        for &layer in layers {
            let placed = self.placed(layer)?;
            b.set_layer(Some(placed.path().clone()));
            let reads = self.wiring.inputs[layer].iter();
            let inputs: Vec<Value> =
                reads.map(|read| self.lower_read(&mut b, read, HELD_INPUT)).collect::<Result<_>>()?;
            let context = self.context(placed, layer, Carrying::Ticks);
            let forward = placed.layer().forward(&mut b, &context, &inputs);
            let forward = forward.map_err(|error| at_layer(placed, error))?;
            b.settle(forward.output, "output", output_of(layer), 0);
        }
        if keep_input {
            b.set_layer(None);
            let shape = self.network.input_shape().clone();
            let held = b.ring("input", shape.clone(), HELD_INPUT, 0);
            let kept = b.ring("input", shape, INPUT, 0);
            b.effect(Sum { operands: 1 }, &[held], &[kept]);
        }
        b.finish(self.rows, &self.network.rewrites)
    }

    /// These layers' part of a tick backwards: what each computed is computed again from what it read, the
    /// gradient of its output is what was given and what its readers sent from the tick after, and what
    /// becomes of it goes to its parameters and to its sources, one tick earlier.
    pub(super) fn backward(&self, layers: &[usize]) -> Result<Program> {
        let mut b = Builder::new(self.network.precision());
        b.suppress_commits(true);
        let mut watching = match self.watch {
            Some(watch) => Some(Watching::new(self.network, watch, false)?),
            None => None,
        };
        for &layer in layers {
            let placed = self.placed(layer)?;
            b.set_layer(Some(placed.path().clone()));
            let shape = &self.wiring.shapes[layer];
            let mut incoming = Vec::new();
            if let Some(member) = self.given.get(&layer) {
                incoming.push(b.ring("given", shape.clone(), *member, 0));
            }
            for edge in self.wiring.edges_to(layer) {
                incoming.push(b.ring("sent", shape.clone(), self.edge(edge), 0));
            }
            let Again { context, inputs, forward, .. } = self.again(&mut b, layer)?;
            b.set_phase(Phase::Backward);
            let Some(gradient) = b.sum(&incoming) else { continue };
            let reads = &self.wiring.inputs[layer];
            let want = Want {
                inputs: !self.input_gradients.is_empty() || reads.iter().any(Read::reads_layers),
                parameters: self.network.is_trained(placed),
            };
            if let Some(watching) = &watching {
                watching.ask_inside(&mut b);
            }
            let made = placed
                .layer()
                .backward(&mut b, &context, &inputs, &forward, gradient, want)
                .map_err(|error| at_layer(placed, error))?;
            // What the layer held is there still; most need nothing else of their forward pass.
            let held = b.ring("output", shape.clone(), output_of(layer), 0);
            b.read_instead(forward.output, held);
            if let Some(watching) = &mut watching {
                watching.tick(&mut b, layer, [inputs[0], held], gradient);
                watching.tick_inside(&mut b, watching.target_term());
            }
            if let (Some(target), Some(watch)) = (self.targets.get(layer), self.watch) {
                self.keep_target(&mut b, watch, (held, gradient), *target);
            }
            let mut edges = self.wiring.edges_of(layer);
            let mut inputs = self.wiring.inputs_of(layer, self.input_gradients);
            let mut sending = Sending { edges: &mut edges, inputs: &mut inputs };
            for (number, read) in reads.iter().enumerate() {
                self.send(&mut b, read, made.get(number).copied().flatten(), &mut sending)?;
            }
        }
        if let Some(watching) = &mut watching {
            watching.collect_tick(&mut b);
        }
        b.prune();
        b.finish(self.rows, &self.network.rewrites)
    }

    /// Lets a layer compute a tick again from what it had read, with the same random draws.
    pub(super) fn again(&self, b: &mut Builder, layer: usize) -> Result<Again<'a>> {
        let placed = self.placed(layer)?;
        b.set_layer(Some(placed.path().clone()));
        b.set_phase(Phase::Forward);
        let reads = self.wiring.inputs[layer].iter();
        let inputs: Vec<Value> = reads.map(|read| self.lower_read(b, read, INPUT)).collect::<Result<_>>()?;
        let context = self.context(placed, layer, Carrying::Again);
        let forward = placed.layer().forward(b, &context, &inputs);
        let forward = forward.map_err(|error| at_layer(placed, error))?;
        Ok(Again { placed, context, inputs, forward })
    }

    /// Keeps the chain-rule target of a tick: what was held, moved against the gradient.
    pub(super) fn keep_target(
        &self,
        b: &mut Builder,
        watch: &Watch,
        (held, gradient): (Value, Value),
        member: usize,
    ) {
        let moved = Term::fixed(-watch.gradient_scale).times_rows().over_scale(self.network.scales_loss());
        let op = Combination::new([Term::fixed(1.0), moved]);
        let shape = b.shape(held).clone();
        let target = b.apply(op, &[held, gradient], "target", shape);
        b.settle(target, "target", member, 0);
    }

    /// Sends the gradient of what was read on to where it came from.
    fn send(
        &self,
        b: &mut Builder,
        read: &Read,
        gradient: Option<Value>,
        sending: &mut Sending<'_>,
    ) -> Result<()> {
        match read {
            Read::Input => {
                if let (Some(member), Some(gradient)) = (sending.inputs.next(), gradient) {
                    b.settle(gradient, "input gradient", member, 0);
                }
                Ok(())
            }
            Read::Entered(entry) => {
                if let (Some(member), Some(gradient)) = (sending.inputs.next(), gradient) {
                    let parts = entry.lower_backward(b, gradient);
                    let row = row_of(b, &parts, self.network.input_shape().len());
                    b.settle(row, "input gradient", member, 0);
                }
                Ok(())
            }
            Read::Layer(_) => {
                let edge = sending.edges.next();
                let edge =
                    edge.ok_or_else(|| Error::Internal("a layer has fewer edges than reads".into()))?;
                if let Some(gradient) = gradient {
                    b.settle(gradient, "sent", self.edge(edge), 1);
                }
                Ok(())
            }
            Read::Arrived { link, input, linked } => {
                let (to_input, to_linked) = match gradient {
                    None => (None, None),
                    Some(gradient) => {
                        let shapes = (self.wiring.shape_of(input)?, self.wiring.shape_of(linked)?);
                        let (to_input, to_linked) =
                            link.lower_backward(b, [&shapes.0, &shapes.1], None, gradient)?;
                        (to_input, to_linked)
                    }
                };
                self.send(b, input, to_input, sending)?;
                self.send(b, linked, to_linked, sending)
            }
        }
    }
}
