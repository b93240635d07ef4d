//! Losses of distributions over classes: cross-entropy and focal loss on logits, likelihood of probabilities.

use super::rows::Rows;
use super::{Loss, LossFunction};
use crate::ops::element_loops::{first, load, store};
use crate::ops::reduced_axis::{Apart, ReducedAxis, SideBySide};
use crate::simd::{Kernel, LANES, Real, Vector};

/// The least probability whose logarithm is taken.
const LEAST: f64 = 1e-12;

/// What outputs are compared with.
#[derive(Clone, Copy)]
pub(super) enum Target<'a, T> {
    /// One class index for each position.
    Classes(&'a [i32]),
    /// One number for each element.
    Real(&'a [T]),
}

impl<'a, T> Target<'a, T> {
    /// The targets from row `first` on, of rows of `elements` at `positions`.
    #[inline(always)]
    pub(super) fn from(self, first: usize, elements: usize, positions: usize) -> Self {
        match self {
            Target::Classes(labels) => Target::Classes(&labels[first * positions..]),
            Target::Real(targets) => Target::Real(&targets[first * elements..]),
        }
    }
}

/// Some rows of a loss over classes.
pub(super) struct ClassRows<'a, T> {
    pub(super) op: &'a Loss,
    pub(super) rows: Rows<'a, T>,
    pub(super) target: Target<'a, T>,
}

impl<T: Real> Kernel<T> for ClassRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { op, rows, target } = self;
        let Loss { outer, classes, inner, .. } = *op;
        let block = classes * inner;
        for row in 0..rows.losses.len() {
            let (weight, scale) = rows.scale(row);
            let weights = rows.of_places(row);
            let mut total = T::ZERO;
            for index in row * outer..(row + 1) * outer {
                let part = index * block..(index + 1) * block;
                let output = &rows.output[part.clone()];
                let gradient = if rows.gradient.is_empty() { None } else { Some(&mut rows.gradient[part]) };
                let target = target.from(index, block, inner);
                let block = Block { op, output, target, gradient, scale, weights };
                total += match op.function {
                    LossFunction::CrossEntropy { temperature } => {
                        let factor = T::from_f64(1.0 / temperature);
                        block.positions::<V, _>(CrossEntropy { factor, divergence: false })
                    }
                    LossFunction::KullbackLeibler { temperature } => {
                        let factor = T::from_f64(1.0 / temperature);
                        block.positions::<V, _>(CrossEntropy { factor, divergence: true })
                    }
                    LossFunction::Focal { temperature, gamma } => {
                        let factor = T::from_f64(1.0 / temperature);
                        block.positions::<V, _>(Focal { factor, gamma: T::from_f64(gamma) })
                    }
                    _ => block.positions::<V, _>(Likelihood),
                };
            }
            rows.losses[row] = total * weight;
        }
    }
}

/// (classes, inner) elements.
struct Block<'a, T> {
    op: &'a Loss,
    output: &'a [T],
    target: Target<'a, T>,
    gradient: Option<&'a mut [T]>,
    /// The factor of the gradient.
    scale: T,
    /// What each position counts beside that; empty where all count alike.
    weights: &'a [T],
}

/// A loss of the distribution along an axis.
trait ClassFunction<T: Real>: Copy {
    /// The loss of each position; writes the gradient, times `scale`.
    fn loss<V: Vector<Element = T>>(self, block: &mut Block<'_, T>, axis: impl ReducedAxis<V>, scale: V)
    -> V;
}

impl<T: Real> Block<'_, T> {
    /// The sum of the positions' losses, by the 16-lane rule.
    #[inline(always)]
    fn positions<V: Vector<Element = T>, F: ClassFunction<T>>(mut self, function: F) -> T {
        let Loss { classes, inner, .. } = *self.op;
        let scale = V::splat(self.scale);
        if inner == 1 {
            return function.loss::<V>(&mut self, SideBySide { classes }, scale).to_array()[0];
        }
        let mut sums = V::splat(T::ZERO);
        for start in (0..inner).step_by(LANES) {
            let count = LANES.min(inner - start);
            let axis = Apart { classes, inner, start, count };
            // At one place, so that no loss is compiled twice; times one changes no bit.
            let weights = match self.weights.get(start..start + count) {
                Some(weights) => load(weights),
                None => V::splat(T::ONE),
            };
            let loss = function.loss::<V>(&mut self, axis, scale * weights) * weights;
            sums = sums + first(count, loss);
        }
        sums.reduce_sum()
    }

