//! Layers that normalise, and what those that work within a row share.

mod batch_norm;
mod group_norm;
mod instance_norm;
mod l2_norm;
mod layer_norm;
mod rms_norm;

pub use batch_norm::BatchNorm;
pub use group_norm::GroupNorm;
pub use instance_norm::InstanceNorm;
pub use l2_norm::L2Norm;
pub use layer_norm::LayerNorm;
pub use rms_norm::RMSNorm;

use super::one_input::Backward;
use super::{Context, Forward, ParameterSpec};
use crate::Result;
use crate::ops::normalize::Statistics;
use crate::ops::{BiasGradient, Direction, GainGradient, Normalize};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};

/// A gain that starts at one and a bias that starts at zero, where they are there, named as in PyTorch:
/// `weight` and `bias`.
fn affine(shape: &Shape, gain: bool, bias: bool) -> Vec<ParameterSpec> {
    let spec = |name: &'static str, initializer| ParameterSpec {
        name: name.into(),
        layout: Layout::plain(shape.clone()),
        initializer,
        fan_in: 1,
        fan_out: 1,
        morphable: false,
        decay_exempt: true,
        adaptable: false,
    };
    let gain = gain.then(|| spec("weight", Initializer::Ones));
    let bias = bias.then(|| spec("bias", Initializer::Zeros));
    gain.into_iter().chain(bias).collect()
}

/// Gain and bias as the forward pass reads them, where they are there.
fn read_affine(b: &mut Builder, cx: &Context, gain: bool, bias: bool) -> Result<Vec<Value>> {
    let names = [gain.then_some("weight"), bias.then_some("bias")];
    names.into_iter().flatten().map(|name| cx.read(b, name)).collect()
}

/// A normalisation within the row, forwards: saves the inverse deviations and, where there are any, the means.
fn forward_rows(b: &mut Builder, cx: &Context, op: Normalize, x: Value) -> Result<Forward> {
    let mut reads = vec![x];
    reads.extend(read_affine(b, cx, op.gain, op.bias)?);
    let shape = b.shape(x).clone();
    let sets = Shape::from(op.outer * op.groups);
    let (y, saved) = if op.centred {
        let results = [("y", shape), ("inverse deviation", sets.clone()), ("mean", sets)];
        let [y, inverse, mean] = b.apply_several(op, &reads, results);
        (y, vec![inverse, mean])
    } else {
        let [y, inverse] = b.apply_several(op, &reads, [("y", shape), ("inverse deviation", sets)]);
        (y, vec![inverse])
    };
    Ok(Forward::saving(y, saved))
}

/// The gradients of [`forward_rows`].
fn backward_rows(b: &mut Builder, op: Normalize, back: &Backward<'_>) -> Result<Option<Value>> {
    let Backward { cx, x, gradient, want, .. } = *back;
    let mut reads = vec![gradient, x];
    reads.extend(&back.forward.saved);
    if want.parameters {
        let Normalize { outer, channels, inner, groups, centred, .. } = op;
        if op.bias {
            cx.contribute(b, "bias", BiasGradient { outer, channels, inner }, &[gradient])?;
        }
        if op.gain {
            let statistics = Statistics::Rows { groups, centred };
            cx.contribute(b, "weight", GainGradient { outer, channels, inner, statistics }, &reads)?;
        }
    }
    if !want.inputs {
        return Ok(None);
    }
    reads.extend(read_affine(b, cx, op.gain, false)?);
    let op = Normalize { direction: Direction::InputGradient, ..op };
    let shape = b.shape(x).clone();
    Ok(Some(b.apply(op, &reads, "dx", shape)))
}
