//! The layers: descriptions that lower to operations, forwards and backwards.
//!
//! A layer says its output shape, its parameters, and which operations compute
//! it and its gradients. It names no device, no numeric type and no trainer.

mod activation;
mod attention;
mod chain;
mod chain_rules;
mod class_token;
mod configured;
mod context;
mod convolution;
mod convolution_lower;
mod convolution_rules;
mod convolution_transpose;
mod dense;
mod dropout;
mod embedding;
mod feedback;
mod flatten;
mod gated;
mod kind_registry;
mod kmeans;
mod masked;
mod mixture_of_experts;
mod normalization;
mod one_input;
mod parallel;
mod permute;
mod pooling;
mod positions;
mod prelu;
mod projection;
mod recurrent;
mod reshape;
mod residual;
mod sample;
mod scale;
mod sequence_pool;
mod sequential;
mod settings;
mod softmax;
mod target;
mod target_rules;
#[cfg(test)]
mod tests;
mod window;
mod zero_padding;

pub use crate::state::{CarriedSpec, StateSpec};
pub use activation::ActivationLayer;
pub use attention::{MultiHeadAttention, QkNorm, RotaryConfig, RotaryRule};
pub use chain::Chain;
pub use class_token::ClassToken;
pub use context::{BoundParameter, BoundState, Carrying, Context, ParameterSpec};
pub use convolution::{Conv, Conv1D, Conv2D, Conv3D};
pub use convolution_transpose::{ConvTranspose, ConvTranspose1D, ConvTranspose2D, ConvTranspose3D};
pub use dense::Dense;
pub use dropout::Dropout;
pub use embedding::{Embedding, TiedHead};
pub use flatten::Flatten;
pub use gated::{GeGLU, SwiGLU};
pub use kind_registry::{Configured, from_config, kinds, register, samples, schema};
pub use kmeans::KMeans;
pub use masked::Masked;
pub use mixture_of_experts::MixtureOfExperts;
pub use normalization::{BatchNorm, GroupNorm, L2Norm, LayerNorm, RMSNorm};
pub use parallel::{CombineMode, Parallel};
pub use permute::Permute;
pub use pooling::{
    AvgPool, AvgPool1D, AvgPool2D, AvgPool3D, GlobalAvgPool, GlobalAvgPool1D, GlobalAvgPool2D,
    GlobalAvgPool3D, GlobalMaxPool, GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D, MaxPool, MaxPool1D,
    MaxPool2D, MaxPool3D,
};
pub use positions::{PositionalEmbedding, SinusoidalPositions};
pub use prelu::PReLU;
pub use recurrent::{Gru, InitialState, Lstm, Nonlinearity, Rnn};
pub use reshape::Reshape;
pub use residual::Residual;
pub use sample::Sample;
pub use scale::{Scale, SoftCap};
pub use sequence_pool::SequencePool;
pub use sequential::Sequential;
pub use settings::{Form, Limits, Setting};
pub(crate) use softmax::class_extents;
pub use softmax::{
    AdaptiveSoftmax, Entmax, GridSoftmax, GumbelSoftmax, HierarchicalSoftmax, Leaves, MaskedSoftmax,
    MixtureSoftmax, Softmax, Sparsemax,
};
pub use target_rules::{Feedback, FeedbackForm, TargetRules};
pub use window::{NamedPadding, Padding};
pub use zero_padding::{ZeroPadding, ZeroPadding1D, ZeroPadding2D, ZeroPadding3D};

use crate::ops::LossFunction;
use crate::program::{Builder, LayerValues, Value};
use crate::tensor::Shape;
use crate::{Error, Result, extents};
use std::fmt;
use target_rules::NoRules;

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

    /// What there is to look at of a layer that has read this.
    pub(crate) fn values(&self, input: Value) -> LayerValues {
        let Self { preactivation, output, .. } = *self;
        LayerValues { input, preactivation, output, input_gradient: None }
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
    /// [`Error::Shape`] saying what the layer expected and what it got; the network adds where.
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

    /// The layer, by cell and place, whose parameters it uses instead of its own.
    fn tied_to(&self) -> Option<[usize; 4]> {
        None
    }

    /// Lowers the layer to operations.
    ///
    /// # Errors
    /// [`Error::Internal`] where something it asked for is not there.
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

/// The output's extents, once it and all that the layer has for these inputs are of a size that arithmetic can
/// be trusted with.
///
/// # Errors
/// As [`Layer::output_shape`], and [`Error::Shape`] for what is too large.
pub(crate) fn output_of(layer: &dyn Layer, inputs: &[Shape]) -> Result<Shape> {
    let output = layer.output_shape(inputs)?;
    extents::check("its output", &output)?;
    for ParameterSpec { name, layout, .. } in layer.parameters(inputs) {
        extents::check(format_args!("parameter \"{name}\""), &layout.outside_shape())?;
    }
    for StateSpec { name, shape, .. } in layer.states(inputs) {
        extents::check(format_args!("\"{name}\", which it keeps,"), &shape)?;
    }
    Ok(output)
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
