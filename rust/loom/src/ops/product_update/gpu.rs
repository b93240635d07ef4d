//! On a GPU: the weight's gradient goes to where the store keeps it, and the update reads it there.

use super::ProductUpdate;
use crate::Result;
use crate::shader::{GpuOperation, Recorder};

impl GpuOperation for ProductUpdate {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, dy, gradient) = (recorder.read(0)?, recorder.read(1)?, recorder.read(2)?);
        let weight = gradient.slice(self.offset, self.product.inputs * self.product.outputs)?;
        self.product.record_weight_gradient(recorder, [&x, &dy], &weight, false)?;
        let mut reads = vec![gradient];
        if self.update.watched.is_some() {
            reads.push(recorder.read(3)?);
        }
        recorder.nested(&self.update, reads)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::{check, compare, gpu, run_within};
    use crate::ops::testing::{Setting, numbers};
    use crate::ops::update::Optimizer;
    use crate::ops::{Direction, Op, Product, Update};
    use crate::simd::Cpu;

    /// A store with other parameters before and after the weight, whose gradients are given.
    fn case(
        optimizer: Optimizer,
        rows: usize,
        inputs: usize,
        outputs: usize,
    ) -> (ProductUpdate, Setting<f32>) {
        let (offset, weight) = (128, inputs * outputs);
        let len = offset + weight.next_multiple_of(64) + 10;
        let slots = optimizer.slots().len();
        let update = Update {
            rate_factor: 0.5,
            offsets: vec![0, offset, len - 10],
            exempt: vec![3..60, 70..offset],
            ..Update::new(optimizer, len)
        };
        let product = Product::new(Direction::WeightGradient, 1, inputs, outputs);
        let (x, dy): (Vec<f32>, Vec<f32>) = (numbers(1, rows * inputs), numbers(2, rows * outputs));
        let gradient = numbers(3, len);
        let mut setting = Setting::new(rows, &[&x, &dy, &gradient], &vec![len; 1 + slots]);
        for (seed, write) in setting.writes.iter_mut().enumerate() {
            // Squares of gradients are positive.
            let positive = |x: &f32| x * x + 0.05;
            *write =
                crate::ops::testing::Data::Real(numbers(seed as u64, len).iter().map(positive).collect());
        }
        (setting.values.rate, setting.values.optimizer_step) = (0.01, 3);
        (ProductUpdate { product, update, offset }, setting)
    }

    #[test]
    fn it_is_the_product_and_then_the_update() {
        // Those that look at whole parameters want to see all of a gradient first.
        let alone = |rule: &&Optimizer| !rule.goes_by_norms() && !rule.is_made_beside();
        for optimizer in Optimizer::ALL.iter().filter(alone) {
            for (rows, inputs, outputs) in [(1, 1, 1), (64, 40, 10), (5, 33, 7)] {
                let (op, setting) = case(optimizer.clone(), rows, inputs, outputs);
                check(op, &setting);
            }
        }
    }

    #[test]
    fn a_weight_larger_than_a_binding_is_updated_in_parts() {
        let Some(gpu) = gpu() else { return };
        let (op, setting) = case(Optimizer::default(), 3, 600, 64);
        let expected = setting.run_on(&op, Cpu::global().unwrap()).unwrap();
        let found = run_within(&gpu, &op.clone().into(), &setting, 300 * 64 * 4).unwrap();
        compare(&Op::from(op), &expected, &found);
    }
}