    /// The class weight of each position's index.
    #[inline(always)]
    fn chosen_weight<V: Vector<Element = T>>(&self, axis: impl ReducedAxis<V>, labels: &[i32]) -> V {
        match &self.op.class_weight {
            Some(factors) => axis.chosen_factors(factors, labels),
            None => V::splat(T::ONE),
        }
    }

    /// Vector `step` of the target, smoothed and weighted.
    #[inline(always)]
    fn target<V: Vector<Element = T>>(&self, axis: impl ReducedAxis<V>, step: usize) -> V {
        let smoothing = self.op.label_smoothing;
        let target = match self.target {
            Target::Classes(labels) => axis.one_hot(step, labels),
            Target::Real(targets) => load(&targets[axis.part(step)]),
        };
        let uniform = V::constant(smoothing / self.op.classes as f64);
        let target = target * V::constant(1.0 - smoothing) + uniform;
        match &self.op.class_weight {
            Some(factors) => target * axis.factors(step, factors),
            None => target,
        }
    }
}

/// `-sum t log softmax(o factor)`, or that less the entropy of t.
#[derive(Clone, Copy)]
struct CrossEntropy<T> {
    factor: T,
    divergence: bool,
}

impl<T: Real> ClassFunction<T> for CrossEntropy<T> {
    #[inline(always)]
    fn loss<V: Vector<Element = T>>(
        self,
        block: &mut Block<'_, T>,
        axis: impl ReducedAxis<V>,
        scale: V,
    ) -> V {
        let (output, factor) = (block.output, V::splat(self.factor));
        let scale = scale * factor;
        let largest = axis.largest(output);
        // The powers wait where the gradient goes; what fits a register stays there.
        let (single, mut power) = (axis.steps() == 1, V::splat(T::ZERO));
        let mut sums = axis.sums();
        for step in 0..axis.steps() {
            let part = axis.part(step);
            power = ((load::<V>(&output[part.clone()]) - largest) * factor).exp();
            axis.add(&mut sums, step, power);
            if let (false, Some(gradient)) = (single, &mut block.gradient) {
                store(power, &mut gradient[part]);
            }
        }
        let sum = axis.total(sums);
        let log_sum = sum.ln();
        let zero = V::splat(T::ZERO);

        if let Target::Classes(labels) = block.target
            && block.op.label_smoothing == 0.0
        {
            let weight = block.chosen_weight(axis, labels);
            let (share, chosen) = (weight * scale / sum, weight * scale);
            match &mut block.gradient {
                Some(gradient) if single => {
                    let named = axis.one_hot(0, labels).gt(zero);
                    store(power * share - V::select(named, chosen, zero), &mut gradient[axis.part(0)]);
                }
                Some(gradient) => {
                    for step in 0..axis.steps() {
                        let gradient = &mut gradient[axis.part(step)];
                        store(load::<V>(gradient) * share, gradient);
                    }
                    axis.subtract_chosen(gradient, labels, chosen);
                }
                None => {}
            }
            return weight * (log_sum - (axis.chosen(output, labels) - largest) * factor);
        }

        let (mut losses, mut weights) = (axis.sums(), axis.sums());
        for step in 0..axis.steps() {
            let target = block.target(axis, step);
            let log = (load::<V>(&output[axis.part(step)]) - largest) * factor;
            // An infinite logarithm of what is not asked for costs nothing.
            let apart = if self.divergence { log_sum - log + target.ln() } else { log_sum - log };
            axis.add(&mut losses, step, V::select(target.eq(zero), zero, target * apart));
            axis.add(&mut weights, step, target);
        }
        let share = axis.total(weights) / sum;
        for step in 0..axis.steps() {
            let target = block.target(axis, step);
            if let Some(gradient) = &mut block.gradient {
                let gradient = &mut gradient[axis.part(step)];
                let power = if single { power } else { load(gradient) };
                store((power * share - target) * scale, gradient);
            }
        }
        axis.total(losses)
    }
}

/// `-sum t (1 - p)^gamma log p` with `p = softmax(o factor)`.
#[derive(Clone, Copy)]
struct Focal<T> {
    factor: T,
    gamma: T,
}

