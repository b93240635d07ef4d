//! What layers keep and carry follows a good step, and stays as it was after a bad one.

use super::fault::{Fault, describe_at};
use crate::Result;
use crate::network::Network;
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, LayerPath, Phase, Place, Program, Run};
use crate::simd::Real;
use crate::state::{Registry, StateCopies};
use crate::tensor::Buffer;

/// What the steps of a program write once they have been found good, of what layers keep and carry.
fn kept_places(program: &Program) -> impl Iterator<Item = (Option<&LayerPath>, Place)> {
    program.steps().iter().filter(|step| step.phase == Phase::States).flat_map(move |step| {
        step.writes.iter().map(move |value| (step.at.as_ref(), program.value(program.owner(*value)).place))
    })
}

fn kept_buffer(registry: &Registry, place: Place) -> Option<&Buffer> {
    match place {
        Place::State(number) => registry.states.get(number).map(|state| &state.content),
        Place::Carried(number) => registry.carried.as_ref()?.buffers.get(number),
        _ => None,
    }
}

impl StateCopies {
    /// Forgets what was copied.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// Copies what a program is about to write.
    pub(crate) fn add(&mut self, registry: &Registry, program: &Program) {
        for (_, place) in kept_places(program) {
            let Some(content) = kept_buffer(registry, place) else { continue };
            if self.held.len() == self.used {
                self.held.push((place, Buffer::default()));
            }
            let (held, copy) = &mut self.held[self.used];
            *held = place;
            if copy.len_bytes() == content.len_bytes() {
                copy.bytes_mut().copy_from_slice(content.bytes());
            } else {
                *copy = content.clone();
            }
            self.used += 1;
        }
    }

    /// Puts everything back.
    pub(crate) fn put_back(&self, registry: &mut Registry) {
        // The first copy of a place that was written twice is the one from before.
        for (place, copy) in self.held[..self.used].iter().rev() {
            let content = match *place {
                Place::State(number) => registry.states.get_mut(number).map(|state| &mut state.content),
                Place::Carried(number) => {
                    registry.carried.as_mut().and_then(|carried| carried.buffers.get_mut(number))
                }
                _ => None,
            };
            if let Some(content) = content {
                content.bytes_mut().copy_from_slice(copy.bytes());
            }
        }
    }
}

/// The first of what a program has written of what layers keep and carry that is not finite.
pub(crate) fn odd_state(registry: &Registry, program: &Program) -> Option<(Option<LayerPath>, String)> {
    kept_places(program).find_map(|(path, place)| {
        let content = kept_buffer(registry, place)?;
        let odd = in_precision!(program.precision(), T => first_odd(content.as_slice::<T>()));
        odd.map(|_| (path.cloned(), name_of(registry, place)))
    })
}

pub(super) fn first_odd<T: Real>(elements: &[T]) -> Option<usize> {
    elements.iter().position(|x| !x.is_finite())
}

/// What layers keep and carry, named.
pub(super) fn name_of(registry: &Registry, place: Place) -> String {
    let would = "would become infinite or NaN";
    match place {
        Place::State(number) => format!("\"{}\" {would}", registry.states[number].spec.name),
        Place::Carried(number) => match registry.carried.as_ref().and_then(|carried| carried.name(number)) {
            Some(name) => format!("the carried state \"{name}\" {would}"),
            None => format!("a carried state {would}"),
        },
        _ => would.into(),
    }
}

/// Has what layers keep and carry take on what a forward pass has made of it, unless that is not
/// finite: it then stays, and the layer is named.
pub(crate) fn take_on_states(
    network: &mut Network,
    run: &mut Run,
    values: &StepValues,
) -> Result<Option<Fault>> {
    let program = run.program().clone();
    if !program.commits_states() {
        return Ok(None);
    }
    if run.is_remote() {
        return take_on_device(network, run, values);
    }
    let mut copies = std::mem::take(&mut network.registry.copies);
    copies.clear();
    copies.add(&network.registry, &program);
    let access = Access::Exclusive(&mut network.registry);
    let outcome = run.execute(access, Phase::States..=Phase::States, values);
    let odd = odd_state(&network.registry, &program);
    if odd.is_some() || outcome.is_err() {
        copies.put_back(&mut network.registry);
    }
    network.registry.copies = copies;
    outcome?;
    Ok(odd.map(|(path, what)| Fault { layer: describe_at(network, path.as_ref()), what }))
}

/// Puts what a program has just had layers keep and carry back as it was; returns what it has become.
pub(super) fn rewind(registry: &mut Registry, program: &Program) -> StateCopies {
    let mut moved = StateCopies::default();
    if program.commits_states() {
        moved.add(registry, program);
        let copies = std::mem::take(&mut registry.copies);
        copies.put_back(registry);
        registry.copies = copies;
    }
    moved
}

/// [`take_on_states`] on a GPU: what they have become is read back.
fn take_on_device(network: &mut Network, run: &mut Run, values: &StepValues) -> Result<Option<Fault>> {
    let program = run.program().clone();
    keep_on_device(network, &program, |network| {
        let access = Access::Exclusive(&mut network.registry);
        run.execute(access, Phase::States..=Phase::States, values)
    })
}

/// Does what has the layers of a program keep and carry something new on a GPU; where that is not finite,
/// it is put back.
pub(crate) fn keep_on_device(
    network: &mut Network,
    program: &Program,
    work: impl FnOnce(&mut Network) -> Result<()>,
) -> Result<Option<Fault>> {
    let numbers: Vec<usize> = kept_places(program)
        .filter_map(|(_, place)| match place {
            Place::State(number) => Some(number),
            _ => None,
        })
        .collect();
    let carries = kept_places(program).any(|(_, place)| matches!(place, Place::Carried(_)));
    let fetch = |registry: &mut Registry| -> Result<()> {
        numbers.iter().try_for_each(|number| registry.fetch_state(*number))?;
        if let Some(carried) = registry.carried.as_mut().filter(|_| carries) {
            carried.buffers = carried.contents()?;
        }
        Ok(())
    };
    fetch(&mut network.registry)?;
    let mut copies = std::mem::take(&mut network.registry.copies);
    copies.clear();
    copies.add(&network.registry, program);
    let outcome = work(network).and_then(|()| fetch(&mut network.registry));
    let odd = odd_state(&network.registry, program);
    if odd.is_some() || outcome.is_err() {
        network.synchronize()?;
        copies.put_back(&mut network.registry);
        network.registry.forget_device_states();
        if let Some(carried) = network.registry.carried.as_mut().filter(|_| carries) {
            let before = std::mem::take(&mut carried.buffers);
            carried.restore(before);
        }
    }
    network.registry.copies = copies;
    outcome?;
    Ok(odd.map(|(path, what)| Fault { layer: describe_at(network, path.as_ref()), what }))
}
