//! Which steps read and write the same memory, and so which may change places.

use super::{Program, Step};
use crate::dtype::DType;
use crate::ops::Op;
use crate::program::{ParameterRef, Place, Value};

/// A stretch of memory, as steps name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Region {
    /// A value of the run, by the value that owns the memory.
    Own(Value),
    /// Something that outlives the run.
    Stored(Place),
}

impl Region {
    /// Whether two have an element in common.
    fn meets(self, other: Self) -> bool {
        use Place::{Gradient, Master, Version};
        match (self, other) {
            (Self::Stored(Master(one)), Self::Stored(Master(other)))
            | (Self::Stored(Gradient(one)), Self::Stored(Gradient(other)))
            | (Self::Stored(Version(one, _)), Self::Stored(Version(other, _))) => one.meets(other),
            (one, other) => one == other,
        }
    }

    /// The buffer that it is a stretch of.
    fn whole(self) -> Self {
        use Place::{Gradient, Master, Version};
        let of_store = |held: ParameterRef| ParameterRef { parameter: None, ..held };
        match self {
            Self::Stored(Master(held)) => Self::Stored(Master(of_store(held))),
            Self::Stored(Gradient(held)) => Self::Stored(Gradient(of_store(held))),
            // Versions meet whatever their types.
            Self::Stored(Version(held, _)) => Self::Stored(Version(of_store(held), DType::Float32)),
            other => other,
        }
    }
}

impl ParameterRef {
    /// Whether two have an element in common: a whole store holds all of its parameters.
    fn meets(self, other: Self) -> bool {
        let same = |(one, other): (usize, usize)| one == other;
        self.store == other.store && self.parameter.zip(other.parameter).is_none_or(same)
    }
}

impl Program {
    fn region(&self, value: Value) -> Region {
        let owner = self.owner(value);
        match self.value(owner).place {
            Place::Buffer(_) => Region::Own(owner),
            place => Region::Stored(place),
        }
    }

    fn read_by<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = Region> + 'a {
        // An encoding names its store instead of values.
        let encoded = encoded_store(step).map(|whole| Region::Stored(Place::Master(whole)));
        step.reads.iter().map(|value| self.region(*value)).chain(encoded)
    }

    fn written_by<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = Region> + 'a {
        // Versions meet whatever their types.
        let encoded = encoded_store(step).map(|whole| Region::Stored(Place::Version(whole, DType::Float32)));
        step.writes.iter().map(|value| self.region(*value)).chain(encoded)
    }

    /// Whether a step overwrites memory of this value, adds to it or changes it in its place.
    pub(super) fn changes(&self, step: &Step, value: Value) -> bool {
        let region = self.region(value);
        self.written_by(step).any(|written| written.meets(region))
    }

    /// Whether a step keeps the buffer that this value lies in to itself while it runs: it writes there.
    pub(super) fn takes(&self, step: &Step, value: Value) -> bool {
        let region = self.region(value);
        self.written_by(step).any(|written| written.whole().meets(region))
    }

    /// Whether a step reads memory of this value.
    pub(super) fn looks_at(&self, step: &Step, value: Value) -> bool {
        let region = self.region(value);
        self.read_by(step).any(|read| read.meets(region))
    }

    /// The buffers that a step reads and writes, and whether it writes them.
    #[cfg(feature = "gpu")]
    pub(super) fn touched<'a>(&'a self, step: &'a Step) -> impl Iterator<Item = (Region, bool)> + 'a {
        let read = self.read_by(step).map(|region| (region.whole(), false));
        read.chain(self.written_by(step).map(|region| (region.whole(), true)))
    }

    /// Whether two values have an element in common.
    #[cfg(feature = "gpu")]
    pub(super) fn is_same_memory(&self, one: Value, other: Value) -> bool {
        self.region(one).whole().meets(self.region(other).whole())
    }

    /// Whether two steps leave the same behind whichever runs first.
    pub(super) fn commute(&self, one: &Step, other: &Step) -> bool {
        let disturbs = |one: &Step, other: &Step| {
            self.written_by(one).any(|written| {
                self.read_by(other).chain(self.written_by(other)).any(|touched| touched.meets(written))
            })
        };
        !disturbs(one, other) && !disturbs(other, one)
    }
}

fn encoded_store(step: &Step) -> Option<ParameterRef> {
    match &step.op {
        Op::Encode(encode) => Some(ParameterRef { store: encode.store, parameter: None }),
        _ => None,
    }
}
