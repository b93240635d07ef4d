//! Learning: losses, optimizers, schedules, and the trainers that compose them over programs.

mod backprop;
mod clip;
mod config;
mod data;
mod diagnose;
mod evaluate;
mod fit;
mod frames;
mod initializer;
mod landing;
#[cfg(test)]
pub(crate) mod landing_tests;
mod loss;
mod loss_scale;
mod lower;
mod metrics;
mod optimizer;
mod schedule;
mod state;
mod tween;
mod watch;

pub use backprop::{OwnedTargets, StepReport, Trainer, check_examples};
pub use config::{DepthScale, OnNonFinite, TrainingConfig};
pub use data::{Examples, Rows, Targets};
pub use evaluate::{Evaluation, Evaluator, evaluate};
pub use fit::{Callback, Epoch, EpochReport, TrainingResult, count_step, end_epoch, train, train_with};
pub use initializer::Initializer;
pub use loss::{LossConfig, LossOptions, loss_and_gradient};
pub use loss_scale::LossScale;
pub use metrics::{Metric, MetricState};
pub use optimizer::Optimizer;
pub use schedule::Schedule;
pub use state::{Notes, OptimizerState};
pub use tween::{FeedbackConfig, Passage, TargetMode, TweenConfig, TweenState};
pub use watch::{LayerMeasures, MeasureHistory, Measures, Watch};

pub(crate) use backprop::{count_update, prepare_state};
pub(crate) use clip::{Updates, lower_clip, lower_foresight, lower_scale, lower_update, lower_updates};
pub(crate) use landing::{Fault, KnownReach, StateCopies, odd_state};
pub(crate) use tween::{FeedbackKind, FeedbackMap, KeptStep};
pub(crate) use watch::{WatchPlaces, Watching};
