//! The update rules over slices, one pass, the same bits on every instruction set.
//!
//! Every operation is one that IEEE 754 rounds exactly, in the order PyTorch's
//! documentation writes them, so the scalar formula is the reference.

use super::Update;
use crate::Result;
use crate::cpu::{Args, Elementwise, Kernel, LANES, Real, StepValues, Vector};
use crate::ops::Operation;
use crate::train::Optimizer;

/// Elements that one task updates: enough to pay for handing it out, few enough to share a layer.
const CHUNK: usize = 1 << 14;

/// A rule with this step's scalars, rounded once from `f64`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule<T> {
    Sgd {
        rate: T,
        momentum: T,
        nesterov: bool,
        decay: T,
    },
    /// `news` and `square_news` are the shares of the gradient and its square: 1 - beta, taken
    /// before rounding, since the difference from 1 has far fewer digits after.
    Adam {
        step_size: T,
        news: T,
        beta2: T,
        square_news: T,
        root_correction: T,
        epsilon: T,
        decay: T,
        shrink: T,
    },
    /// `news` is 1 - alpha.
    RmsProp {
        rate: T,
        alpha: T,
        news: T,
        epsilon: T,
        momentum: T,
        centered: bool,
        decay: T,
    },
}

impl<T: Real> Rule<T> {
    /// The rule of `optimizer` at this step, with or without its weight decay.
    pub(super) fn new(optimizer: &Optimizer, rate_factor: f64, values: &StepValues, decays: bool) -> Self {
        let rate = values.rate * rate_factor;
        let decayed = |decay: f64| if decays { decay } else { 0.0 };
        let t = T::from_f64;
        match *optimizer {
            Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
                Rule::Sgd { rate: t(rate), momentum: t(momentum), nesterov, decay: t(decayed(weight_decay)) }
            }
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, .. }
            | Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                let steps = values.optimizer_step as f64;
                let decoupled = matches!(optimizer, Optimizer::AdamW { .. });
                let decay = decayed(weight_decay);
                Rule::Adam {
                    step_size: t(rate / (1.0 - libm::pow(beta1, steps))),
                    news: t(1.0 - beta1),
                    beta2: t(beta2),
                    square_news: t(1.0 - beta2),
                    root_correction: t((1.0 - libm::pow(beta2, steps)).sqrt()),
                    epsilon: t(epsilon),
                    decay: t(if decoupled { 0.0 } else { decay }),
                    shrink: t(if decoupled { 1.0 - rate * decay } else { 1.0 }),
                }
            }
            Optimizer::RmsProp { alpha, epsilon, momentum, centered, weight_decay, .. } => Rule::RmsProp {
                rate: t(rate),
                alpha: t(alpha),
                news: t(1.0 - alpha),
                epsilon: t(epsilon),
                momentum: t(momentum),
                centered,
                decay: t(decayed(weight_decay)),
            },
        }
    }
}

/// New weight and moments from old ones and the gradient; unused moments pass through.
///
/// Moments come in the order of [`Optimizer::slots`].
#[inline(always)]
fn apply<T: Real, E: Elementwise<Element = T>>(rule: &Rule<T>, w: E, g: E, moments: [E; 3]) -> (E, [E; 3]) {
    let s = E::splat;
    let [a, b, c] = moments;
    match *rule {
        Rule::Sgd { rate, momentum, nesterov, decay } => {
            let g = s(decay).mul_add(w, g);
            let v = s(momentum).mul_add(a, g);
            let step = if nesterov { s(momentum).mul_add(v, g) } else { v };
            (w - s(rate) * step, [v, b, c])
        }
        Rule::Adam { step_size, news, beta2, square_news, root_correction, epsilon, decay, shrink } => {
            let w = w * s(shrink);
            let g = s(decay).mul_add(w, g);
            let mean = (g - a).mul_add(s(news), a);
            let square = b * s(beta2) + g * g * s(square_news);
            let denominator = square.sqrt() / s(root_correction) + s(epsilon);
            (w - s(step_size) * (mean / denominator), [mean, square, c])
        }
        Rule::RmsProp { rate, alpha, news, epsilon, momentum, centered, decay } => {
            let g = s(decay).mul_add(w, g);
            let square = a * s(alpha) + g * g * s(news);
            let (mean, spread) = if centered {
                let mean = (g - b).mul_add(s(news), b);
                // Rounding may leave a square below the mean's own.
                (mean, (square - mean * mean).max(s(T::ZERO)))
            } else {
                (b, square)
            };
            let step = g / (spread.sqrt() + s(epsilon));
            if momentum == T::ZERO {
                return (w - s(rate) * step, [square, mean, c]);
            }
            let velocity = s(momentum).mul_add(if centered { c } else { b }, step);
            let moments = if centered { [square, mean, velocity] } else { [square, velocity, c] };
            (w - s(rate) * velocity, moments)
        }
    }
}

