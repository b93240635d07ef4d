//! Layers whose values are computed again for their gradients, instead of being kept.

use super::chain::{Chain, goes_as_its_layers, holds_as_its_layers};
use super::kind_registry::Configured;
use super::settings::{kind_and_config, settings};
use super::{
    ActivationLayer, BatchNorm, Context, Dense, Dropout, Forward, Layer, Residual, Sample, TargetRules, Want,
};
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::{Error, Result};

settings! {
    /// Layers in a row of which training keeps no more than their input: what is between is computed again
    /// when their gradients are (Chen et al. 2016). Bits stay the same.
    #[derive(Clone, Debug)]
    pub struct Checkpoint "checkpoint" {
        /// The layers, first to last.
        layers: Chain [least 1],
    }
}

impl Checkpoint {
    /// These layers.
    pub fn new(layers: impl Into<Chain>) -> Self {
        Self::with_defaults(layers.into())
    }
}

impl Configured for Checkpoint {
    fn validate(&self) -> Result<()> {
        self.layers.validate()?;
        if self.layers.layers().iter().any(|layer| holds(&layer.config(), "spectral_norm")) {
            return Err(Error::Value(
                "layers hold a spectral_norm, whose iteration would have gone on where they are computed again; \
                 leave it outside"
                    .into(),
            ));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        let tanh = ActivationLayer { function: Activation::Tanh };
        let deep = Chain::from(Dense::new(5)).then(tanh.clone()).then(Dense::new(3)).then(tanh);
        let inner = Chain::from(Self::new(deep)).then(Dropout { rate: 0.3 }).then(Dense::new(4));
        let normed = Chain::from(Dense::new(6)).then(BatchNorm::default()).then(Dense::new(2));
        vec![
            Sample::new(Self::new(Dense::new(2)), [1]),
            Sample::new(Self::new(Residual::new(inner)), [2, 4]),
            Sample::new(Self::new(normed), [3]),
        ]
    }
}

/// Whether a layer of this kind is in a config, at any depth.
fn holds(config: &serde_json::Value, kind: &str) -> bool {
    match config {
        serde_json::Value::Object(fields) => {
            fields.get("type").is_some_and(|name| name == kind)
                || fields.values().any(|part| holds(part, kind))
        }
        serde_json::Value::Array(parts) => parts.iter().any(|part| holds(part, kind)),
        _ => false,
    }
}

impl Layer for Checkpoint {
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
        _forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        if !want.inputs && (!want.parameters || !cx.trains()) {
            return Ok(vec![None; inputs.len()]);
        }
        // Masks are drawn by place and step, so they are the same; what layers keep has moved on already.
        let again = b.again(gradient, |b| self.layers.forward(b, cx, inputs))?;
        let made = self.layers.backward(b, cx, inputs, &again, gradient, want)?;
        Ok(vec![made.input, made.context])
    }

    fn target_rules(&self) -> &dyn TargetRules {
        &self.layers
    }
}
