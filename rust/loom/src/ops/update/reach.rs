//! How large weights and moments can be after an update, known before it is made.

use super::bounds::{Bounds, Context};
use super::table::{LEAST_EPSILON, MOMENTS, Rule, RuleVisitor, SCALARS};
use super::{Optimizer, Update};
use crate::ops::StepValues;
use crate::ops::pointwise::Arithmetic;
use crate::simd::{Cpu, Kernel, LANES, Real, Vector};
use crate::tensor::Precision;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the rounding of one step adds to a bound at most, many times over.
const ROUNDING: f64 = 1.0 + 1.0 / (1u64 << 20) as f64;
/// Elements that one task looks through.
const CHUNK: usize = 1 << 15;

/// Magnitudes that nothing in a store's master and moments exceeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reach {
    /// Of the master.
    pub(crate) master: f64,
    /// Of each moment, in the order of the optimizer's slots.
    pub(crate) moments: [f64; 3],
    /// Of Adam's mean over its denominator, with the correction of the step that made them.
    ratio: f64,
    root_scale: f64,
}

impl Reach {
    /// Of numbers that have been looked through.
    pub(crate) fn of(master: f64, moments: [f64; 3]) -> Self {
        // A mean of zeros is 0 over whatever it is divided by.
        let ratio = if moments[0] == 0.0 { 0.0 } else { f64::INFINITY };
        Self { master, moments, ratio, root_scale: 1.0 }
    }

    /// With a master that has been looked through.
    pub(crate) fn with_master(self, master: f64) -> Self {
        Self { master, ..self }
    }

    /// With moments that have been looked through.
    pub(crate) fn with_moments(self, moments: [f64; 3]) -> Self {
        Self { moments, ..self }
    }

    /// Whether nothing is near infinity in a precision, and no weight beyond `most`.
    pub(crate) fn is_within(&self, precision: Precision, most: f64) -> bool {
        let limit = limit(precision);
        self.master <= most && [self.master].iter().chain(&self.moments).all(|bound| *bound <= limit)
    }
}

/// What a bound may be at most, so that all that was rounded on the way to it was finite.
fn limit(precision: Precision) -> f64 {
    match precision {
        Precision::Float32 | Precision::Mixed => f64::from(f32::MAX) / 16.0,
        Precision::Float64 => f64::MAX / 16.0,
    }
}

impl Update {
    /// Bounds after this update from those before it and one of the gradient; infinite where anything
    /// on the way may be.
    pub(crate) fn reach<T: Real>(
        &self,
        before: Reach,
        gradient: f64,
        factor: f64,
        values: &StepValues,
    ) -> Reach {
        let round = |x: f64| T::from_f64(x).to_f64();
        let context = Context { peak: Cell::new(0.0), round };
        let scalars = self.scalars::<T>(factor, values, true).map(T::to_f64);
        let (change, moments, ratio, root_scale) = match self.optimizer {
            Optimizer::Adam { beta1, beta2, epsilon, .. }
            | Optimizer::AdamW { beta1, beta2, epsilon, .. } => {
                let settings = [1.0 - beta1, beta2, 1.0 - beta2, epsilon].map(round);
                adam(before, gradient, settings, scalars, &self.optimizer, &context)
            }
            Optimizer::Lamb { beta1, beta2, epsilon, .. } => {
                let settings = [1.0 - beta1, beta2, 1.0 - beta2, epsilon].map(round);
                let [rate, mean_scale, root_scale, decay] = scalars;
                let adams = [mean_scale, root_scale, 1.0, 0.0];
                let (step, moments, ratio, root_scale) =
                    adam(before, gradient, settings, adams, &Optimizer::default(), &context);
                // No step is longer than all weights of its parameter together, but for those whose norm is
                // nothing; and no norm of a direction that is anything is less than this.
                let norm = (self.len as f64).sqrt() * before.master * 1.01;
                let least = if T::PRECISION == Precision::Float64 { 1e-163 } else { 1e-24 };
                context.peak.set(context.peak.get().max(norm * norm).max(rate.abs() * norm / least));
                let change = rate.abs() * norm.max(step + decay.abs() * before.master);
                (change, moments, ratio, root_scale)
            }
            _ => {
                let of = |most: f64| Bounds::between(-most, most, &context);
                let mut moments = before.moments.map(of);
                for (moment, slot) in moments.iter_mut().zip(self.optimizer.slots()) {
                    if matches!(*slot, "square" | "largest" | "change") {
                        *moment = moment.positive_part();
                    }
                }
                let scalars = scalars.map(|scalar| Bounds::between(scalar, scalar, &context));
                let rule = AfterRule { scalars, w: of(before.master), g: of(gradient), moments };
                let (w, moments) = self.optimizer.visit(rule);
                (w.magnitude() - before.master, moments.map(Bounds::magnitude), 0.0, 1.0)
            }
        };
        let (master, peak) = (before.master, context.peak.get());
        let fine = peak <= limit(T::PRECISION);
        let bound = |x: f64| if fine && !x.is_nan() { x * ROUNDING } else { f64::INFINITY };
        Reach {
            master: bound(master + change),
            moments: moments.map(bound),
            ratio: ratio * ROUNDING,
            root_scale,
        }
    }
}

