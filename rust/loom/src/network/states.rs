//! What layers keep beside their parameters, and carry from batch to batch.

use super::mode::Mode;
use super::placed::{Coordinates, at_layer, describe_path};
use super::{Network, Settled};
use crate::ops::{CacheType, Draw, Sampling};
use crate::program::LayerPath;
use crate::state::{Carried, CarriedPlace, CarriedSpec};
use crate::tensor::{Shape, Tensor, TensorView};
use crate::{Error, Result, error};

/// Where something that a layer holds beside its parameters is: its number.
enum Held {
    Kept(usize),
    Carried(usize),
}

impl Network {
    /// The names of what a layer keeps beside its parameters, such as running statistics, and of what it
    /// carries from batch to batch of training, once it carries anything; known once the network is built.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn state_names(&self, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let placed = self.layer(cell, layer)?;
        let kept = placed.states.clone().map(|number| self.registry.states[number].spec.name.to_string());
        let places = self.registry.begun().into_iter().flat_map(|carried| carried.places());
        let carried =
            places.filter(|place| place.path == placed.path).map(|place| place.spec.name.to_string());
        Ok(kept.chain(carried).collect())
    }

    /// The names of what a layer carries from batch to batch of training, whether it carries anything yet or
    /// not; known once the network is built.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn carried_names(&self, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let path = &self.layer(cell, layer)?.path;
        let places = self.carried_in_training().into_iter().filter(|place| place.path == *path);
        Ok(places.map(|place| place.spec.name.to_string()).collect())
    }

    /// What a layer keeps under this name, or carries: (rows, ...).
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or name that is not there, [`Error::State`] where
    /// nothing is carried yet.
    pub fn state(&mut self, cell: Coordinates, layer: usize, name: &str) -> Result<Tensor> {
        self.build()?;
        if let Held::Kept(_) = find_state(self, cell, layer, name)? {
            self.synchronize()?;
        }
        Settled(self).state(cell, layer, name)
    }

    /// Sets what a layer keeps under this name, or carries: (rows, ...), of as many rows as other layers
    /// carry. Where none carries anything, the others are then carried from their start.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::NonFinite`] for values that do not fit, [`Error::State`] where other
    /// rows are carried, and as [`state`](Network::state).
    pub fn set_state(
        &mut self,
        cell: Coordinates,
        layer: usize,
        name: &str,
        values: TensorView<'_>,
    ) -> Result<()> {
        self.build()?;
        let held = find_state(self, cell, layer, name)?;
        let context = describe_path(self.layer(cell, layer)?);
        let in_place = |error| error::in_context(&context, error);
        match held {
            Held::Kept(number) => {
                self.synchronize()?;
                self.registry.states[number].set(&values).map_err(in_place)?;
                self.registry.forget_device_states();
            }
            Held::Carried(number) => {
                if values.shape().is_empty() || values.rows() == 0 {
                    return Err(in_place(Error::Shape(format!("\"{name}\" needs at least one row"))));
                }
                self.prepare_carried([values.rows()]).map_err(in_place)?;
                let Some(carried) = &mut self.registry.carried else { return Ok(()) };
                carried.set(number, &values).map_err(in_place)?;
                carried.begun = true;
            }
        }
        self.passes.note_moved_states();
        Ok(())
    }

    /// Forgets what stateful layers carry from batch to batch of training: the next batch begins new sequences.
    pub fn reset_states(&mut self) {
        self.registry.carried = None;
        self.passes.newest = None;
    }

    /// Makes room for what layers carry through batches of so many rows in training.
    ///
    /// # Errors
    /// [`Error::State`] where the batches differ, or what is carried is of another number of rows.
    pub(crate) fn prepare_carried(&mut self, batches: impl IntoIterator<Item = usize>) -> Result<()> {
        if self.carries {
            for (number, rows) in batches.into_iter().enumerate() {
                self.prepare_carried_rows(rows, number > 0)?;
            }
        }
        Ok(())
    }

    fn prepare_carried_rows(&mut self, rows: usize, begun: bool) -> Result<()> {
        match &self.registry.carried {
            Some(carried) if carried.rows() == rows => Ok(()),
            Some(carried) if begun || carried.begun => Err(Error::State(format!(
                "stateful layers carry the state of {} rows, this batch has {rows}; give batches of one size, \
                 or call reset_states()",
                carried.rows()
            ))),
            _ => {
                let places = self.carried_in_training();
                self.registry.carried =
                    Some(Carried::new(places, rows, self.precision, self.device.accelerator().as_ref())?);
                Ok(())
            }
        }
    }

    /// What is carried from call to call in programs of this mode, with the number of its layer.
    pub(crate) fn carried_specs(&self, mode: Mode) -> Vec<(usize, CarriedSpec)> {
        let mut specs = Vec::new();
        for (number, placed) in self.layers().enumerate() {
            let inputs = placed.input_shapes();
            let capacity = mode.session.map_or(0, |session| session.capacity);
            let goes_on = mode.training && !mode.apart;
            let wanted = |spec: &CarriedSpec| mode.session.is_some() || (goes_on && spec.in_training);
            let cache = mode.session.map_or(CacheType::Full, |session| session.cache);
            let own = placed.layer.carried(&inputs, capacity).into_iter().filter(wanted);
            specs.extend(own.map(|spec| (number, spec.packed(cache, self.precision))));
        }
        if let Some(session) = mode.session.filter(|session| session.ahead > 0 && self.chooses(mode)) {
            let places = session.ahead + 1;
            let classes = self.output_shape().last().copied().unwrap_or(1);
            let drawn_by =
                [("draws", places), ("sampling", Sampling::NUMBERS), ("changes", Draw::changes(classes))];
            let specs_of = |(name, extent): (&'static str, usize)| CarriedSpec {
                name: name.into(),
                shape: Shape::from(extent),
                initial: 0.0,
                in_training: false,
                by_place: true,
                packable: None,
            };
            // Of no layer.
            let own = std::iter::once(("chosen", places)).chain(drawn_by);
            specs.extend(own.map(|own| (usize::MAX, specs_of(own))));
        }
        specs
    }

    /// The number that programs know by what a session has chosen; what it draws by comes behind that.
    pub(crate) fn chosen_place(&self, mode: Mode) -> Option<usize> {
        self.carried_specs(mode).iter().position(|(layer, _)| *layer == usize::MAX)
    }

    /// Whether sessions in this mode may go on by themselves: steps are whole numbers, one each.
    pub(crate) fn chooses(&self, mode: Mode) -> bool {
        mode.session.is_some() && self.index_limit().is_some() && matches!(self.input_shape[..], [_])
    }

    /// The same with the path of each layer, in the order of the numbers that programs know them by.
    pub(crate) fn carried_places(&self, mode: Mode) -> Vec<CarriedPlace> {
        let paths: Vec<&LayerPath> = self.layers().map(|placed| &placed.path).collect();
        let path = |layer: usize| paths.get(layer).map(|path| (*path).clone()).unwrap_or_default();
        let place = |(layer, spec): (usize, _)| CarriedPlace { path: path(layer), spec };
        self.carried_specs(mode).into_iter().map(place).collect()
    }

    /// What is carried from batch to batch of training.
    pub(crate) fn carried_in_training(&self) -> Vec<CarriedPlace> {
        self.carried_places(Mode { training: true, ..Mode::default() })
    }
}

