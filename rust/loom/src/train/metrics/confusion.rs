//! Figures of hits and misses by class: precision, recall, F1, intersection over union.

use crate::{Error, Result};
use std::str::FromStr;

/// How figures by class become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Average {
    /// The mean over the classes that occur, in targets or predictions. For a single output the figure of class 1.
    #[default]
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
            Average::Macro => "macro",
            Average::Micro => "micro",
            Average::Weighted => "weighted",
        }
    }
}

impl FromStr for Average {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Average::Macro, Average::Micro, Average::Weighted]
            .into_iter()
            .find(|average| average.name() == text)
            .ok_or_else(|| crate::error::unknown("average", text, ["macro", "micro", "weighted"]))
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
    /// Whether the outputs are single, and class 1 is what is looked for.
    single: bool,
}

impl Confusion {
    /// Counts one prediction; none where outputs are not numbers.
    pub(super) fn add(&mut self, predicted: Option<usize>, wanted: usize, outputs: usize) {
        self.single = outputs == 1;
        let most = outputs.max(2).max(wanted + 1);
        if self.classes.len() < most {
            self.classes.resize(most, Counts::default());
        }
        self.classes[wanted].wanted += 1.0;
        if let Some(class) = predicted {
            self.classes[class].predicted += 1.0;
            self.classes[class].right += f64::from(u8::from(class == wanted));
        }
    }

    /// The figure over everything counted; NaN before anything was.
    pub(super) fn value(&self, share: Share, average: Average) -> f64 {
        if self.classes.is_empty() {
            return f64::NAN;
        }
        if self.single && average == Average::Macro {
            return self.classes[1].share(share);
        }
        let weighed = |weight: &dyn Fn(&Counts) -> f64| {
            let total: f64 = self.classes.iter().map(weight).sum();
            self.classes.iter().map(|class| weight(class) * class.share(share)).sum::<f64>() / total
        };
        match average {
            Average::Macro => weighed(&|class| f64::from(u8::from(class.wanted + class.predicted > 0.0))),
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
