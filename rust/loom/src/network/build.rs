//! Shape inference and initial weights.

use super::entry::with_steps;
use super::feedback::FeedbackMaps;
use super::lower::no_context;
use super::shapes::{LayerShapes, NetworkShapes};
use super::{Combine, Link, Network, PlacedAdapter, PlacedLayer, at_layer};
use crate::layers::{ParameterSpec, output_of};
use crate::precision::in_precision;
use crate::program::LayerPath;
use crate::random::{Stream, Use, path_within};
use crate::simd::Cpu;
use crate::state::State;
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout, WeightStore};
use crate::{Error, Result, error, extents, interrupt};
use std::borrow::Cow;

/// How the weights of a new layer begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// By their initializers.
    Drawn,
    /// As zeros, until they are set.
    Zeros,
    /// Without masters: packed ones come.
    WithoutMaster,
    /// Not at all: they are only told of.
    Outlined,
}

impl Network {
    /// Infers every shape and makes initial weights for layers that have none yet.
    ///
    /// Building twice changes nothing. Layers whose parameters still fit keep them,
    /// so a network may grow after training.
    ///
    /// # Errors
    /// [`Error::Shape`] listing every layer whose input does not fit, with its cell, what it
    /// expected and what it got; [`Error::Value`] where there is no layer at all.
    pub fn build(&mut self) -> Result<()> {
        self.build_with(&|_, _| Beginning::Drawn)
    }

    /// A network that is built like this one, but has no weights, nor memory for them: to look at, however
    /// large it is.
    ///
    /// # Errors
    /// As [`build`](Network::build).
    pub fn outline(&self) -> Result<Self> {
        let mut outline = Self::with_options(self.input_shape.clone(), self.grid, self.precision, self.seed)?;
        outline.links = self.links.clone();
        outline.variable = self.variable.clone();
        outline.inputs = self.inputs.clone();
        outline.outputs = self.outputs.clone();
        for (cell, placed) in outline.cells.iter_mut().zip(&self.cells) {
            cell.extend(placed.iter().map(|placed| PlacedLayer {
                trainable: placed.trainable,
                frozen: placed.frozen.clone(),
                adapters: placed.adapters().cloned().map(PlacedAdapter::new).collect(),
                rate_factor: placed.rate_factor,
                numerics: placed.numerics.clone(),
                ..PlacedLayer::new(placed.layer.clone(), placed.path.clone())
            }));
        }
        outline.build_with(&|_, _| Beginning::Outlined)?;
        Ok(outline)
    }

    /// [`build`](Network::build), where a layer has no memory for its weights until the first of them is set or
    /// [lent](Network::lend), and is zero in what is not: for whoever does so with every parameter next.
    ///
    /// # Errors
    /// As [`build`](Network::build).
    pub fn build_bare(&mut self) -> Result<()> {
        self.build_with(&|_, _| Beginning::WithoutMaster)
    }

