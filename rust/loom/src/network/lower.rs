//! Lowers the whole grid: forward in order, backward in reverse order.

use super::{Combine, Link, Network, PlacedLayer, at_layer};
use crate::layers::{BoundParameter, BoundState, Context, Forward, Want};
use crate::program::{Builder, Kind, LayerPath, LayerValues, ParameterRef, Phase, Value};
use crate::state::{CarriedPlace, CarriedSpec};
use crate::tensor::Shape;
use crate::{Error, Result};
use std::ops::Range;

/// What a program is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mode {
    /// Dropout and the like are on.
    pub training: bool,
    /// What gradients need is kept, though this is not training.
    pub keeps: bool,
    /// What every layer reads and makes stays readable after the run.
    pub pin_layers: bool,
    /// For a session: how much of its sequences one call brings.
    pub session: Option<SessionExtent>,
    /// In training each call brings sequences of their own: none goes on from the call before.
    pub apart: bool,
}

/// The part of a session's sequences that one call brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionExtent {
    /// Steps of the sequences in this call.
    pub steps: usize,
    /// The most steps there will be in all.
    pub capacity: usize,
}

/// One layer's forward lowering, kept for the backward one.
#[derive(Debug)]
pub(crate) struct LoweredLayer {
    pub(crate) inputs: Vec<Value>,
    pub(crate) forward: Forward,
    pub(crate) context: Context,
}

/// A link's arrival at a cell.
#[derive(Debug)]
struct Arrival {
    source: usize,
    link: Link,
    input: Shape,
    linked: Shape,
}

/// One cell's forward lowering.
#[derive(Debug)]
struct LoweredCell {
    arrivals: Vec<Arrival>,
    /// The cell that its layers' second input comes from.
    context: Option<usize>,
    /// Its layers, by their numbers in the network.
    layers: Range<usize>,
}

/// A grid lowered forwards.
#[derive(Debug)]
pub struct Lowered {
    /// The network's input.
    pub input: Value,
    /// The network's output.
    pub output: Value,
    pub(crate) layers: Vec<LoweredLayer>,
    cells: Vec<LoweredCell>,
}

/// Who looks at the gradient of each layer's output, by the layer's number, while gradients are lowered.
pub(crate) type Observe<'a> = &'a mut dyn FnMut(&mut Builder, usize, Value);

impl Lowered {
    /// What the last layer read.
    pub fn last_input(&self) -> Value {
        self.layers.last().map_or(self.input, |layer| layer.inputs[0])
    }
}

impl Network {
    /// Lowers every layer forwards.
    pub(crate) fn lower_forward(&self, b: &mut Builder, mode: Mode) -> Result<Lowered> {
        b.set_phase(Phase::Forward);
        let input = b.input("input", self.shape_of_input(mode)?, Kind::Real);
        b.ports.input = Some(input);
        let mut value = input;
        let mut lowered = Lowered { input, output: input, layers: Vec::new(), cells: Vec::new() };
        let mut outputs: Vec<Value> = Vec::with_capacity(self.cells.len());
        let mut carried = self.carried_specs(mode).into_iter().enumerate().peekable();
        for (number, cell) in self.cells.iter().enumerate() {
            let mut arrivals = Vec::new();
            let mut context = None;
            for (source, link) in self.links_into(number)? {
                if link.combine == Combine::Context {
                    context = Some(source);
                    continue;
                }
                let (input, linked) = (b.shape(value).clone(), b.shape(outputs[source]).clone());
                value = link.lower(b, value, outputs[source])?;
                arrivals.push(Arrival { source, link: link.clone(), input, linked });
            }
            let first = lowered.layers.len();
            for placed in cell {
                b.set_layer(Some(placed.path.clone()));
                let index = lowered.layers.len();
                let mut own = Vec::new();
                while let Some((number, (_, spec))) = carried.next_if(|(_, (layer, _))| *layer == index) {
                    own.push(BoundState { name: spec.name, number, shape: spec.shape });
                }
                let layer_context = Context { carried: own, ..self.context(placed, mode) };
                let mut inputs = vec![value];
                if placed.layer.takes_context() {
                    let source = context.ok_or_else(|| at_layer(placed, no_context()))?;
                    inputs.push(outputs[source]);
                }
                let forward = placed
                    .layer
                    .forward(b, &layer_context, &inputs)
                    .map_err(|error| at_layer(placed, error))?;
                if mode.pin_layers {
                    let values = LayerValues {
                        input: value,
                        preactivation: forward.preactivation,
                        output: forward.output,
                    };
                    b.ports.layers.push((placed.path.clone(), values));
                }
                value = forward.output;
                lowered.layers.push(LoweredLayer { inputs, forward, context: layer_context });
            }
            b.set_layer(None);
            outputs.push(value);
            lowered.cells.push(LoweredCell { arrivals, context, layers: first..lowered.layers.len() });
        }
        b.ports.output = Some(value);
        lowered.output = value;
        Ok(lowered)
    }

