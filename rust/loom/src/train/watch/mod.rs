//! Measures of every layer at every step, and explosions taken back: of any trainer.

mod places;
mod watching;

pub(crate) use places::{
    inside, judge_again, judged_action, keep_for_training, kept_by_layers, kept_measures, memory, note,
    prepare, synchronize_after_rollback,
};
pub(crate) use watching::Watching;
