//! Layers in a row, as composite layers hold them.

use super::settings::{Form, forms};
use super::{Context, Forward, Layer, ParameterSpec, Steps, Want};
use crate::program::{Builder, InnerGradient, InnerLayer, LayerValues, Value};
use crate::state::{CarriedSpec, StateSpec};
use crate::tensor::Shape;
use crate::{Error, Result, error, extents};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::sync::Arc;

/// Layers in a row: each reads what the one before it makes.
///
/// Inside a composite layer the names of parameters start with a layer's place in its row:
/// `0.weight`, `1.bias`.
#[derive(Clone, Debug, Default)]
pub struct Chain(Vec<Arc<dyn Layer>>);

impl Serialize for Chain {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|layer| layer.config()))
    }
}

impl<L: Layer + 'static> From<L> for Chain {
    fn from(layer: L) -> Self {
        Self(vec![Arc::new(layer)])
    }
}

forms! { Chain => Form::Layers }

/// What a layer asks for, by name.
pub(super) trait Named {
    fn name(&mut self) -> &mut Cow<'static, str>;
}

impl Named for ParameterSpec {
    fn name(&mut self) -> &mut Cow<'static, str> {
        &mut self.name
    }
}

impl Named for StateSpec {
    fn name(&mut self) -> &mut Cow<'static, str> {
        &mut self.name
    }
}

impl Named for CarriedSpec {
    fn name(&mut self) -> &mut Cow<'static, str> {
        &mut self.name
    }
}

/// What a part of a composite layer asks for, under names that start with the part's.
fn inside<S: Named>(part: &str, mut specs: Vec<S>) -> Vec<S> {
    for spec in &mut specs {
        let name = spec.name();
        *name = Cow::Owned(format!("{part}.{name}"));
    }
    specs
}

/// A row of layers inside a composite layer.
pub(super) struct Part<'a> {
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) layers: Cow<'a, Chain>,
}

impl Part<'_> {
    /// Of what the whole reads, what this part does: the context only where it takes one.
    fn inputs<'a, T>(&self, inputs: &'a [T]) -> &'a [T] {
        &inputs[..inputs.len().min(1 + usize::from(self.layers.takes_context()))]
    }

    pub(super) fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        self.layers.output_shape(self.inputs(inputs))
    }

    pub(super) fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        self.layers.forward(b, &cx.inner(self.number, &self.name), self.inputs(inputs))
    }

    pub(super) fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<PartGradients> {
        let cx = cx.inner(self.number, &self.name);
        self.layers.backward(b, &cx, self.inputs(inputs), forward, gradient, want)
    }
}

/// What all parts of a composite layer ask for.
pub(super) fn specs_of<S: Named>(
    parts: &[Part<'_>],
    inputs: &[Shape],
    ask: impl Fn(&Chain, &[Shape]) -> Vec<S>,
) -> Vec<S> {
    parts.iter().flat_map(|part| inside(&part.name, ask(&part.layers, part.inputs(inputs)))).collect()
}

/// The gradients of a part's input and of its context, where it reads one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartGradients {
    pub(super) input: Option<Value>,
    pub(super) context: Option<Value>,
}

impl PartGradients {
    /// The gradients of a whole layer's input and context, where they are wanted, from those of its parts.
    pub(super) fn summed(b: &mut Builder, parts: &[Self], want: Want) -> Vec<Option<Value>> {
        let of = |which: fn(&Self) -> Option<Value>| parts.iter().filter_map(which).collect::<Vec<_>>();
        let (input, context) = (of(|part| part.input), of(|part| part.context));
        let input = b.sum(&input).filter(|_| want.inputs);
        vec![input, b.sum(&context)]
    }
}

impl Chain {
    /// These layers, in this order.
    pub fn new(layers: Vec<Arc<dyn Layer>>) -> Self {
        Self(layers)
    }

    /// With one more layer at the end.
    pub fn then(mut self, layer: impl Layer + 'static) -> Self {
        self.0.push(Arc::new(layer));
        self
    }

