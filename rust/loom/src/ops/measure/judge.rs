//! Figures and a decision out of the sums.

use super::collect::collect;
use super::{Action, Entry, Header, LayerFigure, MeasureMemory};
use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the distance of an output from its target is put in one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GapMetric {
    /// The root of the mean square.
    #[default]
    Rms,
    /// The mean square.
    Mse,
}

/// What a layer's link budget is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkBudget {
    /// Its gain; updates do not depend on it.
    #[default]
    Gain,
    /// Its alignment: a layer below 0.2 is not updated, above it the rate is multiplied by
    /// 0.5 + 0.5 budget.
    Alignment,
}

impl LinkBudget {
    /// Below this a layer is not updated, where budgets are alignments.
    pub const LEAST_ALIGNMENT: f64 = 0.2;
}

/// When a step counts as an explosion, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExplosionRule {
    /// Growth is looked at only where the mean gap is above this.
    pub gap_threshold: f64,
    /// The most the mean gap may grow from one calm step to the next.
    pub explosion_limit: f64,
    /// What the adaptive rate is multiplied by after an explosion.
    pub recovery_rate: f64,
}

impl Default for ExplosionRule {
    fn default() -> Self {
        Self { gap_threshold: 0.1, explosion_limit: 10.0, recovery_rate: 0.5 }
    }
}

/// Makes each layer's figures of the collected sums, and decides what becomes of the step.
///
/// Reads the losses (rows,), if `has_norm` the gradient norm, and what it is to collect before it judges;
/// changes the memory.
///
/// A step explodes where the mean gap of the layers of cells has grown past the limit since the last calm one,
/// or where anything of theirs is not finite. What did the damage is the update before, so that is what is taken
/// back; where there was none since the last explosion, a large gap is the data's, and the step is calm.
#[derive(Clone, Debug, PartialEq)]
pub struct Judge {
    /// Where everything is.
    pub memory: MeasureMemory,
    /// Where in the memory the squared norms of each layer's input and output are; none where only feedback
    /// maps have learned, and nothing but their figures is made.
    pub norms: Vec<[usize; 2]>,
    /// How gaps are put in a number.
    pub metric: GapMetric,
    /// What budgets are.
    pub budget: LinkBudget,
    /// Multiplies budgets.
    pub budget_scale: f64,
    /// When to roll back; never where there is none.
    pub explosion: Option<ExplosionRule>,
    /// Whether the gradient norm is looked at.
    pub has_norm: bool,
    /// Where the sums that it reads go: of a step with one batch, whose sums need no [`Collect`](super::Collect) of
    /// their own.
    pub entries: Vec<Entry>,
}

impl Judge {
    /// What a calm step multiplies the adaptive rate by, up to the base rate.
    pub const CALM_GROWTH: f64 = 1.05;

    /// The mean of squared distances, or its root.
    fn gap(&self, square: f64, count: f64) -> f64 {
        let mean = square / count;
        if self.metric == GapMetric::Mse { mean } else { mean.sqrt() }
    }

    /// The gap of what is not a layer's output.
    fn other<T: Real>(&self, memory: &[T], entry: Entry) -> f64 {
        let at = self.memory.entry(entry);
        self.gap(memory[at + 3].to_f64(), memory[at + 4].to_f64())
    }

    fn layer<T: Real>(&self, memory: &[T], layer: usize) -> [f64; 7] {
        let first = self.memory.entry(Entry::Layer(layer));
        let [aa, at, tt, square, count] = [0, 1, 2, 3, 4].map(|i| memory[first + i].to_f64());
        let norms = aa.sqrt() * tt.sqrt();
        // NaN must stay visible, so the comparison asks for zero.
        let alignment = if norms == 0.0 { 0.5 } else { 0.5 + 0.5 * (at / norms).clamp(-1.0, 1.0) };
        let [input, output] = self.norms[layer].map(|place| memory[place].to_f64().sqrt());
        let gain = if input == 0.0 { 0.0 } else { output / input };
        let budget = self.budget_scale * if self.budget == LinkBudget::Gain { gain } else { alignment };
        let gate = match self.budget {
            LinkBudget::Gain => 1.0,
            LinkBudget::Alignment if budget < LinkBudget::LEAST_ALIGNMENT => -1.0,
            LinkBudget::Alignment => 0.5 + 0.5 * budget,
        };
        let (cell, reconstruction) =
            (self.other(memory, Entry::Cell(layer)), self.other(memory, Entry::Reconstruction(layer)));
        [self.gap(square, count), alignment, gain, budget, gate, cell, reconstruction]
    }

