//! Networks as safetensors: masters, packed versions, config, and on request the optimizer's state.
//!
//! Tensors are named `z.y.x.l.name` (masters in the outside's layout, and what layers keep beside them), `z.y.x.l.name@dtype` and
//! `z.y.x.l.name@dtype.scale` (packed codes in storage order and their scales), and
//! `z.y.x.l@moment.name` (an optimizer's flat moments; of an adapter `z.y.x.l@adapter.its_name.moment.name`), and `z.y.x.l@carried.name` (what a stateful layer
//! carries from batch to batch); those of `watched.rs` and `calibrated.rs` come beside them.
//! `z.y.x.l.name@importance` is what a search for scales weighs the errors of a parameter's rows by. The
//! metadata holds `loom.format`, `loom.config` and, with the optimizer's state, `loom.training`,
//! `loom.watched` and `loom.notes` (see [`Notes`]), whose arrays are named `training@note.name`; and
//! `loom.card`, where there is one (see [`Network::card`]).
//!
//! The same network is the same bytes: tensors are in the order of their types and names, metadata in that of
//! its keys.

use super::calibrated::{collect_ranges, restore_ranges};
use super::content::check_content;
use super::fitting::{beginnings, check_length, named_packed};
use super::source::Source;
use super::tensor_file::ElementType;
use super::tensors::{Entries, Entry, Writable, damaged, packed_element, packed_name, real_element};
use super::watched::{Watched, collect_training, restore_feedback_moments, restore_training};
use super::{Extra, atomic};
use crate::layers::ParameterSpec;
use crate::network::{Adapter, Beginning, Chosen, LayerNumerics, Network, PlacedLayer, Settled};
use crate::program::LayerPath;
use crate::state::{Carried, Notes, OptimizerState};
use crate::tensor::Precision;
use crate::weights::WeightStore;
use crate::{Error, Result, extents};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the format that is written: with checksums of the header and of every tensor.
pub const FORMAT: &str = "2";

/// The versions that are read; the first has no checksums.
const READ: [&str; 2] = ["1", FORMAT];

/// What ends the name of the mean squares that a parameter's rows multiply.
const IMPORTANCE: &str = "importance";

/// The metadata of a network whose masters are made of its packed weights as soon as they are needed.
const LENT: &str = "loom.lent";

/// The metadata that tells what the network is for.
const CARD: &str = "loom.card";

/// What begins the name of an array that was kept with the training.
const NOTE: &str = "training@note.";

/// What is saved beside weights and config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaveOptions {
    /// Moments, counters and the place in the data, so that training can go on bit for bit.
    pub optimizer: bool,
    /// Nothing but what inference reads: the masters of packed weights, and what only packing them again would
    /// take, stay behind. What is loaded from it predicts the same, and can be trained once it is unpacked.
    pub deploy: bool,
}

impl SaveOptions {
    /// All that it takes to go on with a training bit for bit.
    pub fn resumable() -> Self {
        Self { optimizer: true, ..Self::default() }
    }

    /// No more than inference reads.
    pub fn deployable() -> Self {
        Self { deploy: true, ..Self::default() }
    }

    fn check(self) -> Result<()> {
        match self.deploy && self.optimizer {
            true => Err(Error::Value(
                "a file to deploy has no masters for an optimizer to move; leave deploy or optimizer out"
                    .into(),
            )),
            false => Ok(()),
        }
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Whether what is read is compared with its checksums. Without it a damaged file may be read, and what it then
    /// holds is as it is.
    pub verify: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { verify: true }
    }
}

impl Network {
    /// Saves the network: to a temporary file, synced and renamed, so that an older file survives a failure.
    ///
    /// # Errors
    /// [`Error::Io`] where the system refuses; [`Error::NonFinite`] naming what is infinite or NaN, which
    /// [`load`](Network::load) would refuse; whatever [`build`](Network::build) refuses.
    pub fn save(&mut self, path: impl AsRef<Path>, options: SaveOptions) -> Result<()> {
        options.check()?;
        self.settle()?.save(path, options)
    }

