//! Figures that tell how good outputs are.

mod confusion;
mod counted;
mod ranks;

use crate::error::unknown;
use crate::simd::Real;
use crate::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

pub use confusion::Average;
use confusion::{Confusion, Share};
pub(super) use counted::{Counted, counted_axis};
use ranks::Ranks;

/// A figure by name: `"accuracy"`, or `{"top_k_accuracy": {"k": 3}}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The share of predictions whose largest class is the target's; for a single output,
    /// the share on the right side of the threshold, and of several labels, too, each by itself.
    Accuracy,
    /// The share of predictions whose `k` largest classes hold the target's.
    TopK(usize),
    /// Mean absolute error.
    MeanAbsoluteError,
    /// Mean squared error.
    MeanSquaredError,
    /// Coefficient of determination over all elements: 1 - residual / total sum of squares.
    RSquared,
    /// Of the predictions of a class the share that is right.
    Precision(Average),
    /// Of a class's targets the share that is predicted.
    Recall(Average),
    /// The harmonic mean of precision and recall.
    F1(Average),
    /// Intersection over union (Jaccard).
    Intersection(Average),
    /// The area under the receiver operating characteristic, of a single output or of two classes.
    RocArea,
}

const NAMES: [&str; 10] =
    ["accuracy", "top_k_accuracy", "mae", "mse", "r2", "precision", "recall", "f1", "iou", "auc"];

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
            "precision" => Metric::Precision(Average::default()),
            "recall" => Metric::Recall(Average::default()),
            "f1" => Metric::F1(Average::default()),
            "iou" => Metric::Intersection(Average::default()),
            "auc" => Metric::RocArea,
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
            Metric::Precision(_) => "precision",
            Metric::Recall(_) => "recall",
            Metric::F1(_) => "f1",
            Metric::Intersection(_) => "iou",
            Metric::RocArea => "auc",
        }
    }

    /// The same metric with this average by class.
    fn averaged(self, average: Average) -> Option<Self> {
        match self {
            Metric::Precision(_) => Some(Metric::Precision(average)),
            Metric::Recall(_) => Some(Metric::Recall(average)),
            Metric::F1(_) => Some(Metric::F1(average)),
            Metric::Intersection(_) => Some(Metric::Intersection(average)),
            _ => None,
        }
    }

    /// What it makes of hits and misses by class.
    fn share(self) -> Option<(Share, Average)> {
        match self {
            Metric::Precision(average) => Some((Share::Precision, average)),
            Metric::Recall(average) => Some((Share::Recall, average)),
            Metric::F1(average) => Some((Share::F1, average)),
            Metric::Intersection(average) => Some((Share::Union, average)),
            _ => None,
        }
    }

    /// Refuses a metric that cannot be of such outputs.
    ///
    /// # Errors
    /// [`Error::Value`] saying what to use.
    pub(crate) fn check(self, axis: ClassAxis) -> Result<()> {
        let ClassAxis { classes, labels, .. } = axis;
        if self != Metric::RocArea || classes == 1 || (classes == 2 && !labels) {
            return Ok(());
        }
        let what = if labels { "labels" } else { "classes" };
        Err(Error::Value(format!(
            "auc is of a single output or of two classes, and there are {classes} {what}; use \
             \"sklearn.roc_auc_score\", which averages over them"
        )))
    }

    fn from_json(value: &Value) -> Result<Self> {
        match value {
            Value::String(name) => Self::parse(name),
            Value::Object(object) if object.len() == 1 && !object.contains_key("top_k_accuracy") => {
                let mut found = Metric::Accuracy;
                for (name, settings) in object {
                    let average = settings["average"].as_str().unwrap_or_default().parse()?;
                    found = Self::parse(name)?
                        .averaged(average)
                        .ok_or_else(|| Error::Value(format!("{name} has no setting \"average\"")))?;
                }
                Ok(found)
            }
            Value::Object(object) if object.len() == 1 && object.contains_key("top_k_accuracy") => {
                match value["top_k_accuracy"]["k"].as_u64() {
                    Some(k) if k > 0 => Ok(Metric::TopK(k as usize)),
                    _ => Err(Error::Value("top_k_accuracy needs a k of at least 1".into())),
                }
            }
            other => Err(Error::Value(format!(
                "a metric is a name, {{\"top_k_accuracy\": {{\"k\": n}}}} or {{\"f1\": {{\"average\": \"micro\"}}}}, got {other}"
            ))),
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Metric::TopK(k) => json!({ "top_k_accuracy": { "k": k } }).serialize(serializer),
            Metric::Precision(average)
            | Metric::Recall(average)
            | Metric::F1(average)
            | Metric::Intersection(average)
                if *average != Average::default() =>
            {
                json!({ self.name(): { "average": average.name() } }).serialize(serializer)
            }
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
    /// Whether each of several classes is a label of its own, of which several can be right.
    pub labels: bool,
}

/// A place in a batch of outputs that has a class of its own: its number, and where its first class is.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: usize,
    base: usize,
}

impl ClassAxis {
    /// The places of so many outputs.
    fn places(self, outputs: usize) -> impl Iterator<Item = Place> {
        let Self { classes, inner, .. } = self;
        (0..outputs / classes.max(1))
            .map(move |number| Place { number, base: number / inner * inner * classes + number % inner })
    }