    /// The layers.
    pub fn layers(&self) -> &[Arc<dyn Layer>] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What each layer reads, and what the last one makes. `inputs` are the input and, where any layer
    /// reads one, the context.
    pub(super) fn shapes(&self, inputs: &[Shape]) -> Result<(Vec<Vec<Shape>>, Shape)> {
        let Some(input) = inputs.first() else {
            return Err(Error::Internal("layers in a row were given no input".into()));
        };
        let mut shape = input.clone();
        let mut all = Vec::with_capacity(self.0.len());
        for (number, layer) in self.0.iter().enumerate() {
            let inputs = inputs_of(layer.takes_context(), shape, inputs);
            let place = || format!("layer {number} inside it ({})", layer.kind());
            shape = layer.output_shape(&inputs).map_err(|error| error::in_context(&place(), error))?;
            extents::check(format_args!("the output of {}", place()), &shape)?;
            all.push(inputs);
        }
        Ok((all, shape))
    }

    /// Extents of what the last layer makes.
    pub(super) fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        Ok(self.shapes(inputs)?.1)
    }

    /// What the layers ask for, each by its own function.
    fn collect<S: Named>(&self, inputs: &[Shape], ask: impl Fn(&dyn Layer, &[Shape]) -> Vec<S>) -> Vec<S> {
        // Shapes that do not fit were refused by `output_shape`.
        let shapes = self.shapes(inputs).map(|(shapes, _)| shapes).unwrap_or_default();
        let layers = self.0.iter().zip(shapes).enumerate();
        layers
            .flat_map(|(number, (layer, inputs))| inside(&number.to_string(), ask(&**layer, &inputs)))
            .collect()
    }

    pub(super) fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        self.collect(inputs, |layer, inputs| layer.parameters(inputs))
    }

    pub(super) fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        self.collect(inputs, |layer, inputs| layer.states(inputs))
    }

    pub(super) fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        self.collect(inputs, |layer, inputs| layer.carried(inputs, length))
    }

    pub(super) fn takes_context(&self) -> bool {
        self.0.iter().any(|layer| layer.takes_context())
    }

    pub(super) fn is_stepwise(&self) -> bool {
        self.0.iter().all(|layer| layer.is_stepwise())
    }

    pub(super) fn steps(&self) -> Steps {
        self.0.iter().fold(Steps::Kept, |steps, layer| steps.then(|| layer.steps()))
    }

    pub(super) fn keeps_elements(&self) -> bool {
        self.0.iter().all(|layer| layer.keeps_elements())
    }

    /// What the input must be below, where the first layer that looks at it reads whole numbers.
    pub(super) fn index_limit(&self) -> Option<usize> {
        self.0.iter().find(|layer| !layer.keeps_elements()).and_then(|first| first.index_limit())
    }

    /// What is wrong with these layers whatever they read.
    ///
    /// # Errors
    /// [`Error::Value`] for a layer that shares another one's parameters, or that reads whole numbers
    /// that others have changed.
    pub(super) fn validate(&self) -> Result<()> {
        let mut unchanged = true;
        for (number, layer) in self.0.iter().enumerate() {
            if layer.tied_to().is_some() {
                return Err(Error::Value(format!(
                    "layer {number} ({}) shares another one's parameters, which only layers of a cell can; \
                     put it into a cell of its own",
                    layer.kind()
                )));
            }
            if layer.index_limit().is_some() && !unchanged {
                return Err(Error::Value(format!(
                    "layer {number} ({}) reads whole numbers, so only layers that keep them as they are \
                     (flatten, reshape) may come before it",
                    layer.kind()
                )));
            }
            unchanged &= layer.keeps_elements();
        }
        Ok(())
    }

    /// What each layer knows: of padding only as long as there are steps, and they come first.
    fn contexts(&self, cx: &Context) -> Vec<Context> {
        let (mut mask, mut real, mut axis) = (cx.mask, cx.real, 0);
        let of_layer = |(number, layer): (usize, &Arc<dyn Layer>)| {
            let known = mask.filter(|_| axis == 0);
            let inner = Context { mask: known, real, ..cx.inner(number, &number.to_string()) };
            axis = layer.moved_axis(axis);
            mask = mask.filter(|_| layer.steps() != Steps::Pooled);
            real = real.filter(|_| layer.steps() != Steps::Pooled);
            inner
        };
        self.0.iter().enumerate().map(of_layer).collect()
    }

    /// Lowers the layers one after the other; `inputs` are the input and the context, if there is one.
    pub(super) fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let outside = b.layer();
        let mut value = inputs[0];
        let mut inner = Vec::with_capacity(self.0.len());
        for (layer, cx) in self.0.iter().zip(self.contexts(cx)) {
            b.set_layer(Some(cx.path.clone()));
            let place = b.ports.inner.len();
            let forward = layer.forward(b, &cx, &inputs_of(layer.takes_context(), value, inputs))?;
            b.report_inner(place, || InnerLayer {
                path: cx.path,
                name: cx.name,
                kind: layer.kind(),
                config: layer.config(),
                values: LayerValues {
                    real: cx.real.filter(|_| layer.steps() != Steps::Pooled),
                    ..forward.values(value)
                },
            });
            value = forward.output;
            inner.push(forward);
        }
        b.set_layer(outside);
        Ok(Forward { inner, ..Forward::new(value) })
    }

    /// Lowers the gradients of [`forward`](Self::forward) with the same operands.
    pub(super) fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<PartGradients> {
        let outside = b.layer();
        let contexts = self.contexts(cx);
        let trained = |cx: &Context| want.parameters && !cx.parameters.is_empty();
        // Whoever measures these layers asks for the gradient of each.
        let all = want.inputs || b.inner_gradients.is_some();
        let lowest = if all { Some(0) } else { contexts.iter().position(trained) };
        let mut made = PartGradients { input: Some(gradient), context: None };
        let mut to_context = Vec::new();
        for (number, layer) in self.0.iter().enumerate().rev() {
            let (Some(incoming), Some(lowest)) = (made.input, lowest.filter(|lowest| number >= *lowest))
            else {
                made.input = None;
                break;
            };
            let cx = &contexts[number];
            b.set_layer(Some(cx.path.clone()));
            let value = if number == 0 { inputs[0] } else { forward.inner[number - 1].output };
            let want = Want { inputs: want.inputs || number > lowest, parameters: trained(cx) };
            let output = forward.inner[number].output;
            b.report_inner_gradient(|| InnerGradient {
                path: cx.path.clone(),
                input: value,
                output,
                gradient: incoming,
                masks: [cx.real, cx.real.filter(|_| layer.steps() != Steps::Pooled)],
            });
            let operands = inputs_of(layer.takes_context(), value, inputs);
            let mut gradients =
                layer.backward(b, cx, &operands, &forward.inner[number], incoming, want)?.into_iter();
            made.input = gradients.next().flatten();
            b.report_input_gradient(&cx.path, made.input);
            to_context.extend(gradients.next().flatten());
        }
        b.set_layer(outside);
        made.context = b.sum(&to_context);
        Ok(made)
    }
}