    /// Loads a network that [`save`](Network::save) wrote.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read, [`Error::Serialization`] for one that is
    /// damaged, foreign, or of a later format.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(path, LoadOptions::default())
    }

    /// [`load`](Network::load), as the options say.
    ///
    /// # Errors
    /// As [`load`](Network::load).
    pub fn load_with(path: impl AsRef<Path>, options: LoadOptions) -> Result<Self> {
        from_source(path.as_ref(), options, Self::restored)
    }

    /// The bytes that [`save`](Network::save) writes.
    ///
    /// # Errors
    /// [`Error::NonFinite`] as [`save`](Network::save); whatever [`build`](Network::build) refuses.
    pub fn to_bytes(&mut self, options: SaveOptions) -> Result<Vec<u8>> {
        options.check()?;
        self.settle()?.to_bytes(options)
    }

    /// Makes a network from the bytes of a file.
    ///
    /// # Errors
    /// [`Error::Serialization`] for bytes that are damaged, foreign, or of a later format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let source = Source::of_bytes(bytes, LoadOptions::default().verify)?;
        let network = Self::restored(&source)?;
        source.finish()?;
        Ok(network)
    }

    /// The network that a file holds, of which every tensor is still to be there that is not looked at here.
    pub(crate) fn restored(source: &Source<'_>) -> Result<Self> {
        match source.metadata("loom.format") {
            Some(format) if READ.contains(&format) => {}
            Some(other) => {
                return Err(Error::Serialization(format!(
                    "the file is of format {other}, this version reads format {FORMAT}; update loom"
                )));
            }
            None => {
                return Err(Error::Serialization(
                    "this is a safetensors file, but not one that loom saved: it has no \"loom.format\""
                        .into(),
                ));
            }
        }
        let config = source
            .metadata("loom.config")
            .ok_or_else(|| Error::Serialization("the file lacks \"loom.config\"".into()))?;
        let mut network = Self::from_json(config).map_err(damaged)?;
        // Versions come from the file, not from masters.
        let numerics: Vec<(LayerPath, LayerNumerics)> =
            network.layers().map(|placed| (placed.path.clone(), placed.numerics.clone())).collect();
        network.cells.iter_mut().flatten().for_each(|placed| placed.numerics = LayerNumerics::default());
        let beginnings = beginnings(&network, source, &numerics)?;
        let beginning = |placed: &PlacedLayer, _: &[ParameterSpec]| {
            beginnings.get(&placed.path).copied().unwrap_or(Beginning::Zeros)
        };
        network.build_with(&beginning).map_err(damaged)?;
        for (placed, (_, numerics)) in network.cells.iter_mut().flatten().zip(numerics) {
            if placed.store.is_some() {
                placed.numerics = numerics;
            }
        }
        restore_weights(&mut network, source)?;
        restore_ranges(&mut network, source)?;
        restore_carried(&mut network, source)?;
        network.optimizer_state.came_without = source.metadata("loom.training").is_none();
        if let Some(state) = source.metadata("loom.training") {
            let wrong = |error| Error::Serialization(format!("the training state is damaged: {error}"));
            let state: OptimizerState = serde_json::from_str(state).map_err(wrong)?;
            if let Some(watched) = source.metadata("loom.watched") {
                let watched: Watched = serde_json::from_str(watched).map_err(wrong)?;
                restore_training(&mut network, source, watched)?;
            }
            restore_moments(&mut network, source, state)?;
            restore_notes(&mut network, source)?;
        }
        check_content(&network).map_err(damaged)?;
        if source.metadata(LENT).is_some() {
            network.registry.stores.iter_mut().for_each(WeightStore::mark_lent);
        }
        network.set_card(source.metadata(CARD).unwrap_or_default());
        Ok(network)
    }
}

/// Reads a file by what `read` makes of it, whose errors then name it.
pub(crate) fn from_source<R>(
    path: &Path,
    options: LoadOptions,
    read: impl FnOnce(&Source<'_>) -> Result<R>,
) -> Result<R> {
    let made = || {
        let source = Source::open(path, options.verify)?;
        let made = read(&source)?;
        source.finish()?;
        Ok(made)
    };
    made().map_err(|error| match error {
        Error::Serialization(message) => Error::Serialization(format!("{}: {message}", path.display())),
        other => other,
    })
}

impl Settled<'_> {
    /// [`Network::save`].
    ///
    /// # Errors
    /// As [`Network::save`].
    pub fn save(self, path: impl AsRef<Path>, options: SaveOptions) -> Result<()> {
        write_with(self, options, None, path.as_ref())
    }

    /// [`Network::to_bytes`].
    ///
    /// # Errors
    /// As [`Network::to_bytes`].
    pub fn to_bytes(self, options: SaveOptions) -> Result<Vec<u8>> {
        bytes_with(self, options, None)
    }
}

