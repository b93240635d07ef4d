//! Losses of a user's own: by expression, or computed by whoever embeds loom.

use super::Targets;
use super::loss::{LossOptions, loss_op};
use super::weighing::Weighing;
use crate::ops::expression::{Expression, Program};
use crate::ops::{Args, Evaluate, Loss, LossFunction, Operation, StepValues};
use crate::program::{Builder, Value};
use crate::simd::{Cpu, Real};
use crate::tensor::{Elements, Shape, Tensor, TensorView};
use crate::{Error, Result, extents};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What is minimised in place of a loss by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnLossConfig {
    /// The mean of this over all elements, of which y is the output's and t the target's.
    Expression(String),
    /// What [`provide_losses`]' function makes of this number.
    Provided(u64),
    /// The same, with class targets that are any whole numbers: they say what is alike, or where labels end.
    Labelled(u64),
}

/// A loss that an embedding program computes.
///
/// The mean of what [`lower`](Self::lower) makes is minimised.
pub trait OwnLoss: fmt::Debug + Send + Sync {
    /// Lowers what is minimised, in the output's shape. The target is of class indices where the training's targets
    /// are. What comes beside it is handed to [`lower_backward`](Self::lower_backward).
    ///
    /// # Errors
    /// Whatever speaks against it.
    fn lower(
        &self,
        b: &mut Builder,
        output: Value,
        target: Value,
    ) -> Result<(Value, Arc<dyn Any + Send + Sync>)>;

    /// Lowers the output's gradient from that of what `lower` has made.
    ///
    /// # Errors
    /// Whatever speaks against it.
    fn lower_backward(
        &self,
        b: &mut Builder,
        output: Value,
        note: &Arc<dyn Any + Send + Sync>,
        gradient: Value,
    ) -> Result<Value>;
}

/// Makes losses of their numbers.
pub type LossProvider = fn(u64) -> Result<Arc<dyn OwnLoss>>;

static PROVIDER: OnceLock<LossProvider> = OnceLock::new();

/// Says where losses come from that are known by a number, once in a process.
pub fn provide_losses(provider: LossProvider) {
    let _ = PROVIDER.set(provider);
}

/// What a loss reads of an expression: the output, the target.
const NAMES: [&str; 2] = ["y", "t"];

/// A lowered loss of one's own.
pub(super) struct Lowered {
    pub(super) row_losses: Value,
    pub(super) output_gradient: Option<Value>,
    /// What divides the sum of the rows' losses.
    pub(super) op: Loss,
}

/// What the loss operation after a user's own is to know.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) weight: Option<Value>,
    pub(super) weighing: Weighing,
    pub(super) gradient: bool,
    pub(super) scaled: bool,
}

impl OwnLossConfig {
    /// Refuses what no data could make right.
    pub(super) fn validate(&self) -> Result<()> {
        match self {
            Self::Expression(text) => Expression::parse(text, &NAMES).map(drop),
            Self::Provided(_) | Self::Labelled(_) => Ok(()),
        }
    }

    /// Lowers the loss, and where it is asked for, the output's gradient.
    pub(super) fn lower(
        &self,
        b: &mut Builder,
        output: Value,
        target: Value,
        wanted: Wanted,
    ) -> Result<Lowered> {
        let shape = b.shape(output).clone();
        match self {
            Self::Expression(text) => {
                let parsed = Expression::parse(text, &NAMES)?;
                let elements = apply(b, text, parsed.value(), &[output, target], &shape);
                let (row_losses, gradient, op) = mean(b, elements, wanted)?;
                let output_gradient = gradient.map(|gradient| {
                    apply(b, text, parsed.gradients(&[0]), &[output, target, elements, gradient], &shape)
                });
                Ok(Lowered { row_losses, output_gradient, op })
            }
            Self::Provided(number) | Self::Labelled(number) => {
                let provider = PROVIDER.get().ok_or_else(|| {
                    Error::Value(format!("nobody provides losses by number, and the loss is number {number}"))
                })?;
                let loss = provider(*number)?;
                let (elements, note) = loss.lower(b, output, target)?;
                let (row_losses, gradient, op) = mean(b, elements, wanted)?;
                let output_gradient = match gradient {
                    Some(gradient) => Some(loss.lower_backward(b, output, &note, gradient)?),
                    None => None,
                };
                Ok(Lowered { row_losses, output_gradient, op })
            }
        }
    }
}

