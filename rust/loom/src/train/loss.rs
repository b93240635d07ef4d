//! Losses by name, and a loss by itself for the manual loop.

use super::data::Targets;
use crate::layers::class_extents;
use crate::ops::loss::{divisor, validate_targets};
use crate::ops::{Args, Loss, LossFunction, Operation, StepValues};
use crate::simd::{Cpu, Real};
use crate::tensor::{Precision, Shape, Tensor, TensorView};
use crate::{Error, Result, extents};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// A loss by name: `"cross_entropy"`, or `{"huber": {"delta": 0.5}}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossConfig(pub LossFunction);

impl LossConfig {
    /// The loss of this name, with its default setting.
    ///
    /// # Errors
    /// [`Error::Value`] listing the known names.
    pub fn parse(name: &str) -> Result<Self> {
        LossFunction::named(name).map(Self)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Whether targets may be class indices.
    pub fn takes_classes(&self) -> bool {
        self.0.is_over_classes()
    }

    fn from_json(value: &Value) -> Result<Self> {
        let object = match value {
            Value::String(name) => return Self::parse(name),
            Value::Object(object) if object.len() == 1 => object,
            other => {
                return Err(Error::Value(format!("a loss is a name or {{name: parameters}}, got {other}")));
            }
        };
        let mut loss = LossFunction::MeanSquaredError;
        for (name, parameters) in object {
            loss = LossFunction::named(name)?;
            for (key, value) in parameters.as_object().into_iter().flatten() {
                loss = loss.with_setting(key, value.as_f64(), &value.to_string())?;
            }
        }
        Ok(Self(loss))
    }
}

/// Its name, with its setting where that is not the default.
impl Serialize for LossConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut loss = self.0;
        match loss.setting() {
            Some((setting, value, _)) if !LossFunction::ALL.contains(&self.0) => {
                json!({ self.name(): { setting: *value } }).serialize(serializer)
            }
            _ => serializer.serialize_str(self.name()),
        }
    }
}

impl<'de> Deserialize<'de> for LossConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_json(&value).map_err(serde::de::Error::custom)
    }
}

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
        crate::tensor::Elements::Float32(_) => run::<f32>(loss, &output, target, weight, options),
        crate::tensor::Elements::Float64(_) => run::<f64>(loss, &output, target, weight, options),
    }
}

/// What else a loss takes.
#[derive(Clone, Debug, Default)]
pub struct LossOptions {
    /// Mixes targets with the uniform distribution.
    pub label_smoothing: f64,
    /// A factor for each class.
    pub class_weight: Option<Vec<f64>>,
}

/// The loss operation for an output of this shape.
pub(crate) fn loss_op(
    function: LossFunction,
    shape: &Shape,
    class_targets: bool,
    weighted: bool,
    options: &LossOptions,
    gradient: bool,
) -> Result<Loss> {
    let (outer, classes, inner) = class_extents(shape);
    let takes_classes = LossConfig(function).takes_classes();
    if let Some(weights) = &options.class_weight {
        if !takes_classes {
            return Err(Error::Value(format!(
                "class_weight needs cross_entropy or nll, not {}",
                LossConfig(function).name()
            )));
        }
        if weights.len() != classes || weights.iter().any(|w| !w.is_finite() || *w < 0.0) {
            return Err(Error::Value(format!(
                "class_weight must hold {classes} finite numbers of at least 0, one for each class"
            )));
        }
    }
    if !(0.0..1.0).contains(&options.label_smoothing) || (options.label_smoothing > 0.0 && !takes_classes) {
        return Err(Error::Value(format!(
            "label_smoothing must be at least 0 and below 1, and needs cross_entropy or nll; got {} with {}",
            options.label_smoothing,
            LossConfig(function).name()
        )));
    }
    Ok(Loss {
        function,
        outer,
        classes,
        inner,
        class_targets,
        label_smoothing: options.label_smoothing,
        class_weight: options.class_weight.clone(),
        weighted,
        gradient,
        scaled: false,
    })
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
    let op = loss_op(loss.0, &shape, class_targets, weight.is_some(), options, true)?;
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
    if weight.is_some() && weights.len() != rows {
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