    /// [`build`](Network::build), where the weights of new layers begin as is said.
    pub(crate) fn build_with(
        &mut self,
        beginning: &dyn Fn(&PlacedLayer, &[ParameterSpec]) -> Beginning,
    ) -> Result<()> {
        if self.built {
            return Ok(());
        }
        self.check_ports()?;
        let NetworkShapes { layers: shapes, cells: cell_shapes } = self.shapes_to_build()?;
        self.check_contexts_are_read()?;
        self.check_indices_arrive()?;
        self.synchronize()?;
        self.check_brought(shapes.iter().map(|shapes| &shapes.inputs[..]))?;
        let epoch = self.registry.epoch();
        let mut stores = Vec::new();
        let mut kept = Vec::new();
        let mut assigned = Vec::new();
        let mut adapters = Vec::new();
        for (placed, shapes) in self.layers().zip(&shapes) {
            interrupt::check()?;
            let specs = placed.layer.parameters(&shapes.inputs);
            let adapter_specs = placed.adapter_specs(&specs)?;
            check_names(placed, &specs, &adapter_specs)?;
            if specs.is_empty() || placed.is_tied() {
                assigned.push(None);
                adapters.push(Vec::new());
                continue;
            }
            let existing = placed.store.filter(|store| fits(&self.registry.stores[*store], &specs));
            assigned.push(Some(stores.len()));
            kept.push(existing);
            stores.push(match existing {
                Some(_) => None,
                None => {
                    let made = match beginning(placed, &specs) {
                        Beginning::WithoutMaster => {
                            WeightStore::without_master(self.precision, &layouts_of(&specs))
                        }
                        Beginning::Outlined => {
                            WeightStore::without_master(self.precision, &layouts_of(&specs)).and_then(
                                |store| {
                                    let choices = placed.numerics.choices(&store);
                                    store.outlined(&choices)
                                },
                            )
                        }
                        drawn => self.brought_store(placed, &specs, drawn == Beginning::Drawn),
                    };
                    Some(made.map_err(|error| at_layer(placed, error))?)
                }
            });
            let mut own = Vec::with_capacity(adapter_specs.len());
            let beside = stores.len() - 1;
            for (adapter, specs) in placed.adapters.iter().zip(adapter_specs) {
                own.push(stores.len());
                let existing = adapter.store.filter(|store| fits(&self.registry.stores[*store], &specs));
                kept.push(existing);
                stores.push(match existing {
                    Some(_) => None,
                    None => {
                        let beside = match (&stores[beside], kept[beside]) {
                            (Some(fresh), _) => fresh,
                            (None, store) => self.registry.held(store.unwrap_or(usize::MAX))?,
                        };
                        let beginning = beginning(placed, &specs);
                        let made = self.adapter_store((placed, beside), adapter, &specs, beginning);
                        Some(made.map_err(|error| at_layer(placed, error))?)
                    }
                });
            }
            adapters.push(own);
        }
        let states = self.fresh_states(&shapes, beginning)?;
        let ties = self.ties(&shapes, &assigned)?;
        let brought = self.brought_carried();
        let mut old: Vec<Option<WeightStore>> = self.registry.stores.drain(..).map(Some).collect();
        self.registry.stores = stores
            .into_iter()
            .zip(kept)
            .map(|(fresh, existing)| fresh.or_else(|| old[existing?].take()))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::Internal("a weight store was lost while building".into()))?;
        self.registry.layer_stores = self.registry.stores.len();
        self.feedback = FeedbackMaps::default();
        self.registry.watch = None;
        self.registry.clear_gradients();
        self.restart_optimizer();
        self.registry.pass_epoch(epoch);
        let carried = self.registry.carried.take();
        // Stores may have changed places: copies on a device are of the old ones.
        self.registry.place_on(self.device.mirror());
        self.registry.states.clear();
        let layers = self.cells.iter_mut().flatten();
        for (number, ((((placed, shapes), store), own), states)) in
            layers.zip(shapes).zip(assigned).zip(adapters).zip(states).enumerate()
        {
            placed.store = store.or(ties[number]);
            for (adapter, store) in placed.adapters.iter_mut().zip(own) {
                (adapter.store, adapter.brought) = (Some(store), None);
            }
            let first = self.registry.states.len();
            self.registry.states.extend(states);
            placed.states = first..self.registry.states.len();
            placed.take_shapes(shapes);
            placed.brought.clear();
        }
        let places = self.carried_in_training();
        self.carries = !places.is_empty();
        let device = self.device.accelerator();
        self.registry.carried = match carried.filter(|carried| carried.begun) {
            Some(carried) => carried.arranged(places, device.as_ref())?,
            None => None,
        };
        self.cell_shapes = cell_shapes;
        self.packed_output = self.packed_output_shape();
        self.built = true;
        self.invalidate();
        self.carry_brought(brought)?;
        self.refresh_versions()
    }

    /// What every layer keeps: what it has kept so far where that still fits, and no memory where it is only told of.
    fn fresh_states(
        &self,
        shapes: &[LayerShapes],
        beginning: &dyn Fn(&PlacedLayer, &[ParameterSpec]) -> Beginning,
    ) -> Result<Vec<Vec<State>>> {
        let of_layer = |(placed, shapes): (&PlacedLayer, &LayerShapes)| {
            let specs = placed.layer.states(&shapes.inputs);
            let held = &self.registry.states[placed.states.clone()];
            let fits =
                held.len() == specs.len() && held.iter().zip(&specs).all(|(held, spec)| held.spec == *spec);
            if fits {
                return Ok(held.to_vec());
            }
            let outlined = beginning(placed, &[]) == Beginning::Outlined;
            let fresh = specs.into_iter().map(|spec| match placed.brought_state(&spec.name) {
                Some(content) => Ok(State { spec, content: content.clone() }),
                None if outlined => Ok(State::outlined(spec)),
                None => State::new(spec, self.precision),
            });
            fresh.collect::<Result<_>>().map_err(|error| at_layer(placed, error))
        };
        self.layers().zip(shapes).map(of_layer).collect()
    }

    /// The stores of layers that use another one's parameters.
    fn ties(&self, of_layers: &[LayerShapes], assigned: &[Option<usize>]) -> Result<Vec<Option<usize>>> {
        let store_of = |placed: &PlacedLayer, shapes: &LayerShapes| {
            let Some(at) = placed.layer.tied_to() else { return Ok(None) };
            let source = LayerPath::new(at[0], at[1], at[2], at[3]);
            let found =
                self.layers().zip(of_layers).zip(assigned).find(|((other, _), _)| other.path == source);
            let Some(((owner, owned), Some(store))) = found else {
                return Err(Error::Value(format!(
                    "layer {source}, whose parameters it is to use, is not there or has none"
                )));
            };
            let names = |layer: &PlacedLayer, inputs: &[Shape]| {
                let specs = layer.layer.parameters(inputs).into_iter();
                specs.map(|spec| (spec.name, spec.layout)).collect::<Vec<_>>()
            };
            if names(placed, &shapes.inputs) != names(owner, &owned.inputs) {
                return Err(Error::Shape(format!(
                    "the parameters of layer {source}, which it is to use, have other names or shapes"
                )));
            }
            Ok(Some(*store))
        };
        let place = |(placed, shapes)| store_of(placed, shapes).map_err(|error| at_layer(placed, error));
        self.layers().zip(of_layers).map(place).collect()
    }

    /// Checks that the layers, as they are, fit sequences of another length, and returns the shape of what
    /// each cell hands on for that.
    ///
    /// # Errors
    /// [`Error::Shape`] naming a layer whose parameters depend on the length.
    pub(crate) fn infer_shapes_for(&self, steps: usize) -> Result<Vec<Shape>> {
        let named = self.named_input_shapes(Some(steps));
        let found = self.infer_shapes_of(with_steps(&self.input_shape, steps), &named)?;
        for (placed, shapes) in self.layers().zip(found.layers) {
            if !placed.layer.is_stepwise() {
                let error = Error::State("it needs whole sequences, so it cannot run in a session".into());
                return Err(at_layer(placed, error));
            }
            if placed.layer.takes_context() {
                let error = Error::State(
                    "it reads a second input, of which a session would bring no more than the newest steps"
                        .into(),
                );
                return Err(at_layer(placed, error));
            }
            let specs = placed.layer.parameters(&shapes.inputs);
            if let Some(store) = placed.store
                && !fits(&self.registry.stores[store], &specs)
            {
                let error = Error::Shape(
                    "its parameters depend on the length of the sequence, so it cannot run in a session"
                        .into(),
                );
                return Err(at_layer(placed, error));
            }
        }
        Ok(found.cells)
    }

    /// Extents all over the network for an input of this shape.
    pub(crate) fn infer_shapes(&self, input: Shape) -> Result<NetworkShapes> {
        self.infer_shapes_of(input, &self.named_input_shapes(None))
    }

    /// Extents all over the network for an input of this shape, or for named inputs of these.
    ///
    /// What a link that points back brings is known only once its source is: until then its target is
    /// looked at as if nothing came, again and again until nothing new becomes known.
    pub(super) fn infer_shapes_of(&self, input: Shape, named: &[Shape]) -> Result<NetworkShapes> {
        let mut known: Vec<Option<Shape>> = vec![None; self.cells.len()];
        let mut points_back = false;
        for cell in 0..self.cells.len() {
            points_back |= self.links_to(cell)?.iter().any(|(source, _)| *source >= cell);
        }
        // Each pass but the last makes the output of one more cell known, or none for good.
        let passes = if points_back { self.cells.len() + 1 } else { 0 };
        for _ in 0..passes {
            let before = known.clone();
            self.infer_pass((&input, named), &mut known, false)?;
            if before == known {
                break;
            }
        }
        let settled = known.clone();
        let layers = self.infer_pass((&input, named), &mut known, true)?;
        if points_back && settled != known {
            return Err(Error::Shape(
                "the shapes around a link that points back do not settle: each pass through the loop makes \
                 them larger; add links instead of concatenating them, or put a layer of fixed output into \
                 the loop"
                    .into(),
            ));
        }
        if layers.is_empty() {
            return Err(Error::Value("the network has no layer; add one to a cell first".into()));
        }
        let cells: Option<Vec<Shape>> = known.into_iter().collect();
        let cells = cells.ok_or_else(|| Error::Internal("a cell's shape was not found out".into()))?;
        Ok(NetworkShapes { layers, cells })
    }

    /// Passes through the grid once, with what is known of the cells' outputs, and notes what becomes known.
    /// Unless `strict`, what does not fit is left unknown.
    fn infer_pass(
        &self,
        (input, named): (&Shape, &[Shape]),
        known: &mut [Option<Shape>],
        strict: bool,
    ) -> Result<Vec<LayerShapes>> {
        let mut shape = Some(input.clone());
        let mut shapes = Vec::new();
        let keep = |result: Result<Shape>| match result {
            Err(error) if strict => Err(error),
            other => Ok(other.ok()),
        };
        for (number, cell) in self.cells.iter().enumerate() {
            if let Some(entry) = self.entry(number, named)? {
                shape = Some(entry.shape().clone());
            }
            let mut context = None;
            for (source, link) in self.links_to(number)? {
                match (&shape, &known[source]) {
                    (Some(held), Some(linked)) => shape = keep(combined(link, held, linked))?,
                    (None, Some(linked)) if link.combine == Combine::Replace => shape = Some(linked.clone()),
                    (Some(_), None) if strict => return Err(link.unknown_source()),
                    _ => {}
                }
                if link.combine == Combine::Context {
                    context = known[source].clone();
                }
            }
            for placed in cell {
                let Some(input) = shape.take() else { break };
                let mut inputs = vec![input];
                if placed.layer.takes_context() {
                    match &context {
                        Some(context) => inputs.push(context.clone()),
                        None if strict => return Err(at_layer(placed, no_context())),
                        // From behind, and most likely like what comes from before.
                        None => inputs.push(inputs[0].clone()),
                    }
                }
                let output = output_of(&*placed.layer, &inputs).map_err(|error| at_layer(placed, error));
                shape = keep(output)?;
                if let Some(output) = &shape {
                    shapes.push(LayerShapes { inputs, output: output.clone() });
                }
            }
            known[number] = shape.clone();
        }
        Ok(shapes)
    }

    /// Refuses a layer that reads whole numbers where layers or links come before it that would change them.
    fn check_indices_arrive(&self) -> Result<()> {
        // Whether what each cell hands on is made of the input's elements as they are.
        let mut handed_on: Vec<bool> = Vec::with_capacity(self.cells.len());
        let mut unchanged = true;
        for (number, cell) in self.cells.iter().enumerate() {
            unchanged |= self.enters(number);
            for (source, link) in self.links_to(number)? {
                unchanged &= match link.combine {
                    Combine::Add | Combine::Multiply | Combine::Replace => false,
                    // Whose whole numbers these are is told by where they enter.
                    Combine::Concat if !self.inputs.is_empty() => false,
                    // What points back comes from behind some layer, most likely.
                    Combine::Concat => handed_on.get(source).copied().unwrap_or(false),
                    Combine::Context => true,
                };
            }
            for placed in cell {
                if placed.layer.index_limit().is_some() && !unchanged {
                    return Err(at_layer(
                        placed,
                        Error::Value("the layer reads whole numbers, so only layers that keep them as they are (flatten, reshape) may come before it, and no link that adds to them".into()),
                    ));
                }
                unchanged &= placed.layer.keeps_elements();
            }
            handed_on.push(unchanged);
        }
        Ok(())
    }

    /// What every element of the input must be below, where the network reads whole numbers.
    /// Of several inputs [`index_limits`](Self::index_limits) tells.
    pub fn index_limit(&self) -> Option<usize> {
        if !self.inputs.is_empty() {
            return None;
        }
        self.layers()
            .find(|placed| !placed.layer.keeps_elements())
            .and_then(|first| first.layer.index_limit())
    }

    /// A store of initial weights, or of zeros where none are `drawn`.
    pub(crate) fn initial_store(
        &self,
        path: u32,
        specs: &[ParameterSpec],
        drawn: bool,
    ) -> Result<WeightStore> {
        let layouts = layouts_of(specs);
        let mut store = in_precision!(self.precision, T => WeightStore::new::<T>(&layouts))?;
        for (index, spec) in specs.iter().enumerate().filter(|_| drawn) {
            let (rows, columns) = spec.layout.storage_matrix();
            let stream = Stream::new(self.seed, index as u64, path, Use::Initialize);
            if spec.initializer == Initializer::Lengths {
                let (_, columns) = spec.layout.storage_matrix();
                store.set_storage_from(
                    index,
                    0,
                    &lengths(&store.get(index.saturating_sub(1))?.to_f64(), columns),
                )?;
                continue;
            }
            spec.initializer.draw(&stream, (spec.fan_in, spec.fan_out), (rows, columns), |first, part| {
                store.set_storage_from(index, first, part)
            })?;
        }
        Ok(store)
    }

    /// The store of an adapter that has none yet: what a copy brings, or drawn, with the lengths of the weights that it is
    /// to stand beside.
    fn adapter_store(
        &self,
        (placed, beside): (&PlacedLayer, &WeightStore),
        adapter: &PlacedAdapter,
        specs: &[ParameterSpec],
        beginning: Beginning,
    ) -> Result<WeightStore> {
        if let Some(store) = adapter.brought.as_ref().filter(|store| fits(store, specs)) {
            return Ok(store.clone());
        }
        if beginning == Beginning::Outlined {
            let store = WeightStore::without_master(self.precision, &layouts_of(specs))?;
            let choices = vec![None; specs.len()];
            return store.outlined(&choices);
        }
        // Adapters of other names in one layer begin with other numbers.
        let letters = adapter.settings.name.bytes().map(u32::from);
        let path = letters.fold(path_within(placed.path.hash32(), u32::MAX), path_within);
        let mut store = self.initial_store(path, specs, beginning != Beginning::Zeros)?;
        if beginning == Beginning::Drawn && adapter.settings.decomposed {
            let parts = adapter.settings.parts().len();
            for (number, weight) in adapter.settings.parameters.iter().enumerate() {
                let own = beside.parameters().iter().position(|info| info.name == *weight);
                let own = own.ok_or_else(|| Error::Internal(format!("\"{weight}\" was lost")))?;
                let index = number * parts + parts - 1;
                let outputs = store.parameters()[index].len();
                store.set_storage_from(index, 0, &lengths(&beside.decoded(own)?.to_f64(), outputs))?;
            }
        }
        Ok(store)
    }

    /// Tells every store what its random draws are keyed by.
    pub(crate) fn key_draws(&mut self) {
        for placed in self.cells.iter().flatten().filter(|placed| !placed.is_tied()) {
            if let Some(store) = placed.store {
                self.registry.stores[store].key_draws(self.seed, placed.path.hash32());
            }
        }
        self.note_updates();
    }

    /// Tells every store how many updates there were, which random draws are keyed by.
    pub(crate) fn note_updates(&mut self) {
        let updates = self.optimizer_state.updates;
        self.registry.stores.iter_mut().for_each(|store| store.set_updates(updates));
    }

    /// Encodes anew every version that its master has left behind.
    pub(crate) fn refresh_versions(&mut self) -> Result<()> {
        self.key_draws();
        let owned = self.cells.iter().flatten().filter(|placed| !placed.is_tied());
        for placed in owned {
            if let Some(store) = placed.store.filter(|_| placed.numerics.is_packed()) {
                let store = &mut self.registry.stores[store];
                let refreshed = match store.is_packed() {
                    true => store.refresh(Cpu::global()?),
                    // The layer's types came with its config, before there were weights.
                    false => store.choose(&placed.numerics.choices(store)),
                };
                refreshed.map_err(|error| at_layer(placed, error))?;
            }
        }
        Ok(())
    }
}

