//! Learning-rate schedules: factors on the learning rate, functions of the step alone.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// How the learning rate changes with the step.
///
/// `steps` left out means the whole run, or what a warm-up leaves of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// The learning rate as it is.
    #[default]
    Constant,
    /// A straight line from 1 to `end_factor`, which then stays.
    Linear {
        /// The factor at the end.
        #[serde(default)]
        end_factor: f64,
        /// How many steps the line takes.
        #[serde(default)]
        steps: Option<u64>,
    },
    /// Half a cosine wave from 1 to `end_factor`, which then stays.
    Cosine {
        /// The factor at the end.
        #[serde(default)]
        end_factor: f64,
        /// How many steps the wave takes.
        #[serde(default)]
        steps: Option<u64>,
    },
    /// Cosine waves one after the other (Loshchilov and Hutter 2017).
    CosineRestarts {
        /// How many steps the first wave takes.
        period: u64,
        /// How many times longer each wave is than the one before.
        #[serde(default = "one")]
        period_factor: f64,
        /// The factor at the end of each wave.
        #[serde(default)]
        end_factor: f64,
    },
    /// `gamma ^ (step / steps)`.
    Exponential {
        /// The factor after `steps` steps.
        gamma: f64,
        /// Over how many steps the rate falls to `gamma` of itself.
        #[serde(default = "one_step")]
        steps: u64,
    },
    /// `gamma ^ floor(step / steps)`.
    Step {
        /// How many steps lie between two drops.
        steps: u64,
        /// What each drop multiplies the rate by.
        #[serde(default = "tenth")]
        gamma: f64,
    },
    /// `end_factor + (1 - end_factor) (1 - step / steps) ^ power`, then `end_factor`.
    Polynomial {
        /// The exponent.
        #[serde(default = "one")]
        power: f64,
        /// The factor at the end.
        #[serde(default)]
        end_factor: f64,
        /// How many steps the fall takes.
        #[serde(default)]
        steps: Option<u64>,
    },
    /// One rise and one long fall, both half cosine waves (Smith and Topin 2018): from
    /// 1 / `div_factor` to 1 after `rise` of the steps, to 1 / (`div_factor` x `final_div_factor`). Where `rise`
    /// of the steps comes to less than one, the first step is part of the fall.
    OneCycle {
        /// The share of the steps spent rising.
        #[serde(default = "three_tenths")]
        rise: f64,
        /// The configured rate over the first one.
        #[serde(default = "twenty_five")]
        div_factor: f64,
        /// The first rate over the last one.
        #[serde(default = "ten_thousand")]
        final_div_factor: f64,
        /// How many steps the cycle takes.
        #[serde(default)]
        steps: Option<u64>,
    },
    /// A straight rise to 1, then another schedule from its start: step i of the rise has the
    /// factor (i + 1) / `steps`.
    Warmup {
        /// How many steps the rise takes.
        steps: u64,
        /// The schedule that follows.
        #[serde(default)]
        then: Box<Schedule>,
    },
    /// Another schedule whose lengths count epochs: in between the rate goes on changing from step to step.
    Epochs {
        /// That schedule.
        schedule: Box<Schedule>,
        /// Steps in an epoch. A [`Trainer`](super::Trainer) fills it in; elsewhere one step is one epoch unless
        /// it is given.
        #[serde(default)]
        steps_per_epoch: Option<u64>,
    },
}

fn one() -> f64 {
    1.0
}

fn one_step() -> u64 {
    1
}

fn tenth() -> f64 {
    0.1
}

fn three_tenths() -> f64 {
    0.3
}

fn twenty_five() -> f64 {
    25.0
}

fn ten_thousand() -> f64 {
    1e4
}

impl Schedule {
    /// The learning rate at `step` (from 0) of a run of `total` steps that starts from `base`.
    pub fn rate(&self, base: f64, step: u64, total: u64) -> f64 {
        base * self.factor(step, total)
    }

