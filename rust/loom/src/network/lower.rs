//! Lowers the whole grid: forward in order, backward in reverse order.

use super::{Network, PlacedLayer, at_layer};
use crate::Result;
use crate::layers::{BoundParameter, Context, Forward, Want};
use crate::program::{Builder, Kind, LayerValues, ParameterRef, Phase, Value};

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// Dropout and the like are on.
    pub training: bool,
    /// What every layer reads and makes stays readable after the run.
    pub pin_layers: bool,
}

/// One layer's forward lowering, kept for the backward one.
#[derive(Debug)]
struct LoweredLayer {
    input: Value,
    forward: Forward,
    context: Context,
}

/// A grid lowered forwards.
#[derive(Debug)]
pub struct Lowered {
    /// The network's input.
    pub input: Value,
    /// The network's output.
    pub output: Value,
    layers: Vec<LoweredLayer>,
}

impl Lowered {
    /// What the last layer read.
    pub fn last_input(&self) -> Value {
        self.layers.last().map_or(self.input, |layer| layer.input)
    }
}

impl Network {
    /// Lowers every layer forwards.
    pub(crate) fn lower_forward(&self, b: &mut Builder, mode: Mode) -> Result<Lowered> {
        b.set_phase(Phase::Forward);
        let input = b.input("input", self.input_shape.clone(), Kind::Real);
        b.ports.input = Some(input);
        let mut value = input;
        let mut layers = Vec::new();
        for placed in self.layers() {
            b.set_layer(Some(placed.path.clone()));
            let context = self.context(placed, mode.training);
            let forward =
                placed.layer.forward(b, &context, &[value]).map_err(|error| at_layer(placed, error))?;
            if mode.pin_layers {
                let values = LayerValues {
                    input: value,
                    preactivation: forward.preactivation,
                    output: forward.output,
                };
                b.ports.layers.push((placed.path.clone(), values));
            }
            let output = forward.output;
            layers.push(LoweredLayer { input: value, forward, context });
            value = output;
        }
        b.set_layer(None);
        b.ports.output = Some(value);
        Ok(Lowered { input, output: value, layers })
    }

    /// Lowers gradients from the output, or, with `skip_last`, from the last layer's
    /// input, down to the lowest layer that anything is wanted of.
    ///
    /// Returns the gradient of the network's input where `want_input`.
    pub(crate) fn lower_backward(
        &self,
        b: &mut Builder,
        lowered: &Lowered,
        gradient: Value,
        skip_last: bool,
        want_input: bool,
    ) -> Result<Option<Value>> {
        b.set_phase(Phase::Backward);
        let trained: Vec<bool> =
            self.layers().map(|placed| placed.trainable && placed.store.is_some()).collect();
        let lowest = if want_input { Some(0) } else { trained.iter().position(|trained| *trained) };
        let Some(lowest) = lowest else { return Ok(None) };
        let mut gradient = Some(gradient);
        let count = lowered.layers.len() - usize::from(skip_last);
        for (index, placed) in
            self.layers().enumerate().take(count).skip(lowest).collect::<Vec<_>>().into_iter().rev()
        {
            let Some(incoming) = gradient else { break };
            b.set_layer(Some(placed.path.clone()));
            let layer = &lowered.layers[index];
            let want = Want { inputs: want_input || index > lowest, parameters: trained[index] };
            let contributions = placed
                .layer
                .backward(b, &layer.context, &[layer.input], &layer.forward, incoming, want)
                .map_err(|error| at_layer(placed, error))?;
            let contributions: Vec<Value> = contributions.into_iter().flatten().collect();
            gradient = b.sum(&contributions);
        }
        b.set_layer(None);
        Ok(gradient.filter(|_| want_input))
    }

    fn context(&self, placed: &PlacedLayer, training: bool) -> Context {
        let parameters = match placed.store {
            None => Vec::new(),
            Some(store) => self.registry.stores[store]
                .parameters()
                .iter()
                .enumerate()
                .map(|(index, info)| BoundParameter {
                    name: info.name,
                    reference: ParameterRef { store, parameter: Some(index) },
                    shape: info.layout.storage_shape(),
                    active: placed.dtype.filter(|_| info.morphable),
                })
                .collect(),
        };
        Context { path: placed.path.clone(), training, parameters }
    }

    /// The stores that an optimizer moves, with their layers, in order.
    pub(crate) fn trained_stores(&self) -> impl Iterator<Item = (usize, &PlacedLayer)> {
        self.layers().filter(|placed| placed.trainable).filter_map(|placed| Some((placed.store?, placed)))
    }
}
