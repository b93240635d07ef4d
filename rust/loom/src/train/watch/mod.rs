//! Measures of every layer at every step, and explosions taken back: of any trainer.

mod lower;
mod places;

pub(crate) use lower::Watching;