    fn factor(&self, step: u64, total: u64) -> f64 {
        // The share of the schedule's length that is past, from 0 to 1.
        let progress = |steps: Option<u64>| {
            let steps = steps.unwrap_or(total).max(1);
            (step as f64 / steps as f64).min(1.0)
        };
        match self {
            Schedule::Constant => 1.0,
            Schedule::Linear { end_factor, steps } => 1.0 + (end_factor - 1.0) * progress(*steps),
            Schedule::Cosine { end_factor, steps } => wave(1.0, *end_factor, progress(*steps)),
            Schedule::CosineRestarts { period, period_factor, end_factor } => {
                wave(1.0, *end_factor, restart_progress(step, *period as f64, *period_factor))
            }
            Schedule::Exponential { gamma, steps } => libm::pow(*gamma, step as f64 / *steps as f64),
            Schedule::Step { steps, gamma } => libm::pow(*gamma, (step / steps) as f64),
            Schedule::Polynomial { power, end_factor, steps } => {
                end_factor + (1.0 - end_factor) * libm::pow(1.0 - progress(*steps), *power)
            }
            Schedule::OneCycle { rise, div_factor, final_div_factor, steps } => {
                // As in PyTorch: the peak is at rise x steps - 1, before the first step where that is negative,
                // and the end at the last step.
                let steps = steps.unwrap_or(total).max(1) as f64;
                let (peak, last) = (rise * steps - 1.0, steps - 1.0);
                let (start, end) = (1.0 / div_factor, 1.0 / (div_factor * final_div_factor));
                let step = (step as f64).min(last);
                if step <= peak && peak > 0.0 {
                    wave(start, 1.0, step / peak)
                } else if last > peak {
                    wave(1.0, end, (step - peak) / (last - peak))
                } else {
                    end
                }
            }
            Schedule::Warmup { steps, then } => {
                if step < *steps {
                    (step + 1) as f64 / *steps as f64
                } else {
                    then.factor(step - steps, total.saturating_sub(*steps))
                }
            }
            Schedule::Epochs { schedule, steps_per_epoch } => {
                schedule.stretched(steps_per_epoch.unwrap_or(1)).factor(step, total)
            }
        }
    }

    /// The same schedule, over so many times as many steps.
    fn stretched(&self, by: u64) -> Schedule {
        let mut schedule = self.clone();
        match &mut schedule {
            Schedule::Constant | Schedule::Epochs { .. } => {}
            Schedule::Linear { steps, .. }
            | Schedule::Cosine { steps, .. }
            | Schedule::Polynomial { steps, .. }
            | Schedule::OneCycle { steps, .. } => *steps = steps.map(|steps| steps.saturating_mul(by)),
            Schedule::CosineRestarts { period: steps, .. }
            | Schedule::Exponential { steps, .. }
            | Schedule::Step { steps, .. } => *steps = steps.saturating_mul(by),
            Schedule::Warmup { steps, then } => {
                *steps = steps.saturating_mul(by);
                **then = then.stretched(by);
            }
        }
        schedule
    }

    /// The same schedule, with the length of an epoch where it counts epochs and does not say it.
    pub(super) fn with_epochs_of(mut self, steps: u64) -> Schedule {
        match &mut self {
            Schedule::Epochs { steps_per_epoch, .. } => {
                steps_per_epoch.get_or_insert(steps.max(1));
            }
            Schedule::Warmup { then, .. } => **then = std::mem::take(then.as_mut()).with_epochs_of(steps),
            _ => {}
        }
        self
    }

    fn counts_epochs(&self) -> bool {
        match self {
            Schedule::Epochs { .. } => true,
            Schedule::Warmup { then, .. } => then.counts_epochs(),
            _ => false,
        }
    }

