//! Neural tweening and target propagation: every layer learns toward a target of its own.

mod config;
mod feedback;
mod inspect;
mod kept;
mod lower;
mod state;
mod targets;

pub use config::{FeedbackConfig, TargetMode, TweenConfig};
pub(crate) use feedback::{FeedbackKind, FeedbackMap};
pub(crate) use kept::KeptStep;
pub(super) use lower::{LoweredLoss, Turn, lower, meaning};
pub use state::{Passage, TweenState};
