//! One product by itself, for measuring it.

use super::cooperative::Cooperative;
use crate::gpu::dispatch::Dispatch;
use crate::gpu::frame::Frame;
use crate::gpu::frame::new_table;
use crate::gpu::steps::encode_step;
use crate::gpu::{Gpu, Timing};
use crate::ops::{Direction, Product, StepValues};
use crate::shader::{Accelerator, GpuOperation, Operand, Recorder};
use crate::{Error, Result};

/// `C = A B` of n x n matrices of f16 bits with f32 sums, `times` over; B is given as its
/// transpose where `right_transposed`. Returns C and the device's seconds for one product.
///
/// # Errors
/// [`Error::Shape`] unless n is a multiple of 16 and the operands have n x n elements,
/// [`Error::Device`] where the device has no cooperative matrices or no memory left.
pub fn mixed_product(
    gpu: &Gpu,
    n: usize,
    [left, right]: [&[u16]; 2],
    right_transposed: bool,
    times: usize,
) -> Result<(Vec<f32>, f64)> {
    if !n.is_multiple_of(16) || n == 0 || left.len() != n * n || right.len() != n * n {
        return Err(Error::Shape(format!(
            "a mixed product takes square matrices of a multiple of 16 rows, not {} and {} elements for {n}",
            left.len(),
            right.len()
        )));
    }
    let capabilities = gpu.capabilities();
    let tile = Cooperative::suiting(n, n, right_transposed);
    if !capabilities.cooperative_matrices
        || !capabilities.float16
        || !capabilities.subgroups
        || tile.workgroup_bytes() as usize > capabilities.workgroup_storage
    {
        return Err(Error::Device(format!(
            "{} has no cooperative matrices of 16-bit floats; multiply in 32 bits",
            gpu.adapter()
        )));
    }
    let upload = |elements: &[u16]| -> Result<Operand> {
        let operand = Operand::allocate(gpu, "a mixed product", elements.len() / 2)?;
        gpu.upload(operand.allocation(), 0, bytemuck::cast_slice(elements));
        Ok(operand)
    };
    let (left, right) = (upload(left)?, upload(right)?);
    let output = Operand::allocate(gpu, "a mixed product", n * n)?;
    let mut recorder = Recorder::new(gpu, n, output.clone());
    tile.shader([left, right, output.clone()], [n; 3]).groups(&mut recorder, tile.groups(n, n))?;
    timed(gpu, recorder, output, times)
}

/// `C = A B` of n x n matrices in single precision, `times` over. Returns C and the device's
/// seconds for one product.
///
/// # Errors
/// [`Error::Shape`] unless the operands have n x n elements, [`Error::Device`] where the device
/// has no memory left.
pub fn single_product(
    gpu: &Gpu,
    n: usize,
    [left, right]: [&[f32]; 2],
    times: usize,
) -> Result<(Vec<f32>, f64)> {
    if n == 0 || left.len() != n * n || right.len() != n * n {
        return Err(Error::Shape(format!(
            "operands have {} and {} elements, expected {n} x {n}",
            left.len(),
            right.len()
        )));
    }
    let upload = |elements: &[f32]| -> Result<Operand> {
        let operand = Operand::allocate(gpu, "a product", elements.len())?;
        gpu.upload(operand.allocation(), 0, bytemuck::cast_slice(elements));
        Ok(operand)
    };
    let output = Operand::allocate(gpu, "a product", n * n)?;
    let mut recorder = Recorder::new(gpu, n, output.clone());
    recorder.reads = vec![upload(left)?, upload(right)?];
    recorder.writes = vec![output.clone()];
    Product::new(Direction::Forward, 1, n, n).record(&mut recorder)?;
    timed(gpu, recorder, output, times)
}

/// Replays what is recorded `times` over in one frame, waits, and returns the result with the
/// device's seconds for one.
pub(super) fn timed(
    gpu: &Gpu,
    recorder: Recorder<'_>,
    output: Operand,
    times: usize,
) -> Result<(Vec<f32>, f64)> {
    let dispatches = Dispatch::all(gpu, recorder.recorded, 0);
    let (table, group) = new_table(gpu, 1)?;
    gpu.upload(&table, 0, &encode_step(&StepValues::default(), 0));
    let before = gpu.timing();
    gpu.set_timing(Timing::Frames)?;
    let mut seconds = 0.0;
    // The first frames raise an idle device's clock.
    for _ in 0..3 {
        let started = gpu.statistics().device_seconds;
        let mut frame = Frame::begin(gpu, &group);
        for _ in 0..times.max(1) {
            dispatches.iter().for_each(|dispatch| frame.record(dispatch, 0));
        }
        frame.finish(1)?;
        // Waits for the frame, whose time is then known.
        gpu.download(&mut [(output.slice(0, 1)?, &mut [0; 4])])?;
        seconds = (gpu.statistics().device_seconds - started) / times.max(1) as f64;
    }
    gpu.set_timing(before)?;
    let mut result = vec![0f32; output.elements];
    gpu.download(&mut [(output, bytemuck::cast_slice_mut(&mut result))])?;
    Ok((result, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{f32_to_float16, float16_to_f32};
    use crate::gpu::testing;
    use crate::ops::testing::numbers;

    #[test]
    fn single_products_are_timed() {
        let Some(gpu) = testing::own_gpu() else { return };
        let (left, right): (Vec<f32>, Vec<f32>) = (numbers(1, 30 * 30), numbers(2, 30 * 30));
        assert!(matches!(single_product(&gpu, 31, [&left, &right], 1), Err(Error::Shape(_))));
        let (made, seconds) = single_product(&gpu, 30, [&left, &right], 2).unwrap();
        assert!(seconds > 0.0);
        for (at, made) in made.iter().enumerate() {
            let products = (0..30).map(|k| f64::from(left[at / 30 * 30 + k] * right[k * 30 + at % 30]));
            assert!((f64::from(*made) - products.sum::<f64>()).abs() < 1e-4);
        }
    }

    #[test]
    fn it_is_the_product_where_there_are_matrix_units() {
        let Some(gpu) = testing::own_gpu() else { return };
        let none = mixed_product(&gpu, 8, [&[], &[]], false, 1).unwrap_err();
        assert!(matches!(none, Error::Shape(_)));
        // Not multiples of the tiles: 64 and 128.
        for (n, right_transposed) in [(16, false), (80, true), (208, false), (1552, true), (1552, false)] {
            let half =
                |seed| -> Vec<u16> { numbers::<f32>(seed, n * n).into_iter().map(f32_to_float16).collect() };
            let (left, right) = (half(1), half(2));
            let made = mixed_product(&gpu, n, [&left, &right], right_transposed, 1);
            if !gpu.capabilities().cooperative_matrices {
                assert!(matches!(made, Err(Error::Device(_))));
                return;
            }
            let (made, seconds) = made.unwrap();
            assert!(seconds >= 0.0);
            for at in (0..n * n).step_by(n * n / 251 + 1) {
                let (row, column) = (at / n, at % n);
                let right_at = |k| if right_transposed { column * n + k } else { k * n + column };
                let value = |bits: u16| f64::from(float16_to_f32(bits));
                let products = (0..n).map(|k| value(left[row * n + k]) * value(right[right_at(k)]));
                let exact: f64 = products.sum();
                assert!((f64::from(made[at]) - exact).abs() < 1e-4 * (n as f64).sqrt(), "{n}: {exact}");
            }
        }
    }
}
