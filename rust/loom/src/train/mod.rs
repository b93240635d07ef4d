//! Learning: losses, optimizers, schedules, and the trainers that compose them over programs.

mod backprop;
mod clip;
mod config;
mod data;
mod diagnose;
mod evaluate;
mod fit;
mod frames;
mod landing;
#[cfg(test)]
pub(crate) mod landing_tests;
mod loss;
mod loss_scale;
mod lower;
mod manual;
mod metrics;
mod schedule;
mod tween;
mod watch;

pub use crate::network::{LayerMeasures, MeasureHistory, Measures, Watch};
pub use crate::ops::update::Optimizer;
pub use crate::state::{LossScale, Notes, OptimizerState};
pub use crate::weights::Initializer;
pub use backprop::{OwnedTargets, StepReport, Trainer, check_examples};
pub use config::{DepthScale, OnNonFinite, TrainingConfig};
pub use data::{Examples, Rows, Targets};
pub use evaluate::{Evaluation, Evaluator, evaluate};
pub use fit::{Callback, Epoch, EpochReport, TrainingResult, count_step, end_epoch, train, train_with};
pub use loss::{LossConfig, LossOptions, loss_and_gradient};
pub use manual::{GradientStatistics, ManualStep};
pub use metrics::{Metric, MetricState};
pub use schedule::Schedule;
pub use tween::{FeedbackConfig, Passage, TargetMode, TweenConfig, TweenState};

pub(crate) use backprop::{count_update, prepare_state};
pub(crate) use clip::{Updates, lower_clip, lower_foresight, lower_updates};
pub(crate) use landing::{Fault, odd_state};
pub(crate) use watch::Watching;