    /// Refuses parameters out of range.
    ///
    /// # Errors
    /// [`Error::Value`] naming the parameter and its range.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::Value(format!("schedule {self:?}: {what}")));
        let factor = |factor: f64| factor.is_finite() && factor >= 0.0;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        match self {
            Schedule::Constant => Ok(()),
            Schedule::Linear { end_factor, steps } | Schedule::Cosine { end_factor, steps } => {
                if !factor(*end_factor) || *steps == Some(0) {
                    return refuse("end_factor must be at least 0, steps at least 1");
                }
                Ok(())
            }
            Schedule::CosineRestarts { period, period_factor, end_factor } => {
                if *period == 0
                    || !(period_factor.is_finite() && *period_factor >= 1.0)
                    || !factor(*end_factor)
                {
                    return refuse("period and period_factor must be at least 1, end_factor at least 0");
                }
                Ok(())
            }
            Schedule::Exponential { gamma, steps } | Schedule::Step { gamma, steps } => {
                if !positive(*gamma) || *steps == 0 {
                    return refuse("gamma must be above 0, steps at least 1");
                }
                Ok(())
            }
            Schedule::Polynomial { power, end_factor, steps } => {
                if !positive(*power) || !factor(*end_factor) || *steps == Some(0) {
                    return refuse("power must be above 0, end_factor at least 0, steps at least 1");
                }
                Ok(())
            }
            Schedule::OneCycle { rise, div_factor, final_div_factor, steps } => {
                let inside = *rise > 0.0 && *rise < 1.0;
                if !inside || !positive(*div_factor) || !positive(*final_div_factor) || *steps == Some(0) {
                    return refuse("rise must be between 0 and 1, the factors above 0, steps at least 1");
                }
                Ok(())
            }
            Schedule::Warmup { steps, then } => {
                if *steps == 0 || matches!(**then, Schedule::Warmup { .. }) {
                    return refuse("steps must be at least 1, and then no other warm-up");
                }
                then.validate()
            }
            Schedule::Epochs { schedule, steps_per_epoch } => {
                if *steps_per_epoch == Some(0) || schedule.counts_epochs() {
                    return refuse(
                        "steps_per_epoch must be at least 1, and what counts epochs no other such",
                    );
                }
                schedule.validate()
            }
        }
    }
}

/// Half a cosine wave between two values, `progress` from 0 to 1.
fn wave(from: f64, to: f64, progress: f64) -> f64 {
    to + (from - to) * (1.0 + libm::cos(PI * progress)) / 2.0
}

