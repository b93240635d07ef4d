//! Any layer, with the parameters of another one of its kind.

use loom::layers::{CarriedSpec, Context, Forward, Layer, ParameterSpec, StateSpec, TargetRules, Want};
use loom::ops::LossFunction;
use loom::program::{Builder, Value};
use loom::{Result, Shape};
use std::sync::Arc;

/// A layer as it is, but for its parameters: those of the layer at `place`.
#[derive(Clone, Debug)]
pub struct Shared {
    pub layer: Arc<dyn Layer>,
    /// Depth, row and column of the cell, and the place there.
    pub place: [usize; 4],
}

impl Shared {
    pub fn new(layer: impl Layer + 'static, place: [usize; 4]) -> Self {
        Self { layer: Arc::new(layer), place }
    }
}

impl Layer for Shared {
    fn kind(&self) -> &'static str {
        self.layer.kind()
    }

    fn config(&self) -> serde_json::Value {
        self.layer.config()
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        self.layer.output_shape(inputs)
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        self.layer.parameters(inputs)
    }

    fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        self.layer.states(inputs)
    }

    fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        self.layer.carried(inputs, length)
    }

    fn takes_context(&self) -> bool {
        self.layer.takes_context()
    }

    fn index_limit(&self) -> Option<usize> {
        self.layer.index_limit()
    }

    fn keeps_elements(&self) -> bool {
        self.layer.keeps_elements()
    }

    fn is_stepwise(&self) -> bool {
        self.layer.is_stepwise()
    }

    fn tied_to(&self) -> Option<[usize; 4]> {
        Some(self.place)
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        self.layer.forward(b, cx, inputs)
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        self.layer.backward(b, cx, inputs, forward, gradient, want)
    }

    fn target_rules(&self) -> &dyn TargetRules {
        self.layer.target_rules()
    }

    fn absorb_loss(&self, loss: &LossFunction) -> Option<LossFunction> {
        self.layer.absorb_loss(loss)
    }
}
