//! Networks as safetensors: masters, packed versions, config, and on request the optimizer's state.
//!
//! Tensors are named `z.y.x.l.name` (masters in the outside's layout, and what layers keep beside them), `z.y.x.l.name@dtype` and
//! `z.y.x.l.name@dtype.scale` (packed codes in storage order and their scales), and
//! `z.y.x.l@moment.name` (an optimizer's flat moments), and `z.y.x.l@carried.name` (what a stateful layer
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
use super::tensors::{Entries, Entry, damaged, real_dtype, real_tensor, unreadable};
use super::watched::{Watched, collect_training, restore_feedback_moments, restore_training};
use super::{Extra, atomic};
use crate::dtype::DType;
use crate::layers::ParameterSpec;
use crate::network::{Beginning, Chosen, LayerNumerics, Network, PlacedLayer};
use crate::program::LayerPath;
use crate::state::{Carried, Notes, OptimizerState};
use crate::tensor::{Buffer, Precision};
use crate::weights::{Layout, WeightStore};
use crate::{Error, Result, error};
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The version of the format that is written.
pub const FORMAT: &str = "1";

/// What ends the name of the mean squares that a parameter's rows multiply.
const IMPORTANCE: &str = "importance";

/// The metadata of a network whose masters are made of its packed weights as soon as they are needed.
const LENT: &str = "loom.lent";

/// What ends the name of a table whose blocks are those of its rows.
const BY_ROWS: &str = "rows";

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

impl Network {
    /// Saves the network: to a temporary file, synced and renamed, so that an older file survives a failure.
    ///
    /// # Errors
    /// [`Error::Io`] where the system refuses; [`Error::NonFinite`] naming what is infinite or NaN, which
    /// [`load`](Network::load) would refuse; whatever [`build`](Network::build) refuses.
    pub fn save(&mut self, path: impl AsRef<Path>, options: SaveOptions) -> Result<()> {
        let bytes = self.to_bytes(options)?;
        atomic::write(path.as_ref(), &bytes)
    }

    /// Loads a network that [`save`](Network::save) wrote.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read, [`Error::Serialization`] for one that is
    /// damaged, foreign, or of a later format.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|source| Error::Io { context: format!("could not read {}", path.display()), source })?;
        Self::from_bytes(&bytes).map_err(|error| match error {
            Error::Serialization(message) => Error::Serialization(format!("{}: {message}", path.display())),
            other => other,
        })
    }

    /// The bytes that [`save`](Network::save) writes.
    ///
    /// # Errors
    /// [`Error::NonFinite`] as [`save`](Network::save); whatever [`build`](Network::build) refuses.
    pub fn to_bytes(&mut self, options: SaveOptions) -> Result<Vec<u8>> {
        bytes_with(self, options, None)
    }

    /// Makes a network from the bytes of a file.
    ///
    /// # Errors
    /// [`Error::Serialization`] for bytes that are damaged, foreign, or of a later format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(unreadable)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(unreadable)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        match metadata.get("loom.format").map(String::as_str) {
            Some(FORMAT) => {}
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
        let config = metadata
            .get("loom.config")
            .ok_or_else(|| Error::Serialization("the file lacks \"loom.config\"".into()))?;
        let mut network = Self::from_json(config).map_err(damaged)?;
        // Versions come from the file, not from masters.
        let numerics: Vec<(LayerPath, LayerNumerics)> =
            network.layers().map(|placed| (placed.path.clone(), placed.numerics.clone())).collect();
        network.cells.iter_mut().flatten().for_each(|placed| placed.numerics = LayerNumerics::default());
        // What was saved without its master gets none: its packed weights are all there is.
        let has_master =
            |placed: &PlacedLayer, name: &str| tensors.tensor(&format!("{}.{name}", placed.path)).is_ok();
        let beginning = |placed: &PlacedLayer, specs: &[ParameterSpec]| {
            let Some((_, numerics)) = numerics.iter().find(|(path, _)| *path == placed.path) else {
                return Beginning::Zeros;
            };
            let is_packed =
                |spec: &&ParameterSpec| numerics.named(&spec.name, spec.morphable).dtype.is_some();
            let mut packed = specs.iter().filter(is_packed).peekable();
            let without = packed.peek().is_some() && packed.all(|spec| !has_master(placed, &spec.name));
            if without { Beginning::WithoutMaster } else { Beginning::Zeros }
        };
        network.build_with(&beginning).map_err(damaged)?;
        for (placed, (_, numerics)) in network.cells.iter_mut().flatten().zip(numerics) {
            let Some(store) = placed.store else { continue };
            let known = network.registry.stores[store].parameters().iter().map(|info| &*info.name);
            for (name, _) in &numerics.parameters {
                if known.clone().all(|known| known != name) {
                    return Err(damaged(error::unknown("parameter", name, known)));
                }
            }
            placed.numerics = numerics;
        }
        restore_weights(&mut network, &tensors)?;
        restore_ranges(&mut network, &tensors)?;
        restore_carried(&mut network, &tensors)?;
        network.came_without_state = !metadata.contains_key("loom.training");
        if let Some(state) = metadata.get("loom.training") {
            let state: OptimizerState = serde_json::from_str(state)
                .map_err(|error| Error::Serialization(format!("the training state is damaged: {error}")))?;
            if let Some(watched) = metadata.get("loom.watched") {
                let watched: Watched = serde_json::from_str(watched).map_err(|error| {
                    Error::Serialization(format!("the training state is damaged: {error}"))
                })?;
                restore_training(&mut network, &tensors, watched)?;
            }
            restore_moments(&mut network, &tensors, state)?;
            restore_notes(&mut network, &tensors, &metadata)?;
        }
        check_content(&network).map_err(damaged)?;
        if metadata.contains_key(LENT) {
            network.registry.stores.iter_mut().for_each(WeightStore::mark_lent);
        }
        network.card = metadata.get(CARD).cloned().unwrap_or_default();
        Ok(network)
    }
}

