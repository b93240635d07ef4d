//! What a watched training keeps, in a checkpoint: measures and their history, the copies to go back to,
//! and feedback maps.
//!
//! Tensors are named `training@measures` and `training@copy.store.number` (what the registry keeps for
//! it), `training@losses`, `training@exploded`, `training@newest`, `training@history.steps` and
//! `training@history.records`, `z.y.x.l@feedback.name` and `z.y.x.l@feedback.moment.number`, and what layers
//! made in the newest step by targets `training@activation.layer`, `training@target.layer` and
//! `training@chain_gradient.layer`.

use super::fitting::check_length;
use super::source::Source;
use super::tensor_file::ElementType;
use super::tensors::{Entries, Entry, damaged, real_element};
use crate::layers::ParameterSpec;
use crate::network::{FeedbackKind, Measures, Network};
use crate::program::LayerPath;
use crate::state::{StateSpec, WatchPlaces};
use crate::tensor::Shape;
use crate::train::{tween::feedback, watch};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The most moments that an optimizer keeps of a parameter.
const MOST_SLOTS: usize = 3;

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
pub(super) fn collect_training<'a>(network: &'a Network, entries: &mut Entries<'a>) -> Result<Watched> {
    let element = real_element(network.precision());
    let first = watch::kept_by_layers(network);
    let mut kept = Vec::new();
    for state in network.registry.kept(first..)? {
        kept.push((state.spec.name.to_string(), state.spec.shape.len()));
        let entry = Entry::bytes(element, vec![state.spec.shape.len()], state.content.bytes());
        entries.push((format!("training@{}", state.spec.name), entry));
    }
    let measures = &network.measures;
    if measures.steps > 0 {
        entries.push(("training@losses".into(), Entry::list(ElementType::F64, &measures.losses)));
        entries.push(("training@exploded".into(), Entry::list(ElementType::U64, &measures.exploded)));
        entries.push(("training@newest".into(), Entry::list(ElementType::F64, &measures.newest)));
        entries
            .push(("training@history.steps".into(), Entry::list(ElementType::U64, &measures.history.steps)));
        entries.push((
            "training@history.records".into(),
            Entry::list(ElementType::F64, &measures.history.records),
        ));
    }
    for map in &network.feedback.maps {
        let Some(placed) = network.layers().nth(map.of) else { continue };
        let store = network.registry.held(map.store)?;
        for (index, info) in store.parameters().iter().enumerate() {
            let name = format!("{}@feedback.{}", placed.path(), info.name);
            entries.push((name, Entry::parameter(store, index, &info.layout)?));
        }
        let moments = network.registry.moments.get(map.store).map_or(&[][..], Vec::as_slice);
        for (number, moment) in moments.iter().enumerate() {
            let entry = Entry::bytes(element, vec![store.len()], moment.bytes());
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
pub(super) fn restore_training(network: &mut Network, source: &Source<'_>, watched: Watched) -> Result<()> {
    let precision = network.precision();
    if let Some(kind) = watched.feedback {
        if kind.top > network.layers().count() {
            return Err(Error::Serialization("the file has feedback maps of layers it lacks".into()));
        }
        // Asked for before they are made: nothing is allocated that the file does not hold.
        let saved = |path: &LayerPath, specs: &[ParameterSpec]| {
            specs.iter().try_for_each(|spec| {
                let name = format!("{path}@feedback.{}", spec.name);
                source.expect_real(&name, precision, &spec.layout.outside_shape())
            })
        };
        feedback::make(network, kind, Some(&saved)).map_err(damaged)?;
        if watched.feedback_slots > MOST_SLOTS {
            return Err(Error::Serialization("the file's feedback maps have too many moments".into()));
        }
        network.registry.feedback_slots = watched.feedback_slots;
        for map in network.feedback.maps.clone() {
            let Some(path) = network.layers().nth(map.of).map(|placed| placed.path().clone()) else {
                continue;
            };
            let store = network.registry.held_mut(map.store)?;
            for (index, info) in store.parameters().to_vec().iter().enumerate() {
                let name = format!("{path}@feedback.{}", info.name);
                store.fill(index, |bytes| source.read_into(&name, bytes)).map_err(damaged)?;
            }
        }
    }
    restore_kept(network, source, &watched)?;
    for ((word, list), count) in network.kept_step.lists_mut().into_iter().zip(watched.step) {
        for layer in 0..count {
            let name = format!("training@{word}.{layer}");
            if source.find(&name).is_some_and(|made| made.shape.is_empty()) {
                return Err(Error::Serialization(format!("\"{name}\" has no rows")));
            }
            list.push(source.real(&name, precision)?);
        }
    }
    if watched.steps > 0 {
        network.measures = Measures {
            layers: watched.layers,
            inner: watched.inner,
            steps: watched.steps,
            losses: source.list("training@losses", ElementType::F64)?,
            exploded: source.list("training@exploded", ElementType::U64)?,
            newest: source.list("training@newest", ElementType::F64)?,
            history: crate::network::MeasureHistory {
                stride: watched.stride,
                steps: source.list("training@history.steps", ElementType::U64)?,
                records: source.list("training@history.records", ElementType::F64)?,
            },
        };
        let kept = watch::memory(network, network.measures.inner.len()).kept();
        let history = &network.measures.history;
        let fits = watched.layers == network.layers().count()
            && network.measures.newest.len() == kept
            && history.records.len() == history.steps.len().saturating_mul(kept);
        if !fits {
            return Err(Error::Serialization("the file's measures do not fit its network".into()));
        }
    }
    Ok(())
}

fn restore_kept(network: &mut Network, source: &Source<'_>, watched: &Watched) -> Result<()> {
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
    let mut names = HashSet::new();
    for (number, (name, len)) in (first..).zip(&watched.kept) {
        // What is kept twice could not be saved again.
        if !names.insert(name) {
            return Err(wrong());
        }
        check_length(source, network, &format!("training@{name}"), *len)?;
        specs.push(StateSpec { name: name.clone().into(), shape: Shape::from(*len), initial: 0.0 });
        if number == first {
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
        places.copies.get_mut(store).ok_or_else(wrong)?.push(number);
    }
    watch::keep_for_training(network, specs)?;
    for (number, (name, _)) in (first..).zip(&watched.kept) {
        let content = network.registry.kept_mut(number)?.content.bytes_mut();
        source.read_into(&format!("training@{name}"), content)?;
    }
    network.registry.watch = Some(places);
    Ok(())
}

/// Brings back the moments of feedback maps, for which there is room.
pub(super) fn restore_feedback_moments(network: &mut Network, source: &Source<'_>) -> Result<()> {
    for map in network.feedback.maps.clone() {
        let Some(path) = network.layers().nth(map.of).map(|placed| placed.path().clone()) else { continue };
        let moments = network.registry.moments.get_mut(map.store);
        for (number, moment) in moments.into_iter().flatten().enumerate() {
            let name = format!("{path}@feedback.moment.{number}");
            // A map that never learned has no moments to save.
            if source.has(&name) {
                source.read_into(&name, moment.bytes_mut())?;
            }
        }
    }
    Ok(())
}
