//! Layers of one fixed number: a factor, and a soft limit.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::target_rules::Linear;
use super::{Context, Forward, Layer, Sample, TargetRules, single};
use crate::Result;
use crate::ops::pointwise::Activation;
use crate::ops::{self, Pointwise};
use crate::program::{Builder, Value};
use crate::tensor::Shape;

settings! {
    /// Multiplies every element by `factor`; the shape stays.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Scale "scale" {
        /// What every element is multiplied by, rounded to the network's precision.
        factor: f64,
    }
}

settings! {
    /// Holds every element between plus and minus `cap`: `cap tanh(x / cap)`; the shape stays.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SoftCap "soft_cap" {
        /// What no magnitude exceeds.
        cap: f64 [above 0.0],
    }
}

/// Lowers `factor x`.
fn scaled(b: &mut Builder, x: Value, factor: f64, label: &'static str) -> Value {
    let shape = b.shape(x).clone();
    b.apply(ops::Scale { factor }, &[x], label, shape)
}

impl Configured for Scale {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self { factor: -1.5 }, [1]), Sample::new(Self { factor: 0.3 }, [3, 7])]
    }
}

impl Configured for SoftCap {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self { cap: 0.5 }, [1]), Sample::new(Self { cap: 3.0 }, [2, 3, 7])]
    }
}

impl Layer for Scale {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        single(self.kind(), inputs).cloned()
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl OneInput for Scale {
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        Ok(Forward::new(scaled(b, x, self.factor, "y")))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        Ok(Some(scaled(b, back.gradient, self.factor, "dx")))
    }
}

impl Layer for SoftCap {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        single(self.kind(), inputs).cloned()
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl OneInput for SoftCap {
    fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
        let share = scaled(b, x, 1.0 / self.cap, "share");
        let shape = b.shape(x).clone();
        let held = b.apply(Pointwise::forward(Activation::Tanh), &[share], "held", shape);
        Ok(Forward::saving(scaled(b, held, self.cap, "y"), vec![held]))
    }

    /// The two factors cancel.
    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let shape = b.shape(back.x).clone();
        let op = Pointwise::backward(Activation::Tanh);
        Ok(Some(b.apply(op, &[back.forward.saved[0], back.gradient], "dx", shape)))
    }
}
