//! Neural tweening and target propagation: every layer learns toward a target of its own.

mod config;
pub(crate) mod feedback;
mod inspect;
mod lower;
mod state;
mod targets;

pub use config::{FeedbackConfig, TargetMode, TweenConfig};
pub(super) use lower::{LoweredLoss, lower, meaning};
pub use state::{Passage, TweenState};