impl<T: Real> Focal<T> {
    /// `(1 - p)^gamma`, and how much a logit's share of the loss's slope is of what it is of cross-entropy's, where
    /// `-log p` is `cost`.
    #[inline(always)]
    fn looks<V: Vector<Element = T>>(self, cost: V) -> [V; 2] {
        let (zero, one, gamma) = (V::splat(T::ZERO), V::splat(T::ONE), V::splat(self.gamma));
        let p = (zero - cost).exp();
        let other = zero.max(one - p);
        let nothing = other.eq(zero);
        let look = V::select(nothing, zero, (other.ln() * gamma).exp());
        // Of what is certain the two go to zero together.
        let ratio = V::select(nothing, one, cost / other);
        [look, look * (one + gamma * p * ratio)]
    }
}

/// What scores are above the largest, which is none, times a factor.
#[inline(always)]
fn logit<V: Vector>(output: &[V::Element], largest: V, factor: V) -> V {
    (load::<V>(output) - largest) * factor
}

impl<T: Real> ClassFunction<T> for Focal<T> {
    #[inline(always)]
    fn loss<V: Vector<Element = T>>(
        self,
        block: &mut Block<'_, T>,
        axis: impl ReducedAxis<V>,
        scale: V,
    ) -> V {
        let (output, factor) = (block.output, V::splat(self.factor));
        let (scale, zero) = (scale * factor, V::splat(T::ZERO));
        let largest = axis.largest(output);
        let mut sums = axis.sums();
        for step in 0..axis.steps() {
            axis.add(&mut sums, step, logit::<V>(&output[axis.part(step)], largest, factor).exp());
        }
        let log_sum = axis.total(sums).ln();
        let (mut losses, mut slopes) = (axis.sums(), axis.sums());
        for step in 0..axis.steps() {
            let target = block.target(axis, step);
            let cost = log_sum - logit::<V>(&output[axis.part(step)], largest, factor);
            let [look, slope] = self.looks(cost);
            // What is not asked for costs nothing, impossible or not.
            let unasked = target.eq(zero);
            axis.add(&mut losses, step, V::select(unasked, zero, target * look * cost));
            axis.add(&mut slopes, step, V::select(unasked, zero, target * slope));
        }
        if block.gradient.is_some() {
            let all = axis.total(slopes);
            for step in 0..axis.steps() {
                let target = block.target(axis, step);
                let cost = log_sum - logit::<V>(&output[axis.part(step)], largest, factor);
                let own = V::select(target.eq(zero), zero, target * self.looks(cost)[1]);
                if let Some(gradient) = &mut block.gradient {
                    store(((zero - cost).exp() * all - own) * scale, &mut gradient[axis.part(step)]);
                }
            }
        }
        axis.total(losses)
    }
}

/// `-sum t log max(o, 1e-12)`.
#[derive(Clone, Copy)]
struct Likelihood;

impl<T: Real> ClassFunction<T> for Likelihood {
    #[inline(always)]
    fn loss<V: Vector<Element = T>>(
        self,
        block: &mut Block<'_, T>,
        axis: impl ReducedAxis<V>,
        scale: V,
    ) -> V {
        let output = block.output;
        let (zero, least) = (V::splat(T::ZERO), V::constant(LEAST));

        if let Target::Classes(labels) = block.target
            && block.op.label_smoothing == 0.0
        {
            let weight = block.chosen_weight(axis, labels);
            let probability = least.max(axis.chosen(output, labels));
            if let Some(gradient) = &mut block.gradient {
                for step in 0..axis.steps() {
                    gradient[axis.part(step)].fill(T::ZERO);
                }
                axis.subtract_chosen(gradient, labels, weight / probability * scale);
            }
            return zero - weight * probability.ln();
        }

        let mut losses = axis.sums();
        for step in 0..axis.steps() {
            let part = axis.part(step);
            let target = block.target(axis, step);
            let probability = least.max(load::<V>(&output[part.clone()]));
            axis.add(&mut losses, step, zero - target * probability.ln());
            if let Some(gradient) = &mut block.gradient {
                store(zero - target / probability * scale, &mut gradient[part]);
            }
        }
        axis.total(losses)
    }
}
