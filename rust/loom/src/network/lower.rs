//! Lowers the whole grid: forward in order, backward in reverse order.

use super::Network;
use super::entry::{Entry, with_steps};
use super::link::{Combine, Link};
use super::mode::{Ending, Mode, Pick};
use super::placed::{PlacedLayer, at_layer};
use super::ports::row_of;
use crate::layers::{BoundParameter, BoundState, Context, Forward, Steps, Want};
use crate::ops::{CacheType, Choose, Draw, Recall, Sampling, Slice};
use crate::program::{Builder, Kind, LayerValues, ParameterRef, Phase, Value};
use crate::tensor::Shape;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::ops::Range;

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
    /// What was there, and what has come to it.
    values: [Value; 2],
}

/// One cell's forward lowering.
#[derive(Debug)]
struct LoweredCell {
    arrivals: Vec<Arrival>,
    /// What enters here; flow then starts anew.
    entry: Option<Entry>,
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
    /// The named outputs, each with the shape of its own.
    pub(crate) outputs: Vec<Value>,
    pub(crate) layers: Vec<LoweredLayer>,
    cells: Vec<LoweredCell>,
}

/// Who looks at the gradient of each layer's output, by the layer's number, while gradients are lowered.
pub(crate) type Observe<'a> = &'a mut dyn FnMut(&mut Builder, usize, Value);

/// The last step of a sequence, as a sequence of one.
fn last_step(b: &mut Builder, value: Value) -> Value {
    let shape = b.shape(value).clone();
    let Some((steps, rest)) = shape.split_first().filter(|(steps, _)| **steps > 1) else { return value };
    let length = rest.iter().product();
    let slice =
        Slice { outer: 1, total: steps * length, start: (steps - 1) * length, length, guarded: false };
    let extents: Vec<usize> = [1].into_iter().chain(rest.iter().copied()).collect();
    b.apply(slice, &[value], "last", Shape::new(extents))
}

impl Network {
    /// Where a session's call brings several steps of which the output of the last is all that is wanted: the
    /// number of the first layer that it needs no other step for, as it is for all layers from there on; that of
    /// layers where it is none.
    fn first_by_itself(&self, mode: Mode) -> Option<usize> {
        mode.session.filter(|session| session.ending != Ending::All && session.steps > 1)?;
        let layers: Vec<&PlacedLayer> = self.layers().collect();
        let flows = self.links.is_empty() && self.outputs.is_empty();
        let carries = self.carried_specs(mode);
        let mut first = layers.len();
        while let Some(before) = first.checked_sub(1).filter(|_| flows) {
            let layer = &layers[before].layer;
            let alone = layer.is_stepwise() && layer.steps() == Steps::Kept && !layer.takes_context();
            if !alone || carries.iter().any(|(carrying, _)| *carrying == before) {
                break;
            }
            first = before;
        }
        Some(first)
    }
}

/// What is wanted of a backward pass.
#[derive(Default)]
pub(crate) struct Backward<'a> {
    /// Whether the gradient is that of the last layer's input: it has absorbed the loss.
    pub(crate) skips_last: bool,
    /// Whether the gradient of the network's input is wanted.
    pub(crate) wants_input: bool,
    /// Whether those of parameters are not.
    pub(crate) skips_parameters: bool,
    /// The gradients of the named outputs; taken out of that of the whole row where there are none.
    pub(crate) of_outputs: Vec<Value>,
    /// For each of those, the layer whose input it is the gradient of: it has absorbed the output's loss.
    pub(crate) absorbed: Vec<Option<usize>>,
    /// Who looks on, down to the first layer.
    pub(crate) observe: Option<Observe<'a>>,
}

