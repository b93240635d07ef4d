//! Layers that are put in, taken out and exchanged after a network was made, and copies of layers for that.

use super::build::fits;
use super::numerics::Chosen;
use super::placed::{Coordinates, LayerCopy, Piece, PlacedLayer, at_layer, describe_path, no_layer};
use super::{Network, Settled};
use crate::layers::{self, Layer, ParameterSpec};
use crate::program::LayerPath;
use crate::state::Carried;
use crate::tensor::{Buffer, Shape, Tensor};
use crate::weights::WeightStore;
use crate::{Error, Result};
use std::sync::Arc;

/// A layer that is to be put into a network.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its description.
    pub layer: Arc<dyn Layer>,
    /// What it takes over of copies; the rest of its weights is drawn.
    pub pieces: Vec<Piece>,
}

impl Incoming {
    /// A layer with initial weights.
    pub fn fresh(layer: impl Layer + 'static) -> Self {
        Self { layer: Arc::new(layer), pieces: Vec::new() }
    }

    /// A layer as it was copied.
    pub fn copy(copy: LayerCopy) -> Self {
        let copy = Arc::new(copy);
        Self { layer: copy.layer().clone(), pieces: vec![Piece::whole(copy)] }
    }

    fn placed(mut self, network: &Network, path: LayerPath) -> Result<PlacedLayer> {
        if !matches!(&self.pieces[..], [piece] if piece.is_whole()) {
            self.pieces = self.pieces.into_iter().map(Piece::thawed).collect::<Result<_>>()?;
        }
        let mut placed = PlacedLayer::new(self.layer, path);
        for Piece { copy, .. } in &self.pieces {
            if copy.precision.stored() != network.precision.stored() {
                let error = format!(
                    "the layer is of a {} network, this one is {}; weights are copied within one precision alone",
                    copy.precision, network.precision
                );
                return Err(at_layer(&copy.placed, Error::Value(error)));
            }
        }
        match &self.pieces[..] {
            [piece] if piece.is_whole() => {
                let PlacedLayer { layer, path, .. } = placed;
                placed = PlacedLayer { layer, path, input_shape: None, ..piece.copy.placed.clone() };
            }
            pieces => {
                let with_weights = || pieces.iter().filter(|piece| piece.copy.store.is_some());
                with_weights().try_for_each(|piece| placed.take_settings(piece, with_weights().next()))?;
            }
        }
        placed.brought = self.pieces;
        Ok(placed)
    }
}

impl PlacedLayer {
    /// Takes over how a piece's parameters are trained and stored.
    fn take_settings(&mut self, piece: &Piece, first: Option<&Piece>) -> Result<()> {
        let held = &piece.copy.placed;
        if let Some(first) = first.map(|first| &first.copy.placed)
            && first.rate_factor != held.rate_factor
        {
            let error = format!(
                "its rate factor is {}, that of {} is {}; what becomes one layer has one rate factor, so set \
                 them alike",
                held.rate_factor,
                describe_path(first),
                first.rate_factor
            );
            return Err(at_layer(held, Error::Value(error)));
        }
        if !held.adapters.is_empty() {
            let error = "it has adapters, which only a whole layer takes along; merge or remove them first";
            return Err(at_layer(held, Error::State(error.into())));
        }
        self.rate_factor = held.rate_factor;
        let Some(store) = &piece.copy.store else { return Ok(()) };
        if store.is_dropped() {
            let error =
                "its full-precision master was dropped; call unpack() before it becomes part of another";
            return Err(at_layer(held, Error::State(error.into())));
        }
        for info in store.parameters() {
            let Some(name) = piece.renamed(&info.name) else { continue };
            if !held.trainable || held.frozen.iter().any(|frozen| *frozen == info.name) {
                self.frozen.push(name.clone());
            }
            let chosen = held.numerics.of(info);
            if chosen != Chosen::default() {
                self.numerics.parameters.push((name, chosen));
            }
        }
        Ok(())
    }

    /// What a copy brings of something that the layer keeps.
    pub(super) fn brought_state(&self, name: &str) -> Option<&Buffer> {
        let named = |piece: &'_ Piece, known: &str| piece.renamed(known).is_some_and(|known| known == name);
        self.brought.iter().find_map(|piece| {
            let state = piece.copy.states.iter().find(|state| named(piece, &state.spec.name))?;
            Some(&state.content)
        })
    }

