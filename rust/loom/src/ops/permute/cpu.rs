//! Kernel that puts axes in another order.

use super::Permute;
use crate::Result;
use crate::ops::{Args, Operation};
use crate::simd::Real;

impl Operation for Permute {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let y = args.write::<T>(0);
        let extents = self.permuted();
        let strides = self.strides();
        let (Some(&inner), Some(&step)) = (extents.last(), strides.last()) else {
            y.copy_from_slice(x);
            return Ok(());
        };
        let row: usize = extents.iter().product();
        let outer = row / inner;
        // One run along the last axis of the result at a time.
        args.cpu.pool().for_each_chunk(y, row, |number, y| {
            let x = &x[number * row..][..row];
            let mut start = 0;
            let mut place = vec![0; extents.len() - 1];
            for run in 0..outer {
                for (i, y) in y[run * inner..][..inner].iter_mut().enumerate() {
                    *y = x[start + i * step];
                }
                for axis in (0..place.len()).rev() {
                    place[axis] += 1;
                    start += strides[axis];
                    if place[axis] < extents[axis] {
                        break;
                    }
                    start -= place[axis] * strides[axis];
                    place[axis] = 0;
                }
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, numbers};

    #[test]
    fn axes_change_places_and_come_back() {
        for (extents, order) in [
            (vec![4], vec![0]),
            (vec![3, 5], vec![1, 0]),
            (vec![2, 3, 4], vec![2, 0, 1]),
            (vec![2, 3, 1, 5], vec![3, 1, 0, 2]),
        ] {
            let rows = 2;
            let op = Permute { extents: extents.clone(), order: order.clone() };
            let x: Vec<f32> = numbers(1, rows * extents.iter().product::<usize>());
            let y = Setting::new(rows, &[&x], &[x.len()]).result(&op);
            let shape: Vec<usize> = [&[rows], &extents[..]].concat();
            let axes: Vec<usize> = std::iter::once(0).chain(order.iter().map(|axis| axis + 1)).collect();
            let expected = ndarray::ArrayView::from_shape(shape, &x).unwrap().permuted_axes(axes);
            assert_bits(&y, &expected.iter().copied().collect::<Vec<f32>>());
            assert_bits(&Setting::new(rows, &[&y], &[x.len()]).result(&op.inverse()), &x);
        }
    }
}
