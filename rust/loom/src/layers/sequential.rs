//! Layers in a row as one layer.

use super::chain::{Chain, goes_as_its_layers, holds_as_its_layers};
use super::kind_registry::Configured;
use super::settings::{kind_and_config, settings};
use super::{ActivationLayer, Context, Dense, Forward, Layer, Sample, TargetRules, Want};
use crate::Result;
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use std::sync::Arc;

settings! {
    /// Layers in a row as one layer, for wherever one layer is asked for.
    #[derive(Clone, Debug)]
    pub struct Sequential "sequential" {
        /// The layers, first to last.
        layers: Chain [least 1],
    } optional {
        /// The name under which a user has composed them.
        name: Option<String> = None,
        /// The settings of which that user's layer has made them.
        settings: Option<serde_json::Value> = None,
    }
}

impl Sequential {
    /// These layers.
    pub fn new(layers: impl Into<Chain>) -> Self {
        Self::with_defaults(layers.into())
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
    kind_and_config!();

    holds_as_its_layers!();
    goes_as_its_layers!();

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