    /// Refuses copies of parameters and states that the layer does not have for these inputs.
    fn check_pieces(&self, inputs: &[Shape]) -> Result<()> {
        let (specs, states) = (self.layer.parameters(inputs), self.layer.states(inputs));
        let misfit = |piece: &Piece, name: &str, held: &Shape, needed: Option<Shape>| {
            let source = describe_path(&piece.copy.placed);
            let needed = needed.map_or("has no such".to_string(), |needed| format!("needs {needed}"));
            let error =
                format!("the copy's \"{name}\", of {source}, has shape {held}, the layer here {needed}");
            Err(at_layer(self, Error::Shape(error)))
        };
        for piece in &self.brought {
            for info in piece.copy.store.iter().flat_map(|store| store.parameters()) {
                let Some(name) = piece.renamed(&info.name) else { continue };
                let spec = specs.iter().find(|spec| spec.name == name);
                if spec.is_none_or(|spec| spec.layout != info.layout) {
                    let needed = spec.map(|spec| Shape::new(spec.layout.outside_shape()));
                    return misfit(piece, &name, &Shape::new(info.layout.outside_shape()), needed);
                }
            }
            for state in &piece.copy.states {
                let Some(name) = piece.renamed(&state.spec.name) else { continue };
                let spec = states.iter().find(|spec| spec.name == name);
                if spec.is_none_or(|spec| spec.shape != state.spec.shape) {
                    return misfit(piece, &name, &state.spec.shape, spec.map(|spec| spec.shape.clone()));
                }
            }
        }
        Ok(())
    }
}

/// Something that a copy carried, where it is to be carried on: the layer, the name, the values.
pub(super) type BroughtCarried = (LayerPath, String, Tensor);

/// A layer without what it has in its network.
fn alone(placed: &PlacedLayer) -> PlacedLayer {
    PlacedLayer {
        store: None,
        states: 0..0,
        context_shape: None,
        output_shape: None,
        brought: Vec::new(),
        ..placed.clone()
    }
}

impl Settled<'_> {
    /// [`Network::copy_layer`].
    ///
    /// # Errors
    /// As [`Network::copy_layer`].
    pub fn copy_layer(self, cell: Coordinates, layer: usize) -> Result<LayerCopy> {
        self.0.copied(cell, layer)
    }
}

impl Network {
    /// A copy of a layer with all that belongs to it, to be [put](Network::insert) into another place.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there, and whatever [`build`](Network::build) refuses, unless
    /// the layer has its weights already.
    pub fn copy_layer(&mut self, cell: Coordinates, layer: usize) -> Result<LayerCopy> {
        self.layer(cell, layer)?;
        let built = self.build();
        self.synchronize()?;
        let placed = self.layer(cell, layer)?;
        match (built, &placed.brought[..]) {
            (Ok(()), _) => {}
            (_, [piece]) if piece.is_whole() => {
                let input_shape = piece.copy.placed.input_shape.clone();
                let placed = PlacedLayer { input_shape, ..alone(placed) };
                return Ok(LayerCopy { placed, ..(*piece.copy).clone() });
            }
            (Err(_), _) if placed.input_shape.is_some() => {}
            (Err(error), _) => return Err(error),
        }
        self.copied(cell, layer)
    }

    /// A copy of a layer that has its weights where they are read.
    fn copied(&self, cell: Coordinates, layer: usize) -> Result<LayerCopy> {
        let (placed, registry) = (self.layer(cell, layer)?, &self.registry);
        let mut alone = alone(placed);
        for adapter in &mut alone.adapters {
            adapter.brought = adapter.store.take().map(|store| registry.stores[store].clone());
        }
        let carried = registry.begun().map(|carried| carried.of_layer(&placed.path)).transpose()?;
        Ok(LayerCopy {
            placed: alone,
            precision: self.precision,
            store: placed.store.filter(|_| !placed.is_tied()).map(|store| registry.stores[store].clone()),
            states: registry.states[placed.states.clone()].to_vec(),
            carried: carried.unwrap_or_default(),
        })
    }

