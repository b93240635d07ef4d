//! Drawing a class by its score, on the CPU: what is drawn on a GPU is compared with this.

use super::Draw;
use crate::ops::{Args, Operation};
use crate::simd::Real;
use crate::{Result, extents};

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
}

/// What is known of a class beside its score.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// The class.
    pub class: usize,
    /// How often the answer has it, a whole number; a half where only what came before the answer has it.
    pub count: f64,
    /// What is added to its score.
    pub bias: f64,
}

impl Sampling {
    /// Numbers that say all this.
    pub const NUMBERS: usize = 8;

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
        ]
    }

    /// Of numbers.
    pub fn of(numbers: &[f64; Self::NUMBERS]) -> Self {
        let [temperature, top_k, top_p, min_p, typical, repetition, frequency, presence] = *numbers;
        Self {
            temperature,
            top_k: top_k.max(0.0) as usize,
            top_p,
            min_p,
            typical,
            repetition_penalty: repetition,
            frequency_penalty: frequency,
            presence_penalty: presence,
        }
    }

    /// Whether it matters which classes came before.
    pub fn counts(&self) -> bool {
        self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }

    /// A score after penalties and biases.
    fn changed(&self, score: f64, Change { count, bias, .. }: Change) -> f64 {
        let mut score = match (count > 0.0, score > 0.0) {
            (true, true) => score / self.repetition_penalty,
            (true, false) => score * self.repetition_penalty,
            (false, _) => score,
        };
        score -= self.frequency_penalty * count.floor();
        if count >= 1.0 {
            score -= self.presence_penalty;
        }
        score + bias
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

/// Numbers of a change: the class, its count, its bias.
const ENTRY: usize = 3;

impl Draw {
    /// How many numbers a list of changes has room for: each class may come to be in it.
    pub const fn changes(classes: usize) -> usize {
        1 + ENTRY * classes
    }

    /// The lists of so many rows as they lie in memory, as far as there is anything in them: first the length of each,
    /// then the first change of each, the second of each, and so on, so that what short lists have is one piece.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) where there is no room.
    pub(crate) fn lists<T: Real>(rows: usize, lists: &[Vec<Change>]) -> Result<Vec<T>> {
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let mut memory: Vec<T> = extents::zeros(rows * Self::changes(longest))?;
        for (row, list) in lists.iter().enumerate().take(rows) {
            memory[row] = T::from_usize(list.len());
            for (number, Change { class, count, bias }) in list.iter().enumerate() {
                let at = rows + (number * rows + row) * ENTRY;
                let entry = [T::from_usize(*class), T::from_f64(*count), T::from_f64(*bias)];
                memory[at..at + ENTRY].copy_from_slice(&entry);
            }
        }
        Ok(memory)
    }
}

impl Operation for Draw {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (y, draws, sampling) = (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2));
        let (chosen, changes) = (args.write::<T>(0), args.write::<T>(1));
        let rows = y.len() / self.classes;
        let place = (args.values.position as usize + self.time).min(self.capacity);
        let places = self.capacity + 1;
        for (row, y) in y.chunks_exact(self.classes).enumerate() {
            let mut numbers = [0.0; Sampling::NUMBERS];
            for (number, given) in numbers.iter_mut().zip(&sampling[row * Sampling::NUMBERS..]) {
                *number = given.to_f64();
            }
            let sampling = Sampling::of(&numbers);
            let chosen = &mut chosen[row * places + place];
            if y.iter().any(|score| !score.to_f64().is_finite()) {
                *chosen = T::from_f64(-1.0);
                continue;
            }
            let mut scores: Vec<f64> = y.iter().map(|score| score.to_f64()).collect();
            let entries = changes[row].to_f64() as usize;
            let entry = |number: usize| rows + (number * rows + row) * ENTRY;
            for number in 0..entries {
                let [class, count, bias] = [0, 1, 2].map(|part| changes[entry(number) + part].to_f64());
                let class = class as usize;
                scores[class] = sampling.changed(scores[class], Change { class, count, bias });
            }
            let class = sampling.drawn(&scores, draws[row * places + place].to_f64());
            *chosen = T::from_usize(class);
            if sampling.counts() {
                let known = (0..entries).map(entry).find(|at| changes[*at].to_f64() as usize == class);
                let at = known.unwrap_or_else(|| {
                    changes[row] = T::from_usize(entries + 1);
                    changes[entry(entries)..][..ENTRY].copy_from_slice(&[
                        T::from_usize(class),
                        T::ZERO,
                        T::ZERO,
                    ]);
                    entry(entries)
                });
                changes[at + 1] = T::from_f64(changes[at + 1].to_f64().floor() + 1.0);
            }
        }
        Ok(())
    }
}
