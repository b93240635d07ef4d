//! Kernel of the sums.

use super::{Measure, Measured};
use crate::Result;
use crate::ops::element_loops::{first_of, load};
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

/// Elements that are summed in lanes, before those sums are added in `f64`.
const CHUNK: usize = 4096;
/// Chunks whose sums are kept at once, on the stack.
const HELD: usize = 128;
/// Chunks of one task.
const TASK: usize = 4;

/// How many sums of products there are.
const PRODUCTS: usize = Measure::SUMS - 1;

/// The four sums of some elements.
type Sums<T> = [T; PRODUCTS];

impl Operation for Measure {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let compares = self.what != Measured::Norm;
        let mut count = args.read::<T>(0).len();
        // What does not count is zero to both.
        let [masked_a, masked_other] = match self.of_steps {
            Some(length) => {
                let mask = args.read::<T>(1 + usize::from(compares));
                count = length * mask.iter().filter(|real| **real != T::ZERO).count();
                let other = if compares { args.read::<T>(1) } else { &[] };
                [args.read::<T>(0), other].map(|values| where_real(values, mask, length))
            }
            None => [Vec::new(), Vec::new()],
        };
        let masks = self.of_steps.is_some();
        let a = if masks { &masked_a[..] } else { args.read::<T>(0) };
        let wanted = match compares {
            true if masks => &masked_other[..],
            true => args.read::<T>(1),
            false => &[],
        };
        let other = match self.what {
            Measured::Norm => Other::None,
            Measured::Target => Other::Target(wanted),
            Measured::Gradient(term) => Other::Gradient(wanted, T::from_f64(term.value(args.values))),
        };
        let isa = args.cpu.isa();
        let mut totals = [0.0; PRODUCTS];
        let mut sums = [[T::ZERO; PRODUCTS]; HELD];
        for (number, held) in a.chunks(HELD * CHUNK).enumerate() {
            let sums = &mut sums[..held.len().div_ceil(CHUNK)];
            args.cpu.pool().for_each_chunk(sums, TASK, |task, sums| {
                let start = number * HELD * CHUNK + task * TASK * CHUNK;
                let end = a.len().min(start + sums.len() * CHUNK);
                T::dispatch(isa, Chunks { a: &a[start..end], other: other.part(start, end), sums });
            });
            for sums in sums {
                for (total, sum) in totals.iter_mut().zip(sums) {
                    *total += sum.to_f64();
                }
            }
        }
        for (result, total) in args.write::<T>(0).iter_mut().zip(totals.into_iter().chain([count as f64])) {
            *result = T::from_f64(total);
        }
        Ok(())
    }
}

/// Values whose steps, of so many elements, are zero where the mask is.
fn where_real<T: Real>(values: &[T], mask: &[T], length: usize) -> Vec<T> {
    let mut kept = values.to_vec();
    for (step, real) in kept.chunks_mut(length.max(1)).zip(mask) {
        if *real == T::ZERO {
            step.fill(T::ZERO);
        }
    }
    kept
}

/// What a value is compared with.
#[derive(Clone, Copy)]
enum Other<'a, T> {
    None,
    Target(&'a [T]),
    Gradient(&'a [T], T),
}

impl<'a, T: Copy> Other<'a, T> {
    fn part(self, start: usize, end: usize) -> Self {
        match self {
            Other::None => Other::None,
            Other::Target(t) => Other::Target(&t[start..end]),
            Other::Gradient(g, factor) => Other::Gradient(&g[start..end], factor),
        }
    }
}

/// The sums of some chunks.
struct Chunks<'a, T> {
    a: &'a [T],
    other: Other<'a, T>,
    sums: &'a mut [Sums<T>],
}

impl<T: Real> Kernel<T> for Chunks<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { a, other, sums } = self;
        for (number, (sums, a)) in sums.iter_mut().zip(a.chunks(CHUNK)).enumerate() {
            let start = number * CHUNK;
            *sums = match other.part(start, start + a.len()) {
                Other::None => norm::<V>(a),
                Other::Target(t) => pair::<V>(a, t, |_, t| t),
                Other::Gradient(g, factor) => {
                    let factor = V::splat(factor);
                    pair::<V>(a, g, move |a, g| factor.mul_add(g, a))
                }
            };
        }
    }
}

#[inline(always)]
fn norm<V: Vector>(a: &[V::Element]) -> Sums<V::Element> {
    let mut sum = V::splat(V::Element::ZERO);
    for a in a.chunks(LANES) {
        let a = load::<V>(a);
        sum = sum + a * a;
    }
    [sum.reduce_sum(), V::Element::ZERO, V::Element::ZERO, V::Element::ZERO]
}

/// `target` makes the target of what is there and what it is compared with.
#[inline(always)]
fn pair<V: Vector>(a: &[V::Element], other: &[V::Element], target: impl Fn(V, V) -> V) -> Sums<V::Element> {
    let mut sums = [V::splat(V::Element::ZERO); PRODUCTS];
    for (part, other) in a.chunks(LANES).zip(other.chunks(LANES)) {
        let a: V = load(part);
        let t = first_of(part.len(), target(a, load(other)));
        let difference = a - t;
        let products = [a * a, a * t, t * t, difference * difference];
        for (sum, product) in sums.iter_mut().zip(products) {
            *sum = *sum + product;
        }
    }
    let mut totals = [V::Element::ZERO; PRODUCTS];
    for (total, sum) in totals.iter_mut().zip(sums) {
        *total = sum.reduce_sum();
    }
    totals
}