/// [`Network::to_bytes`] with something beside the network.
pub(crate) fn bytes_with(
    network: &mut Network,
    options: SaveOptions,
    extra: Option<Extra>,
) -> Result<Vec<u8>> {
    options.check()?;
    network.build()?;
    network.synchronize()?;
    check_content(network)?;
    let mut entries = Entries::new();
    for placed in network.layers() {
        for number in placed.states.clone() {
            let state = &network.registry.states[number];
            let name = format!("{}.{}", placed.path, state.spec.name);
            entries.push((name, Entry::real(&state.tensor(network.precision())?)));
        }
    }
    collect_ranges(network, &mut entries);
    if let Some(carried) = network.registry.begun().filter(|_| !options.deploy) {
        for (number, place) in carried.places().iter().enumerate() {
            let name = format!("{}@carried.{}", place.path, place.spec.name);
            entries.push((name, Entry::real(&carried.tensor(number)?)));
        }
    }
    for placed in network.owners() {
        let Some(store) = placed.store else { continue };
        collect_weights(network, placed, store, options.deploy, &mut entries)?;
        if options.optimizer {
            collect_moments(network, placed, store, &mut entries);
        }
    }
    let mut metadata = BTreeMap::from([
        ("loom.format".to_string(), FORMAT.to_string()),
        ("loom.config".into(), network.to_json()?),
    ]);
    if !network.card.is_empty() {
        metadata.insert(CARD.into(), network.card.clone());
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
        entries.extend(extra.entries(real_dtype(network.precision())));
    }
    let tensors = entries.iter().map(|(name, entry)| (name.as_str(), entry));
    with_metadata(safetensors::serialize(tensors, None).map_err(unwritable)?, &metadata)
}