    /// The class that is wanted at a place; 1 or 0 where outputs are single.
    fn target<T: Real>(self, truth: Truth<'_, T>, place: Place) -> usize {
        match (truth, self.classes) {
            (Truth::Classes(labels), 1) => usize::from(labels[place.number] > 0),
            (Truth::Classes(labels), _) => usize::try_from(labels[place.number]).unwrap_or(0),
            (Truth::Real(targets), 1) => usize::from(targets[place.base].to_f64() > 0.5),
            (Truth::Real(targets), classes) => {
                largest(|class| targets[place.base + class * self.inner], classes)
            }
        }
    }
}

/// A metric gathered over batches.
#[derive(Clone, Debug)]
pub struct MetricState {
    metric: Metric,
    count: f64,
    sum: f64,
    /// Of the targets seen.
    mean: f64,
    /// Of their squared differences from that, the sum.
    spread: f64,
    confusion: Confusion,
    ranks: Ranks,
}

impl MetricState {
    /// Nothing seen yet.
    pub fn new(metric: Metric) -> Self {
        Self {
            metric,
            count: 0.0,
            sum: 0.0,
            mean: 0.0,
            spread: 0.0,
            confusion: Confusion::default(),
            ranks: Ranks::default(),
        }
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
            Metric::RocArea => self.add_scores(output, truth, axis),
            Metric::Precision(_) | Metric::Recall(_) | Metric::F1(_) | Metric::Intersection(_) => {
                self.add_predictions(output, truth, axis);
            }
        }
    }

    /// The figure over everything seen; NaN before anything was.
    pub fn value(&self) -> f64 {
        if let Some((share, average)) = self.metric.share() {
            return self.confusion.value(share, average);
        }
        match self.metric {
            Metric::RocArea => self.ranks.area(),
            Metric::RSquared => 1.0 - self.sum / self.spread,
            _ => self.sum / self.count,
        }
    }

    fn count_hits<T: Real>(&mut self, output: &[T], truth: Truth<'_, T>, axis: ClassAxis, k: usize) {
        if let (true, 1, Truth::Real(targets)) = (axis.labels, k, truth) {
            // Several may be right, or none: each is a question of its own.
            for (given, wanted) in output.iter().zip(targets) {
                let given = given.to_f64();
                let hit = !given.is_nan() && (given > axis.threshold) == (wanted.to_f64() > 0.5);
                self.sum += f64::from(u8::from(hit));
                self.count += 1.0;
            }
            return;
        }
        for place in axis.places(output.len()) {
            let score = |class: usize| output[place.base + class * axis.inner];
            let target = axis.target(truth, place);
            let hit = if (0..axis.classes).any(|class| score(class).to_f64().is_nan()) {
                // No class is chosen by what is not a number.
                false
            } else if axis.classes == 1 {
                (score(0).to_f64() > axis.threshold) == (target == 1)
            } else {
                // Ties rank by index, so that exactly k classes count as chosen.
                let own = score(target);
                let ahead = (0..axis.classes)
                    .filter(|&class| score(class) > own || (score(class) == own && class < target))
                    .count();
                ahead < k
            };
            self.sum += f64::from(u8::from(hit));
            self.count += 1.0;
        }
    }

    fn add_predictions<T: Real>(&mut self, output: &[T], truth: Truth<'_, T>, axis: ClassAxis) {
        if let (true, Truth::Real(targets)) = (axis.labels, truth) {
            for (at, (given, wanted)) in output.iter().zip(targets).enumerate() {
                let label = at / axis.inner % axis.classes;
                let predicted = given.to_f64() > axis.threshold;
                self.confusion.add_label(label, predicted, wanted.to_f64() > 0.5, axis.classes);
            }
            return;
        }
        for place in axis.places(output.len()) {
            let score = |class: usize| output[place.base + class * axis.inner];
            let predicted = if (0..axis.classes).any(|class| score(class).to_f64().is_nan()) {
                None
            } else if axis.classes == 1 {
                Some(usize::from(score(0).to_f64() > axis.threshold))
            } else {
                Some(largest(score, axis.classes))
            };
            self.confusion.add(predicted, axis.target(truth, place), axis.classes.max(2));
        }
    }

    fn add_scores<T: Real>(&mut self, output: &[T], truth: Truth<'_, T>, axis: ClassAxis) {
        for place in axis.places(output.len()) {
            let score = |class: usize| output[place.base + class * axis.inner].to_f64();
            // Of two classes the difference ranks rows as their probabilities would, if these are logits, and if they
            // are probabilities themselves.
            let score = if axis.classes == 1 { score(0) } else { score(1) - score(0) };
            self.ranks.add(score, axis.target(truth, place) == 1);
        }
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
            self.count += 1.0;
            if self.metric == Metric::RSquared {
                // Welford's way: the squares of targets themselves lose what differs where their mean is large.
                let before = target - self.mean;
                self.mean += before / self.count;
                self.spread += before * (target - self.mean);
            }
        }
    }
}

/// The first class with the largest score.
fn largest<T: Real>(score: impl Fn(usize) -> T, classes: usize) -> usize {
    (1..classes).fold(0, |best, class| if score(class) > score(best) { class } else { best })
}
