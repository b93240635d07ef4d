//! What the steps of a program may read and write of what persists.

use super::Place;
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