fn collect_weights(
    network: &Network,
    placed: &PlacedLayer,
    store: usize,
    deploy: bool,
    entries: &mut Entries,
) -> Result<()> {
    let weights = &network.registry.stores[store];
    for (index, info) in weights.parameters().iter().enumerate() {
        let name = format!("{}.{}", placed.path, info.name);
        let left_out = (weights.is_dropped() || deploy) && weights.dtype_of(index).is_some();
        if !left_out {
            entries.push((name.clone(), Entry::real(&weights.get(index)?)));
        }
        let importance = weights.importance(index);
        if !importance.is_empty() && !deploy {
            entries.push((format!("{name}@{IMPORTANCE}"), Entry::list(Dtype::F32, importance)));
        }
        if let Some(dtype) = weights.dtype_of(index) {
            let (packing, packed, scales) = weights.version(dtype, index)?;
            let (rows, columns) = (packing.rows, packing.channels);
            let (kind, shape) = match dtype {
                DType::BFloat16 => (Dtype::BF16, vec![rows, columns]),
                DType::Float16 => (Dtype::F16, vec![rows, columns]),
                DType::Int8 => (Dtype::I8, vec![rows, columns]),
                _ => (Dtype::U8, vec![packed.len()]),
            };
            let rows = if packing.turned { format!(".{BY_ROWS}") } else { String::new() };
            entries.push((
                format!("{name}@{dtype}{rows}"),
                Entry { dtype: kind, shape, bytes: packed.to_vec() },
            ));
            if !scales.is_empty() {
                entries.push((format!("{name}@{dtype}.scale"), Entry::list(Dtype::F32, scales)));
            }
        }
    }
    Ok(())
}

fn collect_moments(network: &Network, placed: &PlacedLayer, store: usize, entries: &mut Entries) {
    let Some(moments) = network.registry.moments.get(store) else { return };
    for (slot, moment) in network.optimizer_state.optimizer.slots().iter().zip(moments) {
        let dtype = real_dtype(network.precision());
        let shape = vec![network.registry.stores[store].len()];
        let entry = Entry { dtype, shape, bytes: moment.bytes().to_vec() };
        entries.push((format!("{}@moment.{slot}", placed.path), entry));
    }
}

fn restore_carried(network: &mut Network, tensors: &SafeTensors<'_>) -> Result<()> {
    let places = network.carried_in_training();
    let names: Vec<String> =
        places.iter().map(|place| format!("{}@carried.{}", place.path, place.spec.name)).collect();
    let Some(first) = names.iter().find_map(|name| tensors.tensor(name).ok()) else { return Ok(()) };
    let rows = first.shape().first().copied().unwrap_or(0);
    if rows == 0 {
        return Err(Error::Serialization("what the file's layers carry has no rows".into()));
    }
    let mut carried =
        Carried::new(places, rows, network.precision(), network.device().accelerator().as_ref())?;
    for (number, name) in names.iter().enumerate() {
        let values = real_tensor(tensors, name, network.precision())?;
        carried.set(number, &values.view()).map_err(damaged)?;
    }
    carried.begun = true;
    network.registry.carried = Some(carried);
    Ok(())
}

fn restore_notes(
    network: &mut Network,
    tensors: &SafeTensors<'_>,
    metadata: &HashMap<String, String>,
) -> Result<()> {
    let Some(text) = metadata.get("loom.notes") else { return Ok(()) };
    let mut notes = Notes { text: text.clone(), ..Notes::default() };
    for (name, view) in tensors.iter() {
        let Some(kept) = name.strip_prefix(NOTE) else { continue };
        let precision = match view.dtype() {
            Dtype::F64 => Precision::Float64,
            _ => Precision::Float32,
        };
        notes.tensors.insert(kept.to_string(), real_tensor(tensors, name, precision)?);
    }
    network.notes = notes;
    Ok(())
}