impl Network {
    /// Whether everything that layers name is there and fits them, as it is between any two calls.
    pub fn is_whole(&self) -> bool {
        let registry = &self.registry;
        self.layers().all(|placed| {
            let inputs: Vec<Shape> =
                [&placed.input_shape, &placed.context_shape].into_iter().flatten().cloned().collect();
            let stored = match placed.store {
                None => true,
                Some(number) => registry
                    .stores
                    .get(number)
                    .is_some_and(|store| inputs.is_empty() || fits(store, &placed.layer.parameters(&inputs))),
            };
            let has_adapters = inputs.is_empty()
                || placed.has_whole_adapters(&registry.stores, &placed.layer.parameters(&inputs));
            stored
                && has_adapters
                && placed.states.end <= registry.states.len()
                && placed.states.start <= placed.states.end
        }) && registry.stores.len() >= registry.layer_stores
    }
}

/// The length of each of so many rows of a parameter as the outside sees it.
fn lengths(elements: &[f64], rows: usize) -> Vec<f64> {
    let length = |row: &[f64]| row.iter().fold(0.0, |sum, x| sum + x * x).sqrt();
    elements.chunks((elements.len() / rows.max(1)).max(1)).map(length).collect()
}

/// What a link makes of a cell's input.
fn combined(link: &Link, held: &Shape, linked: &Shape) -> Result<Shape> {
    let shape = link.combined_shape(held, linked)?;
    extents::check("what a link makes", &shape)?;
    Ok(shape)
}

