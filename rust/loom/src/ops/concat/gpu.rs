//! Copies on a GPU: elements go bit for bit.

use super::{Concat, Slice};
use crate::Result;
use crate::shader::{GpuOperation, Operand, Recorder, Shader};

/// A value in repetitions: elements from the start of one to that of the next, and where the copied
/// stretch starts in each.
struct Side {
    operand: Operand,
    stride: usize,
    start: usize,
}

/// Copies `length` elements of every repetition.
fn copy(
    recorder: &mut Recorder<'_>,
    x: Side,
    y: Side,
    length: usize,
    count: usize,
    guarded: bool,
) -> Result<()> {
    Shader::new("copy", include_str!("copy.wgsl"))
        .section("GUARD", if guarded { "if (control.applies == 0u) { return; }" } else { "" })
        .read("x", "u32", x.operand)
        .write("y", "u32", y.operand)
        .when(guarded, |shader| shader.control(recorder))
        // Elements that are copied in all, and in each repetition.
        .number("count", count)
        .number("length", length)
        // Where each repetition starts, and where the stretch starts in it.
        .number("x_stride", x.stride)
        .number("x_start", x.start)
        .number("y_stride", y.stride)
        .number("y_start", y.start)
        .elements(recorder, count)
}

impl GpuOperation for Concat {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = recorder.write(0)?;
        // Also of a value without a batch axis.
        let repetitions = y.elements / self.total;
        let covered: usize = self.parts.iter().map(|(_, length)| length).sum();
        if covered < self.total {
            Shader::new("zero", include_str!("zero.wgsl"))
                .write("y", "u32", y.clone())
                .number("count", y.elements)
                .elements(recorder, y.elements)?;
        }
        for (number, &(start, length)) in self.parts.iter().enumerate() {
            let x = Side { operand: recorder.read(number)?, stride: length, start: 0 };
            let y = Side { operand: y.clone(), stride: self.total, start };
            copy(recorder, x, y, length, repetitions * length, false)?;
        }
        Ok(())
    }
}

impl GpuOperation for Slice {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let y = Side { operand: recorder.write(0)?, stride: self.length, start: 0 };
        let count = y.operand.elements;
        let x = Side { operand: recorder.read(0)?, stride: self.total, start: self.start };
        copy(recorder, x, y, self.length, count, self.guarded)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::{check, gpu, run_after};
    use crate::ops::testing::{Data, Setting, numbers};

    #[test]
    fn parts_and_gaps() {
        for rows in [1, 3] {
            let parts = vec![(1, 5), (6, 1), (9, 130)];
            let op = Concat { outer: 2, total: 141, parts };
            let x: Vec<Vec<f32>> = op.parts.iter().map(|(_, n)| numbers(1, rows * 2 * n)).collect();
            let reads: Vec<&[f32]> = x.iter().map(Vec::as_slice).collect();
            check(op.clone(), &Setting::new(rows, &reads, &[rows * 2 * 141]));
            let joined: Vec<f32> = numbers(2, rows * 2 * 141);
            check(Slice::of(&op, 2), &Setting::new(rows, &[&joined], &[rows * 2 * 130]));
        }
    }

    #[test]
    fn a_bad_step_keeps_nothing() {
        let Some(gpu) = gpu() else { return };
        let x: Vec<f32> = numbers(3, 12);
        let setting = Setting::new(2, &[&x], &[4]);
        let op = Slice::kept(6, 1, 2).into();
        let kept = run_after(&gpu, &op, &setting, [0, 1, 0, 0]).expect("the GPU to run the copy");
        assert_eq!(kept, setting.writes);
        let kept = run_after(&gpu, &op, &setting, [1, 0, 0, 0]).expect("the GPU to run the copy");
        assert_eq!(kept, [Data::Real(vec![x[1], x[2], x[7], x[8]])]);
    }
}
