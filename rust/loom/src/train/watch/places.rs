//! Where the registry keeps what a watched training needs: the memory of the measures, and copies of
//! masters and moments to go back to.

use crate::network::{Network, Watch};
use crate::ops::Update;
use crate::ops::measure::{Action, ExplosionRule, Header, MeasureMemory};
use crate::ops::update::Optimizer;
use crate::program::{Builder, LayerPath, Value};
use crate::state::{State, StateSpec, WatchPlaces};
use crate::tensor::{Precision, Shape};
use crate::{Error, Result};

impl WatchPlaces {
    /// The memory of the measures, in a program.
    pub(crate) fn measures(&self, b: &mut Builder) -> Value {
        b.state("measures", Shape::from(self.memory.len()), self.measures)
    }
}

/// The layers inside others that are measured down to this depth, each with its name in a state dict.
pub(crate) fn inside(network: &Network, depth: usize) -> Result<Vec<(LayerPath, String)>> {
    let mut found = Vec::new();
    if depth < 2 {
        return Ok(found);
    }
    for placed in network.layers() {
        let [z, y, x, layer, ..] = *placed.path().indices() else { continue };
        for inner in network.inner_layers([z, y, x], layer)? {
            if inner.depth() <= depth {
                found.push((inner.path, format!("{}.{}", placed.path(), inner.name)));
            }
        }
    }
    Ok(found)
}

/// The memory of the measures of a network, and of so many layers inside others.
pub(crate) fn memory(network: &Network, inner: usize) -> MeasureMemory {
    let layers = network.layers().count();
    // Every layer's input and output may be a value of its own.
    MeasureMemory { layers, inner, norms: 2 * (layers + inner) }
}

/// Makes room for the measures of every layer and of so many `inner` ones, and for copies of the stores that
/// `rules` move where `copies` are kept. What is there and fits stays, unless it is to be `fresh`.
pub(crate) fn prepare(
    network: &mut Network,
    rules: &[Option<Optimizer>],
    inner: usize,
    copies: bool,
    fresh: bool,
) -> Result<()> {
    network.synchronize()?;
    let memory = memory(network, inner);
    let mut specs =
        vec![StateSpec { name: "measures".into(), shape: Shape::from(memory.len()), initial: 0.0 }];
    let first = kept_by_layers(network);
    let mut places = WatchPlaces { memory, measures: first, copies: Vec::new() };
    for (store, rule) in rules.iter().enumerate() {
        let mut own = Vec::new();
        if let Some(rule) = rule.as_ref().filter(|_| copies) {
            let kept = Update::kept_moments(rule).filter(|kept| *kept).count();
            for number in 0..=kept {
                own.push(first + specs.len());
                specs.push(StateSpec {
                    name: format!("copy.{store}.{number}").into(),
                    shape: Shape::from(network.registry.stores[store].len()),
                    initial: 0.0,
                });
            }
        }
        places.copies.push(own);
    }
    let held = &network.registry.states[first..];
    let fits = held.len() == specs.len() && held.iter().zip(&specs).all(|(held, spec)| held.spec == *spec);
    if fresh || !fits {
        keep_for_training(network, specs)?;
        set_measure(network, &places, Header::RateFactor, 1.0);
    }
    network.registry.watch = Some(places);
    Ok(())
}

/// Makes room for what a training keeps, in place of what one before has kept.
pub(crate) fn keep_for_training(network: &mut Network, specs: Vec<StateSpec>) -> Result<()> {
    let precision = network.precision;
    network.registry.states.truncate(kept_by_layers(network));
    let fresh: Vec<State> =
        specs.into_iter().map(|spec| State::new(spec, precision)).collect::<Result<_>>()?;
    network.registry.states.extend(fresh);
    network.registry.forget_device_states();
    Ok(())
}

/// How many of what the registry keeps belong to layers; what trainings keep comes after them.
pub(crate) fn kept_by_layers(network: &Network) -> usize {
    network.layers().map(|placed| placed.states.end).max().unwrap_or(0)
}

fn set_measure(network: &mut Network, places: &WatchPlaces, what: Header, value: f64) {
    let content = &mut network.registry.states[places.measures].content;
    let place = MeasureMemory::header(what);
    match network.precision.stored() {
        Precision::Float64 => content.as_mut_slice::<f64>()[place] = value,
        _ => content.as_mut_slice::<f32>()[place] = value as f32,
    }
}

/// What the judgement on a step was.
pub(crate) fn judged_action(network: &mut Network) -> Result<Action> {
    let kept = kept_measures(network)?;
    Ok(Action::from_code(kept[MeasureMemory::header(Header::Action)]))
}

/// Judges a step to have exploded that was found calm, for what its update would have made.
pub(crate) fn judge_again(network: &mut Network, rule: &ExplosionRule) -> Result<Action> {
    network.synchronize()?;
    let places = network.registry.watch.clone();
    let places = places.ok_or_else(|| Error::Internal("nothing was judged".into()))?;
    let kept = kept_measures(network)?;
    let get = |what| kept[MeasureMemory::header(what)];
    let action = if get(Header::HadSnapshot) != 0.0 { Action::RollBack } else { Action::Hold };
    for (what, value) in [
        (Header::Action, action.code()),
        (Header::RateFactor, get(Header::RateBefore) * rule.recovery_rate),
        (Header::PreviousGap, get(Header::GapBefore)),
        (Header::HasPrevious, get(Header::HadPrevious)),
        (Header::HasSnapshot, get(Header::HadSnapshot)),
        (Header::Explosions, get(Header::Explosions) + 1.0),
        (Header::Applied, 0.0),
    ] {
        set_measure(network, &places, what, value);
    }
    network.registry.forget_device_states();
    Ok(action)
}

/// Makes versions follow masters that went back to their copies.
pub(crate) fn synchronize_after_rollback(network: &mut Network) -> Result<()> {
    // A program that reads a version finds it older than the master.
    if !network.device.is_host() {
        network.synchronize()?;
    }
    network.refresh_versions()
}

/// The newest header and figures of a watched training, brought back from the device if need be.
pub(crate) fn kept_measures(network: &mut Network) -> Result<Vec<f64>> {
    let places = network.registry.watch.clone();
    let places = places.ok_or_else(|| Error::State("nothing was measured yet".into()))?;
    network.registry.fetch_state(places.measures)?;
    let content = &network.registry.states[places.measures].content;
    let kept = places.memory.kept();
    Ok(match network.precision.stored() {
        Precision::Float64 => content.as_slice::<f64>()[..kept].to_vec(),
        _ => content.as_slice::<f32>()[..kept].iter().map(|x| f64::from(*x)).collect(),
    })
}

/// Takes note of the newest figures of a step that was judged.
pub(crate) fn note(network: &mut Network, watch: &Watch, loss: f64, exploded: bool) -> Result<()> {
    let kept = kept_measures(network)?;
    network.measures.note(watch, loss, &kept, exploded);
    Ok(())
}