impl Lowered {
    /// Lowers every layer forwards.
    pub(crate) fn forward(network: &Network, b: &mut Builder, mode: Mode) -> Result<Self> {
        b.set_phase(Phase::Forward);
        b.looks_inside = mode.looks_inside;
        b.keeps_input_gradients = mode.keeps_input_gradients;
        let mut carried = network.carried_specs(mode).into_iter().enumerate().peekable();
        // What a session chooses by itself is carried behind what layers carry.
        let chosen = network.chosen_place(mode).zip(mode.session);
        let chosen = chosen.map(|(number, session)| (number, session.ahead));
        let ending = mode.session.map_or(Ending::All, |session| session.ending);
        let input = match (ending, chosen) {
            (Ending::Chain(_), Some((number, capacity))) => {
                let chosen = b.carried("chosen", Shape::from(capacity + 1), number);
                b.apply(Recall { capacity }, &[chosen], "input", Shape::from(1))
            }
            _ => {
                let input = b.input("input", shape_of_input(network, mode)?, Kind::Real);
                b.ports.input = Some(input);
                input
            }
        };
        let mut value = input;
        // Which steps are real, for each length that sequences may have; sessions bring real ones alone.
        let prefix = if mode.session.is_none() { network.row_prefix() } else { 0 };
        let masks = if prefix > 0 { network.lower_masks(b, input) } else { Vec::new() };
        if prefix > 0 && network.inputs.is_empty() {
            value = network.lower_sequence(b, input);
        }
        let mut lowered =
            Self { input, output: input, outputs: Vec::new(), layers: Vec::new(), cells: Vec::new() };
        let mut outputs: Vec<Value> = Vec::with_capacity(network.cells.len());
        let by_itself = network.first_by_itself(mode);
        let steps = mode.session.map(|session| session.steps);
        let named = network.named_input_shapes(steps);
        for (number, cell) in network.cells.iter().enumerate() {
            let mut arrivals = Vec::new();
            let mut context = None;
            let entry = network.entry(number, &named)?.map(|entry| entry.behind(prefix));
            if let Some(entry) = &entry {
                value = entry.lower(b, input);
            }
            for (source, link) in network.links_into(number)? {
                if link.combine == Combine::Context {
                    context = Some(source);
                    continue;
                }
                let values = [value, outputs[source]];
                value = link.lower(b, value, outputs[source])?;
                arrivals.push(Arrival { source, link: link.clone(), values });
            }
            let first = lowered.layers.len();
            let length = network.mask_of_cell(number);
            let mut mask = length.and_then(|length| masks.get(length).copied());
            for placed in cell {
                b.set_layer(Some(placed.path.clone()));
                let index = lowered.layers.len();
                let mut own = Vec::new();
                while let Some((number, (_, spec))) = carried.next_if(|(_, (layer, _))| *layer == index) {
                    own.push(BoundState { name: spec.name, number, shape: spec.shape });
                }
                if by_itself == Some(index) {
                    value = last_step(b, value);
                }
                let layer_context =
                    Context { carried: own, mask, real: mask, ..network.context(placed, mode) };
                let mut inputs = vec![value];
                if placed.layer.takes_context() {
                    let source = context.ok_or_else(|| at_layer(placed, no_context()))?;
                    inputs.push(outputs[source]);
                }
                let forward = placed
                    .layer
                    .forward(b, &layer_context, &inputs)
                    .map_err(|error| at_layer(placed, error))?;
                mask = mask.filter(|_| placed.layer.steps() != Steps::Pooled);
                if mode.pin_layers {
                    let values = LayerValues { real: mask, ..forward.values(value) };
                    b.ports.layers.push((placed.path.clone(), values));
                }
                value = forward.output;
                lowered.layers.push(LoweredLayer { inputs, forward, context: layer_context });
            }
            b.set_layer(None);
            outputs.push(value);
            lowered.cells.push(LoweredCell { arrivals, entry, context, layers: first..lowered.layers.len() });
        }
        if by_itself == Some(lowered.layers.len()) && network.outputs.is_empty() {
            value = last_step(b, value);
        }
        if let (Ending::Choice(pick) | Ending::Chain(pick), Some((number, capacity))) = (ending, chosen) {
            let time = mode.session.map_or(1, |session| session.steps);
            let classes = b.shape(value).len();
            let chosen = b.carried("chosen", Shape::from(capacity + 1), number);
            match pick {
                Pick::Likeliest => b.effect(Choose { time, classes, capacity }, &[value], &[chosen]),
                Pick::Drawn => {
                    let draws = b.carried("draws", Shape::from(capacity + 1), number + 1);
                    let sampling = b.carried("sampling", Shape::from(Sampling::NUMBERS), number + 2);
                    let changes = b.carried("changes", Shape::from(Draw::changes(classes)), number + 3);
                    let reads = [value, draws, sampling];
                    b.effect(Draw { time, classes, capacity }, &reads, &[chosen, changes]);
                }
            }
        }
        let last = mode.session.is_some_and(|session| session.ending == Ending::Last);
        let flows = if last { network.stepping_outputs()? } else { Vec::new() };
        for (number, output) in network.outputs.iter().enumerate() {
            let mut made = outputs[network.cell_index(output.cell)?];
            if flows.get(number).is_some_and(|output| output.sequence) {
                made = last_step(b, made);
            }
            lowered.outputs.push(made);
        }
        if !lowered.outputs.is_empty() {
            let mut places = Vec::with_capacity(lowered.outputs.len());
            let mut total = 0;
            for output in &lowered.outputs {
                let length = b.shape(*output).len();
                places.push((total..total + length, *output));
                total += length;
            }
            value = row_of(b, &places, total);
        }
        b.ports.output = Some(value);
        lowered.output = value;
        Ok(lowered)
    }

