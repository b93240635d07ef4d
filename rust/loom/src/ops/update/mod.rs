//! Optimizer updates: one pass over a store's master, gradient and moments.

mod bounds;
mod cpu;
mod gpu;
mod reach;
mod table;
mod trust_ratio;

pub(super) use cpu::Slots;
pub(super) use gpu::StoreKernel;
pub(crate) use reach::{Reach, largest};
pub use table::Optimizer;
pub use trust_ratio::TrustRatio;
#[cfg(test)]
mod tests;

use super::StepValues;
use super::measure::{Action, Header, LayerFigure, MeasureMemory};
use crate::simd::Real;
use std::fmt;
use std::ops::Range;

/// Updates one store: reads its flat gradient, changes the flat master and the
/// optimizer's moments in place.
///
/// Where its rule goes by norms, it reads what a [`TrustRatio`] has made after the gradient: what each
/// parameter's rate is multiplied by. Where directions are made beside it, it reads what
/// [`Directions`](super::Directions) has made in place of the gradient: directions and new moments. Where it is `watched`, it reads the memory of the measures after that, which says what is to be done
/// and how fast; and where it keeps copies, it writes those of the master and of each moment but a
/// velocity, after the moments.
#[derive(Clone, Debug)]
pub struct Update {
    /// The rule.
    pub optimizer: Optimizer,
    /// Multiplies the step's rate.
    pub rate_factor: f64,
    /// The rate, where it is not the step's.
    pub rate: Option<f64>,
    /// Which update of a step this is, from 0, and of how many.
    pub repeat: [u32; 2],
    /// Elements of the flat master.
    pub len: usize,
    /// Where each parameter starts in the flat master.
    pub offsets: Vec<usize>,
    /// Parts of the master that weight decay leaves out.
    pub exempt: Vec<Range<usize>>,
    /// Parts of the master that stay as they are, and their moments, too.
    pub frozen: Vec<Range<usize>>,
    /// What the measures have to say in it; nothing where there is none.
    pub watched: Option<Watched>,
}

/// How an update follows the decision of a [`Judge`](super::Judge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Where everything is in the memory of the measures.
    pub memory: MeasureMemory,
    /// The layer whose gate counts; none for what belongs to no layer's output.
    pub layer: Option<usize>,
    /// Whether the state before is copied, and gone back to after an explosion.
    pub keeps: bool,
}

/// What one update is to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decision {
    /// What becomes of master and moments.
    pub(crate) action: Action,
    /// What the rate is multiplied by; `None` where the layer's gate is shut.
    pub(crate) factor: Option<f64>,
}

impl Watched {
    /// What the memory of the measures says.
    pub(crate) fn decide<T: Real>(&self, memory: &[T]) -> Decision {
        let get = |place: usize| memory[place].to_f64();
        let factor = get(MeasureMemory::header(Header::RateFactor));
        let gate = self.layer.map_or(1.0, |layer| get(self.memory.figure(layer, LayerFigure::Gate)));
        Decision {
            action: Action::from_code(get(MeasureMemory::header(Header::Action))),
            factor: (gate >= 0.0).then_some(factor * gate),
        }
    }
}

impl Update {
    /// Which of the moments are copied where copies are kept: a velocity starts again from zero.
    pub(crate) fn kept_moments(optimizer: &Optimizer) -> impl Iterator<Item = bool> {
        optimizer.slots().iter().map(|slot| *slot != "velocity")
    }

    /// The update of a whole store by this rule, once a step at the step's rate.
    pub fn new(optimizer: Optimizer, len: usize) -> Self {
        Self {
            optimizer,
            rate_factor: 1.0,
            rate: None,
            repeat: [0, 1],
            len,
            offsets: vec![0],
            exempt: Vec::new(),
            frozen: Vec::new(),
            watched: None,
        }
    }

    /// The operand that is the memory of the measures, where it is watched.
    pub(crate) fn memory_operand(&self) -> usize {
        let made = if self.optimizer.is_made_beside() { self.optimizer.slots().len() } else { 0 };
        1 + usize::from(self.optimizer.goes_by_norms()) + made
    }

    /// Which update of its moments this is, from 1.
    pub(crate) fn number(&self, values: &StepValues) -> f64 {
        let [number, updates] = self.repeat.map(u64::from);
        ((values.optimizer_step - 1) * updates + number + 1) as f64
    }

    /// Whether copies are kept.
    pub(super) fn keeps(&self) -> bool {
        self.watched.is_some_and(|watched| watched.keeps)
    }
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "update.{} {}", self.optimizer.name(), self.len)
    }
}
