//! The update rules over slices, one pass, the same bits on every instruction set.
//!
//! Every operation is one that IEEE 754 rounds exactly, in the order PyTorch's
//! documentation writes them, so the scalar formula is the reference.

use super::{Decision, Update};
use crate::Result;
use crate::ops::measure::Action;
use crate::ops::update::Optimizer;
use crate::ops::{Args, Operation, StepValues};
use crate::simd::{Cpu, Elementwise, Kernel, LANES, Real, Vector};
use std::ops::Range;

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
    Velocity {
        rate: T,
        momentum: T,
    },
    /// `news` and `square_news` are the shares of the gradient and its square: 1 - beta, taken
    /// before rounding, since the difference from 1 has far fewer digits after. `root_scale` is
    /// one over the root of the correction: one division a weight less.
    Adam {
        step_size: T,
        news: T,
        beta2: T,
        square_news: T,
        root_scale: T,
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
        /// What is added below the root instead.
        rooted: T,
        momentum: T,
        centered: bool,
        decay: T,
    },
}

impl<T: Real> Rule<T> {
    /// The rule of `optimizer` at this step, with or without its weight decay.
    pub(super) fn new(update: &Update, factor: f64, values: &StepValues, decays: bool) -> Self {
        let optimizer = &update.optimizer;
        let rate = update.rate.unwrap_or(values.rate) * (update.rate_factor * factor);
        let [number, updates] = update.repeat.map(u64::from);
        let steps = (values.optimizer_step - 1) * updates + number + 1;
        let decayed = |decay: f64| if decays { decay } else { 0.0 };
        let t = T::from_f64;
        match *optimizer {
            Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
                Rule::Sgd { rate: t(rate), momentum: t(momentum), nesterov, decay: t(decayed(weight_decay)) }
            }
            Optimizer::Velocity { momentum } => Rule::Velocity { rate: t(rate), momentum: t(momentum) },
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, .. }
            | Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                let steps = steps as f64;
                let decoupled = matches!(optimizer, Optimizer::AdamW { .. });
                let decay = decayed(weight_decay);
                Rule::Adam {
                    step_size: t(rate / (1.0 - libm::pow(beta1, steps))),
                    news: t(1.0 - beta1),
                    beta2: t(beta2),
                    square_news: t(1.0 - beta2),
                    root_scale: t(1.0 / (1.0 - libm::pow(beta2, steps)).sqrt()),
                    epsilon: t(epsilon),
                    decay: t(if decoupled { 0.0 } else { decay }),
                    shrink: t(if decoupled { 1.0 - rate * decay } else { 1.0 }),
                }
            }
            Optimizer::RmsProp {
                alpha, epsilon, epsilon_in_root, momentum, centered, weight_decay, ..
            } => Rule::RmsProp {
                rate: t(rate),
                alpha: t(alpha),
                news: t(1.0 - alpha),
                epsilon: t(if epsilon_in_root { 0.0 } else { epsilon }),
                rooted: t(if epsilon_in_root { epsilon } else { 0.0 }),
                momentum: t(momentum),
                centered,
                decay: t(decayed(weight_decay)),
            },
        }
    }
}

