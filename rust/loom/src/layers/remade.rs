//! What layers share that make the weight of a layer inside anew before it reads it.

use super::chain::Chain;
use super::{BoundParameter, Context, Conv, Dense, Forward, Layer, ParameterSpec, Sample, Want};
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result};

/// The name of the weight inside.
pub(super) const WEIGHT: &str = "0.weight";

/// Layers that have one weight, whose outputs are rows of it as the outside sees it.
const KINDS: [&str; 4] = ["dense", "conv1d", "conv2d", "conv3d"];

/// Examples of a layer around others.
pub(super) fn samples<L: Layer + 'static>(around: impl Fn(Chain) -> L) -> Vec<Sample> {
    let grouped = Conv::<2>::new(4, [2, 3]).groups(2).activation(Activation::Tanh);
    vec![
        Sample::new(around(Dense::new(1).into()), [1]),
        Sample::new(around(Dense::new(5).activation(Activation::Tanh).into()), [2, 7]),
        Sample::new(around(Dense::new(3).without_bias().into()), [4]),
        Sample::new(around(Conv::<1>::new(3, [2]).into()), [2, 6]),
        Sample::new(around(grouped.into()), [2, 4, 5]),
        Sample::new(around(Conv::<3>::new(2, [1, 2, 2]).into()), [1, 2, 3, 3]),
    ]
}

/// Refuses all but one layer with one weight.
pub(super) fn validate(layers: &Chain) -> Result<()> {
    layers.validate()?;
    match layers.layers() {
        [layer] if KINDS.contains(&layer.kind()) => Ok(()),
        [layer] => Err(Error::Value(format!(
            "layers must be one layer of {}, whose weight is made anew, got {}",
            KINDS.join(", "),
            layer.kind()
        ))),
        several => {
            Err(Error::Value(format!("layers must be one layer, got {}; wrap each by itself", several.len())))
        }
    }
}

/// What the layer inside asks for. What is computed from its weight is never packed, so that one is not, either.
pub(super) fn parameters(layers: &Chain, inputs: &[Shape]) -> Vec<ParameterSpec> {
    let mut specs = layers.parameters(inputs);
    for spec in specs.iter_mut().filter(|spec| spec.name == WEIGHT) {
        (spec.morphable, spec.adaptable) = (false, false);
    }
    specs
}

/// Rows and columns of the weight as it is stored; columns are outputs.
pub(super) fn extents(cx: &Context) -> Result<(usize, usize)> {
    let shape = &cx.parameter(WEIGHT)?.shape;
    let columns = shape.last().copied().unwrap_or(1);
    Ok((shape.len() / columns.max(1), columns))
}

/// What the layer inside knows: its weight is `made`, whose gradient is wanted where `trained`.
fn inside(cx: &Context, made: Value, trained: bool) -> Context {
    let remade = |parameter: &BoundParameter| match parameter.name == WEIGHT {
        true => {
            BoundParameter { made: Some(made), active: None, quantized: false, trained, ..parameter.clone() }
        }
        false => parameter.clone(),
    };
    Context { parameters: cx.parameters.iter().map(remade).collect(), ..cx.clone() }
}

/// Lowers the layer inside with this weight.
pub(super) fn forward(
    layers: &Chain,
    b: &mut Builder,
    cx: &Context,
    inputs: &[Value],
    made: Value,
) -> Result<Forward> {
    layers.forward(b, &inside(cx, made, true), inputs)
}

/// Lowers its gradients: that of the input, and that of the weight where it is `trained`.
pub(super) fn backward(
    layers: &Chain,
    b: &mut Builder,
    (cx, trained): (&Context, bool),
    (inputs, forward, gradient): (&[Value], &Forward, Value),
    made: Value,
    want: Want,
) -> Result<(Option<Value>, Option<Value>)> {
    let cx = inside(cx, made, trained && want.parameters);
    let input = layers.backward(b, &cx, inputs, forward, gradient, want)?.input;
    Ok((input, b.take_gradient(made)))
}
