//! Drawing a class by its score, on the CPU: what is drawn on a GPU is compared with this.

use super::Draw;
use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;

/// How a class is drawn. Scores are changed by the penalties, by biases and by the temperature, in this order; then
/// classes are left out by `top_k`, `top_p`, `min_p` and `typical`, each of what the one before has left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// What scores are divided by; 0 takes the largest.
    pub temperature: f64,
    /// Only so many with the largest scores, and all with the same score as the last of them; 0 for all.
    pub top_k: usize,
    /// Only the likeliest, as few as together have this probability.
    pub top_p: f64,
    /// Only those with at least this part of the likeliest one's probability.
    pub min_p: f64,
    /// Only those whose surprise is nearest to the expected one, as few as together have this probability.
    pub typical: f64,
    /// What positive scores of classes seen before are divided by, and negative ones multiplied.
    pub repetition_penalty: f64,
    /// What is subtracted for each time that the answer has a class.
    pub frequency_penalty: f64,
    /// What is subtracted where the answer has it.
    pub presence_penalty: f64,
    /// Whether biases are added.
    pub biased: bool,
}

impl Sampling {
    /// Numbers that say all this.
    pub const NUMBERS: usize = 9;

    /// As numbers.
    pub fn numbers(&self) -> [f64; Self::NUMBERS] {
        [
            self.temperature,
            self.top_k as f64,
            self.top_p,
            self.min_p,
            self.typical,
            self.repetition_penalty,
            self.frequency_penalty,
            self.presence_penalty,
            f64::from(u8::from(self.biased)),
        ]
    }

    /// Of numbers.
    pub fn of(numbers: &[f64; Self::NUMBERS]) -> Self {
        let [temperature, top_k, top_p, min_p, typical, repetition, frequency, presence, biased] = *numbers;
        Self {
            temperature,
            top_k: top_k.max(0.0) as usize,
            top_p,
            min_p,
            typical,
            repetition_penalty: repetition,
            frequency_penalty: frequency,
            presence_penalty: presence,
            biased: biased != 0.0,
        }
    }

    /// Whether it matters which classes came before.
    pub fn counts(&self) -> bool {
        self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }

    /// A score after penalties and biases.
    fn changed(&self, score: f64, count: f64, bias: f64) -> f64 {
        let mut score = match (count > 0.0, score > 0.0) {
            (true, true) => score / self.repetition_penalty,
            (true, false) => score * self.repetition_penalty,
            (false, _) => score,
        };
        score -= self.frequency_penalty * count.floor();
        if count >= 1.0 {
            score -= self.presence_penalty;
        }
        if self.biased { score + bias } else { score }
    }

    /// The classes that are left, in their order, with what they weigh.
    fn left(&self, scores: &[f64]) -> Vec<(usize, f64)> {
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut left: Vec<(usize, f64)> = scores.iter().map(|score| score - largest).enumerate().collect();
        if self.top_k > 0 && self.top_k < left.len() {
            let mut sorted: Vec<f64> = scores.to_vec();
            sorted.sort_by(|one, other| other.total_cmp(one));
            left.retain(|(class, _)| scores[*class] >= sorted[self.top_k - 1]);
        }
        let weight = |left: &[(usize, f64)]| left.iter().map(|(_, score)| score.exp()).sum::<f64>();
        if self.top_p < 1.0 {
            let whole = weight(&left);
            let mut order = left.clone();
            order.sort_by(|one, other| other.1.total_cmp(&one.1));
            let mut before = 0.0;
            order.retain(|(_, score)| {
                let kept = before < self.top_p * whole;
                before += score.exp();
                kept
            });
            order.sort_by_key(|(class, _)| *class);
            left = order;
        }
        left.retain(|(_, score)| score.exp() >= self.min_p);
        if self.typical < 1.0 {
            let whole = weight(&left);
            let expected = left.iter().map(|(_, score)| score.exp() * score).sum::<f64>() / whole;
            let mut order: Vec<(f64, f64)> =
                left.iter().map(|(_, score)| ((score - expected).abs(), score.exp())).collect();
            order.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (mut sum, mut last) = (0.0, 0.0);
            for (apart, weight) in order {
                if sum >= self.typical * whole {
                    break;
                }
                (sum, last) = (sum + weight, apart);
            }
            left.retain(|(_, score)| (score - expected).abs() <= last);
        }
        left.into_iter().map(|(class, score)| (class, score.exp())).collect()
    }

    /// The class that a draw from 0 to below 1 falls on.
    fn drawn(&self, scores: &[f64], draw: f64) -> usize {
        let best = |scores: &[f64]| {
            (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best })
        };
        let warmed: Vec<f64> = scores.iter().map(|score| score / self.temperature).collect();
        if self.temperature == 0.0 || warmed.contains(&f64::INFINITY) {
            return best(scores);
        }
        let left = self.left(&warmed);
        let target = draw * left.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut sum = 0.0;
        let mut last = best(scores);
        for (class, weight) in left.into_iter().filter(|(_, weight)| *weight > 0.0) {
            sum += weight;
            last = class;
            if target < sum {
                break;
            }
        }
        last
    }
}

impl Operation for Draw {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (y, draws, sampling, biases) =
            (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2), args.read::<T>(3));
        let (chosen, counts) = (args.write::<T>(0), args.write::<T>(1));
        let place = (args.values.position as usize + self.time).min(self.capacity);
        let places = self.capacity + 1;
        for (row, y) in y.chunks_exact(self.classes).enumerate() {
            let mut numbers = [0.0; Sampling::NUMBERS];
            for (number, given) in numbers.iter_mut().zip(&sampling[row * Sampling::NUMBERS..]) {
                *number = given.to_f64();
            }
            let sampling = Sampling::of(&numbers);
            let own = row * self.classes..(row + 1) * self.classes;
            let (counts, biases) = (&mut counts[own.clone()], &biases[own]);
            let chosen = &mut chosen[row * places + place];
            if y.iter().any(|score| !score.to_f64().is_finite()) {
                *chosen = T::from_f64(-1.0);
                continue;
            }
            let changed = |class: usize| {
                let count = if sampling.counts() { counts[class].to_f64() } else { 0.0 };
                sampling.changed(y[class].to_f64(), count, biases[class].to_f64())
            };
            let scores: Vec<f64> = (0..self.classes).map(changed).collect();
            let class = sampling.drawn(&scores, draws[row * places + place].to_f64());
            *chosen = T::from_usize(class);
            if sampling.counts() {
                counts[class] = T::from_f64(counts[class].to_f64().floor() + 1.0);
            }
        }
        Ok(())
    }
}