impl Settled<'_> {
    /// [`Network::state`].
    ///
    /// # Errors
    /// As [`Network::state`].
    pub fn state(self, cell: Coordinates, layer: usize, name: &str) -> Result<Tensor> {
        let Self(network) = self;
        match find_state(network, cell, layer, name)? {
            Held::Kept(number) => network.registry.states[number].tensor(network.precision),
            Held::Carried(number) => match network.registry.begun() {
                Some(carried) => carried.tensor(number),
                None => Err(at_layer(
                    network.layer(cell, layer)?,
                    Error::State(format!(
                        "\"{name}\" carries nothing: no batch has passed since it was reset; set it, or train first"
                    )),
                )),
            },
        }
    }
}

fn find_state(network: &Network, cell: Coordinates, layer: usize, name: &str) -> Result<Held> {
    let placed = network.layer(cell, layer)?;
    let mut kept = placed.states.clone();
    if let Some(number) = kept.find(|number| network.registry.states[*number].spec.name == name) {
        return Ok(Held::Kept(number));
    }
    let places = network.carried_in_training();
    let own = |place: &CarriedPlace| place.path == placed.path;
    if let Some(number) = places.iter().position(|place| own(place) && place.spec.name == name) {
        return Ok(Held::Carried(number));
    }
    let kept = placed.states.clone().map(|number| &*network.registry.states[number].spec.name);
    let carried = places.iter().filter(|place| own(place)).map(|place| &*place.spec.name);
    Err(at_layer(placed, unknown_state(name, kept.chain(carried))))
}

/// The error of a layer that was asked for a state that is not among those it has.
pub(crate) fn unknown_state<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let names: Vec<&str> = known.collect();
    match names.is_empty() {
        true => Error::Value(format!(
            "the layer has no state, so no \"{name}\"; recurrent layers carry one where stateful is true"
        )),
        false => error::unknown("state", name, names.iter().copied()),
    }
}