/// Zero instead of what is too small for a normal number.
///
/// A weight whose gradient has died leaves moments that decay for ever; below the normal numbers
/// every processor computes with them many times slower, and they move nothing any more.
#[inline(always)]
fn flush<T: Real, E: Elementwise<Element = T>>(moment: E) -> E {
    E::select(moment.abs().lt(E::splat(T::MIN_POSITIVE)), E::splat(T::ZERO), moment)
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
            let v = flush(s(momentum).mul_add(a, g));
            let step = if nesterov { s(momentum).mul_add(v, g) } else { v };
            (w - s(rate) * step, [v, b, c])
        }
        Rule::Adam { step_size, news, beta2, square_news, root_scale, epsilon, decay, shrink } => {
            let w = w * s(shrink);
            let g = s(decay).mul_add(w, g);
            let mean = flush((g - a).mul_add(s(news), a));
            let square = flush(b * s(beta2) + g * g * s(square_news));
            let denominator = square.sqrt().mul_add(s(root_scale), s(epsilon));
            (w - s(step_size) * (mean / denominator), [mean, square, c])
        }
        Rule::Velocity { rate, momentum } => {
            let v = flush(s(momentum) * a - s(rate) * g);
            (w + v, [v, b, c])
        }
        Rule::RmsProp { rate, alpha, news, epsilon, rooted, momentum, centered, decay } => {
            let g = s(decay).mul_add(w, g);
            let square = flush(a * s(alpha) + g * g * s(news));
            let (mean, spread) = if centered {
                let mean = flush((g - b).mul_add(s(news), b));
                // Rounding may leave a square below the mean's own.
                (mean, (square - mean * mean).max(s(T::ZERO)))
            } else {
                (b, square)
            };
            let step = g / ((spread + s(rooted)).sqrt() + s(epsilon));
            if momentum == T::ZERO {
                return (w - s(rate) * step, [square, mean, c]);
            }
            let velocity = flush(s(momentum).mul_add(if centered { c } else { b }, step));
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

/// How many arrays of one length an update may change: master, three moments, and copies of those.
const ARRAYS: usize = 8;

/// A store's master and moments, and the copies of them that are kept, taken from the front piece by
/// piece.
pub(in crate::ops) struct Slots<'a, T> {
    arrays: [&'a mut [T]; ARRAYS],
    /// What becomes of them; nothing to decide where nobody watches.
    decision: Option<Decision>,
}

impl<'a, T: Real> Slots<'a, T> {
    /// The results of a step, from result 0 on, with the decision in operand `memory`.
    pub(in crate::ops) fn of(update: &Update, args: &mut Args<'a>, memory: usize) -> Self {
        let mut arrays: [&'a mut [T]; ARRAYS] = Default::default();
        let moments = update.optimizer.slots().len();
        for (number, slot) in arrays.iter_mut().enumerate().take(1 + moments) {
            *slot = args.write(number);
        }
        if update.keeps() {
            let kept = std::iter::once(true).chain(Update::kept_moments(&update.optimizer));
            let kept = kept.enumerate().filter(|(_, kept)| *kept);
            for ((number, _), result) in kept.zip(1 + moments..) {
                arrays[COPIES + number] = args.write(result);
            }
        }
        let decision = update.watched.map(|watched| watched.decide(args.read::<T>(memory)));
        Self { arrays, decision }
    }

    /// The next `len` elements of each; nothing of an array that is not there.
    fn next(&mut self, len: usize) -> [&'a mut [T]; ARRAYS] {
        self.arrays.each_mut().map(|slot| {
            let whole = std::mem::take(slot);
            let (part, rest) = whole.split_at_mut(len.min(whole.len()));
            *slot = rest;
            part
        })
    }
}

/// Where the copies start among the arrays.
const COPIES: usize = 4;

/// Back to the copies, where there are such; what has none, a velocity, starts from zero.
fn go_back<T: Real>(arrays: [&mut [T]; ARRAYS]) {
    let [master, a, b, c, copies @ ..] = arrays;
    if copies[0].is_empty() {
        return;
    }
    for (array, copy) in [master, a, b, c].into_iter().zip(copies) {
        match copy.is_empty() {
            true => array.fill(T::ZERO),
            false => array.copy_from_slice(copy),
        }
    }
}

/// Copies what is there, where copies are kept.
fn keep<T: Real>(arrays: &mut [&mut [T]; ARRAYS]) {
    let (now, copies) = arrays.split_at_mut(COPIES);
    for (array, copy) in now.iter().zip(copies).filter(|(_, copy)| !copy.is_empty()) {
        copy.copy_from_slice(array);
    }
}

impl Update {
    /// Updates elements `range` of the store, which `slots` are at, in tasks of `chunk`
    /// elements. `gradient` shows the gradient of a task's elements, counted from `range`'s start.
    pub(in crate::ops) fn run_range<T: Real>(
        &self,
        cpu: &Cpu,
        values: &StepValues,
        range: Range<usize>,
        chunk: usize,
        slots: &mut Slots<'_, T>,
        gradient: impl Fn(Range<usize>, &mut dyn FnMut(&[T])) + Sync,
    ) {
        let isa = cpu.isa();
        let Decision { action, factor } =
            slots.decision.unwrap_or(Decision { action: Action::Apply, factor: Some(1.0) });
        let mut start = range.start;
        while start < range.end {
            let (end, decays, moves) = self.stretch(start, range.end);
            let rule = Rule::<T>::new(self, factor.unwrap_or(0.0), values, decays);
            let before = start - range.start;
            cpu.pool().for_each_chunks(slots.next(end - start), chunk, |task, mut arrays| {
                match action {
                    Action::Hold => return,
                    Action::RollBack => return go_back(arrays),
                    Action::Apply => keep(&mut arrays),
                }
                if factor.is_none() || !moves {
                    return;
                }
                let first = before + task * chunk;
                let [w, a, b, c, ..] = arrays;
                let mut moments = [a, b, c];
                gradient(first..first + w.len(), &mut |g| {
                    let moments = moments.each_mut().map(|moment| &mut **moment);
                    T::dispatch(isa, Slice { rule, w: &mut *w, g, moments });
                });
            });
            start = end;
        }
    }

    /// Where the stretch from `start` on that is treated alike ends, at most at `end`; whether it decays, and
    /// whether it moves.
    fn stretch(&self, start: usize, end: usize) -> (usize, bool, bool) {
        let bounds = self.exempt.iter().chain(&self.frozen).flat_map(|part| [part.start, part.end]);
        let next = bounds.filter(|bound| *bound > start).fold(end, usize::min);
        let is_in = |parts: &[Range<usize>]| parts.iter().any(|part| part.contains(&start));
        (next, !is_in(&self.exempt), !is_in(&self.frozen))
    }

    /// Updates elements `range` of the store, which `slots` are at, from its flat gradient.
    pub(in crate::ops) fn run_plain<T: Real>(
        &self,
        cpu: &Cpu,
        values: &StepValues,
        range: Range<usize>,
        slots: &mut Slots<'_, T>,
        gradient: &[T],
    ) {
        let gradient = &gradient[range.clone()];
        self.run_range(cpu, values, range, CHUNK, slots, |part, update| update(&gradient[part]));
    }
}

impl Operation for Update {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let gradient = args.read::<T>(0);
        let mut slots = Slots::of(self, args, 1);
        self.run_plain(args.cpu, args.values, 0..self.len, &mut slots, gradient);
        Ok(())
    }
}
