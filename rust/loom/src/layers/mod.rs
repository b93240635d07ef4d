//! The layers: descriptions that lower to operations, forwards and backwards.
//!
//! A layer says its output shape, its parameters, and which operations compute
//! it and its gradients. It names no device, no numeric type and no trainer.

mod activation;
mod conv2d;
mod dense;
mod dropout;
mod flatten;
mod pooling;
mod registry;
mod reshape;
mod softmax;

pub use activation::ActivationLayer;
pub use conv2d::{Conv2D, Padding};
pub use dense::Dense;
pub use dropout::Dropout;
pub use flatten::Flatten;
pub use pooling::{AvgPool2D, GlobalAvgPool2D, MaxPool2D};
pub use registry::{from_config, kinds, register};
pub use reshape::Reshape;
pub use softmax::Softmax;
pub(crate) use softmax::class_extents;

use crate::dtype::DType;
use crate::ops::LossFunction;
use crate::program::{Builder, LayerPath, ParameterRef, Value};
use crate::tensor::Shape;
use crate::train::Initializer;
use crate::weights::Layout;
use crate::{Error, Result};
use std::fmt;

/// A parameter that a layer asks for.
#[derive(Clone, Debug)]
pub struct ParameterSpec {
    /// Its name in the layer, such as `weight`.
    pub name: &'static str,
    /// How it is stored and how the outside sees it.
    pub layout: Layout,
    /// How it starts.
    pub initializer: Initializer,
    /// Inputs that meet in one output, for the initialiser's scale.
    pub fan_in: usize,
    /// Outputs that one input reaches, for the initialiser's scale.
    pub fan_out: usize,
    /// Whether it takes on the layer's numeric type; biases and gains stay float.
    pub morphable: bool,
}

/// A parameter as a layer finds it while lowering.
#[derive(Clone, Debug)]
pub struct BoundParameter {
    /// Its name in the layer.
    pub name: &'static str,
    /// Where it is.
    pub reference: ParameterRef,
    /// Its storage extents.
    pub shape: Shape,
    /// The packed type the forward pass reads; `None` for the master.
    pub active: Option<DType>,
}

/// What a layer knows while it lowers itself.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where the layer stands.
    pub path: LayerPath,
    /// Whether dropout and the like are on.
    pub training: bool,
    /// Its parameters, in the order it asked for them.
    pub parameters: Vec<BoundParameter>,
}

impl Context {
    /// The parameter of this name.
    ///
    /// # Errors
    /// [`Error::Internal`] where the layer never asked for it.
    pub fn parameter(&self, name: &str) -> Result<&BoundParameter> {
        self.parameters
            .iter()
            .find(|parameter| parameter.name == name)
            .ok_or_else(|| Error::Internal(format!("layer {} has no parameter \"{name}\"", self.path)))
    }

    /// The parameter of this name as the forward pass reads it.
    pub fn read(&self, b: &mut Builder, name: &str) -> Result<Value> {
        let parameter = self.parameter(name)?;
        Ok(b.parameter(parameter.reference, parameter.shape.clone(), parameter.active))
    }
}

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
}

impl Forward {
    /// A forward pass that saves nothing.
    pub fn new(output: Value) -> Self {
        Self { output, saved: Vec::new(), preactivation: None, inner: Vec::new() }
    }

    /// A forward pass that saves these values.
    pub fn saving(output: Value, saved: Vec<Value>) -> Self {
        Self { saved, ..Self::new(output) }
    }
}

/// Which gradients a backward lowering is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// [`Error::Shape`] saying what the layer expected and what it got; the network adds where.
    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape>;

    /// The parameters it needs for these inputs, which `output_shape` has accepted.
    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let _ = inputs;
        Vec::new()
    }

    /// Lowers the layer to operations.
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

    /// The loss that equals `loss` applied after this layer, but computed from the
    /// layer's input: a softmax absorbs the cross-entropy after it.
    fn absorb_loss(&self, loss: &LossFunction) -> Option<LossFunction> {
        let _ = loss;
        None
    }
}

/// The error of a layer that got a shape it cannot take.
pub(crate) fn shape_error(kind: &str, expected: &str, got: &Shape) -> Error {
    Error::Shape(format!("{kind} expects {expected}, got {got}"))
}

/// The only input of a layer that takes one.
pub(crate) fn single<'a, T>(kind: &str, inputs: &'a [T]) -> Result<&'a T> {
    match inputs {
        [input] => Ok(input),
        _ => Err(Error::Shape(format!("{kind} takes one input, got {}", inputs.len()))),
    }
}
