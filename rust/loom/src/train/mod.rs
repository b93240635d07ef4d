//! Learning: losses, optimizers, schedules, and the trainers that compose them over programs.

mod batch;
mod buckets;
#[cfg(test)]
mod changed_tests;
mod clip;
mod coding;
mod config;
mod contribution;
mod cut;
mod data;
mod depth_scale;
mod diagnose;
mod epoch;
mod evaluate;
mod exchange;
mod fault;
mod fit;
mod frames;
mod joint;
mod landing;
#[cfg(test)]
pub(crate) mod landing_tests;
mod lockstep;
mod loss;
mod loss_gradient;
mod loss_scale;
mod manual;
mod meeting;
mod metrics;
mod outputs;
mod own;
mod own_loss;
mod penalize;
mod plan;
mod prepare;
mod schedule;
mod shard_gradients;
mod shard_passes;
mod sharded;
mod spare;
mod split;
mod states;
mod step;
mod step_program;
mod summing;
mod times;
mod trainer;
pub(crate) mod tween;
mod units;
pub(crate) mod watch;
mod weighing;

pub use crate::network::{LayerMeasures, MeasureHistory, Measures, Watch};
pub use crate::ops::update::Optimizer;
pub use crate::state::{LossScale, Notes, OptimizerState};
pub use crate::weights::Initializer;
pub use coding::Format;
pub use config::{OnNonFinite, OutputLoss, Regularizer, TrainingConfig};
pub use contribution::{Joint, Work};
pub use cut::StepRows;
pub use data::{Examples, Rows, Targets};
pub use depth_scale::DepthScale;
pub use epoch::{Epoch, count_step, end_epoch};
pub use evaluate::{Evaluation, Evaluator, evaluate};
pub use exchange::{Alone, Exchange};
pub use fit::{Callback, EpochReport, TrainingResult, train, train_with};
pub use loss::{LossConfig, LossOptions};
pub use loss_gradient::loss_and_gradient;
pub use manual::{GradientStatistics, ManualStep};
pub use meeting::{Attendant, Meeting};
pub use metrics::{Average, Metric, MetricState};
pub use own_loss::{
    LossProvider, OwnLoss, OwnLossConfig, check_expression, expression_loss_and_gradient, expression_mean,
    provide_losses,
};
pub use prepare::check_examples;
pub use schedule::Schedule;
pub use step::StepReport;
pub use times::StepTimes;
pub use trainer::{Newest, OwnedTargets, Trainer, TrainerOptions};
pub use tween::{FeedbackConfig, Passage, TargetMode, TweenConfig, TweenState};

pub(crate) use clip::{Clips, Updates, lower_clip, lower_foresight, lower_updates};
pub(crate) use fault::{Fault, describe_at};
pub(crate) use landing::{Fate, count_update, land, land_carefully, settle};
pub(crate) use outputs::{TargetRow, losses_and_gradients};
pub(crate) use own_loss::own_loss_and_gradient;
pub(crate) use prepare::prepare_state;
pub(crate) use states::{keep_on_device, odd_state};
pub(crate) use watch::Watching;