/// One slice of a store.
struct Slice<'a, T> {
    rule: Rule<T>,
    w: &'a mut [T],
    g: &'a [T],
    moments: [&'a mut [T]; 3],
}

impl<T: Real> Kernel<T> for Slice<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        // One loop for each number of moments, so that none is asked for in vain.
        match &self.moments {
            [[], ..] => self.update::<V, 0>(),
            [_, [], _] => self.update::<V, 1>(),
            [_, _, []] => self.update::<V, 2>(),
            _ => self.update::<V, 3>(),
        }
    }
}

impl<T: Real> Slice<'_, T> {
    #[inline(always)]
    fn update<V: Vector<Element = T>, const MOMENTS: usize>(self) {
        let Slice { rule, w, g, mut moments } = self;
        let whole = w.len() / LANES * LANES;
        for start in (0..whole).step_by(LANES) {
            let end = start + LANES;
            let mut old = [V::splat(T::ZERO); 3];
            for (old, moment) in old.iter_mut().zip(&moments).take(MOMENTS) {
                *old = V::load(&moment[start..end]);
            }
            let (weight, new) = apply(&rule, V::load(&w[start..end]), V::load(&g[start..end]), old);
            weight.store(&mut w[start..end]);
            for (new, moment) in new.into_iter().zip(&mut moments).take(MOMENTS) {
                new.store(&mut moment[start..end]);
            }
        }
        for index in whole..w.len() {
            let mut old = [T::ZERO; 3];
            for (old, moment) in old.iter_mut().zip(&moments).take(MOMENTS) {
                *old = moment[index];
            }
            let (weight, new) = apply(&rule, w[index], g[index], old);
            w[index] = weight;
            for (new, moment) in new.into_iter().zip(&mut moments).take(MOMENTS) {
                moment[index] = new;
            }
        }
    }
}

impl Operation for Update {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let gradient = args.read::<T>(0);
        let mut master = args.write::<T>(0);
        let mut moments = [args.write::<T>(1), args.write::<T>(2), args.write::<T>(3)];
        let isa = args.cpu.isa();
        let mut start = 0;
        // Alternate between parts that decay and parts that do not.
        for exempt in self.exempt.iter().cloned().chain([self.len..self.len]) {
            for (end, decays) in [(exempt.start, true), (exempt.end, false)] {
                if end <= start {
                    continue;
                }
                let rule = Rule::<T>::new(&self.optimizer, self.rate_factor, args.values, decays);
                let (part, rest) = std::mem::take(&mut master).split_at_mut(end - start);
                master = rest;
                let parts = moments.each_mut().map(|moment| {
                    // A moment that the rule does not have is empty.
                    let whole = std::mem::take(moment);
                    let (part, rest) = whole.split_at_mut((end - start).min(whole.len()));
                    *moment = rest;
                    part
                });
                let [first, second, third] = parts;
                let g = &gradient[start..end];
                args.cpu.pool().for_each_chunks(
                    [part, first, second, third],
                    CHUNK,
                    |chunk, [w, a, b, c]| {
                        let g = &g[chunk * CHUNK..][..w.len()];
                        T::dispatch(isa, Slice { rule, w, g, moments: [a, b, c] });
                    },
                );
                start = end;
            }
        }
        Ok(())
    }
}