/// [`Network::save`] with something beside the network.
pub(crate) fn write_with(
    network: Settled<'_>,
    options: SaveOptions,
    extra: Option<Extra>,
    path: &Path,
) -> Result<()> {
    writable(network, options, extra.as_ref(), |file| atomic::write_with(path, |to| file.write(to)))
}

/// [`Network::to_bytes`] with something beside the network.
pub(crate) fn bytes_with(
    network: Settled<'_>,
    options: SaveOptions,
    extra: Option<Extra>,
) -> Result<Vec<u8>> {
    writable(network, options, extra.as_ref(), |file| {
        let mut bytes = extents::room(file.len)?;
        file.write(&mut bytes)?;
        Ok(bytes)
    })
}

fn writable<R>(
    Settled(network): Settled<'_>,
    options: SaveOptions,
    extra: Option<&Extra>,
    write: impl FnOnce(Writable<'_>) -> Result<R>,
) -> Result<R> {
    options.check()?;
    check_content(network)?;
    let element = real_element(network.precision());
    let mut entries = Entries::new();
    for placed in network.layers() {
        for state in network.registry.kept(placed.states.clone())? {
            let name = format!("{}.{}", placed.path, state.spec.name);
            entries.push((name, Entry::bytes(element, state.spec.shape.to_vec(), state.content.bytes())));
        }
    }
    collect_ranges(network, &mut entries);
    if let Some(carried) = network.registry.begun().filter(|_| !options.deploy) {
        for (place, content) in carried.places().iter().zip(carried.contents()?) {
            let shape = [&[carried.rows()], &place.spec.shape[..]].concat();
            let name = format!("{}@carried.{}", place.path, place.spec.name);
            entries.push((name, Entry::bytes(element, shape, Cow::Owned(content.bytes().to_vec()))));
        }
    }
    for placed in network.owners() {
        let Some(store) = placed.store else { continue };
        collect_weights(network, placed, store, options.deploy, &mut entries)?;
        if options.optimizer {
            collect_moments(network, &moments_of(placed, None), store, &mut entries)?;
        }
        for (adapter, store) in placed.adapters().zip(placed.adapter_stores()) {
            collect_weights(network, placed, store, options.deploy, &mut entries)?;
            if options.optimizer {
                collect_moments(network, &moments_of(placed, Some(adapter)), store, &mut entries)?;
            }
        }
    }
    let mut metadata = BTreeMap::from([
        ("loom.format".to_string(), FORMAT.to_string()),
        ("loom.config".into(), network.to_json()?),
    ]);
    let card = network.card();
    if !card.is_empty() {
        metadata.insert(CARD.into(), card);
    }
    if network.has_lent() && !options.deploy {
        metadata.insert(LENT.into(), "true".into());
    }
    if options.optimizer {
        // JSON knows no infinity; the mean of an epoch that has come to it is lost in any case.
        let loss_sum = network.optimizer_state.loss_sum.clamp(f64::MIN, f64::MAX);
        let state = OptimizerState { loss_sum, ..network.optimizer_state.clone() };
        let state = serde_json::to_string(&state).map_err(unwritable)?;
        metadata.insert("loom.training".into(), state);
        let watched = collect_training(network, &mut entries)?;
        metadata.insert("loom.watched".into(), serde_json::to_string(&watched).map_err(unwritable)?);
        if network.notes != Notes::default() {
            metadata.insert("loom.notes".into(), network.notes.text.clone());
            let tensors = network.notes.tensors.iter();
            entries.extend(tensors.map(|(name, tensor)| (format!("{NOTE}{name}"), Entry::real(tensor))));
        }
    }
    if let Some(extra) = extra {
        metadata.insert(extra.key.into(), extra.metadata().into());
        entries.extend(extra.entries(network.precision()));
    }
    write(Writable::new(&metadata, entries)?)
}

fn collect_weights<'a>(
    network: &'a Network,
    placed: &PlacedLayer,
    store: usize,
    deploy: bool,
    entries: &mut Entries<'a>,
) -> Result<()> {
    let weights = network.registry.held(store)?;
    for (index, info) in weights.parameters().iter().enumerate() {
        let name = format!("{}.{}", placed.path, info.name);
        let left_out = (weights.is_dropped() || deploy) && weights.dtype_of(index).is_some();
        if !left_out {
            entries.push((name.clone(), Entry::parameter(weights, index, &info.layout)?));
        }
        let importance = weights.importance(index);
        if !importance.is_empty() && !deploy {
            entries.push((format!("{name}@{IMPORTANCE}"), Entry::list(ElementType::F32, importance)));
        }
        if let Some(dtype) = weights.dtype_of(index) {
            let (packing, packed, scales) = weights.version(dtype, index)?;
            let (element, shape) = packed_element(dtype, [packing.rows, packing.channels], packed.len());
            entries.push((packed_name(&name, dtype, packing.turned), Entry::bytes(element, shape, packed)));
            if !scales.is_empty() {
                entries.push((format!("{name}@{dtype}.scale"), Entry::list(ElementType::F32, scales)));
            }
        }
    }
    Ok(())
}