    /// Lowers gradients from the output, or, with `skip_last`, from the last layer's
    /// input, down to the lowest layer that anything is wanted of.
    ///
    /// Returns the gradient of the network's input where `want_input`.
    pub(crate) fn lower_backward(
        &self,
        b: &mut Builder,
        lowered: &Lowered,
        gradient: Value,
        skip_last: bool,
        want_input: bool,
    ) -> Result<Option<Value>> {
        self.lower_backward_observed(b, lowered, gradient, [skip_last, want_input], None)
    }

    /// [`lower_backward`](Self::lower_backward) with `[skip_last, want_input]`, down to the first layer
    /// where somebody observes.
    pub(crate) fn lower_backward_observed(
        &self,
        b: &mut Builder,
        lowered: &Lowered,
        gradient: Value,
        [skip_last, want_input]: [bool; 2],
        mut observe: Option<Observe<'_>>,
    ) -> Result<Option<Value>> {
        b.set_phase(Phase::Backward);
        let placed: Vec<&PlacedLayer> = self.layers().collect();
        let trained: Vec<bool> = placed.iter().map(|p| self.is_trained(p)).collect();
        let all = want_input || observe.is_some();
        let lowest = if all { Some(0) } else { trained.iter().position(|trained| *trained) };
        let Some(lowest) = lowest else { return Ok(None) };
        let count = lowered.layers.len() - usize::from(skip_last);
        // What is contributed to the gradient of each cell's output.
        let mut contributions: Vec<Vec<Value>> = vec![Vec::new(); lowered.cells.len()];
        if let Some(last) = contributions.last_mut() {
            last.push(gradient);
        }
        let mut input_gradient = None;
        for (number, cell) in lowered.cells.iter().enumerate().rev() {
            if !all && cell.layers.end <= lowest {
                break;
            }
            b.set_layer(None);
            let mut gradient = b.sum(&contributions[number]);
            let mut to_context = Vec::new();
            for index in cell.layers.clone().rev().filter(|index| (lowest..count).contains(index)) {
                let Some(incoming) = gradient else { break };
                b.set_layer(Some(placed[index].path.clone()));
                if let Some(observe) = &mut observe {
                    observe(b, index, incoming);
                }
                let layer = &lowered.layers[index];
                let want = Want { inputs: want_input || index > lowest, parameters: trained[index] };
                let mut made = placed[index]
                    .layer
                    .backward(b, &layer.context, &layer.inputs, &layer.forward, incoming, want)
                    .map_err(|error| at_layer(placed[index], error))?
                    .into_iter();
                gradient = made.next().flatten();
                to_context.extend(made.next().flatten());
            }
            b.set_layer(None);
            if let (Some(source), Some(gradient)) = (cell.context, b.sum(&to_context)) {
                contributions[source].push(gradient);
            }
            let Some(mut gradient) = gradient else { continue };
            for Arrival { source, link, input, linked } in cell.arrivals.iter().rev() {
                let (to_input, to_linked) = link.lower_backward(b, input, linked, gradient)?;
                gradient = to_input;
                contributions[*source].extend(to_linked);
            }
            match number.checked_sub(1) {
                Some(before) => contributions[before].push(gradient),
                None => input_gradient = Some(gradient),
            }
        }
        Ok(input_gradient.filter(|_| want_input))
    }