/// The operation of a program on values, of which it reads those that it names.
fn apply(b: &mut Builder, text: &str, program: Program, values: &[Value], shape: &Shape) -> Value {
    let reads: Vec<Value> = program.reads().iter().map(|number| values[*number]).collect();
    b.apply(evaluate(text, program), &reads, "loss", shape.clone())
}

fn evaluate(text: &str, program: Program) -> Evaluate {
    let repeated = vec![None; program.reads().len()];
    Evaluate { program: Arc::new(program), repeated, text: text.into() }
}

/// The mean of what is minimised, and its gradient.
fn mean(b: &mut Builder, elements: Value, wanted: Wanted) -> Result<(Value, Option<Value>, Loss)> {
    let shape = b.shape(elements).clone();
    let Wanted { weighing, gradient, .. } = wanted;
    let mut op =
        loss_op(LossFunction::MeanOutput, &shape, false, weighing, &LossOptions::default(), gradient)?;
    op.scaled = wanted.scaled;
    let reads: Vec<Value> = [elements, elements].into_iter().chain(wanted.weight).collect();
    let (row_losses, gradient) = b.apply_loss(op.clone(), &reads, shape);
    Ok((row_losses, gradient, op))
}

/// The loss by expression of `output`, and its gradient with respect to `output`.
///
/// # Errors
/// [`Error::Value`] for a text that is no expression, [`Error::Shape`] for targets that do not fit.
pub fn expression_loss_and_gradient(
    text: &str,
    output: TensorView<'_>,
    target: &Targets<'_>,
    weight: Option<&[f64]>,
) -> Result<(f64, Tensor)> {
    match output.elements() {
        Elements::Float32(_) => run::<f32>(text, &output, target, weight),
        Elements::Float64(_) => run::<f64>(text, &output, target, weight),
    }
}

fn run<T: Real>(
    text: &str,
    output: &TensorView<'_>,
    target: &Targets<'_>,
    weight: Option<&[f64]>,
) -> Result<(f64, Tensor)> {
    let parsed = Expression::parse(text, &NAMES)?;
    let rows = output.rows();
    if output.shape().len() < 2 || rows == 0 {
        return Err(Error::Shape(format!(
            "a loss takes a non-empty output with a batch axis, got shape {}",
            Shape::from(output.shape())
        )));
    }
    let shape = Shape::from(&output.shape()[1..]);
    target.check_rows(rows, &shape, false)?;
    let count = output.elements().len();
    let mut elements = [extents::zeros::<T>(count)?, extents::zeros(count)?, extents::zeros(count)?];
    output.copy_to(&mut elements[0]);
    target.copy_real(None, &mut elements[1]);
    let weights: Vec<f64> = weight.map_or_else(|| vec![1.0; rows], <[f64]>::to_vec);
    if weights.len() != rows {
        return Err(Error::Shape(format!("{} weights were given for {rows} rows", weights.len())));
    }
    let width = count / rows;
    let divisor = weights.iter().sum::<f64>() * width as f64;
    elements[2] = compute(text, parsed.value(), &elements)?;
    let sums = elements[2].chunks_exact(width).zip(&weights);
    let total: f64 = sums.map(|(row, weight)| weight * row.iter().map(|x| x.to_f64()).sum::<f64>()).sum();
    let shares = weights.iter().flat_map(|weight| std::iter::repeat_n(T::from_f64(weight / divisor), width));
    let [y, t, value] = elements;
    let gradient = compute(text, parsed.gradients(&[0]), &[y, t, value, shares.collect()])?;
    Ok((total / divisor, Tensor::new(output.shape(), gradient)?))
}

/// Runs a program over whole arrays.
fn compute<T: Real>(text: &str, program: Program, arrays: &[Vec<T>]) -> Result<Vec<T>> {
    let reads = program.reads().to_vec();
    let op = evaluate(text, program);
    let values = StepValues::default();
    let mut result = extents::zeros::<T>(arrays[0].len())?;
    let mut args = Args::new(Cpu::global()?, 1, &values);
    for (place, number) in reads.into_iter().enumerate() {
        args.set_read(place, &arrays[number]);
    }
    args.set_write(0, &mut result);
    op.run::<T>(&mut args)?;
    Ok(result)
}