/// The share of the present wave that is past.
fn restart_progress(step: u64, period: f64, factor: f64) -> f64 {
    let step = step as f64;
    if factor == 1.0 {
        return step % period / period;
    }
    // Waves 0..n last period (factor^n - 1) / (factor - 1) steps together.
    let wave = (libm::log1p(step * (factor - 1.0) / period) / libm::log(factor) + 1e-9).floor();
    let start = period * (libm::pow(factor, wave) - 1.0) / (factor - 1.0);
    ((step - start) / (period * libm::pow(factor, wave))).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(json: &str, steps: &[u64], total: u64) -> Result<Vec<f64>> {
        let schedule: Schedule = serde_json::from_str(json).map_err(|e| Error::Value(e.to_string()))?;
        schedule.validate()?;
        Ok(steps.iter().map(|step| schedule.rate(0.1, *step, total)).collect())
    }

    fn close(found: &[f64], expected: &[f64]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
    }

    #[derive(Deserialize)]
    struct Golden {
        rate: f64,
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        schedule: Schedule,
        rates: Vec<f64>,
    }

    /// Every step of what tests/golden/schedules.py ran.
    #[test]
    fn rates_are_those_of_pytorch() {
        let golden = include_str!("../../../../tests/golden/schedules.json");
        let Golden { rate, cases } = serde_json::from_str(golden).unwrap();
        for total in 1..=20 {
            let is_cycle = |case: &&Case| {
                matches!(case.schedule, Schedule::OneCycle { .. }) && case.rates.len() == total
            };
            assert!(cases.iter().filter(is_cycle).count() >= 3, "of {total} steps");
        }
        for Case { schedule, rates } in cases {
            let total = rates.len() as u64;
            for (step, expected) in rates.into_iter().enumerate() {
                let found = schedule.rate(rate, step as u64, total);
                let tolerance = 1e-15 * (expected / rate).max(1.0);
                assert!(
                    (found - expected).abs() < tolerance,
                    "{schedule:?} at {step} of {total}: {found}, not {expected}"
                );
            }
        }
    }

    /// Values by hand.
    #[test]
    fn schedules_have_their_known_values() -> Result<()> {
        close(&rates(r#"{"type":"constant"}"#, &[0, 5, 99], 10)?, &[0.1; 3]);
        close(
            &rates(r#"{"type":"linear","end_factor":0.5}"#, &[0, 5, 10, 20], 10)?,
            &[0.1, 0.075, 0.05, 0.05],
        );
        close(&rates(r#"{"type":"cosine"}"#, &[0, 5, 10], 10)?, &[0.1, 0.05, 0.0]);
        close(
            &rates(r#"{"type":"cosine_restarts","period":4}"#, &[0, 2, 4, 6], 99)?,
            &[0.1, 0.05, 0.1, 0.05],
        );
        let doubling = r#"{"type":"cosine_restarts","period":2,"period_factor":2.0}"#;
        close(&rates(doubling, &[0, 1, 2, 4, 6, 10, 14], 99)?, &[0.1, 0.05, 0.1, 0.05, 0.1, 0.05, 0.1]);
        close(
            &rates(r#"{"type":"exponential","gamma":0.25,"steps":2}"#, &[0, 1, 4], 9)?,
            &[0.1, 0.05, 0.00625],
        );
        close(&rates(r#"{"type":"step","steps":3}"#, &[2, 3, 6], 9)?, &[0.1, 0.01, 0.001]);
        close(&rates(r#"{"type":"polynomial","power":2.0}"#, &[0, 5, 10], 10)?, &[0.1, 0.025, 0.0]);
        close(
            &rates(r#"{"type":"warmup","steps":4,"then":{"type":"linear"}}"#, &[0, 3, 4, 7, 10], 10)?,
            &[0.025, 0.1, 0.1, 0.05, 0.0],
        );
        Ok(())
    }

    #[test]
    fn lengths_in_epochs_are_as_many_times_as_many_steps() -> Result<()> {
        let steps: Vec<u64> = (0..40).collect();
        for (epochs, expected) in [
            (r#"{"type":"step","steps":2}"#, r#"{"type":"step","steps":14}"#),
            (r#"{"type":"exponential","gamma":0.5}"#, r#"{"type":"exponential","gamma":0.5,"steps":7}"#),
            (r#"{"type":"cosine_restarts","period":2}"#, r#"{"type":"cosine_restarts","period":14}"#),
            (r#"{"type":"linear","steps":3}"#, r#"{"type":"linear","steps":21}"#),
            (r#"{"type":"one_cycle"}"#, r#"{"type":"one_cycle"}"#),
            (
                r#"{"type":"warmup","steps":1,"then":{"type":"cosine","steps":3}}"#,
                r#"{"type":"warmup","steps":7,"then":{"type":"cosine","steps":21}}"#,
            ),
        ] {
            let counted = format!(r#"{{"type":"epochs","schedule":{epochs},"steps_per_epoch":7}}"#);
            assert_eq!(rates(&counted, &steps, 40)?, rates(expected, &steps, 40)?, "{epochs}");
            let left_open: Schedule =
                serde_json::from_str(&format!(r#"{{"type":"epochs","schedule":{epochs}}}"#)).unwrap();
            let given: Schedule = serde_json::from_str(&counted).unwrap();
            assert_eq!(left_open.with_epochs_of(7), given);
            assert_eq!(given.clone().with_epochs_of(9), given);
        }
        Ok(())
    }

    #[test]
    fn one_cycle_rises_to_the_rate_and_falls_past_its_start() -> Result<()> {
        let found = rates(r#"{"type":"one_cycle"}"#, &[0, 29, 99], 100)?;
        close(&found, &[0.1 / 25.0, 0.1, 0.1 / 25.0 / 1e4]);
        Ok(())
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for json in [
            r#"{"type":"linear","end_factor":-1.0}"#,
            r#"{"type":"step","steps":0}"#,
            r#"{"type":"exponential","gamma":0.0}"#,
            r#"{"type":"one_cycle","rise":1.0}"#,
            r#"{"type":"warmup","steps":2,"then":{"type":"warmup","steps":2}}"#,
            r#"{"type":"cosine","end":1}"#,
            r#"{"type":"epochs","schedule":{"type":"cosine"},"steps_per_epoch":0}"#,
            r#"{"type":"epochs","schedule":{"type":"epochs","schedule":{"type":"cosine"}}}"#,
        ] {
            assert!(rates(json, &[0], 1).is_err(), "{json}");
        }
    }
}