    /// The network's input in a program of this mode: sessions bring another number of steps.
    fn shape_of_input(&self, mode: Mode) -> Result<Shape> {
        let Some(session) = mode.session else { return Ok(self.input_shape.clone()) };
        let mut shape = self.input_shape.to_vec();
        match shape.first_mut() {
            Some(steps) => *steps = session.steps,
            None => return Err(Error::Shape("a session needs an input with a time axis".into())),
        }
        Ok(Shape::new(shape))
    }

    /// What is carried from call to call in programs of this mode, with the number of its layer.
    pub(crate) fn carried_specs(&self, mode: Mode) -> Vec<(usize, CarriedSpec)> {
        let mut specs = Vec::new();
        for (number, placed) in self.layers().enumerate() {
            let inputs = placed.input_shapes();
            let capacity = mode.session.map_or(0, |session| session.capacity);
            let goes_on = mode.training && !mode.apart;
            let wanted = |spec: &CarriedSpec| mode.session.is_some() || (goes_on && spec.in_training);
            let own = placed.layer.carried(&inputs, capacity);
            specs.extend(own.into_iter().filter(wanted).map(|spec| (number, spec)));
        }
        specs
    }

    /// The same with the path of each layer, in the order of the numbers that programs know them by.
    pub(crate) fn carried_places(&self, mode: Mode) -> Vec<CarriedPlace> {
        let paths: Vec<&LayerPath> = self.layers().map(|placed| &placed.path).collect();
        let place = |(layer, spec): (usize, _)| CarriedPlace { path: paths[layer].clone(), spec };
        self.carried_specs(mode).into_iter().map(place).collect()
    }

    /// What is carried from batch to batch of training.
    pub(crate) fn carried_in_training(&self) -> Vec<CarriedPlace> {
        self.carried_places(Mode { training: true, ..Mode::default() })
    }

    pub(crate) fn context(&self, placed: &PlacedLayer, mode: Mode) -> Context {
        let parameters = match placed.store {
            None => Vec::new(),
            Some(store) => self.registry.stores[store]
                .parameters()
                .iter()
                .enumerate()
                .map(|(index, info)| BoundParameter {
                    name: info.name.clone(),
                    reference: ParameterRef { store, parameter: Some(index) },
                    shape: info.layout.storage_shape(),
                    active: self.registry.stores[store].dtype_of(index),
                    reads_packed: info.morphable,
                    quantized: !mode.training
                        && !placed.is_tied()
                        && placed.numerics.of(info).numerics.activations.is_some(),
                })
                .collect(),
        };
        let states = placed.states.clone().map(|number| {
            let spec = &self.registry.states[number].spec;
            BoundState { name: spec.name.clone(), number, shape: spec.shape.clone() }
        });
        Context {
            path: placed.path.clone(),
            training: mode.training,
            keeps: mode.training || mode.keeps,
            session: mode.session.is_some(),
            parameters,
            states: states.collect(),
            ..Context::default()
        }
    }

    /// Whether an optimizer moves what a layer computes from.
    pub(crate) fn is_trained(&self, placed: &PlacedLayer) -> bool {
        let Some(store) = placed.store.filter(|_| placed.trainable) else { return false };
        self.trained_stores().any(|(trained, _)| trained == store)
    }

    /// The stores that an optimizer moves, with the layers that own them, in order.
    pub(crate) fn trained_stores(&self) -> impl Iterator<Item = (usize, &PlacedLayer)> {
        self.owners().filter(|placed| placed.trainable).filter_map(|placed| Some((placed.store?, placed)))
    }

    /// The layers without those that use another one's parameters, in order.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &PlacedLayer> {
        self.layers().filter(|placed| !placed.is_tied())
    }
}

/// The error of a layer that takes a context in a cell that gets none.
pub(crate) fn no_context() -> Error {
    Error::State(
        "the layer reads a second input; hand it another cell's output with link(source, target, \
         combine=\"context\")"
            .into(),
    )
}