/// What the names of the moments of a layer's store begin with, or those of an adapter's.
fn moments_of(placed: &PlacedLayer, adapter: Option<&Adapter>) -> String {
    match adapter {
        None => format!("{}@moment", placed.path),
        Some(adapter) => format!("{}@adapter.{}.moment", placed.path, adapter.name),
    }
}

fn collect_moments<'a>(
    network: &'a Network,
    named: &str,
    store: usize,
    entries: &mut Entries<'a>,
) -> Result<()> {
    if network.registry.owned.is_some() {
        return Err(Error::State(
            "each process holds a part of the optimizer's moments alone; keep the training with run=, or save with \
             optimizer=True once it has ended"
                .into(),
        ));
    }
    let Some(moments) = network.registry.moments.get(store) else { return Ok(()) };
    let len = network.registry.held(store)?.len();
    for (slot, moment) in network.optimizer_state.optimizer.slots().iter().zip(moments) {
        let element = real_element(network.precision());
        let entry = Entry::bytes(element, vec![len], moment.bytes());
        entries.push((format!("{named}.{slot}"), entry));
    }
    Ok(())
}

fn restore_carried(network: &mut Network, source: &Source<'_>) -> Result<()> {
    let (places, precision) = (network.carried_in_training(), network.precision());
    let names: Vec<String> =
        places.iter().map(|place| format!("{}@carried.{}", place.path, place.spec.name)).collect();
    let Some(first) = names.iter().find_map(|name| source.find(name)) else { return Ok(()) };
    let rows = first.shape.first().copied().unwrap_or(0);
    if rows == 0 {
        return Err(Error::Serialization("what the file's layers carry has no rows".into()));
    }
    for (name, place) in names.iter().zip(&places) {
        source.expect_real(name, precision, &[&[rows], &place.spec.shape[..]].concat())?;
    }
    let mut carried = Carried::new(places, rows, precision, network.device().accelerator().as_ref())?;
    for (number, name) in names.iter().enumerate() {
        let values = source.real(name, precision)?;
        carried.set(number, &values.view()).map_err(damaged)?;
    }
    carried.begun = true;
    network.registry.carried = Some(carried);
    Ok(())
}

fn restore_notes(network: &mut Network, source: &Source<'_>) -> Result<()> {
    let Some(text) = source.metadata("loom.notes") else { return Ok(()) };
    let mut notes = Notes { text: text.into(), ..Notes::default() };
    for info in source.tensors() {
        let Some(kept) = info.name.strip_prefix(NOTE) else { continue };
        let precision = match info.element {
            ElementType::F64 => Precision::Float64,
            _ => Precision::Float32,
        };
        notes.tensors.insert(kept.to_string(), source.real(&info.name, precision)?);
    }
    network.notes = notes;
    Ok(())
}

