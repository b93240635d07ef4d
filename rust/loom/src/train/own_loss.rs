//! Losses of a user's own: by expression, or computed by whoever embeds loom.

use super::data::{Rows, Targets};
use super::loss::{LossOptions, loss_op};
use super::weighing::Weighing;
use crate::device::Device;
use crate::layers::class_extents;
use crate::ops::expression::{Expression, Operand, Plan, Shaped, Stage};
use crate::ops::loss::divisor;
use crate::ops::{Args, Loss, LossFunction, Operation, StepValues};
use crate::program::{Access, Builder, Kind, Phase, Rewrites, Value};
use crate::simd::{Cpu, Real};
use crate::state::Registry;
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
    /// The same, by the name that messages tell.
    Called(String, String),
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
            Self::Expression(text) | Self::Called(_, text) => check_expression(text),
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
            Self::Expression(text) | Self::Called(_, text) => {
                let shaped = shaped(text, &shape)?;
                if matches!(wanted.weighing, Weighing::Places(_)) && !tells_places(&shaped, &shape) {
                    let told = if let Self::Called(name, _) = self { name } else { text };
                    return Err(adds_up_places(&format!("the loss \"{told}\"")));
                }
                let (value, sums) = b.evaluate(&shaped.value()?, vec![Some(output), Some(target)], "loss")?;
                let [elements] = value[..] else {
                    return Err(Error::Internal("an expression has one value".into()));
                };
                let (row_losses, gradient, op) = mean(b, elements, wanted)?;
                let Some(gradient) = gradient else {
                    return Ok(Lowered { row_losses, output_gradient: None, op });
                };
                let given = [output, target, elements, gradient].into_iter().chain(sums).map(Some).collect();
                let (gradients, _) = b.evaluate(&shaped.gradients(&[0])?.0, given, "loss")?;
                Ok(Lowered { row_losses, output_gradient: gradients.first().copied(), op })
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

/// The expression over outputs and targets of these extents.
fn shaped(text: &str, shape: &[usize]) -> Result<Shaped> {
    Expression::parse(text, &NAMES)?.shaped(text, shape, vec![Operand::Rows, Operand::Rows])
}

/// Whether an expression has a value, or some, for each place of outputs of this shape, such as a step or a pixel.
fn tells_places(shaped: &Shaped, shape: &Shape) -> bool {
    let ((outer, _, inner), (steps, _, pixels)) = (class_extents(&shaped.output()), class_extents(shape));
    (outer, inner) == (steps, pixels)
}

/// What is told of a loss that has no value for each place.
fn adds_up_places(what: &str) -> Error {
    Error::Value(format!(
        "{what} adds up over steps or pixels, and where these count by weights of their own, or steps are of sequences of \
         different lengths, it takes a loss that has a value for each"
    ))
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

/// The loss by expression of `output`, and its gradient with respect to `output`. A weight is one of a row, or of each
/// of its places.
///
/// # Errors
/// [`Error::Value`] for a text that is no expression, and for weights of places that it adds up over; [`Error::Shape`] for targets that do not fit.
pub fn expression_loss_and_gradient(
    text: &str,
    output: TensorView<'_>,
    target: &Targets<'_>,
    weight: Option<&[f64]>,
) -> Result<(f64, Tensor)> {
    let (value, gradient) = match output.elements() {
        Elements::Float32(_) => run::<f32>(text, &output, target, weight, true),
        Elements::Float64(_) => run::<f64>(text, &output, target, weight, true),
    }?;
    let gradient = gradient.ok_or_else(|| Error::Internal("a gradient was asked for".into()))?;
    Ok((value, gradient))
}

/// The loss of one's own of `output`, and its gradient with respect to `output`, computed on the processor.
///
/// # Errors
/// [`Error::Shape`] for targets that do not fit, and whatever the loss says.
pub(crate) fn own_loss_and_gradient(
    own: &OwnLossConfig,
    output: TensorView<'_>,
    target: &Targets<'_>,
) -> Result<(f64, Tensor)> {
    match (own, output.elements()) {
        (OwnLossConfig::Expression(text) | OwnLossConfig::Called(_, text), _) => {
            expression_loss_and_gradient(text, output, target, None)
        }
        (_, Elements::Float32(_)) => run_lowered::<f32>(own, &output, target),
        (_, Elements::Float64(_)) => run_lowered::<f64>(own, &output, target),
    }
}

fn run_lowered<T: Real>(
    own: &OwnLossConfig,
    output: &TensorView<'_>,
    target: &Targets<'_>,
) -> Result<(f64, Tensor)> {
    let (rows, shape) = (output.rows(), Shape::from(&output.shape()[1..]));
    let (outer, _, inner) = class_extents(&shape);
    let classes = matches!(target, Targets::Classes { .. }) && target.shape()[1..] != shape[..];
    target.check_rows(rows, &shape, classes)?;
    let mut b = Builder::new(T::PRECISION);
    b.set_phase(Phase::Loss);
    let given = b.input("output", shape.clone(), Kind::Real);
    let (extents, kind) =
        if classes { (Shape::from(outer * inner), Kind::Index) } else { (shape, Kind::Real) };
    let wanted = b.input("target", extents, kind);
    let asked = Wanted { weight: None, weighing: Weighing::None, gradient: true, scaled: false };
    let Lowered { row_losses, output_gradient, op } = own.lower(&mut b, given, wanted, asked)?;
    let gradient = output_gradient.ok_or_else(|| Error::Internal("a gradient was asked for".into()))?;
    [row_losses, gradient].into_iter().for_each(|value| b.pin(value));
    let mut run = Device::cpu().run(Arc::new(b.finish(rows, &Rewrites::default())?))?;
    run.rows = rows;
    output.copy_to(run.write::<T>(given));
    if classes {
        target.copy_labels(Rows::First(rows), run.write_indices(wanted));
    } else {
        target.copy_real(None, run.write::<T>(wanted));
    }
    let loss_divisor = divisor::<T>(&op, rows, &[], &[]);
    let values = StepValues { loss_divisor, ..StepValues::default() };
    run.execute(Access::Shared(&Registry::default()), Phase::Loss..=Phase::Loss, &values)?;
    let total: f64 = run.read::<T>(row_losses).iter().map(|loss| loss.to_f64()).sum();
    Ok((total / loss_divisor, Tensor::new(output.shape(), run.read::<T>(gradient).to_vec())?))
}

/// Refuses a text that is no expression of outputs and targets.
///
/// # Errors
/// [`Error::Value`] pointing at the place.
pub fn check_expression(text: &str) -> Result<()> {
    Expression::parse(text, &NAMES).map(drop)
}

/// The mean of an expression over all elements of `output` and `target`.
///
/// # Errors
/// As [`expression_loss_and_gradient`].
pub fn expression_mean(text: &str, output: TensorView<'_>, target: &Targets<'_>) -> Result<f64> {
    let (value, _) = match output.elements() {
        Elements::Float32(_) => run::<f32>(text, &output, target, None, false),
        Elements::Float64(_) => run::<f64>(text, &output, target, None, false),
    }?;
    Ok(value)
}

fn run<T: Real>(
    text: &str,
    output: &TensorView<'_>,
    target: &Targets<'_>,
    weight: Option<&[f64]>,
    gradient: bool,
) -> Result<(f64, Option<Tensor>)> {
    let rows = output.rows();
    if output.shape().len() < 2 || rows == 0 {
        return Err(Error::Shape(format!(
            "a loss takes a non-empty output with a batch axis, got shape {}",
            Shape::from(output.shape())
        )));
    }
    let shape = Shape::from(&output.shape()[1..]);
    let shaped = shaped(text, &shape)?;
    target.check_rows(rows, &shape, false)?;
    let count = output.elements().len();
    let mut arrays = vec![extents::zeros::<T>(count)?, extents::zeros(count)?];
    output.copy_to(&mut arrays[0]);
    target.copy_real(None, &mut arrays[1]);
    let weights: Vec<f64> = weight.map_or_else(|| vec![1.0; rows], <[f64]>::to_vec);
    let (_, classes, inner) = class_extents(&shaped.output());
    let (steps, _, pixels) = class_extents(&shape);
    let by_place = weights.len() != rows;
    if by_place && weights.len() != rows * steps * pixels {
        return Err(Error::Shape(format!("{} weights were given for {rows} rows", weights.len())));
    }
    if by_place && !tells_places(&shaped, &shape) {
        return Err(adds_up_places("the loss"));
    }
    let plan = shaped.value()?;
    let mut made = compute(&plan, arrays, rows)?;
    let mut take = |number: usize| std::mem::take(&mut made[number]);
    let elements = take(plan.results[0]);
    let width = elements.len() / rows;
    // What lies side by side and has one weight: a row, or without an axis of classes between, a place.
    let (weights, width) = match by_place {
        true => (of_elements(&weights, classes, inner), 1),
        false => (weights, width),
    };
    let divisor = weights.iter().sum::<f64>() * width as f64;
    let sums = elements.chunks_exact(width).zip(&weights);
    let total: f64 = sums.map(|(row, weight)| weight * row.iter().map(|x| x.to_f64()).sum::<f64>()).sum();
    if !gradient {
        return Ok((total / divisor, None));
    }
    let shares = weights.iter().flat_map(|weight| std::iter::repeat_n(T::from_f64(weight / divisor), width));
    let mut arrays = vec![take(0), take(1), elements.clone(), shares.collect()];
    // A sum may be the value itself.
    arrays.extend(
        plan.sums.iter().map(|sum| if *sum == plan.results[0] { elements.clone() } else { take(*sum) }),
    );
    let (plan, _) = shaped.gradients(&[0])?;
    let mut made = compute(&plan, arrays, rows)?;
    let gradient = Tensor::new(output.shape(), std::mem::take(&mut made[plan.results[0]]))?;
    Ok((total / divisor, Some(gradient)))
}

/// The weight of each element, by those of places, `inner` of which lie side by side.
fn of_elements(weights: &[f64], classes: usize, inner: usize) -> Vec<f64> {
    let of_place = weights.chunks_exact(inner).flat_map(|side| std::iter::repeat_n(side, classes)).flatten();
    of_place.copied().collect()
}

/// Runs a plan over whole arrays, the first of which are given; what stands under every number.
fn compute<T: Real>(plan: &Plan, given: Vec<Vec<T>>, rows: usize) -> Result<Vec<Vec<T>>> {
    let (values, cpu) = (StepValues::default(), Cpu::global()?);
    let mut arrays = given;
    arrays.resize_with(plan.count, Vec::new);
    for stage in &plan.stages {
        let (reads, writes, shape) = match stage {
            Stage::Evaluate(_, reads, writes, shape) => (&reads[..], &writes[..], shape),
            Stage::Sum(_, read, write, shape) => {
                (std::slice::from_ref(read), std::slice::from_ref(write), shape)
            }
        };
        let len = rows * shape.iter().product::<usize>();
        let mut results = writes.iter().map(|_| extents::zeros::<T>(len)).collect::<Result<Vec<_>>>()?;
        let mut args = Args::new(cpu, rows, &values);
        for (place, read) in reads.iter().enumerate() {
            args.set_read(place, &arrays[*read]);
        }
        for (place, result) in results.iter_mut().enumerate() {
            args.set_write(place, result);
        }
        match stage {
            Stage::Evaluate(op, ..) => op.run::<T>(&mut args)?,
            Stage::Sum(op, ..) => op.run::<T>(&mut args)?,
        }
        for (write, result) in writes.iter().zip(results) {
            arrays[*write] = result;
        }
    }
    Ok(arrays)
}
