//! The kernel that chooses experts.

use super::Route;
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Math, Real};
use crate::{Error, Result};

impl Operation for Route {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let logits = args.read::<T>(0).chunks_exact(self.experts);
        match self.direction {
            Direction::Forward => {
                let (gates, choices) = (args.write::<T>(0), args.write::<T>(1));
                let results = gates.chunks_exact_mut(self.top_k).zip(choices.chunks_exact_mut(self.top_k));
                for (logits, (gates, choices)) in logits.zip(results) {
                    self.choose(logits, choices);
                    let (largest, total) = self.total(logits, choices);
                    for (gate, choice) in gates.iter_mut().zip(choices) {
                        *gate = Math::exp(logits[expert(*choice)] - largest) / total;
                    }
                }
            }
            Direction::InputGradient => {
                let operands = [1, 2].map(|number| args.read::<T>(number).chunks_exact(self.top_k));
                let [choices, dgates] = operands;
                let results = args.write::<T>(0).chunks_exact_mut(self.experts);
                for (((logits, choices), dgates), dlogits) in logits.zip(choices).zip(dgates).zip(results) {
                    self.gradient(logits, choices, dgates, dlogits);
                }
            }
            Direction::WeightGradient => return Err(Error::Internal("a choice has no weights".into())),
        }
        Ok(())
    }
}

/// The number of an expert.
fn expert<T: Real>(choice: T) -> usize {
    choice.to_f64() as usize
}

impl Route {
    fn choose<T: Real>(&self, logits: &[T], choices: &mut [T]) {
        for place in 0..self.top_k {
            let (chosen, rest) = choices.split_at_mut(place);
            let taken = |number: usize| chosen.iter().any(|choice| expert(*choice) == number);
            let mut best = None;
            for number in (0..self.experts).filter(|number| !taken(*number)) {
                if best.is_none_or(|best: usize| logits[number] > logits[best]) {
                    best = Some(number);
                }
            }
            rest[0] = T::from_usize(best.unwrap_or(0));
        }
    }

    /// The largest logit, and the sum that shares are shares of.
    fn total<T: Real>(&self, logits: &[T], choices: &[T]) -> (T, T) {
        let largest = logits[expert(choices[0])];
        let add = |sum: T, logit: T| sum + Math::exp(logit - largest);
        let total = match self.normalize {
            true => choices.iter().fold(T::ZERO, |sum, choice| add(sum, logits[expert(*choice)])),
            false => logits.iter().fold(T::ZERO, |sum, logit| add(sum, *logit)),
        };
        (largest, total)
    }

    fn gradient<T: Real>(&self, logits: &[T], choices: &[T], dgates: &[T], dlogits: &mut [T]) {
        let (largest, total) = self.total(logits, choices);
        let share = |number: usize| Math::exp(logits[number] - largest) / total;
        let mut mean = T::ZERO;
        for (choice, dgate) in choices.iter().zip(dgates) {
            mean = share(expert(*choice)).mul_add(*dgate, mean);
        }
        for (number, dlogit) in dlogits.iter_mut().enumerate() {
            *dlogit = if self.normalize { T::ZERO } else { share(number) * (T::ZERO - mean) };
        }
        for (choice, dgate) in choices.iter().zip(dgates) {
            let number = expert(*choice);
            dlogits[number] = share(number) * (*dgate - mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, assert_close, assert_gradient, cpus, numbers};

    fn op(direction: Direction, experts: usize, top_k: usize, normalize: bool) -> Route {
        Route { direction, experts, top_k, normalize }
    }

    #[test]
    fn the_greatest_are_chosen_and_share_as_a_softmax() {
        for (steps, experts, top_k) in [(1, 1, 1), (7, 5, 2), (3, 9, 9), (40, 16, 4)] {
            let logits: Vec<f64> =
                (0..steps * experts).map(|i| ((i * i * 7 + 3 * i) % 23) as f64 / 5.0).collect();
            for normalize in [false, true] {
                let route = op(Direction::Forward, experts, top_k, normalize);
                let found = Setting::new(1, &[&logits], &[steps * top_k, steps * top_k]).run(&route);
                for (step, logits) in logits.chunks(experts).enumerate() {
                    let mut order: Vec<usize> = (0..experts).collect();
                    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
                    let chosen: Vec<f64> = order[..top_k].iter().map(|number| *number as f64).collect();
                    assert_bits(&found[1].real()[step * top_k..][..top_k], &chosen);
                    let total: f64 = if normalize { &order[..top_k] } else { &order[..] }
                        .iter()
                        .map(|number| logits[*number].exp())
                        .sum();
                    let shares: Vec<f64> =
                        order[..top_k].iter().map(|number| logits[*number].exp() / total).collect();
                    assert_close(&found[0].real()[step * top_k..][..top_k], &shares, 1e-14);
                }
            }
        }
    }

    #[test]
    fn gradients_are_those_of_the_shares() {
        let (experts, top_k) = (6, 3);
        let logits: Vec<f64> = (0..4 * experts).map(|i| ((i * 17) % 24) as f64 / 7.0).collect();
        let dgates = numbers::<f64>(2, 4 * top_k);
        for normalize in [false, true] {
            let run = |logits: &[f64]| {
                let forward = op(Direction::Forward, experts, top_k, normalize);
                Setting::new(1, &[logits], &[4 * top_k, 4 * top_k]).run_on(&forward, &cpus()[0]).unwrap()
            };
            let choices = run(&logits)[1].real().to_vec();
            let back = op(Direction::InputGradient, experts, top_k, normalize);
            let found = Setting::new(1, &[&logits, &choices, &dgates], &[logits.len()]).result(&back);
            assert_gradient(&found, &logits, |logits| {
                run(logits)[0].real().iter().zip(&dgates).map(|(gate, dgate)| gate * dgate).sum()
            });
        }
    }

    #[test]
    fn what_is_no_number_does_no_harm() {
        let logits = [f32::NAN, 1.0, f32::NAN, 2.0];
        let route = op(Direction::Forward, 4, 3, true);
        let found = Setting::new(1, &[&logits], &[3, 3]).run(&route);
        let mut chosen = found[1].real().to_vec();
        chosen.sort_by(f32::total_cmp);
        chosen.dedup();
        assert!(chosen.len() == 3 && chosen.iter().all(|number| (0.0..4.0).contains(number)));
        assert!(found[0].real()[0].is_nan());
    }
}