fn restore_importance(
    weights: &mut WeightStore,
    index: usize,
    source: &Source<'_>,
    name: &str,
) -> Result<()> {
    let name = format!("{name}@{IMPORTANCE}");
    if source.has(&name) {
        let importance = source.list(&name, ElementType::F32)?;
        weights.set_importance(index, importance).map_err(damaged)?;
    }
    Ok(())
}

fn restore_weights(network: &mut Network, source: &Source<'_>) -> Result<()> {
    let precision = network.precision();
    for placed in network.cells.iter().flatten() {
        for number in placed.states.clone() {
            let state = network.registry.kept_mut(number)?;
            let name = format!("{}.{}", placed.path, state.spec.name);
            state.set(&source.real(&name, precision)?.view()).map_err(damaged)?;
        }
    }
    for placed in network.cells.iter().flatten().filter(|placed| !placed.is_tied()) {
        for store in placed.adapter_stores() {
            let weights = network.registry.held_mut(store)?;
            for (index, info) in weights.parameters().to_vec().iter().enumerate() {
                let name = format!("{}.{}", placed.path, info.name);
                restore_importance(weights, index, source, &name)?;
                weights.fill(index, |bytes| source.read_into(&name, bytes)).map_err(damaged)?;
            }
        }
        let Some(store) = placed.store else { continue };
        let weights = network.registry.held_mut(store)?;
        let parameters = weights.parameters().to_vec();
        for (index, info) in parameters.iter().enumerate() {
            let name = format!("{}.{}", placed.path, info.name);
            restore_importance(weights, index, source, &name)?;
            if weights.is_dropped() && placed.numerics.of(info).dtype.is_some() {
                continue;
            }
            weights.fill(index, |bytes| source.read_into(&name, bytes)).map_err(damaged)?;
        }
        for (index, info) in parameters.iter().enumerate() {
            let Chosen { dtype: Some(dtype), numerics } = placed.numerics.of(info) else { continue };
            let recipe = numerics.recipe.checked(dtype).map_err(damaged)?;
            let name = format!("{}.{}", placed.path, info.name);
            let scale = format!("{name}@{dtype}.scale");
            let (name, by_rows) = named_packed(source, &name, dtype, &info.layout);
            weights.set_version(dtype, recipe, index, by_rows, |bytes, scales| {
                source.read_into(&name, bytes)?;
                match scales {
                    [] => Ok(()),
                    _ => source.read_into(&scale, bytemuck::cast_slice_mut(scales)),
                }
            })?;
        }
    }
    Ok(())
}

fn restore_moments(network: &mut Network, source: &Source<'_>, state: OptimizerState) -> Result<()> {
    state.optimizer.validate().map_err(damaged)?;
    state.loss_scale.validate().map_err(damaged)?;
    let mut moments = Vec::new();
    for placed in network.cells.iter().flatten().filter(|placed| !placed.is_tied()) {
        let own = placed.store.map(|store| (store, moments_of(placed, None)));
        let adapters = placed.adapters().zip(placed.adapter_stores());
        let adapters = adapters.map(|(adapter, store)| (store, moments_of(placed, Some(adapter))));
        for (store, named) in own.into_iter().chain(adapters) {
            for (slot, name) in state.optimizer.slots().iter().enumerate() {
                let name = format!("{named}.{name}");
                // A network that never made an update has no moments to save.
                if state.updates == 0 && !source.has(&name) {
                    continue;
                }
                check_length(source, network, &name, network.registry.held(store)?.len())?;
                moments.push((name, store, slot));
            }
        }
    }
    if state.updates > 0 || !moments.is_empty() {
        network.registry.prepare_moments(state.optimizer.slots().len(), network.precision().size())?;
    }
    for (name, store, slot) in moments {
        source.read_into(&name, network.registry.moment_mut(store, slot)?.bytes_mut())?;
    }
    restore_feedback_moments(network, source)?;
    network.registry.reach.clear();
    network.optimizer_state = state;
    Ok(())
}

fn unwritable(error: impl std::fmt::Display) -> Error {
    Error::Serialization(format!("the network could not be written: {error}"))
}
