//! Kernels of entmax.

use super::{Entmax, HALVINGS};
use crate::ops::element_loops::{
    TRANSCENDENTAL, lane_sums, lane_sums_inline, map, map_inline, rows_per_task, update,
};
use crate::ops::reduced_axis::{ReducedAxis, SideBySide};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Elementwise, Kernel, Real, Vector};
use crate::tensor::Precision;
use crate::{Error, Result};

impl Operation for Entmax {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        // Each element is looked at once a halving.
        let chunk = rows_per_task(self.classes * HALVINGS / 4, TRANSCENDENTAL) * self.classes;
        let (first, result) = (args.read::<T>(0), args.write::<T>(0));
        let power = Power::of(self.alpha);
        let classes = self.classes;
        match self.direction {
            Direction::Forward => args.cpu.pool().for_each_chunk(result, chunk, |task, y| {
                let x = &first[task * chunk..][..y.len()];
                T::dispatch(isa, Forward { x, y, classes, power });
            }),
            Direction::InputGradient => {
                let dy = args.read::<T>(1);
                args.cpu.pool().for_each_chunk(result, chunk, |task, dx| {
                    let part = task * chunk..task * chunk + dx.len();
                    let (y, dy) = (&first[part.clone()], &dy[part]);
                    T::dispatch(isa, Backward { y, dy, dx, classes, power });
                });
            }
            Direction::WeightGradient => {
                return Err(Error::Internal("a softmax has no weight to take a gradient of".into()));
            }
        }
        Ok(())
    }
}

/// The exponents of an alpha.
#[derive(Clone, Copy)]
enum Power {
    /// Alpha 2.
    Sparsemax,
    /// Alpha 1.5.
    Square,
    Any {
        alpha: f64,
    },
}

impl Power {
    fn of(alpha: f64) -> Self {
        match alpha {
            2.0 => Power::Sparsemax,
            1.5 => Power::Square,
            alpha => Power::Any { alpha },
        }
    }

    fn alpha(self) -> f64 {
        match self {
            Power::Sparsemax => 2.0,
            Power::Square => 1.5,
            Power::Any { alpha } => alpha,
        }
    }

    /// `max(0, v)^(1 / (alpha - 1))`.
    #[inline(always)]
    fn value<V: Vector>(self, v: V) -> V {
        let zero = V::splat(V::Element::ZERO);
        let above = v.gt(zero);
        let value = match self {
            Power::Sparsemax => v,
            Power::Square => v * v,
            Power::Any { alpha } => (v.ln() * V::constant(1.0 / (alpha - 1.0))).exp(),
        };
        // What is not a number stays none.
        V::select(above, value, V::select(v.le(zero), zero, v))
    }

    /// `y^(2 - alpha)` where y is above zero, else 0.
    #[inline(always)]
    fn slope<V: Vector>(self, y: V) -> V {
        let slope = match self {
            Power::Sparsemax => V::splat(V::Element::ONE),
            Power::Square => y.sqrt(),
            Power::Any { alpha } => (y.ln() * V::constant(2.0 - alpha)).exp(),
        };
        let zero = V::splat(V::Element::ZERO);
        V::select(y.gt(zero), slope, V::select(y.le(zero), zero, y))
    }
}

/// Whole rows of classes.
struct Forward<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    classes: usize,
    power: Power,
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { classes, power, .. } = self;
        for (x, y) in self.x.chunks_exact(classes).zip(self.y.chunks_exact_mut(classes)) {
            let largest: V = SideBySide { classes }.largest(x);
            let factor = V::constant(power.alpha() - 1.0);
            // The result's memory holds the shifted logits meanwhile.
            map(x, y, |x: V| (x - largest) * factor);
            let below = bisect::<V>(y, power);
            let tau = V::splat(match power {
                Power::Sparsemax => sparsemax::<V>(y, below),
                Power::Square => entmax15::<V>(y, below),
                Power::Any { .. } => below,
            });
            map_inline!(y, |v: V| power.value(v - tau));
            if let Power::Any { .. } = power {
                let share = V::splat(T::ONE / lane_sums(y, |y: V| y).reduce_sum());
                update(y, |y: V| y * share);
            }
        }
    }
}

/// The largest number found whose y sum to one or more.
#[inline(always)]
fn bisect<V: Vector>(v: &[V::Element], power: Power) -> V::Element {
    let half = V::Element::from_f64(0.5);
    let (mut below, mut above) = (-V::Element::ONE, V::Element::ZERO);
    let halvings = match V::Element::PRECISION {
        Precision::Float32 | Precision::Mixed => HALVINGS,
        Precision::Float64 => 2 * HALVINGS,
    };
    for _ in 0..halvings {
        let middle = (below + above) * half;
        let tau = V::splat(middle);
        let sum = lane_sums_inline!(v, |v: V| power.value(v - tau)).reduce_sum();
        if sum >= V::Element::ONE {
            below = middle;
        } else {
            above = middle;
        }
    }
    below
}

/// How many elements are above `below`, and their mean.
#[inline(always)]
fn support<V: Vector>(v: &[V::Element], below: V::Element) -> (V::Element, V::Element) {
    let (zero, one) = (V::splat(V::Element::ZERO), V::splat(V::Element::ONE));
    let below = V::splat(below);
    let count = lane_sums(v, |v: V| V::select(v.gt(below), one, zero)).reduce_sum();
    let sum = lane_sums(v, |v: V| V::select(v.gt(below), v, zero)).reduce_sum();
    (count, sum / count)
}

/// Tau where y is linear in it: `sum(v - tau) = 1` over the elements above `below`.
#[inline(always)]
fn sparsemax<V: Vector>(v: &[V::Element], below: V::Element) -> V::Element {
    let (count, mean) = support::<V>(v, below);
    mean - V::Element::ONE / count
}

/// Tau where y is quadratic in it: `sum((v - tau)^2) = 1` over the elements above `below`.
#[inline(always)]
fn entmax15<V: Vector>(v: &[V::Element], below: V::Element) -> V::Element {
    let (count, mean) = support::<V>(v, below);
    let zero = V::splat(V::Element::ZERO);
    let (below, centre) = (V::splat(below), V::splat(mean));
    let spread = lane_sums_inline!(v, |v: V| {
        let distance = v - centre;
        V::select(v.gt(below), distance * distance, zero)
    });
    let rest = (V::Element::ONE - spread.reduce_sum()) / count;
    mean - Elementwise::max(rest, V::Element::ZERO).sqrt()
}

/// Whole rows of classes.
struct Backward<'a, T> {
    y: &'a [T],
    dy: &'a [T],
    dx: &'a mut [T],
    classes: usize,
    power: Power,
}

impl<T: Real> Kernel<T> for Backward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { classes, power, .. } = self;
        let operands = self.y.chunks_exact(classes).zip(self.dy.chunks_exact(classes));
        for ((y, dy), dx) in operands.zip(self.dx.chunks_exact_mut(classes)) {
            let slopes = lane_sums_inline!(y, |y: V| power.slope(y)).reduce_sum();
            let products = lane_sums_inline!(y, dy, |y: V, dy| power.slope(y) * dy).reduce_sum();
            let mean = V::splat(products / slopes);
            map_inline!(y, dy => dx, |y: V, dy| power.slope(y) * (dy - mean));
        }
    }
}