/// Refuses settings of parameters that neither a layer nor, where they are frozen, its adapters have.
fn check_names(placed: &PlacedLayer, specs: &[ParameterSpec], adapters: &[Vec<ParameterSpec>]) -> Result<()> {
    let frozen =
        placed.frozen.iter().filter(|name| adapters.iter().flatten().all(|spec| spec.name != **name));
    let packed = placed.numerics.parameters.iter().map(|(name, _)| name);
    for name in frozen.chain(packed) {
        if specs.is_empty() {
            let error = format!("the layer has no parameters, so none named \"{name}\"");
            return Err(at_layer(placed, Error::Value(error)));
        }
        if specs.iter().all(|spec| spec.name != *name) {
            let known = specs.iter().map(|spec| &*spec.name);
            return Err(at_layer(placed, error::unknown("parameter", name, known)));
        }
    }
    Ok(())
}

fn layouts_of(specs: &[ParameterSpec]) -> Vec<(Cow<'static, str>, Layout, bool)> {
    specs.iter().map(|spec| (spec.name.clone(), spec.layout.clone(), spec.morphable)).collect()
}

/// Whether a store has just these parameters.
pub(super) fn fits(store: &WeightStore, specs: &[ParameterSpec]) -> bool {
    store.parameters().len() == specs.len()
        && store
            .parameters()
            .iter()
            .zip(specs)
            .all(|(have, want)| have.name == want.name && have.layout == want.layout)
}
