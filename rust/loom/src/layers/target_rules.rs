//! What learning by targets asks of layers, over and above their lowering.

use super::{Context, Forward, Layer};
use crate::Result;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use std::sync::Arc;

/// What a learned feedback map is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackForm {
    /// An approximate inverse: the same kind of layer, transposed, with the same activation after it
    /// (Lee et al. 2015).
    Inverse,
    /// A map whose Jacobian approaches the transpose of the layer's own: the activation comes first and
    /// the transposed linear map after it (Ernoult et al. 2022).
    TransposedJacobian,
}

/// What brings values of a layer's output space back to its input's.
#[derive(Debug)]
pub enum Feedback {
    /// Layers in a row with parameters of their own to learn, from the output's shape to the input's.
    Learned(Vec<Arc<dyn Layer>>),
    /// The layer is linear and without parameters once its forward pass is known: its own backward
    /// lowering is the transposed map.
    Backward,
    /// None is known.
    Unknown,
}

/// How a layer takes part in learning by targets; a layer may lack any of these rules.
pub trait TargetRules {
    /// Lowers a target for the first input from one for the output, by weighted means of the targets
    /// and without derivatives; `None` where the layer has no such rule and targets pass through it.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) where something it asked for is not there.
    fn target(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        target: Value,
    ) -> Result<Option<Value>> {
        let _ = (b, cx, inputs, forward, target);
        Ok(None)
    }

    /// What brings values of the output's space back to the first input's.
    fn feedback(&self, inputs: &[Shape], form: FeedbackForm) -> Feedback {
        let _ = (inputs, form);
        Feedback::Unknown
    }

    /// The layer with its activation left out, for one whose parameters are learned without the
    /// activation's derivative; `None` where it has none.
    fn without_activation(&self) -> Option<Box<dyn Layer>> {
        None
    }

    /// What targets of the output are clamped to, where its activation bounds it: tanh reaches ±0.95 for
    /// good, the logistic sigmoid 0.05 to 0.95.
    fn target_range(&self) -> Option<(f64, f64)> {
        None
    }
}

/// The rules of a layer that has none.
pub(super) struct NoRules;

impl TargetRules for NoRules {}

/// The rules of a layer that is linear and without parameters once its forward pass is known.
pub(super) struct Linear;

impl TargetRules for Linear {
    fn feedback(&self, _inputs: &[Shape], _form: FeedbackForm) -> Feedback {
        Feedback::Backward
    }
}
