//! An activation as a layer, and the lowering that layers with an activation share.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::target::{SIGMOID_RANGE, TANH_RANGE};
use super::{Context, Forward, Layer, Sample, TargetRules, single};
use crate::Result;
use crate::ops::Pointwise;
use crate::ops::pointwise::{Activation, Saved};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

settings! {
    /// Applies `function` to every element; the shape stays.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ActivationLayer "activation" {
        /// What is applied.
        function: Activation,
    }
}

impl Configured for ActivationLayer {
    fn samples() -> Vec<Sample> {
        let shape = [3, 5];
        Activation::ALL.iter().map(|function| Sample::new(Self { function: *function }, shape)).collect()
    }
}

impl Layer for ActivationLayer {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        single(self.kind(), inputs).cloned()
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        self
    }
}

impl TargetRules for ActivationLayer {
    fn target_range(&self) -> Option<(f64, f64)> {
        range_of(self.function)
    }
}

impl OneInput for ActivationLayer {
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        Ok(activate(b, self.function, x))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        Ok(Some(activate_backward(b, self.function, back.forward, back.gradient)))
    }
}

/// What targets of a layer that ends in this activation are held between.
pub(super) fn range_of(activation: Activation) -> Option<(f64, f64)> {
    match activation {
        Activation::Tanh => Some(TANH_RANGE),
        Activation::Sigmoid => Some(SIGMOID_RANGE),
        _ => None,
    }
}

/// A layer with its activation left out, where it has one.
pub(super) fn linear<L: Layer + 'static>(
    activation: Activation,
    without: impl FnOnce() -> L,
) -> Option<Box<dyn Layer>> {
    (activation != Activation::Linear).then(|| Box::new(without()) as Box<dyn Layer>)
}

/// Lowers `a = activation(z)`, saving whichever of the two the derivative is made from.
pub(super) fn activate(b: &mut Builder, activation: Activation, z: Value) -> Forward {
    if activation == Activation::Linear {
        return Forward { preactivation: Some(z), ..Forward::new(z) };
    }
    let shape = b.shape(z).clone();
    let a = b.apply(Pointwise::forward(activation), &[z], "a", shape);
    let saved = match activation.saved() {
        Saved::Output => a,
        Saved::Input => z,
    };
    Forward { preactivation: Some(z), ..Forward::saving(a, vec![saved]) }
}

/// Lowers `dz = da activation'(z)` from what [`activate`] saved.
pub(super) fn activate_backward(
    b: &mut Builder,
    activation: Activation,
    forward: &Forward,
    da: Value,
) -> Value {
    match forward.saved[..] {
        [saved, ..] if activation != Activation::Linear => {
            let shape = b.shape(da).clone();
            b.apply(Pointwise::backward(activation), &[saved, da], "dz", shape)
        }
        _ => da,
    }
}