fn restore_weights(network: &mut Network, tensors: &SafeTensors<'_>) -> Result<()> {
    let precision = network.precision();
    for placed in network.cells.iter().flatten() {
        for number in placed.states.clone() {
            let state = &mut network.registry.states[number];
            let name = format!("{}.{}", placed.path, state.spec.name);
            state.set(&real_tensor(tensors, &name, precision)?.view()).map_err(damaged)?;
        }
    }
    for placed in network.cells.iter().flatten().filter(|placed| !placed.is_tied()) {
        let Some(store) = placed.store else { continue };
        let weights = &mut network.registry.stores[store];
        let parameters = weights.parameters().to_vec();
        for (index, info) in parameters.iter().enumerate() {
            let name = format!("{}.{}", placed.path, info.name);
            if let Ok(importance) = tensors.tensor(&format!("{name}@{IMPORTANCE}")) {
                let importance = Buffer::from_slice(importance.data())?;
                weights.set_importance(index, importance.as_slice().to_vec()).map_err(damaged)?;
            }
            if weights.is_dropped() && placed.numerics.of(info).dtype.is_some() {
                continue;
            }
            let values = real_tensor(tensors, &name, precision)?;
            match weights.is_dropped() {
                true => weights.restore_kept(index, &values.view())?,
                false => weights.set(index, &values.view()).map_err(damaged)?,
            }
        }
        for (index, info) in parameters.iter().enumerate() {
            let Chosen { dtype: Some(dtype), numerics } = placed.numerics.of(info) else { continue };
            let recipe = numerics.recipe.checked(dtype).map_err(damaged)?;
            let granularity = recipe.granularity.unwrap_or(dtype.row().granularity);
            let name = format!("{}.{}@{dtype}", placed.path, info.name);
            let of_rows = tensors.tensor(&format!("{name}.{BY_ROWS}")).ok();
            let by_rows = of_rows.is_some() && matches!(info.layout, Layout::Table(_));
            let packed = match of_rows.filter(|_| by_rows) {
                Some(packed) => packed,
                None => tensors.tensor(&name).map_err(unreadable)?,
            };
            let scales = match info.packing(dtype).with(granularity).scale_words() {
                0 => Buffer::default(),
                _ => {
                    Buffer::from_slice(tensors.tensor(&format!("{name}.scale")).map_err(unreadable)?.data())?
                }
            };
            let version = (packed.data(), scales.as_slice());
            weights.set_version(dtype, recipe, index, version, by_rows)?;
        }
    }
    Ok(())
}

fn restore_moments(network: &mut Network, tensors: &SafeTensors<'_>, state: OptimizerState) -> Result<()> {
    state.optimizer.validate().map_err(damaged)?;
    state.loss_scale.validate().map_err(damaged)?;
    network.registry.prepare_moments(state.optimizer.slots().len(), network.precision().size())?;
    for placed in network.cells.iter().flatten().filter(|placed| !placed.is_tied()) {
        let Some(store) = placed.store else { continue };
        for (slot, name) in state.optimizer.slots().iter().enumerate() {
            let name = format!("{}@moment.{name}", placed.path);
            // A network that never made an update has no moments to save.
            let Ok(saved) = tensors.tensor(&name) else {
                if state.updates == 0 {
                    continue;
                }
                return Err(Error::Serialization(format!("the file lacks \"{name}\"")));
            };
            let moment = network.registry.moments[store][slot].bytes_mut();
            if saved.data().len() != moment.len() {
                return Err(Error::Serialization(format!("\"{name}\" has {} bytes", saved.data().len())));
            }
            moment.copy_from_slice(saved.data());
        }
    }
    restore_feedback_moments(network, tensors)?;
    network.registry.reach.clear();
    network.optimizer_state = state;
    Ok(())
}

/// Puts metadata into a file that has none, in the order of its keys.
fn with_metadata(mut file: Vec<u8>, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    const LENGTH: usize = size_of::<u64>();
    let short = || Error::Internal("safetensors made a file without a header".into());
    let (length, rest) = file.split_first_chunk::<LENGTH>().ok_or_else(short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(unwritable)?;
    let tensors = rest.get(..length).and_then(|header| header.strip_prefix(b"{")).ok_or_else(short)?;
    let mut header = br#"{"__metadata__":"#.to_vec();
    header.extend(serde_json::to_vec(metadata).map_err(unwritable)?);
    let tensors = tensors.trim_ascii_end();
    if tensors != b"}" {
        header.push(b',');
    }
    header.extend(tensors);
    header.resize(header.len().next_multiple_of(LENGTH), b' ');
    let start = (header.len() as u64).to_le_bytes();
    file.splice(..LENGTH + length, start.into_iter().chain(header));
    Ok(file)
}

fn unwritable(error: impl std::fmt::Display) -> Error {
    Error::Serialization(format!("the network could not be written: {error}"))
}
