//! What a watched training keeps, in a checkpoint: measures and their history, the copies to go back to,
//! and feedback maps.
//!
//! Tensors are named `training@measures` and `training@copy.store.number` (what the registry keeps for
//! it), `training@losses`, `training@exploded`, `training@newest`, `training@history.steps` and
//! `training@history.records`, `z.y.x.l@feedback.name` and `z.y.x.l@feedback.moment.number`, and what layers
//! made in the newest step by targets `training@activation.layer`, `training@target.layer` and
//! `training@chain_gradient.layer`.

use super::tensors::{Entries, Entry, damaged, real_dtype, real_tensor, unreadable};
use crate::network::{FeedbackKind, Measures, Network};
use crate::state::{StateSpec, WatchPlaces};
use crate::tensor::{Buffer, Shape};
use crate::train::{tween::feedback, watch};
use crate::{Error, Result, extents};
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

/// What tells how to read the tensors.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Watched {
    /// The names and lengths of what the registry keeps for the training.
    kept: Vec<(String, usize)>,
    /// How many layers were measured, and over how many steps.
    layers: usize,
    /// The names of the layers inside others that were measured, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inner: Vec<String>,
    steps: u64,
    stride: u64,
    feedback: Option<FeedbackKind>,
    feedback_slots: usize,
    /// How many activations, targets and gradients there are of the newest step.
    step: [usize; 3],
}

/// Adds the tensors of the newest watched training.
pub(super) fn collect_training(network: &Network, entries: &mut Entries) -> Result<Watched> {
    let first = watch::kept_by_layers(network);
    let mut kept = Vec::new();
    for state in &network.registry.states[first..] {
        kept.push((state.spec.name.to_string(), state.spec.shape.len()));
        let entry = Entry {
            dtype: real_dtype(network.precision()),
            shape: vec![state.spec.shape.len()],
            bytes: extents::copied(state.content.bytes())?,
        };
        entries.push((format!("training@{}", state.spec.name), entry));
    }
    let measures = &network.measures;
    if measures.steps > 0 {
        entries.push(("training@losses".into(), Entry::list(Dtype::F64, &measures.losses)));
        entries.push(("training@exploded".into(), Entry::list(Dtype::U64, &measures.exploded)));
        entries.push(("training@newest".into(), Entry::list(Dtype::F64, &measures.newest)));
        entries.push(("training@history.steps".into(), Entry::list(Dtype::U64, &measures.history.steps)));
        entries.push(("training@history.records".into(), Entry::list(Dtype::F64, &measures.history.records)));
    }
    for map in &network.feedback.maps {
        let Some(placed) = network.layers().nth(map.of) else { continue };
        let store = &network.registry.stores[map.store];
        for (index, info) in store.parameters().iter().enumerate() {
            let name = format!("{}@feedback.{}", placed.path(), info.name);
            entries.push((name, Entry::real(&store.get(index)?)));
        }
        let moments = network.registry.moments.get(map.store).map_or(&[][..], Vec::as_slice);
        for (number, moment) in moments.iter().enumerate() {
            let entry = Entry {
                dtype: real_dtype(network.precision()),
                shape: vec![store.len()],
                bytes: extents::copied(moment.bytes())?,
            };
            entries.push((format!("{}@feedback.moment.{number}", placed.path()), entry));
        }
    }
    for (word, tensors) in network.kept_step.lists() {
        for (layer, tensor) in tensors.iter().enumerate() {
            entries.push((format!("training@{word}.{layer}"), Entry::real(tensor)));
        }
    }
    Ok(Watched {
        kept,
        layers: measures.layers,
        inner: measures.inner.clone(),
        steps: measures.steps,
        stride: measures.history.stride,
        feedback: network.feedback.kind,
        feedback_slots: network.registry.feedback_slots,
        step: network.kept_step.lists().map(|(_, tensors)| tensors.len()),
    })
}