/// What a layer in a row reads: its input and, where it takes one, the context of the whole.
pub(super) fn inputs_of<T: Clone>(takes_context: bool, input: T, inputs: &[T]) -> Vec<T> {
    let context = inputs.get(1).filter(|_| takes_context);
    std::iter::once(input).chain(context.cloned()).collect()
}

/// What a layer holds and reads, where that is what its chain `layers` does.
macro_rules! holds_as_its_layers {
    () => {
        fn parameters(&self, inputs: &[$crate::tensor::Shape]) -> Vec<$crate::layers::ParameterSpec> {
            self.layers.parameters(inputs)
        }

        fn states(&self, inputs: &[$crate::tensor::Shape]) -> Vec<$crate::state::StateSpec> {
            self.layers.states(inputs)
        }

        fn carried(
            &self,
            inputs: &[$crate::tensor::Shape],
            length: usize,
        ) -> Vec<$crate::state::CarriedSpec> {
            self.layers.carried(inputs, length)
        }

        fn takes_context(&self) -> bool {
            self.layers.takes_context()
        }

        fn index_limit(&self) -> Option<usize> {
            self.layers.index_limit()
        }
    };
}
pub(super) use holds_as_its_layers;

/// What becomes of shapes and steps, where that is what the chain `layers` makes of them.
macro_rules! goes_as_its_layers {
    () => {
        fn output_shape(&self, inputs: &[$crate::tensor::Shape]) -> $crate::Result<$crate::tensor::Shape> {
            self.layers.output_shape(inputs)
        }

        fn keeps_elements(&self) -> bool {
            self.layers.keeps_elements()
        }

        fn is_stepwise(&self) -> bool {
            self.layers.is_stepwise()
        }

        fn steps(&self) -> $crate::layers::Steps {
            self.layers.steps()
        }
    };
}
pub(super) use goes_as_its_layers;
