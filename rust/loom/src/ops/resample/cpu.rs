//! Kernel of resampling: some whole lines at a time.

use super::{Resample, Resampling};
use crate::ops::element_loops::{PASS, load, rows_per_task, store};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};
use crate::{Error, Result};

impl Operation for Resample {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        if self.direction == Direction::WeightGradient {
            return Err(Error::Internal("resampling has no weight to take a gradient of".into()));
        }
        let (x, y) = (args.read::<T>(0), args.write::<T>(0));
        let isa = args.cpu.isa();
        let (from, to) = self.extents();
        let (read, written) = (from * self.inner, to * self.inner);
        let lines = rows_per_task(read.max(written), PASS);
        args.cpu.pool().for_each_chunk(y, lines * written, |task, y| {
            let x = &x[task * lines * read..][..y.len() / written * read];
            T::dispatch(isa, Lines { op: self, x, y });
        });
        Ok(())
    }
}

/// Some whole lines.
struct Lines<'a, T> {
    op: &'a Resample,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for Lines<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { op, x, y } = self;
        let (from, to) = op.extents();
        if op.direction == Direction::Forward && op.resampling == Resampling::Nearest {
            repeat(x, y, to / from, op.inner);
        } else if op.inner == 1 {
            across(op, x, y);
        } else {
            along::<V>(op, x, y);
        }
    }
}

/// Every element of an axis so many times, one after the other.
#[inline(always)]
fn repeat<T: Real>(x: &[T], y: &mut [T], scale: usize, inner: usize) {
    if inner == 1 {
        for (x, y) in x.iter().zip(y.chunks_exact_mut(scale)) {
            y.fill(*x);
        }
        return;
    }
    for (x, y) in x.chunks_exact(inner).zip(y.chunks_exact_mut(scale * inner)) {
        for y in y.chunks_exact_mut(inner) {
            y.copy_from_slice(x);
        }
    }
}

/// One place of all lines after the other: what is known of a place serves them all.
#[inline(always)]
fn across<T: Real>(op: &Resample, x: &[T], y: &mut [T]) {
    let (from, to) = op.extents();
    for place in 0..to {
        let (first, end) = op.band(place);
        for source in first..end {
            let weight = T::from_f64(op.weight(place, source));
            let lines = x.chunks_exact(from).zip(y.chunks_exact_mut(to));
            if source == first {
                for (x, y) in lines {
                    y[place] = weight * x[source];
                }
            } else {
                for (x, y) in lines {
                    y[place] += weight * x[source];
                }
            }
        }
    }
}

/// Elements side by side, 16 at a time.
#[inline(always)]
fn along<V: Vector>(op: &Resample, x: &[V::Element], y: &mut [V::Element]) {
    let (from, to) = op.extents();
    let inner = op.inner;
    for (x, y) in x.chunks_exact(from * inner).zip(y.chunks_exact_mut(to * inner)) {
        for (place, y) in y.chunks_exact_mut(inner).enumerate() {
            let (first, end) = op.band(place);
            for source in first..end {
                let weight = V::splat(V::Element::from_f64(op.weight(place, source)));
                let x = &x[source * inner..][..inner];
                for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                    let part = weight * load::<V>(x);
                    store(if source == first { part } else { load::<V>(y) + part }, y);
                }
            }
        }
    }
}
