//! Layers in a row, as composite layers hold them.

use super::settings::{Form, forms};
use super::target::clamp;
use super::{
    Context, Feedback, FeedbackForm, Forward, Layer, ParameterSpec, Reshape, Sequential, Want, from_config,
};
use crate::program::{Builder, Value};
use crate::state::{CarriedSpec, StateSpec};
use crate::tensor::Shape;
use crate::{Error, Result, error, extents};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

impl<'de> Deserialize<'de> for Chain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let configs = Vec::<serde_json::Value>::deserialize(deserializer)?;
        let layers = configs.iter().map(|config| Ok(Arc::from(from_config(config)?)));
        layers.collect::<Result<_>>().map(Self).map_err(serde::de::Error::custom)
    }
}

impl<L: Layer + 'static> From<L> for Chain {
    fn from(layer: L) -> Self {
        Self(vec![Arc::new(layer)])
    }
}

forms! { Chain => Form::Layers }

/// `name` inside the part `part`.
fn prefixed(part: &str, name: &str) -> Cow<'static, str> {
    Cow::Owned(format!("{part}.{name}"))
}

/// Names what a part of a composite layer asks for.
pub(super) fn parameters_of(part: &str, specs: Vec<ParameterSpec>) -> impl Iterator<Item = ParameterSpec> {
    specs.into_iter().map(move |spec| ParameterSpec { name: prefixed(part, &spec.name), ..spec })
}

/// Names what a part of a composite layer keeps.
pub(super) fn states_of(part: &str, specs: Vec<StateSpec>) -> impl Iterator<Item = StateSpec> {
    specs.into_iter().map(move |spec| StateSpec { name: prefixed(part, &spec.name), ..spec })
}

/// Names what a part of a composite layer carries.
pub(super) fn carried_of(part: &str, specs: Vec<CarriedSpec>) -> impl Iterator<Item = CarriedSpec> {
    specs.into_iter().map(move |spec| CarriedSpec { name: prefixed(part, &spec.name), ..spec })
}

/// The gradients of a part's input and of its context, where it reads one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartGradients {
    pub(super) input: Option<Value>,
    pub(super) context: Option<Value>,
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
    fn shapes(&self, inputs: &[Shape]) -> Result<(Vec<Vec<Shape>>, Shape)> {
        let Some((input, context)) = inputs.split_first() else {
            return Err(Error::Internal("layers in a row were given no input".into()));
        };
        let mut shape = input.clone();
        let mut all = Vec::with_capacity(self.0.len());
        for (number, layer) in self.0.iter().enumerate() {
            let mut inputs = vec![shape];
            if layer.takes_context() {
                inputs.extend_from_slice(context);
            }
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
    fn collect<S, I: Iterator<Item = S>>(
        &self,
        inputs: &[Shape],
        specs: impl Fn(&str, &dyn Layer, &[Shape]) -> I,
    ) -> Vec<S> {
        // Shapes that do not fit were refused by `output_shape`.
        let shapes = self.shapes(inputs).map(|(shapes, _)| shapes).unwrap_or_default();
        let of_layer = |(number, (layer, shapes)): (usize, (&Arc<dyn Layer>, Vec<Shape>))| {
            specs(&number.to_string(), &**layer, &shapes).collect::<Vec<S>>()
        };
        self.0.iter().zip(shapes).enumerate().flat_map(of_layer).collect()
    }

    pub(super) fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        self.collect(inputs, |part, layer, shapes| {
            parameters_of(part, layer.parameters(shapes)).collect::<Vec<_>>().into_iter()
        })
    }

    pub(super) fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        self.collect(inputs, |part, layer, shapes| {
            states_of(part, layer.states(shapes)).collect::<Vec<_>>().into_iter()
        })
    }

    pub(super) fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        self.collect(inputs, |part, layer, shapes| {
            carried_of(part, layer.carried(shapes, length)).collect::<Vec<_>>().into_iter()
        })
    }

    pub(super) fn takes_context(&self) -> bool {
        self.0.iter().any(|layer| layer.takes_context())
    }

    pub(super) fn is_stepwise(&self) -> bool {
        self.0.iter().all(|layer| layer.is_stepwise())
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

    /// Lowers the layers one after the other; `inputs` are the input and the context, if there is one.
    pub(super) fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let outside = b.layer();
        let mut value = inputs[0];
        let mut inner = Vec::with_capacity(self.0.len());
        for (number, layer) in self.0.iter().enumerate() {
            let cx = cx.inner(number, &number.to_string());
            b.set_layer(Some(cx.path.clone()));
            let forward = layer.forward(b, &cx, &layer_inputs(&**layer, value, inputs))?;
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
        let contexts: Vec<Context> =
            (0..self.0.len()).map(|number| cx.inner(number, &number.to_string())).collect();
        let trained = |cx: &Context| want.parameters && !cx.parameters.is_empty();
        let lowest = if want.inputs { Some(0) } else { contexts.iter().position(trained) };
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
            let operands = layer_inputs(&**layer, value, inputs);
            let mut gradients =
                layer.backward(b, cx, &operands, &forward.inner[number], incoming, want)?.into_iter();
            made.input = gradients.next().flatten();
            to_context.extend(gradients.next().flatten());
        }
        b.set_layer(outside);
        made.context = b.sum(&to_context);
        Ok(made)
    }
}

