//! Kernel of the indices among numbers.

use super::Labels;
use crate::Result;
use crate::ops::element_loops::PASS;
use crate::ops::{Args, Operation};
use crate::simd::Real;

impl Operation for Labels {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let y = args.write::<i32>(0);
        let rows = PASS.div_ceil(self.length);
        args.cpu.pool().for_each_chunk(y, rows * self.length, |task, y| {
            for (row, y) in y.chunks_exact_mut(self.length).enumerate() {
                let from = (task * rows + row) * self.total + self.start;
                for (y, x) in y.iter_mut().zip(&x[from..][..self.length]) {
                    *y = x.to_f64() as i32;
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
    fn indices_are_the_numbers_at_their_places() {
        for rows in [1, 7, 5000] {
            let x: Vec<f32> = (0..rows * 5).map(|i| (i * 7 % 16_777_217) as f32).collect();
            let mut setting = Setting::new(rows, &[&x], &[]);
            setting.writes = vec![Data::Index(vec![-1; rows * 2])];
            let expected: Vec<i32> = x.chunks(5).flat_map(|row| [row[2] as i32, row[3] as i32]).collect();
            assert_eq!(setting.run(&Labels { total: 5, start: 2, length: 2 })[0].indices(), expected);
        }
    }
}
