//! The layers: descriptions that lower to operations, forwards and backwards.
//!
//! A layer says its output shape, its parameters, and which operations compute
//! it and its gradients. It names no device, no numeric type and no trainer.

mod activation;
mod adaptive_pooling;
mod attention;
mod chain;
mod chain_rules;
mod checkpoint;
mod class_token;
mod configured;
mod context;
mod convolution;
mod convolution_lower;
mod convolution_rules;
mod convolution_transpose;
mod crop;
mod dense;
mod dropout;
mod embedding;
mod expression;
mod feedback;
mod flatten;
mod gated;
mod gaussian_noise;
mod kind_registry;
mod kmeans;
mod layer;
mod low_rank;
mod masked;
mod mixture_of_experts;
mod normalization;
mod one_input;
mod parallel;
mod permute;
mod pixel_shuffle;
mod pooling;
mod positions;
mod prelu;
mod projection;
mod recurrent;
mod remade;
mod resampled;
mod reshape;
mod residual;
mod sample;
mod scale;
mod sequence_pool;
mod sequential;
mod settings;
mod slice;
mod softmax;
mod spatial_dropout;
mod spectral_norm;
mod target;
#[cfg(test)]
mod tests;
mod upsampling;
mod weight_norm;
mod window;
mod zero_padding;

pub use crate::state::{CarriedSpec, StateSpec};
pub use activation::ActivationLayer;
pub use adaptive_pooling::{
    AdaptiveAvgPool, AdaptiveAvgPool1D, AdaptiveAvgPool2D, AdaptiveAvgPool3D, AdaptiveMaxPool,
    AdaptiveMaxPool1D, AdaptiveMaxPool2D, AdaptiveMaxPool3D,
};
pub use attention::{MultiHeadAttention, PositionBiasConfig, QkNorm, RotaryConfig, RotaryRule};
pub use chain::Chain;
pub use checkpoint::Checkpoint;
pub use class_token::ClassToken;
pub use context::{BoundAdapter, BoundParameter, BoundState, Carrying, Context, ParameterSpec};
pub use convolution::{Conv, Conv1D, Conv2D, Conv3D};
pub use convolution_transpose::{ConvTranspose, ConvTranspose1D, ConvTranspose2D, ConvTranspose3D};
pub use crop::{Crop, Crop1D, Crop2D, Crop3D};
pub use dense::Dense;
pub use dropout::Dropout;
pub use embedding::{Embedding, TiedHead};
pub use expression::{Expr, ExpressionParameter};
pub use flatten::Flatten;
pub use gated::{GeGLU, SwiGLU};
pub use gaussian_noise::GaussianNoise;
pub use kind_registry::{Configured, from_config, kinds, register, samples, schema};
pub use kmeans::KMeans;
pub use layer::{Feedback, FeedbackForm, Forward, Layer, Steps, TargetRules, Want};
pub use masked::Masked;
pub use mixture_of_experts::MixtureOfExperts;
pub use normalization::{BatchNorm, GroupNorm, InstanceNorm, L2Norm, LayerNorm, RMSNorm};
pub use parallel::{CombineMode, Parallel};
pub use permute::Permute;
pub use pixel_shuffle::{PixelShuffle, PixelUnshuffle};
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
pub use slice::Slice;
pub(crate) use softmax::class_extents;
pub use softmax::{
    AdaptiveSoftmax, Entmax, GridSoftmax, GumbelSoftmax, HierarchicalSoftmax, Leaves, MaskedSoftmax,
    MixtureSoftmax, Softmax, Sparsemax,
};
pub use spatial_dropout::{SpatialDropout, SpatialDropout1D, SpatialDropout2D, SpatialDropout3D};
pub use spectral_norm::SpectralNorm;
pub use upsampling::{Interpolation, UpSampling, UpSampling1D, UpSampling2D, UpSampling3D};
pub use weight_norm::WeightNorm;
pub use window::{NamedPadding, Padding};
pub use zero_padding::{ZeroPadding, ZeroPadding1D, ZeroPadding2D, ZeroPadding3D};

use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, extents};

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

/// Which steps of a sequence are real, where some are padding, for a layer that reads it.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) where layers before have made another number of steps of those that the mask
/// tells of.
pub(crate) fn mask_of(cx: &Context, b: &Builder, layer: &str, sequence: &Shape) -> Result<Option<Value>> {
    let Some(mask) = cx.mask else { return Ok(None) };
    let steps = b.shape(mask).len();
    if sequence.first() == Some(&steps) {
        return Ok(Some(mask));
    }
    let expected = format!(
        "a sequence of {steps} steps, as the mask around it has (layers that make another number of steps stand \
         outside of it)"
    );
    Err(shape_error(layer, &expected, sequence))
}

/// The only input of a layer that takes one.
pub(crate) fn single<'a, T>(kind: &str, inputs: &'a [T]) -> Result<&'a T> {
    match inputs {
        [input] => Ok(input),
        _ => Err(Error::Shape(format!("{kind} takes one input, got {}", inputs.len()))),
    }
}