impl Chain {
    /// A target for the input from one for what the last layer makes, by each layer's rule from the last to
    /// the first and between the bounds of each. It passes through layers without a rule; where one of
    /// those makes more or fewer elements than it reads, what it has read stays as it is.
    pub(super) fn target(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        target: Value,
    ) -> Result<Value> {
        let outside = b.layer();
        let mut target = target;
        for (number, layer) in self.0.iter().enumerate().rev() {
            let cx = cx.inner(number, &number.to_string());
            b.set_layer(Some(cx.path.clone()));
            let value = if number == 0 { inputs[0] } else { forward.inner[number - 1].output };
            let operands = layer_inputs(&**layer, value, inputs);
            let made = layer.target(b, &cx, &operands, &forward.inner[number], target)?;
            target = made.unwrap_or_else(|| pass(b, target, value));
            if let Some(below) = number.checked_sub(1) {
                target = clamp(b, target, self.0[below].target_range());
            }
        }
        b.set_layer(outside);
        Ok(target)
    }

    /// What leads back through all layers: their maps in the reverse order, where each has one or leaves
    /// its elements in their order.
    pub(super) fn feedback(&self, inputs: &[Shape], form: FeedbackForm) -> Feedback {
        let (shapes, false) = (self.shapes(inputs), self.takes_context()) else { return Feedback::Unknown };
        let Ok((shapes, _)) = shapes else { return Feedback::Unknown };
        let mut maps: Vec<Arc<dyn Layer>> = Vec::with_capacity(self.0.len());
        let (mut linear, mut mapped) = (true, true);
        for (layer, inputs) in self.0.iter().zip(&shapes).rev() {
            match layer.feedback(inputs, form) {
                Feedback::Learned(map) => {
                    maps.push(map.into());
                    linear = false;
                }
                Feedback::Backward if matches!(layer.kind(), "flatten" | "reshape") => {
                    let extents: Vec<i64> = inputs[0].iter().map(|extent| *extent as i64).collect();
                    maps.push(Arc::new(Reshape::new(extents)));
                }
                Feedback::Backward => mapped = false,
                Feedback::Unknown => return Feedback::Unknown,
            }
        }
        match (linear, mapped) {
            (true, _) => Feedback::Backward,
            (false, true) => Feedback::Learned(Box::new(Sequential::new(Self(maps)))),
            (false, false) => Feedback::Unknown,
        }
    }

    /// What targets of the last layer that changes elements are held between.
    pub(super) fn target_range(&self) -> Option<(f64, f64)> {
        self.0.iter().rev().find(|layer| !layer.keeps_elements())?.target_range()
    }
}

/// A layer's target as that of its input, where it has as many elements; else the input.
fn pass(b: &mut Builder, target: Value, input: Value) -> Value {
    let shape = b.shape(input).clone();
    match b.shape(target) {
        same if *same == shape => target,
        other if other.len() == shape.len() => b.reshape(target, shape),
        _ => input,
    }
}

/// What a layer reads: its input and, where it takes one, the context of the whole.
pub(super) fn layer_inputs(layer: &dyn Layer, input: Value, inputs: &[Value]) -> Vec<Value> {
    let context = inputs.get(1).filter(|_| layer.takes_context());
    std::iter::once(&input).chain(context).copied().collect()
}

/// The shapes of what a part reads: the input and, where it takes one, the context of the whole.
pub(super) fn part_inputs<T: Clone>(takes_context: bool, inputs: &[T]) -> Vec<T> {
    inputs.iter().take(1 + usize::from(takes_context)).cloned().collect()
}