    /// Lowers gradients from that of the output down to the lowest layer that anything is wanted of.
    ///
    /// Returns the gradient of the network's input where that is wanted.
    pub(crate) fn backward(
        &self,
        network: &Network,
        b: &mut Builder,
        gradient: Value,
        wanted: Backward<'_>,
    ) -> Result<Option<Value>> {
        let Backward { skips_last, wants_input, skips_parameters, of_outputs, absorbed, mut observe } =
            wanted;
        b.set_phase(Phase::Backward);
        let placed: Vec<&PlacedLayer> = network.layers().collect();
        let trained: Vec<bool> = placed.iter().map(|p| !skips_parameters && network.is_trained(p)).collect();
        let all = wants_input || observe.is_some();
        let lowest = if all { Some(0) } else { trained.iter().position(|trained| *trained) };
        let Some(lowest) = lowest else { return Ok(None) };
        let count = self.layers.len() - usize::from(skips_last);
        // What is contributed to the gradient of each cell's output.
        let mut contributions: Vec<Vec<Value>> = vec![Vec::new(); self.cells.len()];
        // What losses that layers have absorbed contribute to the gradients of those layers' inputs.
        let mut to_inputs: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
        if network.outputs.is_empty() {
            if let Some(last) = contributions.last_mut() {
                last.push(gradient);
            }
        } else {
            let parts = match of_outputs.is_empty() {
                true => network.split_gradient(b, gradient),
                false => of_outputs,
            };
            for (number, (output, part)) in network.outputs.iter().zip(parts).enumerate() {
                match absorbed.get(number).copied().flatten() {
                    Some(layer) => to_inputs.entry(layer).or_default().push(part),
                    None => contributions[network.cell_index(output.cell)?].push(part),
                }
            }
        }
        let mut input_gradient = None;
        let mut entered = Vec::new();
        for (number, cell) in self.cells.iter().enumerate().rev() {
            if !all && cell.layers.end <= lowest {
                break;
            }
            b.set_layer(None);
            let mut gradient = b.sum(&contributions[number]);
            let mut to_context = Vec::new();
            for index in cell.layers.clone().rev().filter(|index| (lowest..count).contains(index)) {
                let absorbed = to_inputs.remove(&index);
                let Some(incoming) = gradient else {
                    gradient = absorbed.and_then(|parts| b.sum(&parts));
                    b.report_input_gradient(&self.layers[index].context.path, gradient);
                    continue;
                };
                b.set_layer(Some(placed[index].path.clone()));
                // What comes to a layer that has absorbed a loss lacks that loss.
                if let Some(observe) = observe.as_mut().filter(|_| absorbed.is_none()) {
                    observe(b, index, incoming);
                }
                let layer = &self.layers[index];
                // Nothing that learns is behind the first layer that an input comes to, unless it is its context.
                let comes_alone = cell.entry.is_some() && cell.arrivals.is_empty() && cell.context.is_none();
                let first = comes_alone && index == cell.layers.start;
                let want =
                    Want { inputs: wants_input || (index > lowest && !first), parameters: trained[index] };
                let mut made = placed[index]
                    .layer
                    .backward(b, &layer.context, &layer.inputs, &layer.forward, incoming, want)
                    .map_err(|error| at_layer(placed[index], error))?
                    .into_iter();
                let parts: Vec<Value> =
                    made.next().flatten().into_iter().chain(absorbed.into_iter().flatten()).collect();
                gradient = b.sum(&parts);
                b.report_input_gradient(&layer.context.path, gradient);
                to_context.extend(made.next().flatten());
            }
            b.set_layer(None);
            if let (Some(source), Some(gradient)) = (cell.context, b.sum(&to_context)) {
                contributions[source].push(gradient);
            }
            let mut flowing = gradient;
            for Arrival { source, link, values } in cell.arrivals.iter().rev() {
                let Some(gradient) = flowing else { break };
                let [input, linked] = values.map(|value| b.shape(value).clone());
                let (to_input, to_linked) =
                    link.lower_backward(b, [&input, &linked], Some(*values), gradient)?;
                flowing = to_input;
                contributions[*source].extend(to_linked);
            }
            let Some(gradient) = flowing else { continue };
            if let Some(entry) = &cell.entry {
                if wants_input {
                    entered.extend(entry.lower_backward(b, gradient));
                }
                continue;
            }
            match number.checked_sub(1) {
                Some(before) => contributions[before].push(gradient),
                None if network.row_prefix() > 0 => {
                    let total = network.row_shape().len();
                    input_gradient = Some(row_of(b, &[(network.row_prefix()..total, gradient)], total));
                }
                None => input_gradient = Some(gradient),
            }
        }
        if !entered.is_empty() {
            input_gradient = Some(row_of(b, &entered, network.row_shape().len()));
        }
        Ok(input_gradient.filter(|_| wants_input))
    }

