//! Neural tweening and target propagation: every layer learns toward a target of its own.

mod config;
pub(crate) mod feedback;
mod inspect;
mod state;
mod step_program;
mod targets;

pub use config::{FeedbackConfig, TargetMode, TweenConfig};
pub use state::{Passage, TweenState};
pub(super) use step_program::{LoweredLoss, lower, meaning};
