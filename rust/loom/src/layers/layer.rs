//! What a layer is: shapes, parameters, how it is lowered forwards and backwards, and how it learns by targets.

use super::{CarriedSpec, Context, ParameterSpec, StateSpec};
use crate::Result;
use crate::ops::LossFunction;
use crate::program::{Builder, LayerValues, Value};
use crate::tensor::Shape;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What a forward lowering leaves for the backward one.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The layer's output.
    pub output: Value,
    /// What its backward lowering will read, in an order of the layer's own.
    pub saved: Vec<Value>,
    /// The value before the activation, where the layer has one.
    pub preactivation: Option<Value>,
    /// The same for the layers inside a composite one.
    pub inner: Vec<Forward>,
    /// What else its backward lowering needs, of the layer's own.
    pub note: Option<Arc<dyn Any + Send + Sync>>,
}

impl Forward {
    /// A forward pass that saves nothing.
    pub fn new(output: Value) -> Self {
        Self { output, saved: Vec::new(), preactivation: None, inner: Vec::new(), note: None }
    }

    /// A forward pass that saves these values.
    pub fn saving(output: Value, saved: Vec<Value>) -> Self {
        Self { saved, ..Self::new(output) }
    }

    /// What there is to look at of a layer that has read this.
    pub(crate) fn values(&self, input: Value) -> LayerValues {
        let Self { preactivation, output, .. } = *self;
        LayerValues { input, preactivation, output, input_gradient: None, real: None }
    }
}

/// What becomes of the steps of a sequence whose end is padding, in a layer that is told which these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// As many come out, and padding changes nothing of the others.
    Kept,
    /// One vector comes out, of the real ones alone.
    Pooled,
    /// Padding would be taken for real.
    Whole,
}

impl Steps {
    /// What becomes of steps in one layer after another.
    pub(crate) fn then(self, next: impl FnOnce() -> Self) -> Self {
        if self == Self::Kept { next() } else { self }
    }

    /// What becomes of them in layers side by side.
    pub(crate) fn beside(self, other: Self) -> Self {
        if self == other { self } else { Self::Whole }
    }
}

/// Which gradients a backward lowering is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// Gradients of the inputs.
    pub inputs: bool,
    /// Contributions to the parameters' gradients.
    pub parameters: bool,
}

/// A layer.
///
/// Shapes are those of one row; the batch axis is everywhere and nowhere named.
pub trait Layer: fmt::Debug + Send + Sync {
    /// The name in configs and tables, such as `dense`.
    fn kind(&self) -> &'static str;

    /// Everything that tells this layer from another of its kind, as a JSON object
    /// with `type` set to [`kind`](Layer::kind).
    fn config(&self) -> serde_json::Value;

    /// The output's extents.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) saying what the layer expected and what it got; the network adds where.
    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape>;

    /// The parameters it needs for these inputs, which `output_shape` has accepted.
    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let _ = inputs;
        Vec::new()
    }

    /// What it keeps beside its parameters for these inputs, which `output_shape` has accepted.
    fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        let _ = inputs;
        Vec::new()
    }

    /// What it carries from call to call of a session that is at most `length` steps long.
    fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        let _ = (inputs, length);
        Vec::new()
    }

    /// Whether it reads a second input, the context.
    fn takes_context(&self) -> bool {
        false
    }

    /// For a layer that reads its input as whole numbers: what they must be below.
    fn index_limit(&self) -> Option<usize> {
        None
    }

    /// Whether its output holds the input's elements as they are, so that whole numbers pass through it.
    fn keeps_elements(&self) -> bool {
        false
    }

    /// Whether a sequence may come to it piece by piece: it works on every step by itself, or carries
    /// what later steps need of earlier ones. Only such layers run in sessions.
    fn is_stepwise(&self) -> bool {
        false
    }

    /// What becomes of steps where the end of a sequence is padding.
    fn steps(&self) -> Steps {
        if self.is_stepwise() { Steps::Kept } else { Steps::Whole }
    }

    /// The axis of the output that was this one of the input.
    fn moved_axis(&self, axis: usize) -> usize {
        axis
    }

    /// The layer, by cell and place, whose parameters it uses instead of its own.
    fn tied_to(&self) -> Option<[usize; 4]> {
        None
    }

    /// Lowers the layer to operations.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) where something it asked for is not there.
    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward>;

    /// Lowers the gradients: returns the contribution to each input's gradient (`None`
    /// where none is wanted or there is none) and pushes those to the parameters' gradients.
    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>>;

    /// How it takes part in learning by targets; by no rules of its own unless it says so.
    fn target_rules(&self) -> &dyn TargetRules {
        &NoRules
    }

    /// The loss that equals `loss` applied after this layer, but computed from the
    /// layer's input: a softmax absorbs the cross-entropy after it.
    fn absorb_loss(&self, loss: &LossFunction) -> Option<LossFunction> {
        let _ = loss;
        None
    }
}

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
