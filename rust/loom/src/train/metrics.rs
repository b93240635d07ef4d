//! Figures that tell how good outputs are.

use crate::error::unknown;
use crate::simd::Real;
use crate::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// A figure by name: `"accuracy"`, or `{"top_k_accuracy": {"k": 3}}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The share of predictions whose largest class is the target's; for a single output,
    /// the share on the right side of the threshold.
    Accuracy,
    /// The share of predictions whose `k` largest classes hold the target's.
    TopK(usize),
    /// Mean absolute error.
    MeanAbsoluteError,
    /// Mean squared error.
    MeanSquaredError,
    /// Coefficient of determination over all elements: 1 - residual / total sum of squares.
    RSquared,
}

const NAMES: [&str; 5] = ["accuracy", "top_k_accuracy", "mae", "mse", "r2"];

impl Metric {
    /// The metric of this name, with default parameters.
    ///
    /// # Errors
    /// [`Error::Value`] listing the known names.
    pub fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "accuracy" => Metric::Accuracy,
            "top_k_accuracy" => Metric::TopK(5),
            "mae" => Metric::MeanAbsoluteError,
            "mse" => Metric::MeanSquaredError,
            "r2" => Metric::RSquared,
            other => return Err(unknown("metric", other, NAMES)),
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Metric::Accuracy => "accuracy",
            Metric::TopK(_) => "top_k_accuracy",
            Metric::MeanAbsoluteError => "mae",
            Metric::MeanSquaredError => "mse",
            Metric::RSquared => "r2",
        }
    }

    fn from_json(value: &Value) -> Result<Self> {
        match value {
            Value::String(name) => Self::parse(name),
            Value::Object(object) if object.len() == 1 && object.contains_key("top_k_accuracy") => {
                match value["top_k_accuracy"]["k"].as_u64() {
                    Some(k) if k > 0 => Ok(Metric::TopK(k as usize)),
                    _ => Err(Error::Value("top_k_accuracy needs a k of at least 1".into())),
                }
            }
            other => Err(Error::Value(format!(
                "a metric is a name or {{\"top_k_accuracy\": {{\"k\": n}}}}, got {other}"
            ))),
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Metric::TopK(k) => json!({ "top_k_accuracy": { "k": k } }).serialize(serializer),
            _ => serializer.serialize_str(self.name()),
        }
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_json(&value).map_err(serde::de::Error::custom)
    }
}

/// What outputs are compared with, in a metric's eyes.
#[derive(Clone, Copy, Debug)]
pub enum Truth<'a, T> {
    /// Class indices, outer x inner a row.
    Classes(&'a [i32]),
    /// Numbers like the output.
    Real(&'a [T]),
}

/// The class axis of outputs, and where a single output is cut in two.
#[derive(Clone, Copy, Debug)]
pub struct ClassAxis {
    /// Extent of the class axis.
    pub classes: usize,
    /// Elements between two classes.
    pub inner: usize,
    /// Single outputs above this count as class 1: 0 for logits, 0.5 otherwise.
    pub threshold: f64,
}

/// A metric gathered over batches.
#[derive(Clone, Debug)]
pub struct MetricState {
    metric: Metric,
    count: f64,
    sum: f64,
    targets: f64,
    squared_targets: f64,
}

impl MetricState {
    /// Nothing seen yet.
    pub fn new(metric: Metric) -> Self {
        Self { metric, count: 0.0, sum: 0.0, targets: 0.0, squared_targets: 0.0 }
    }

    /// What is measured.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Forgets what was seen.
    pub fn reset(&mut self) {
        *self = Self::new(self.metric);
    }

    /// Takes in a batch.
    pub fn update<T: Real>(&mut self, output: &[T], truth: Truth<'_, T>, axis: ClassAxis) {
        match self.metric {
            Metric::Accuracy => self.count_hits(output, truth, axis, 1),
            Metric::TopK(k) => self.count_hits(output, truth, axis, k),
            Metric::MeanAbsoluteError => self.add_differences(output, truth, axis, f64::abs),
            Metric::MeanSquaredError | Metric::RSquared => {
                self.add_differences(output, truth, axis, |d| d * d)
            }
        }
    }

    /// The figure over everything seen; NaN before anything was.
    pub fn value(&self) -> f64 {
        match self.metric {
            Metric::RSquared => {
                let total = self.squared_targets - self.targets * self.targets / self.count;
                1.0 - self.sum / total
            }
            _ => self.sum / self.count,
        }
    }

    fn count_hits<T: Real>(&mut self, output: &[T], truth: Truth<'_, T>, axis: ClassAxis, k: usize) {
        let ClassAxis { classes, inner, threshold } = axis;
        let positions = output.len() / classes.max(1);
        for position in 0..positions {
            let base = position / inner * inner * classes + position % inner;
            let score = |class: usize| output[base + class * inner];
            let hit = if (0..classes).any(|class| score(class).to_f64().is_nan()) {
                // No class is chosen by what is not a number.
                false
            } else if classes == 1 {
                let target = match truth {
                    Truth::Classes(labels) => labels[position] > 0,
                    Truth::Real(targets) => targets[base].to_f64() > 0.5,
                };
                (score(0).to_f64() > threshold) == target
            } else {
                let target = match truth {
                    Truth::Classes(labels) => usize::try_from(labels[position]).unwrap_or(0),
                    Truth::Real(targets) => largest(|class| targets[base + class * inner], classes),
                };
                // Ties rank by index, so that exactly k classes count as chosen.
                let own = score(target);
                let ahead = (0..classes)
                    .filter(|&class| score(class) > own || (score(class) == own && class < target))
                    .count();
                ahead < k
            };
            self.sum += f64::from(u8::from(hit));
        }
        self.count += positions as f64;
    }

    fn add_differences<T: Real>(
        &mut self,
        output: &[T],
        truth: Truth<'_, T>,
        axis: ClassAxis,
        measure: impl Fn(f64) -> f64,
    ) {
        for (index, output) in output.iter().enumerate() {
            let target = match truth {
                Truth::Real(targets) => targets[index].to_f64(),
                // A class index stands for its one-hot row.
                Truth::Classes(labels) => {
                    let block = axis.classes * axis.inner;
                    let (outer, class) = (index / block, index % block / axis.inner);
                    let label = labels[outer * axis.inner + index % axis.inner];
                    f64::from(u8::from(usize::try_from(label) == Ok(class)))
                }
            };
            self.sum += measure(output.to_f64() - target);
            self.targets += target;
            self.squared_targets += target * target;
        }
        self.count += output.len() as f64;
    }
}

/// The first class with the largest score.
fn largest<T: Real>(score: impl Fn(usize) -> T, classes: usize) -> usize {
    (1..classes).fold(0, |best, class| if score(class) > score(best) { class } else { best })
}