    /// What the last layer read.
    pub fn last_input(&self) -> Value {
        self.layers.last().map_or(self.input, |layer| layer.inputs[0])
    }
}

/// The network's input in a program of this mode: sessions bring another number of steps.
fn shape_of_input(network: &Network, mode: Mode) -> Result<Shape> {
    let Some(session) = mode.session else { return Ok(network.row_shape()) };
    if !network.inputs.is_empty() {
        let named = network.named_input_shapes(Some(session.steps));
        return Ok(Shape::from(named.iter().map(|shape| shape.len()).sum::<usize>()));
    }
    match network.input_shape.rank() == 0 {
        true => Err(Error::Shape("a session needs an input with a time axis".into())),
        false => Ok(with_steps(&network.input_shape, session.steps)),
    }
}

impl Network {
    pub(crate) fn context(&self, placed: &PlacedLayer, mode: Mode) -> Context {
        let trained =
            placed.store.is_some_and(|store| self.trained_stores().any(|(other, _)| other == store));
        // What is tied computes as the layer that has the parameters.
        let owner = match placed.is_tied() {
            true => self.owners().find(|owner| owner.store == placed.store).unwrap_or(placed),
            false => placed,
        };
        let by_rows = |store: usize, index: usize| {
            let packing = self.registry.stores[store].packing_of(index);
            packing.is_some_and(|packing| packing.turned && packing.dtype.is_block_format())
        };
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
                    quantized: !mode.training && owner.numerics.of(info).numerics.activations.is_some(),
                    by_rows: by_rows(store, index),
                    trained,
                    made: None,
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
            cache: mode.session.map_or(CacheType::Full, |session| session.cache),
            parameters,
            adapters: self.bound_adapters(placed),
            states: states.collect(),
            ..Context::default()
        }
    }

    /// Whether an optimizer moves what a layer computes from.
    pub(crate) fn is_trained(&self, placed: &PlacedLayer) -> bool {
        let own = placed.store.filter(|_| placed.trainable);
        let own = own.is_some_and(|store| self.trained_stores().any(|(trained, _)| trained == store));
        own || placed.trained_stores().next().is_some()
    }

    /// The stores that an optimizer moves, with the layers that own them, in order.
    pub(crate) fn trained_stores(&self) -> impl Iterator<Item = (usize, &PlacedLayer)> {
        self.layers().flat_map(|placed| placed.trained_stores().map(move |store| (store, placed)))
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