/// Brings back what [`collect_training`] has saved, but the feedback maps' moments.
pub(super) fn restore_training(
    network: &mut Network,
    tensors: &SafeTensors<'_>,
    watched: Watched,
) -> Result<()> {
    let precision = network.precision();
    if let Some(kind) = watched.feedback {
        if kind.top > network.layers().count() {
            return Err(Error::Serialization("the file has feedback maps of layers it lacks".into()));
        }
        feedback::make(network, kind).map_err(damaged)?;
        network.registry.feedback_slots = watched.feedback_slots;
        for map in network.feedback.maps.clone() {
            let Some(path) = network.layers().nth(map.of).map(|placed| placed.path().clone()) else {
                continue;
            };
            let store = &mut network.registry.stores[map.store];
            for (index, info) in store.parameters().to_vec().iter().enumerate() {
                let name = format!("{path}@feedback.{}", info.name);
                let values = real_tensor(tensors, &name, precision)?;
                store.set(index, &values.view()).map_err(damaged)?;
            }
        }
    }
    restore_kept(network, tensors, &watched)?;
    for ((word, list), count) in network.kept_step.lists_mut().into_iter().zip(watched.step) {
        for layer in 0..count {
            list.push(real_tensor(tensors, &format!("training@{word}.{layer}"), precision)?);
        }
    }
    if watched.steps > 0 {
        network.measures = Measures {
            layers: watched.layers,
            inner: watched.inner,
            steps: watched.steps,
            losses: vector(tensors, "training@losses", Dtype::F64)?,
            exploded: vector(tensors, "training@exploded", Dtype::U64)?,
            newest: vector(tensors, "training@newest", Dtype::F64)?,
            history: crate::network::MeasureHistory {
                stride: watched.stride,
                steps: vector(tensors, "training@history.steps", Dtype::U64)?,
                records: vector(tensors, "training@history.records", Dtype::F64)?,
            },
        };
        let kept = watch::memory(network, network.measures.inner.len()).kept();
        let history = &network.measures.history;
        let fits = watched.layers == network.layers().count()
            && network.measures.newest.len() == kept
            && history.records.len() == history.steps.len() * kept;
        if !fits {
            return Err(Error::Serialization("the file's measures do not fit its network".into()));
        }
    }
    Ok(())
}

fn restore_kept(network: &mut Network, tensors: &SafeTensors<'_>, watched: &Watched) -> Result<()> {
    if watched.kept.is_empty() {
        return Ok(());
    }
    let wrong = || Error::Serialization("what the file keeps for its training does not fit it".into());
    let depth = if watched.inner.is_empty() { 1 } else { usize::MAX };
    let known = watch::inside(network, depth)?;
    if !watched.inner.iter().all(|name| known.iter().any(|(_, found)| found == name)) {
        return Err(wrong());
    }
    let memory = watch::memory(network, watched.inner.len());
    let first = watch::kept_by_layers(network);
    let copies = vec![Vec::new(); network.registry.stores.len()];
    let mut places = WatchPlaces { memory, measures: first, copies };
    let mut specs = Vec::new();
    for (number, (name, len)) in watched.kept.iter().enumerate() {
        specs.push(StateSpec { name: name.clone().into(), shape: Shape::from(*len), initial: 0.0 });
        if number == 0 {
            if name != "measures" || *len != memory.len() {
                return Err(wrong());
            }
            continue;
        }
        let store = name.strip_prefix("copy.").and_then(|rest| rest.split('.').next());
        let store: usize = store.and_then(|store| store.parse().ok()).ok_or_else(wrong)?;
        let known = network.registry.stores.get(store).ok_or_else(wrong)?;
        if known.len() != *len {
            return Err(wrong());
        }
        places.copies[store].push(first + number);
    }
    watch::keep_for_training(network, specs)?;
    for (number, (name, len)) in watched.kept.iter().enumerate() {
        let saved = tensors.tensor(&format!("training@{name}")).map_err(unreadable)?;
        if saved.data().len() != len * network.precision().size() {
            return Err(wrong());
        }
        network.registry.states[first + number].content.bytes_mut().copy_from_slice(saved.data());
    }
    network.registry.watch = Some(places);
    Ok(())
}

/// Brings back the moments of feedback maps, for which there is room.
pub(super) fn restore_feedback_moments(network: &mut Network, tensors: &SafeTensors<'_>) -> Result<()> {
    for map in network.feedback.maps.clone() {
        let Some(path) = network.layers().nth(map.of).map(|placed| placed.path().clone()) else { continue };
        for (number, moment) in network.registry.moments[map.store].iter_mut().enumerate() {
            let name = format!("{path}@feedback.moment.{number}");
            // A map that never learned has no moments to save.
            let Ok(saved) = tensors.tensor(&name) else { continue };
            if saved.data().len() != moment.len_bytes() {
                return Err(Error::Serialization(format!("\"{name}\" has {} bytes", saved.data().len())));
            }
            moment.bytes_mut().copy_from_slice(saved.data());
        }
    }
    Ok(())
}

/// A saved list of eight-byte numbers.
fn vector<T: bytemuck::Pod>(tensors: &SafeTensors<'_>, name: &str, dtype: Dtype) -> Result<Vec<T>> {
    let saved = tensors.tensor(name).map_err(unreadable)?;
    if saved.dtype() != dtype {
        return Err(Error::Serialization(format!("\"{name}\" is {:?}", saved.dtype())));
    }
    // The bytes of a file need not be aligned.
    Ok(Buffer::from_slice(saved.data())?.as_slice::<T>().to_vec())
}
