//! The update rules over slices, one pass, the same bits on every instruction set.

use super::table::{MOMENTS, Rule, RuleVisitor, SCALARS, Step};
use super::{Decision, Optimizer, Update};
use crate::Result;
use crate::ops::measure::Action;
use crate::ops::{Args, Operation, StepValues};
use crate::simd::{Cpu, Kernel, LANES, Real, Vector, array_of};
use std::marker::PhantomData;
use std::ops::Range;

/// Elements that one task updates: enough to pay for handing it out, few enough to share a layer.
const CHUNK: usize = 1 << 14;

/// The numbers of a step that a rule is written in, with or without weight decay, before they are rounded.
struct Scalars<'a> {
    step: Step<'a, f64>,
}

impl RuleVisitor for Scalars<'_> {
    type Output = [f64; SCALARS];

    fn visit<R: Rule>(self, rule: R) -> [f64; SCALARS] {
        rule.scalars(&self.step)
    }
}

impl Update {
    /// The numbers of this step, rounded once.
    pub(super) fn scalars<T: Real>(&self, factor: f64, values: &StepValues, decays: bool) -> [T; SCALARS] {
        let steps = self.number(values);
        let step = Step {
            rate: self.rate.unwrap_or(values.rate) * (self.rate_factor * factor),
            decay: if decays { self.optimizer.weight_decay() } else { 0.0 },
            seen: &|beta| 1.0 - libm::pow(beta, steps),
            number: steps,
        };
        self.optimizer.visit(Scalars { step }).map(T::from_f64)
    }
}

/// One slice of a store.
struct Slice<'a, T> {
    optimizer: &'a Optimizer,
    scalars: [T; SCALARS],
    w: &'a mut [T],
    g: &'a [T],
    moments: [&'a mut [T]; MOMENTS],
}

impl<T: Real> Kernel<T> for Slice<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        self.optimizer.visit(Loop::<V> { slice: self, vector: PhantomData });
    }
}

struct Loop<'a, V: Vector> {
    slice: Slice<'a, V::Element>,
    vector: PhantomData<V>,
}

impl<V: Vector> RuleVisitor for Loop<'_, V> {
    type Output = ();

    #[inline(always)]
    fn visit<R: Rule>(self, rule: R) {
        // One loop for each number of moments, so that none is asked for in vain.
        match &self.slice.moments {
            [[], ..] => self.slice.update::<V, R, 0>(rule),
            [_, [], _] => self.slice.update::<V, R, 1>(rule),
            [_, _, []] => self.slice.update::<V, R, 2>(rule),
            _ => self.slice.update::<V, R, 3>(rule),
        }
    }
}

impl<T: Real> Slice<'_, T> {
    #[inline(always)]
    fn update<V: Vector<Element = T>, R: Rule, const COUNT: usize>(self, rule: R) {
        if const { !has_count(R::COUNTS, COUNT) } {
            unreachable!("{COUNT} moments of a rule that never has as many");
        }
        let Slice { scalars, w, g, mut moments, .. } = self;
        let vectors = array_of(|i| V::splat(scalars[i]));
        let whole = w.len() / LANES * LANES;
        for start in (0..whole).step_by(LANES) {
            let end = start + LANES;
            let mut old = [V::splat(T::ZERO); MOMENTS];
            for (old, moment) in old.iter_mut().zip(&moments).take(COUNT) {
                *old = V::load(&moment[start..end]);
            }
            let (weight, new) = rule.update(vectors, V::load(&w[start..end]), V::load(&g[start..end]), old);
            weight.store(&mut w[start..end]);
            for (new, moment) in new.into_iter().zip(&mut moments).take(COUNT) {
                new.store(&mut moment[start..end]);
            }
        }
        for index in whole..w.len() {
            let mut old = [T::ZERO; MOMENTS];
            for (old, moment) in old.iter_mut().zip(&moments).take(COUNT) {
                *old = moment[index];
            }
            let (weight, new) = rule.update(scalars, w[index], g[index], old);
            w[index] = weight;
            for (new, moment) in new.into_iter().zip(&mut moments).take(COUNT) {
                moment[index] = new;
            }
        }
    }
}

/// Whether a number is among these.
const fn has_count(counts: &[usize], count: usize) -> bool {
    let mut place = 0;
    while place < counts.len() {
        if counts[place] == count {
            return true;
        }
        place += 1;
    }
    false
}

/// How many arrays of one length an update may change: master, three moments, and copies of those.
const ARRAYS: usize = 8;

/// A store's master and moments, and the copies of them that are kept, taken from the front piece by
/// piece.
pub(in crate::ops) struct Slots<'a, T> {
    arrays: [&'a mut [T]; ARRAYS],
    /// What each parameter's rate is multiplied by, where the rule goes by norms.
    ratios: &'a [T],
    /// The moments as they are to become, where that is known already.
    made: [&'a [T]; MOMENTS],
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
        let ratios = if update.optimizer.goes_by_norms() { args.read::<T>(1) } else { &[] };
        let mut made: [&[T]; MOMENTS] = Default::default();
        if update.optimizer.is_made_beside() {
            for (slot, made) in made.iter_mut().enumerate().take(moments) {
                *made = args.read::<T>(1 + slot);
            }
        }
        Self { arrays, ratios, made, decision }
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
            let ratio = self.ratio_at(start, slots.ratios);
            let scalars = self.scalars::<T>(factor.unwrap_or(0.0) * ratio, values, decays);
            let before = start - range.start;
            let made = slots.made;
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
                for (moment, made) in moments.iter_mut().zip(made).filter(|(_, made)| !made.is_empty()) {
                    let start = range.start + first;
                    moment.copy_from_slice(&made[start..start + moment.len()]);
                }
                gradient(first..first + w.len(), &mut |g| {
                    let moments = moments.each_mut().map(|moment| &mut **moment);
                    let optimizer = &self.optimizer;
                    T::dispatch(isa, Slice { optimizer, scalars, w: &mut *w, g, moments });
                });
            });
            start = end;
        }
    }

    /// Where the stretch from `start` on that is treated alike ends, at most at `end`; whether it decays, and
    /// whether it moves.
    fn stretch(&self, start: usize, end: usize) -> (usize, bool, bool) {
        let bounds = self.exempt.iter().chain(&self.frozen).flat_map(|part| [part.start, part.end]);
        let parameters = self.offsets.iter().copied().filter(|_| self.optimizer.goes_by_norms());
        let next = bounds.chain(parameters).filter(|bound| *bound > start).fold(end, usize::min);
        let is_in = |parts: &[Range<usize>]| parts.iter().any(|part| part.contains(&start));
        (next, !is_in(&self.exempt), !is_in(&self.frozen))
    }

    /// What the rate of the parameter at `start` is multiplied by.
    fn ratio_at<T: Real>(&self, start: usize, ratios: &[T]) -> f64 {
        let parameter = self.offsets.partition_point(|offset| *offset <= start).saturating_sub(1);
        ratios.get(parameter).map_or(1.0, |ratio| ratio.to_f64())
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
        let mut slots = Slots::of(self, args, self.memory_operand());
        self.run_plain(args.cpu, args.values, 0..self.len, &mut slots, gradient);
        Ok(())
    }
}
