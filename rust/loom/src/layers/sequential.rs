//! Layers in a row as one layer.

use super::chain::Chain;
use super::registry::{Configured, config_of};
use super::{ActivationLayer, Context, Dense, Forward, Layer, ParameterSpec, Sample, TargetRules, Want};
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::state::{CarriedSpec, StateSpec};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Layers in a row as one layer, for wherever one layer is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequential {
    /// The layers, first to last.
    pub layers: Chain,
    /// The name under which a user has composed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The settings of which that user's layer has made them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<serde_json::Value>,
}

impl Sequential {
    /// These layers.
    pub fn new(layers: impl Into<Chain>) -> Self {
        Self { layers: layers.into(), name: None, settings: None }
    }

    /// These layers as one, which is the layer itself where there is only one.
    pub(crate) fn joined(layers: Vec<Arc<dyn Layer>>) -> Arc<dyn Layer> {
        match <[_; 1]>::try_from(layers) {
            Ok([only]) => only,
            Err(layers) => Arc::new(Self::new(Chain::new(layers))),
        }
    }
}

impl Configured for Sequential {
    fn validate(&self) -> Result<()> {
        if self.layers.is_empty() {
            return Err(Error::Value("layers must be at least one".into()));
        }
        self.layers.validate()
    }

    fn samples() -> Vec<Sample> {
        let tanh = ActivationLayer { function: Activation::Tanh };
        let inner = Self::new(Chain::from(Dense::new(3)).then(tanh));
        vec![
            Sample::new(Self { name: Some("plain".into()), ..Self::new(Dense::new(2)) }, [1]),
            Sample::new(Self::new(Chain::from(Dense::new(4)).then(inner).then(Dense::new(2))), [2, 5]),
        ]
    }
}

impl Layer for Sequential {
    fn kind(&self) -> &'static str {
        "sequential"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        self.layers.output_shape(inputs)
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        self.layers.parameters(inputs)
    }

    fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        self.layers.states(inputs)
    }

    fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        self.layers.carried(inputs, length)
    }

    fn takes_context(&self) -> bool {
        self.layers.takes_context()
    }

    fn index_limit(&self) -> Option<usize> {
        self.layers.index_limit()
    }

    fn keeps_elements(&self) -> bool {
        self.layers.keeps_elements()
    }

    fn is_stepwise(&self) -> bool {
        self.layers.is_stepwise()
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        self.layers.forward(b, cx, inputs)
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
        let made = self.layers.backward(b, cx, inputs, forward, gradient, want)?;
        Ok(vec![made.input, made.context])
    }

    fn target_rules(&self) -> &dyn TargetRules {
        &self.layers
    }
}