/// A rule's formula, applied to bounds instead of numbers.
struct AfterRule<'a> {
    scalars: [Bounds<'a>; SCALARS],
    w: Bounds<'a>,
    g: Bounds<'a>,
    moments: [Bounds<'a>; MOMENTS],
}

impl<'a> RuleVisitor for AfterRule<'a> {
    type Output = (Bounds<'a>, [Bounds<'a>; MOMENTS]);

    fn visit<R: Rule>(self, rule: R) -> Self::Output {
        rule.update(self.scalars, self.w, self.g, self.moments)
    }
}

/// The change of weights by Adam, its moments, its ratio and what that was scaled by: its formula alone does
/// not know that mean and denominator are averages of the same gradients.
fn adam(
    before: Reach,
    gradient: f64,
    [news, beta2, squares, epsilon]: [f64; 4],
    [step_size, root_scale, decay, _]: [f64; SCALARS],
    optimizer: &Optimizer,
    context: &Context,
) -> (f64, [f64; MOMENTS], f64, f64) {
    let Reach { master, moments: [a, b, c], ratio, root_scale: earlier } = before;
    let (coupled, shrink) = match optimizer {
        Optimizer::AdamW { .. } => (0.0, decay.abs()),
        _ => (decay.abs(), 1.0),
    };
    let shrunk = master * shrink.max(1.0);
    let g = coupled * shrunk + gradient;
    let mean = (1.0 - news) * a + news * g;
    let square = beta2 * b + squares * g * g;
    let denominator = root_scale * square.sqrt() + epsilon;
    // The old mean is a part of what its own denominator was, which decays more slowly; and the gradient is
    // in both.
    let kept = (1.0 - news) * ratio * (earlier / (root_scale * beta2.sqrt())).max(1.0);
    let new = news / (root_scale * squares.sqrt()) + news * LEAST_EPSILON / epsilon;
    let ratio = match epsilon >= LEAST_EPSILON {
        true => (kept + new).min(mean / epsilon),
        false => mean / epsilon,
    };
    context.peak.set((g + a).max(g * g).max(denominator).max(ratio));
    (shrunk - master + step_size.abs() * ratio, [mean, square, c], ratio, root_scale)
}

/// The largest magnitude; infinite where anything is infinite or NaN.
pub(crate) fn largest<T: Real>(cpu: &Cpu, values: &[T]) -> f64 {
    let isa = cpu.isa();
    if values.len() <= CHUNK {
        return T::dispatch(isa, Largest { values });
    }
    // Magnitudes are in the order of their bits.
    let found = AtomicU64::new(0);
    cpu.pool().run(values.len().div_ceil(CHUNK), &|task| {
        let part = &values[task * CHUNK..values.len().min((task + 1) * CHUNK)];
        let largest: f64 = T::dispatch(isa, Largest { values: part });
        found.fetch_max(largest.to_bits(), Ordering::Relaxed);
    });
    f64::from_bits(found.load(Ordering::Relaxed))
}

struct Largest<'a, T> {
    values: &'a [T],
}

