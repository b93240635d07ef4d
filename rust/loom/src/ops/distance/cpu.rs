//! Kernels of the squared distances.

use super::Distance;
use crate::Result;
use crate::ops::bias::CHUNK;
use crate::ops::element_loops::{PASS, lane_sums2, load, rows_per_task, store};
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for Distance {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (isa, pool, accumulate) = (args.cpu.isa(), args.cpu.pool(), args.accumulate);
        let Self { features, centroids: count, .. } = *self;
        let factor = T::from_f64(self.factor);
        let slope = T::from_f64(2.0 * self.factor);
        let points = rows_per_task(features * count, PASS);
        let result = args.write::<T>(0);
        match self.direction {
            Direction::Forward => {
                let (x, centroids) = (args.read::<T>(0), args.read::<T>(1));
                pool.for_each_chunk(result, points * count, |task, y| {
                    let x = &x[task * points * features..];
                    T::dispatch(isa, Forward { x, centroids, y, features, factor });
                });
            }
            Direction::InputGradient => {
                let (dy, x, centroids) = (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2));
                pool.for_each_chunk(result, points * features, |task, dx| {
                    let (dy, x) = (&dy[task * points * count..], &x[task * points * features..]);
                    T::dispatch(isa, InputGradient { dy, x, centroids, dx, features, slope });
                });
            }
            Direction::WeightGradient => {
                let (dy, x, centroids) = (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2));
                let each = rows_per_task(args.rows * self.outer * features, PASS);
                pool.for_each_chunk(result, each * features, |task, gradient| {
                    let first = task * each;
                    let kernel = CentroidGradient {
                        dy,
                        x,
                        centroids,
                        gradient,
                        features,
                        slope,
                        first,
                        count,
                        accumulate,
                    };
                    T::dispatch(isa, kernel);
                });
            }
        }
        Ok(())
    }
}

/// Whole points.
struct Forward<'a, T> {
    x: &'a [T],
    centroids: &'a [T],
    y: &'a mut [T],
    features: usize,
    factor: T,
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let count = self.centroids.len() / self.features;
        for (x, y) in self.x.chunks_exact(self.features).zip(self.y.chunks_exact_mut(count)) {
            for (centroid, y) in self.centroids.chunks_exact(self.features).zip(y) {
                let squares = lane_sums2(x, centroid, |x: V, c| {
                    let difference = x - c;
                    difference * difference
                });
                *y = -(squares.reduce_sum() * self.factor);
            }
        }
    }
}

/// Whole points.
struct InputGradient<'a, T> {
    dy: &'a [T],
    x: &'a [T],
    centroids: &'a [T],
    dx: &'a mut [T],
    features: usize,
    slope: T,
}

impl<T: Real> Kernel<T> for InputGradient<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let features = self.features;
        let count = self.centroids.len() / features;
        let operands = self.dy.chunks_exact(count).zip(self.x.chunks_exact(features));
        for ((dy, x), dx) in operands.zip(self.dx.chunks_exact_mut(features)) {
            for start in (0..features).step_by(LANES) {
                let part = start..(start + LANES).min(features);
                let x = load::<V>(&x[part.clone()]);
                let mut sum = V::splat(T::ZERO);
                for (dy, centroid) in dy.iter().zip(self.centroids.chunks_exact(features)) {
                    sum = (load::<V>(&centroid[part.clone()]) - x).mul_add(V::splat(*dy), sum);
                }
                store(sum * V::splat(self.slope), &mut dx[part]);
            }
        }
    }
}

/// Some centroids, the first of them centroid `first`.
struct CentroidGradient<'a, T> {
    dy: &'a [T],
    x: &'a [T],
    centroids: &'a [T],
    gradient: &'a mut [T],
    features: usize,
    slope: T,
    first: usize,
    count: usize,
    accumulate: bool,
}

impl<T: Real> Kernel<T> for CentroidGradient<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let features = self.features;
        let points = self.x.len() / features;
        for (number, gradient) in self.gradient.chunks_exact_mut(features).enumerate() {
            let centroid = self.first + number;
            for start in (0..features).step_by(LANES) {
                let part = start..(start + LANES).min(features);
                let at = load::<V>(&self.centroids[centroid * features..][part.clone()]);
                let mut total = V::splat(T::ZERO);
                for chunk in (0..points).step_by(CHUNK) {
                    let mut sum = V::splat(T::ZERO);
                    for point in chunk..(chunk + CHUNK).min(points) {
                        let x = load::<V>(&self.x[point * features..][part.clone()]);
                        sum = (x - at).mul_add(V::splat(self.dy[point * self.count + centroid]), sum);
                    }
                    total = total + sum;
                }
                let total = total * V::splat(self.slope);
                let gradient = &mut gradient[part];
                store(if self.accumulate { load::<V>(gradient) + total } else { total }, gradient);
            }
        }
    }
}
