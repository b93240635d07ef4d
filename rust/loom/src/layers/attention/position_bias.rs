//! Configuration of what attention adds to scores by the distance of steps.

use crate::layers::settings::{Form, forms};
use crate::ops::attention::{Buckets, PositionBias};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is added to the score of two steps, head by head, by how far one is from the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PositionBiasConfig {
    /// Minus the distance times a slope (Press et al. 2022): of a power of two of heads head h has the slope
    /// `2^(-8 (h + 1) / heads)`; of any other number those of the largest power below it come first, then every
    /// second of the next power.
    Alibi,
    /// Trained numbers, one for each bucket of distances (Raffel et al. 2020): half of the buckets are of one
    /// distance each, the others of ranges that grow in proportion up to `max_distance`, beyond which all is the
    /// last bucket. Where steps see those after them, half of all buckets are of these.
    Relative {
        /// How many buckets there are.
        #[serde(default = "thirty_two")]
        buckets: usize,
        /// From which distance on there are no more buckets.
        #[serde(default = "hundred_and_twenty_eight")]
        max_distance: usize,
    },
}

fn thirty_two() -> usize {
    32
}

fn hundred_and_twenty_eight() -> usize {
    128
}

impl PositionBiasConfig {
    /// What settings must be beside their own types.
    pub(super) fn validate(&self, causal: bool) -> Result<()> {
        let Self::Relative { buckets, max_distance } = *self else { return Ok(()) };
        let ways = if causal { 1 } else { 2 };
        if buckets < 2 * ways || !buckets.is_multiple_of(ways) {
            return Err(Error::Value(format!(
                "position_bias buckets must be {}, got {buckets}",
                if causal { "at least 2" } else { "even and at least 4, for steps before and after" }
            )));
        }
        if max_distance <= buckets / ways / 2 {
            return Err(Error::Value(format!(
                "position_bias max_distance must be above {}, the distances with their own bucket, got \
                 {max_distance}",
                buckets / ways / 2
            )));
        }
        Ok(())
    }

    /// The extents of the trained table for so many heads, where there is one.
    pub(super) fn table(&self, heads: usize) -> Option<[usize; 2]> {
        match self {
            Self::Alibi => None,
            Self::Relative { buckets, .. } => Some([*buckets, heads]),
        }
    }

    /// What the operation is told, for so many heads and places.
    ///
    /// # Errors
    /// As [`Buckets::new`].
    pub(super) fn lower(&self, heads: usize, places: usize, causal: bool) -> Result<PositionBias> {
        Ok(match *self {
            Self::Alibi => PositionBias::Slopes((0..heads).map(|head| slope(head, heads)).collect()),
            Self::Relative { buckets, max_distance } => {
                let row = |distance| bucket(distance, buckets, max_distance, causal);
                PositionBias::Buckets(Arc::new(Buckets::new(buckets, places, row)?))
            }
        })
    }
}

/// The slope of a head.
fn slope(head: usize, heads: usize) -> f64 {
    let power = 1 << heads.ilog2();
    if head < power {
        return libm::exp2(-8.0 * (head + 1) as f64 / power as f64);
    }
    // Of twice as many heads every second, from the first on.
    libm::exp2(-8.0 * (2 * (head - power) + 1) as f64 / (2 * power) as f64)
}

/// The bucket of `key - query`.
fn bucket(distance: isize, buckets: usize, max_distance: usize, causal: bool) -> usize {
    let (count, before, far) = match causal {
        // Who comes later is not seen.
        true => (buckets, 0, distance.min(0).unsigned_abs()),
        false => (buckets / 2, if distance > 0 { buckets / 2 } else { 0 }, distance.unsigned_abs()),
    };
    let single = count / 2;
    if far < single {
        return before + far;
    }
    let share = libm::log(far as f64 / single as f64) / libm::log(max_distance as f64 / single as f64);
    // A share that is a whole number of buckets must not come out just below it.
    let more = (share * (count - single) as f64 + 1e-9) as usize;
    before + (single + more).min(count - 1)
}

forms! {
    PositionBiasConfig => Form::PositionBias,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_paper() {
        let slopes = |heads| (0..heads).map(|head| slope(head, heads)).collect::<Vec<_>>();
        assert_eq!(slopes(8), (1..=8).map(|i| 0.5f64.powi(i)).collect::<Vec<_>>());
        assert_eq!(slopes(1), [0.5f64.powi(8)]);
        let twelve = slopes(12);
        assert_eq!(&twelve[..8], &slopes(8)[..]);
        let sixteen = slopes(16);
        assert_eq!(&twelve[8..], &[sixteen[0], sixteen[2], sixteen[4], sixteen[6]]);
    }

    /// Those of T5's own, 32 of a distance of up to 128.
    #[test]
    fn buckets_grow_with_the_distance() {
        let both = |distance| bucket(distance, 32, 128, false);
        assert_eq!([0, -1, -7, 1, 7].map(both), [0, 1, 7, 17, 23]);
        assert_eq!([-8, -11, -12, -15, -16, -22, -23].map(both), [8, 8, 9, 9, 10, 10, 11]);
        assert_eq!([-64, -90, -91, -127, -128, -5000, 5000].map(both), [14, 14, 15, 15, 15, 15, 31]);
        let past = |distance| bucket(distance, 32, 128, true);
        assert_eq!([5, 1, 0, -15, -16, -18, -19, -113, -4000].map(past), [0, 0, 0, 15, 16, 16, 17, 31, 31]);
    }

    #[test]
    fn what_has_no_buckets_is_refused_by_name() {
        for (config, causal, named) in [
            (PositionBiasConfig::Relative { buckets: 1, max_distance: 9 }, true, "at least 2"),
            (PositionBiasConfig::Relative { buckets: 5, max_distance: 9 }, false, "even"),
            (PositionBiasConfig::Relative { buckets: 8, max_distance: 2 }, false, "above 2"),
        ] {
            let error = config.validate(causal).unwrap_err().to_string();
            assert!(error.contains("position_bias") && error.contains(named), "{error}");
        }
    }
}