    /// Judges a step whose losses were `finite`.
    fn judge<T: Real>(&self, memory: &mut [T], finite: bool) {
        const ORDER: [LayerFigure; 7] = [
            LayerFigure::Gap,
            LayerFigure::Alignment,
            LayerFigure::Gain,
            LayerFigure::LinkBudget,
            LayerFigure::Gate,
            LayerFigure::CellGap,
            LayerFigure::Reconstruction,
        ];
        if self.norms.is_empty() {
            for layer in 0..self.memory.rows() {
                let figure = self.other(memory, Entry::Reconstruction(layer));
                memory[self.memory.figure(layer, LayerFigure::Reconstruction)] = T::from_f64(figure);
            }
            memory[MeasureMemory::header(Header::Action)] = T::from_f64(Action::Apply.code());
            return;
        }
        let (mut total, mut finite) = (0.0, finite);
        for layer in 0..self.memory.rows() {
            let figures = self.layer(memory, layer);
            for (what, figure) in ORDER.into_iter().zip(figures) {
                memory[self.memory.figure(layer, what)] = T::from_f64(figure);
            }
            if layer < self.memory.layers {
                total += figures[0];
                finite &= figures[0].is_finite() && figures[2].is_finite();
            }
        }
        let mean = total / self.memory.layers.max(1) as f64;
        let get = |memory: &[T], what| memory[MeasureMemory::header(what)].to_f64();
        let previous = get(memory, Header::PreviousGap);
        let known = get(memory, Header::HasPrevious) != 0.0 && previous > 0.0;
        let growth = if known { mean / previous } else { 1.0 };
        let applied = get(memory, Header::Applied) != 0.0;
        let explodes = self.explosion.filter(|rule| {
            let grown = known && mean > rule.gap_threshold && growth > rule.explosion_limit;
            !finite || (grown && applied)
        });
        let (factor, judged) = (get(memory, Header::RateFactor), get(memory, Header::Judged));
        let had_snapshot = get(memory, Header::HasSnapshot);
        let had_previous = get(memory, Header::HasPrevious);
        let mut set = |what, value: f64| memory[MeasureMemory::header(what)] = T::from_f64(value);
        set(Header::RateBefore, factor);
        set(Header::GapBefore, previous);
        set(Header::HadPrevious, had_previous);
        set(Header::HadSnapshot, had_snapshot);
        set(Header::MeanGap, mean);
        set(Header::Growth, growth);
        set(Header::Judged, judged + 1.0);
        match explodes {
            Some(rule) => {
                set(Header::RateFactor, factor * rule.recovery_rate);
                set(Header::Applied, 0.0);
                let explosions = get(memory, Header::Explosions);
                let back = get(memory, Header::HasSnapshot) != 0.0;
                let action = if back { Action::RollBack } else { Action::Hold };
                memory[MeasureMemory::header(Header::Explosions)] = T::from_f64(explosions + 1.0);
                memory[MeasureMemory::header(Header::Action)] = T::from_f64(action.code());
            }
            None => {
                set(Header::Action, Action::Apply.code());
                set(Header::RateFactor, (factor * Self::CALM_GROWTH).min(1.0));
                set(Header::PreviousGap, mean);
                set(Header::HasPrevious, 1.0);
                set(Header::HasSnapshot, 1.0);
                set(Header::Applied, 1.0);
            }
        }
    }
}

impl Operation for Judge {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let losses: f64 = args.read::<T>(0).iter().map(|loss| loss.to_f64()).sum();
        let mut finite = losses.is_finite();
        if self.has_norm {
            finite &= args.read::<T>(1)[0].is_finite();
        }
        let memory = args.write::<T>(0);
        collect(self.memory, &self.entries, args, 1 + usize::from(self.has_norm), memory);
        self.judge(memory, finite);
        Ok(())
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "judge {} layers", self.memory.layers)
    }
}