    /// Puts a layer into a cell, before the one that has this place until then, or at the end.
    ///
    /// The other layers keep what they have; where their inputs have other shapes from then on, weights that do
    /// not fit any more are drawn anew when the network is built. Layers that use the parameters of one that
    /// moves go on using them; so does one that comes in, whose `tied_to` is of the places before. The optimizer
    /// starts anew.
    ///
    /// ```
    /// use loom::{Network, layers::{Dense, LayerNorm}, network::Incoming};
    ///
    /// let mut network = Network::sequential([4])?;
    /// network.add([0, 0, 0], Dense::new(8))?;
    /// network.add([0, 0, 0], Dense::new(3))?;
    /// network.insert([0, 0, 0], 1, Incoming::fresh(LayerNorm::default()))?;
    /// let mut other = Network::sequential([4])?;
    /// other.insert([0, 0, 0], 0, Incoming::copy(network.copy_layer([0, 0, 0], 0)?))?;
    /// other.build()?;
    /// assert_eq!(other.parameter([0, 0, 0], 0, "weight")?, network.parameter([0, 0, 0], 0, "weight")?);
    /// # Ok::<(), loom::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Index`] for a place that is not there; [`Error::Value`] for a copy of another precision, or
    /// pieces that cannot become parts of one layer; [`Error::Shape`] for copied weights that do not fit there;
    /// [`Error::State`] where what a copy carries is of another number of rows. Nothing has changed then.
    pub fn insert(&mut self, cell: Coordinates, place: usize, incoming: Incoming) -> Result<()> {
        let index = self.cell_index(cell)?;
        let count = self.cells[index].len();
        if place > count {
            return Err(no_layer(cell, place, count));
        }
        let mut cells = self.cells.clone();
        cells[index].insert(place, incoming.placed(self, path_in(cell, place))?);
        // Behind the last layer nothing moves, and what is tied to a place there waits for a layer to come.
        let moved = |other: usize| Some(other + usize::from(other >= place && place < count));
        self.rearrange(cells, cell, &moved, &moved)
    }

    /// Puts a layer in the place of another one; see [`insert`](Network::insert).
    ///
    /// # Errors
    /// As [`insert`](Network::insert).
    pub fn replace(&mut self, cell: Coordinates, place: usize, incoming: Incoming) -> Result<()> {
        self.layer(cell, place)?;
        let index = self.cell_index(cell)?;
        let mut cells = self.cells.clone();
        cells[index][place] = incoming.placed(self, path_in(cell, place))?;
        self.rearrange(cells, cell, &Some, &|other| (other != place).then_some(other))
    }

    /// Takes a layer out; what is said of the other layers at [`insert`](Network::insert) holds here, too.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there, [`Error::Value`] where another one uses its parameters.
    /// Nothing has changed then.
    pub fn remove(&mut self, cell: Coordinates, place: usize) -> Result<()> {
        self.layer(cell, place)?;
        let index = self.cell_index(cell)?;
        let mut cells = self.cells.clone();
        cells[index].remove(place);
        let moved = |other: usize| (other != place).then_some(other - usize::from(other > place));
        self.rearrange(cells, cell, &moved, &moved)
    }

