//! What the steps of a program may read and write of what persists.

use super::run::Run;
use super::{Kind, Place, Program, Value};
use crate::ops::{View, part};
use crate::simd::Real;
use crate::state::{Carried, Registry};
use crate::tensor::Buffer;
use crate::{Error, Result};

/// The registry as a run sees it: inference shares it, training owns it.
pub enum Access<'a> {
    /// Masters and versions are only read.
    Shared(&'a Registry),
    /// Masters and versions are only read; steps write what a session carries.
    Session(&'a Registry, &'a mut Carried),
    /// Masters, versions and rings are only read; steps write what the caller has taken out.
    Part(&'a Registry, &'a mut [Part]),
    /// Steps may write masters, gradients and moments.
    Exclusive(&'a mut Registry),
}

/// Something stored that was taken out of the registry, so that one of several threads may write it.
#[derive(Debug, Default)]
pub struct Part {
    /// Where it belongs.
    pub owner: PartOwner,
    /// Its content.
    pub buffer: Buffer,
}

/// Which stored memory a part was taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartOwner {
    /// Of nothing that is stored.
    #[default]
    None,
    /// A slot of the ring.
    Ring {
        /// The member's number.
        member: usize,
        /// Of how many ticks ago.
        age: usize,
    },
    /// A store's gradients.
    Gradient(usize),
}

impl Part {
    /// Whether a place lies in it.
    pub(crate) fn holds(&self, place: Place) -> bool {
        match (place, self.owner) {
            (Place::Ring { member, age }, owner) => owner == PartOwner::Ring { member, age },
            (Place::Gradient(parameter), PartOwner::Gradient(store)) => parameter.store == store,
            _ => false,
        }
    }
}

impl Access<'_> {
    /// The registry, to read.
    pub(crate) fn get(&self) -> &Registry {
        match self {
            Access::Shared(registry) | Access::Session(registry, _) | Access::Part(registry, _) => registry,
            Access::Exclusive(registry) => registry,
        }
    }

    /// What layers carry from call to call.
    pub(crate) fn carried(&self) -> Option<&Carried> {
        match self {
            Access::Part(..) => None,
            Access::Session(_, carried) => Some(carried),
            Access::Shared(registry) => registry.carried.as_ref(),
            Access::Exclusive(registry) => registry.carried.as_ref(),
        }
    }

    /// The same, to write.
    pub(crate) fn carried_mut(&mut self) -> Result<&mut Carried> {
        let carried = match self {
            Access::Shared(_) | Access::Part(..) => None,
            Access::Session(_, carried) => Some(&mut **carried),
            Access::Exclusive(registry) => registry.carried.as_mut(),
        };
        carried.ok_or_else(|| Error::Internal("nothing is carried by this call".into()))
    }

    /// The registry, to write.
    pub(crate) fn get_mut(&mut self) -> Result<&mut Registry> {
        match self {
            Access::Shared(_) | Access::Session(..) | Access::Part(..) => {
                Err(Error::Internal("an inference program writes the registry".into()))
            }
            Access::Exclusive(registry) => Ok(registry),
        }
    }
}

/// An operand's bytes, wherever they are.
pub(crate) fn resolve<'a, T: Real>(
    program: &Program,
    value: Value,
    run: &'a Run,
    access: &'a Access<'_>,
) -> Result<View<'a>> {
    let registry = access.get();
    let info = program.value(value);
    let bytes = match program.value(program.owner(value)).place {
        Place::Buffer(buffer) => {
            let size = match info.kind {
                Kind::Real => size_of::<T>(),
                Kind::Index => size_of::<i32>(),
            };
            &run.buffers[buffer].bytes()[..info.len(run.rows) * size]
        }
        Place::Master(parameter) => registry.stores[parameter.store].float_bytes(parameter.parameter)?,
        Place::Gradient(parameter) => {
            let (offset, len) = registry.extent(parameter);
            part::<T>(&registry.gradients[parameter.store], offset, len)
        }
        Place::Moment { store, slot } => registry.moments[store][slot].bytes(),
        Place::State(number) => registry.states[number].content.bytes(),
        Place::Carried(number) => {
            let carried =
                access.carried().ok_or_else(|| Error::Internal("nothing is carried by this call".into()))?;
            &carried.buffers[number].bytes()[..info.len(run.rows) * size_of::<T>()]
        }
        Place::Ring { member, age } => {
            let part = match access {
                Access::Part(_, parts) => parts.iter().find(|part| part.holds(Place::Ring { member, age })),
                _ => None,
            };
            let buffer = match (part, &registry.ring) {
                (Some(part), _) => &part.buffer,
                (None, Some(ring)) => ring.buffer(member, age),
                (None, None) => return Err(Error::Internal("a program of ticks ran without a ring".into())),
            };
            &buffer.bytes()[..info.len(run.rows) * size_of::<T>()]
        }
        Place::Version(parameter, dtype) => {
            let index = parameter
                .parameter
                .ok_or_else(|| Error::Internal("a version is read parameter by parameter".into()))?;
            let (packing, bytes, scales) = registry.stores[parameter.store].version(dtype, index)?;
            return Ok(View { bytes, packed: Some(packing), scales });
        }
        Place::Alias(_) => unreachable!("owners are no aliases"),
    };
    Ok(View { bytes, ..View::default() })
}
