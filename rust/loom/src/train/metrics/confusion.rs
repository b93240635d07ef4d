//! Figures of hits and misses by class: precision, recall, F1, intersection over union.

use crate::{Error, Result};
use std::str::FromStr;

/// How figures by class become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Average {
    /// The figure of class 1 where there are two classes, else [`Average::Macro`].
    #[default]
    Auto,
    /// The mean over the classes that occur, in targets or predictions; over all where each is a label of its own.
    Macro,
    /// Hits and misses of all classes together.
    Micro,
    /// The mean over classes, weighed by how often each is the target.
    Weighted,
}

impl Average {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Average::Auto => "auto",
            Average::Macro => "macro",
            Average::Micro => "micro",
            Average::Weighted => "weighted",
        }
    }
}

impl FromStr for Average {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Average::Auto, Average::Macro, Average::Micro, Average::Weighted];
        all.into_iter()
            .find(|average| average.name() == text)
            .ok_or_else(|| crate::error::unknown("average", text, all.map(Average::name)))
    }
}

/// What is made of a class's hits and misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Of those predicted to be of the class those that are.
    Precision,
    /// Of those of the class those that are predicted to be.
    Recall,
    /// The harmonic mean of both.
    F1,
    /// Of those that are of the class or predicted to be, those that are both (Jaccard).
    Union,
}

/// The predictions of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    right: f64,
    predicted: f64,
    wanted: f64,
}

impl Counts {
    /// The share; 0 where nothing is of the class or predicted to be, as scikit-learn has it.
    fn share(self, share: Share) -> f64 {
        let Counts { right, predicted, wanted } = self;
        let (part, whole) = match share {
            Share::Precision => (right, predicted),
            Share::Recall => (right, wanted),
            Share::F1 => (2.0 * right, predicted + wanted),
            Share::Union => (right, predicted + wanted - right),
        };
        if whole == 0.0 { 0.0 } else { part / whole }
    }
}

/// Hits and misses of every class.
#[derive(Clone, Debug, Default)]
pub(super) struct Confusion {
    classes: Vec<Counts>,
    /// Whether each class is a label of its own, of which several can be right.
    labels: bool,
}

impl Confusion {
    /// Counts the one class of `classes` that was predicted; none where outputs are not numbers.
    pub(super) fn add(&mut self, predicted: Option<usize>, wanted: usize, classes: usize) {
        let most = classes.max(wanted + 1);
        if self.classes.len() < most {
            self.classes.resize(most, Counts::default());
        }
        self.classes[wanted].wanted += 1.0;
        if let Some(class) = predicted {
            self.classes[class].predicted += 1.0;
            self.classes[class].right += f64::from(u8::from(class == wanted));
        }
    }

    /// Counts what is said of one of `classes` labels.
    pub(super) fn add_label(&mut self, label: usize, predicted: bool, wanted: bool, classes: usize) {
        self.labels = true;
        self.classes.resize(classes, Counts::default());
        let counts = &mut self.classes[label];
        counts.predicted += f64::from(u8::from(predicted));
        counts.wanted += f64::from(u8::from(wanted));
        counts.right += f64::from(u8::from(predicted && wanted));
    }

    /// The figure over everything counted; NaN before anything was.
    pub(super) fn value(&self, share: Share, average: Average) -> f64 {
        if self.classes.is_empty() {
            return f64::NAN;
        }
        let weighed = |weight: &dyn Fn(&Counts) -> f64| {
            let total: f64 = self.classes.iter().map(weight).sum();
            let sum: f64 = self.classes.iter().map(|class| weight(class) * class.share(share)).sum();
            if total == 0.0 { 0.0 } else { sum / total }
        };
        match average {
            Average::Auto if self.classes.len() == 2 && !self.labels => self.classes[1].share(share),
            Average::Auto | Average::Macro => {
                weighed(&|class| f64::from(u8::from(self.labels || class.wanted + class.predicted > 0.0)))
            }
            Average::Weighted => weighed(&|class| class.wanted),
            Average::Micro => {
                let sum = |of: &dyn Fn(&Counts) -> f64| self.classes.iter().map(of).sum();
                let right = sum(&|class| class.right);
                let predicted = sum(&|class| class.predicted);
                Counts { right, predicted, wanted: sum(&|class| class.wanted) }.share(share)
            }
        }
    }
}
