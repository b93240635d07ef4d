//! Kernel of the one-hot targets.

use super::OneHot;
use crate::Result;
use crate::ops::element_loops::{PASS, rows_per_task};
use crate::ops::{Args, Operation};
use crate::simd::Real;

impl Operation for OneHot {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let labels = args.read::<i32>(0);
        let (classes, inner) = (self.classes, self.inner);
        let block = classes * inner;
        let blocks = rows_per_task(block, PASS);
        let y = args.write::<T>(0);
        args.cpu.pool().for_each_chunk(y, blocks * block, |task, y| {
            y.fill(T::ZERO);
            let labels = &labels[task * blocks * inner..];
            for (y, labels) in y.chunks_mut(block).zip(labels.chunks(inner)) {
                for (position, label) in labels.iter().enumerate() {
                    if let Some(class) = usize::try_from(*label).ok().filter(|class| *class < classes) {
                        y[class * inner + position] = T::ONE;
                    }
                }
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Data, Setting};

    #[test]
    fn ones_stand_at_the_classes() {
        let op = OneHot { outer: 2, classes: 3, inner: 2 };
        let mut setting = Setting::<f64>::new(1, &[], &[12]);
        setting.reads = vec![Data::Index(vec![0, 2, 1, 5])];
        let expected = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
        assert_eq!(setting.result(&op), expected);
    }

    #[test]
    fn many_rows_are_cut_into_tasks() {
        let (rows, classes) = (5000, 7);
        let op = OneHot { outer: 1, classes, inner: 1 };
        let mut setting = Setting::<f32>::new(rows, &[], &[rows * classes]);
        setting.reads = vec![Data::Index((0..rows).map(|row| (row * 3 % classes) as i32).collect())];
        let found = setting.result(&op);
        for (row, y) in found.chunks(classes).enumerate() {
            let ones: Vec<usize> = (0..classes).filter(|class| y[*class] == 1.0).collect();
            assert_eq!((ones, y.iter().sum::<f32>()), (vec![row * 3 % classes], 1.0));
        }
    }
}
