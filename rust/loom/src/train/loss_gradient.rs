//! A loss by itself, for the manual loop.

use super::data::Targets;
use super::loss::{LossConfig, LossOptions, loss_op};
use super::weighing::Weighing;
use crate::layers::class_extents;
use crate::ops::loss::{divisor, validate_targets};
use crate::ops::{Args, Operation, StepValues};
use crate::simd::{Cpu, Real};
use crate::tensor::{Elements, Precision, Shape, Tensor, TensorView};
use crate::{Error, Result, extents};

/// The loss of `output` and its gradient with respect to `output`.
///
/// `from_logits` false says that a cross-entropy is given probabilities; the gradient is then
/// that of the softmax's input, as if the softmax were part of the loss.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Value`] for targets that do not fit the output.
pub fn loss_and_gradient(
    loss: LossConfig,
    output: TensorView<'_>,
    target: &Targets<'_>,
    weight: Option<&[f64]>,
    options: &LossOptions,
) -> Result<(f64, Tensor)> {
    match output.elements() {
        Elements::Float32(_) => run::<f32>(loss, &output, target, weight, options),
        Elements::Float64(_) => run::<f64>(loss, &output, target, weight, options),
    }
}

fn run<T: Real>(
    loss: LossConfig,
    output: &TensorView<'_>,
    target: &Targets<'_>,
    weight: Option<&[f64]>,
    options: &LossOptions,
) -> Result<(f64, Tensor)> {
    let rows = output.rows();
    if output.shape().len() < 2 || rows == 0 {
        return Err(Error::Shape(format!(
            "a loss takes a non-empty output with a batch axis, got shape {}",
            Shape::from(output.shape())
        )));
    }
    let shape = Shape::from(&output.shape()[1..]);
    let class_targets = target.are_classes_for(&loss, &shape)?;
    let (outer, _, inner) = class_extents(&shape);
    let places = outer * inner;
    let weighing = match weight {
        None => Weighing::None,
        Some(weights) if shape.rank() > 1 && places > 1 && weights.len() == rows * places => {
            Weighing::Places(places)
        }
        Some(_) => Weighing::Rows,
    };
    let op = loss_op(loss.0, &shape, class_targets, weighing, options, true)?;
    target.check_rows(rows, &shape, class_targets)?;
    let mut elements = extents::zeros::<T>(output.elements().len())?;
    output.copy_to(&mut elements);
    let mut real_target = Vec::new();
    let mut labels: &[i32] = &[];
    match (class_targets, target) {
        (true, Targets::Classes { labels: given, .. }) => labels = given,
        _ => {
            real_target = extents::zeros(output.elements().len())?;
            target.copy_real(None, &mut real_target);
        }
    }
    validate_targets(&op, &elements, &real_target, labels)?;
    let weights: Vec<T> = weight.unwrap_or_default().iter().map(|w| T::from_f64(*w)).collect();
    if weights.len() != rows * op.weights() {
        return Err(Error::Shape(format!("{} weights were given for {rows} rows", weights.len())));
    }
    let loss_divisor = divisor(&op, rows, labels, &weights);
    let values = StepValues { loss_divisor, ..StepValues::default() };
    let mut row_losses = vec![T::ZERO; rows];
    let mut gradient = extents::zeros::<T>(elements.len())?;
    let mut args = Args::new(Cpu::global()?, rows, &values);
    args.set_read(0, &elements);
    if class_targets {
        args.set_read(1, labels);
    } else {
        args.set_read(1, &real_target);
    }
    args.set_read(2, &weights);
    args.set_write(0, &mut row_losses);
    args.set_write(1, &mut gradient);
    op.run::<T>(&mut args)?;
    let total: f64 = row_losses.iter().map(|loss| loss.to_f64()).sum();
    debug_assert!(matches!(T::PRECISION, Precision::Float32 | Precision::Float64));
    Ok((total / loss_divisor, Tensor::new(output.shape(), gradient)?))
}