    /// Changes over to other layers in a cell; says for each place there where parameters that others use are
    /// from then on, and what the layer carries.
    fn rearrange(
        &mut self,
        mut cells: Vec<Vec<PlacedLayer>>,
        cell: Coordinates,
        moved: &dyn Fn(usize) -> Option<usize>,
        carries: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<()> {
        for placed in cells.iter_mut().flatten() {
            let Some([depth, row, column, place]) = placed.layer.tied_to() else { continue };
            if [depth, row, column] != cell || moved(place) == Some(place) {
                continue;
            }
            let Some(place) = moved(place) else {
                let error = "the layer uses the parameters of the one that is to go; take it out first";
                return Err(at_layer(placed, Error::Value(error.into())));
            };
            placed.layer =
                tied(&*placed.layer, [depth, row, column, place]).map_err(|error| at_layer(placed, error))?;
        }
        for (place, placed) in cells[self.cell_index(cell)?].iter_mut().enumerate() {
            placed.path = path_in(cell, place);
        }
        let before = std::mem::replace(&mut self.cells, cells);
        if let Err(error) = self.check_arrivals() {
            self.cells = before;
            return Err(error);
        }
        if let Some(carried) = &mut self.registry.carried {
            carried.relocate(|path| match path.indices() {
                [depth, row, column, place] if [*depth, *row, *column] == cell => {
                    carries(*place).map(|place| path_in(cell, place))
                }
                _ => Some(path.clone()),
            });
        }
        self.rearranged();
        Ok(())
    }

    /// Refuses copies that do not fit where they were put, as far as shapes are known by now.
    fn check_arrivals(&self) -> Result<()> {
        if self.layers().all(|placed| placed.brought.is_empty()) {
            return Ok(());
        }
        match self.infer_shapes(self.input_shape.clone()) {
            Ok(shapes) => self.check_brought(shapes.layers.iter().map(|shapes| &shapes.inputs[..])),
            // Layers that are still to come will make it fit.
            Err(_) => self.check_brought(std::iter::empty()),
        }
    }

    /// Refuses copies that do not fit inputs of these shapes, or the rows that are carried.
    pub(super) fn check_brought<'a>(&self, inputs: impl Iterator<Item = &'a [Shape]>) -> Result<()> {
        self.layers().zip(inputs).try_for_each(|(placed, inputs)| placed.check_pieces(inputs))?;
        let mut rows = self.registry.begun().map(Carried::rows);
        for placed in self.layers() {
            let carried = placed.brought.iter().flat_map(|piece| &piece.copy.carried);
            for (name, held) in carried.map(|(name, tensor)| (name, tensor.shape()[0])) {
                if *rows.get_or_insert(held) != held {
                    let error = format!(
                        "the copy carries \"{name}\" of {held} rows, the network carries {}; call reset_states() \
                         on one of them",
                        rows.unwrap_or(held)
                    );
                    return Err(at_layer(placed, Error::State(error)));
                }
            }
        }
        Ok(())
    }

    /// The weights of a layer that has none yet: drawn, and what copies bring.
    pub(super) fn brought_store(
        &self,
        placed: &PlacedLayer,
        specs: &[ParameterSpec],
        drawn: bool,
    ) -> Result<WeightStore> {
        if let [piece] = &placed.brought[..]
            && let (true, Some(store)) = (piece.is_whole(), &piece.copy.store)
            && fits(store, specs)
        {
            return Ok(store.clone());
        }
        let mut store = self.initial_store(placed.path.hash32(), specs, drawn)?;
        let mut parts = Vec::new();
        for piece in &placed.brought {
            let Some(source) = &piece.copy.store else { continue };
            for (number, info) in source.parameters().iter().enumerate() {
                let name = piece.renamed(&info.name);
                let index = specs.iter().position(|spec| Some(&*spec.name) == name.as_deref());
                parts.extend(index.map(|index| (index, source, number)));
            }
        }
        store.take_over(&parts)?;
        Ok(store)
    }

    /// What copies that are here for good from now on have carried.
    pub(super) fn brought_carried(&self) -> Vec<BroughtCarried> {
        let mut found = Vec::new();
        for placed in self.layers() {
            for piece in &placed.brought {
                for (name, tensor) in &piece.copy.carried {
                    found.extend(piece.renamed(name).map(|name| (placed.path.clone(), name, tensor.clone())));
                }
            }
        }
        found
    }

    /// Carries on what copies have carried.
    pub(super) fn carry_brought(&mut self, brought: Vec<BroughtCarried>) -> Result<()> {
        for (path, name, values) in brought {
            self.prepare_carried([values.shape()[0]])?;
            let Some(carried) = &mut self.registry.carried else { continue };
            let number = carried.places().iter().position(|at| at.path == path && at.spec.name == name);
            if let Some(number) = number {
                carried.set(number, &values.view())?;
                carried.begun = true;
            }
        }
        Ok(())
    }
}

fn path_in(cell: Coordinates, place: usize) -> LayerPath {
    LayerPath::new(cell[0], cell[1], cell[2], place)
}

/// The same layer with the parameters of the one that is here now.
fn tied(layer: &dyn Layer, at: [usize; 4]) -> Result<Arc<dyn Layer>> {
    let mut config = layer.config();
    config["tied_to"] = at.into_iter().collect();
    let layer = layers::from_config(&config)?;
    match layer.tied_to() == Some(at) {
        true => Ok(layer.into()),
        false => Err(Error::Value(
            "the layer's settings do not say in \"tied_to\" whose parameters it uses, so the one that has them \
             cannot move"
                .into(),
        )),
    }
}