impl<T: Real> Kernel<T> for Largest<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> f64 {
        /// Vectors that are looked at side by side.
        const SIDE: usize = 4;
        let zero = V::splat(T::ZERO);
        let (mut most, mut odd) = ([zero; SIDE], [zero; SIDE]);
        let mut blocks = self.values.chunks_exact(SIDE * LANES);
        for block in &mut blocks {
            for (number, (most, odd)) in most.iter_mut().zip(&mut odd).enumerate() {
                let x = V::load(&block[number * LANES..(number + 1) * LANES]);
                *most = x.abs().max(*most);
                // 0 of what is finite, NaN of everything else; and a NaN stays.
                *odd = *odd + x * zero;
            }
        }
        for rest in blocks.remainder().chunks(LANES) {
            let x = V::load_partial(rest);
            most[0] = x.abs().max(most[0]);
            odd[0] = odd[0] + x * zero;
        }
        let most = most[0].max(most[1]).max(most[2].max(most[3])).reduce_max();
        let odd = ((odd[0] + odd[1]) + (odd[2] + odd[3])).reduce_sum();
        if odd.is_nan() { f64::INFINITY } else { most.to_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{beside, rules, update};
    use super::*;
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::simd::Cpu;

    /// The largest magnitude of an array, counted plainly.
    fn plain(values: &[f32]) -> f64 {
        values.iter().map(|x| f64::from(x.abs())).fold(0.0, f64::max)
    }

    #[test]
    fn the_largest_is_found_and_nothing_odd_is_missed() -> crate::Result<()> {
        let cpu = Cpu::global()?;
        for len in [0, 1, 15, 16, 17, 64, 65, 1000, 70_001] {
            let values: Vec<f32> = numbers(len as u64, len);
            assert_eq!(largest(cpu, &values), plain(&values));
            for place in [0, len / 3, len.saturating_sub(1)] {
                for odd in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = values.clone();
                    let Some(value) = values.get_mut(place) else { continue };
                    *value = odd;
                    assert_eq!(largest(cpu, &values), f64::INFINITY, "{odd} at {place} of {len}");
                }
            }
        }
        Ok(())
    }

    /// No weight and no moment is ever beyond its bound, in whole trainings by every rule, with gradients of
    /// all sizes; and calm trainings have bounds that tell so.
    #[test]
    fn bounds_hold() -> crate::Result<()> {
        let cpu = Cpu::global()?;
        let mut optimizers = rules();
        optimizers.push(Optimizer::Velocity { momentum: 0.9 });
        for optimizer in optimizers {
            for (rate, size) in [(1e-3, 1.0), (1e-2, 1e-20), (10.0, 1e3), (1e-3, 1e12), (1e30, 1e15)] {
                let op = update(&optimizer, 70);
                let slots = optimizer.slots().len();
                let mut setting = Setting::new(1, &[&vec![0.0; 70]], &[]);
                setting.writes = vec![Data::Real(numbers(1, 70))];
                setting.writes.resize(1 + slots, Data::Real(vec![0.0; 70]));
                let mut reach = Reach::of(plain(setting.writes[0].real()), [0.0; 3]);
                for step in 0..300u64 {
                    let burst = if step % 37 == 5 { 1e4 } else { 1.0 };
                    let gradient: Vec<f32> =
                        numbers::<f32>(step + 9, 70).iter().map(|g| g * (size * burst) as f32).collect();
                    (setting.values.rate, setting.values.optimizer_step) = (rate, step + 1);
                    reach = op.reach::<f32>(reach, plain(&gradient), 1.0, &setting.values);
                    setting.reads = vec![Data::Real(gradient)];
                    setting.reads.extend(beside(&op, &setting));
                    setting.writes = setting.run_on(&op, cpu)?;
                    let bounds = [reach.master, reach.moments[0], reach.moments[1], reach.moments[2]];
                    let certain = reach.is_within(Precision::Float32, f64::INFINITY);
                    for (written, bound) in setting.writes.iter().zip(bounds) {
                        let odd = written.real().iter().any(|x| !x.is_finite());
                        assert!(!(certain && odd), "{optimizer:?} {rate} {size} {step}");
                        assert!(odd || plain(written.real()) <= bound, "{optimizer:?} {rate} {size} {step}");
                    }
                    if !certain {
                        break;
                    }
                }
                // Of these, bounds know too little: every step is looked at before it is made.
                let unbounded = matches!(
                    optimizer,
                    Optimizer::RmsProp { centered: true, .. }
                        | Optimizer::Adadelta { .. }
                        | Optimizer::Adamax { .. }
                        | Optimizer::NAdam { .. }
                        | Optimizer::RAdam { .. }
                );
                if rate == 1e-3 && size == 1.0 && !unbounded {
                    assert!(reach.is_within(Precision::Float32, 60_000.0), "{optimizer:?}: {reach:?}");
                }
            }
        }
        Ok(())
    }
}
