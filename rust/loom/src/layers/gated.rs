//! Gated feed-forward layers (Shazeer 2020).

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::projection::Projection;
use super::settings::{kind_and_config, settings};
use super::target::WeightedMean;
use super::{Context, Forward, Layer, ParameterSpec, Sample, TargetRules, shape_error, single};
use crate::ops::pointwise::Activation;
use crate::ops::{Direction, Gate, WeightProduct};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::Initializer;
use crate::{Error, Result};

/// A gated layer by its name in Rust, in configs, and the function of its gate.
macro_rules! gated {
    ($(#[$doc:meta])* $name:ident $kind:literal $activation:expr) => {
        settings! {
            $(#[$doc])*
            ///
            /// Works on the last axis: (..., width) to (..., width). Parameters, as the outside sees them and as
            /// Llama names them: `gate_weight` and `up_weight` (hidden, width), `down_weight` (width, hidden), and
            /// for each a `_bias` where there is one.
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name $kind {
                /// Extent between the products.
                hidden: usize [least 1],
            } optional {
                /// Whether trained numbers are added after each product.
                bias: bool = false,
                /// How the weights start; Xavier normal unless named.
                weight_initializer: Option<Initializer> = None,
                /// The function of the gate.
                activation: Activation = $activation; unwritten,
            }
        }

        impl $name {
            /// Without biases.
            pub fn new(hidden: usize) -> Self {
                Self::with_defaults(hidden)
            }

            fn gated(&self) -> Gated {
                Gated { name: stringify!($name), hidden: self.hidden, bias: self.bias, activation: self.activation }
            }
        }

        impl Configured for $name {
            fn samples() -> Vec<Sample> {
                vec![
                    Sample::new(Self::new(1), [1]),
                    Sample::new(Self::new(11), [5, 6]),
                    Sample::new(Self { bias: true, ..Self::new(19) }, [2, 3, 7]),
                    Sample::new(Self { activation: Activation::GeluTanh, ..Self::new(5) }, [4]),
                ]
            }
        }

        impl Layer for $name {
            kind_and_config!();

            fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
                let input = single(self.kind(), inputs)?;
                self.gated().width(input)?;
                Ok(input.clone())
            }

            fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
                let initializer = self.weight_initializer.unwrap_or(Initializer::XavierNormal);
                let Ok(width) = self.gated().width(&inputs[0]) else { return Vec::new() };
                self.gated().projections(width).iter().flat_map(|p| p.parameters(initializer, None)).collect()
            }

            fn is_stepwise(&self) -> bool {
                true
            }

            one_input!();

            fn target_rules(&self) -> &dyn TargetRules {
                self
            }
        }

        impl OneInput for $name {
            fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
                self.gated().forward(b, cx, x)
            }

            fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
                self.gated().backward(b, back)
            }
        }

        impl TargetRules for $name {
            fn target(
                &self,
                b: &mut Builder,
                cx: &Context,
                inputs: &[Value],
                _forward: &Forward,
                target: Value,
            ) -> Result<Option<Value>> {
                self.gated().target(b, cx, *single(self.kind(), inputs)?, target).map(Some)
            }
        }
    };
}

gated!(
    /// `down(silu(gate(x)) up(x))`.
    SwiGLU "swiglu" Activation::Silu
);

gated!(
    /// `down(gelu(gate(x)) up(x))`.
    GeGLU "geglu" Activation::Gelu
);

/// What the gated layers have in common.
struct Gated {
    name: &'static str,
    hidden: usize,
    bias: bool,
    activation: Activation,
}

impl Gated {
    fn width(&self, input: &Shape) -> Result<usize> {
        match input.last() {
            Some(width) if *width > 0 => Ok(*width),
            _ => Err(shape_error(self.name, "at least one axis, (..., width)", input)),
        }
    }

    /// Gate, up and down.
    fn projections(&self, width: usize) -> [Projection; 3] {
        let of = |name, inputs, outputs| Projection::named(name, inputs, outputs, self.bias);
        [of("gate", width, self.hidden), of("up", width, self.hidden), of("down", self.hidden, width)]
    }

    fn forward(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let [gate, up, down] = self.projections(self.width(b.shape(x))?);
        let (a, c) = (gate.forward(b, cx, x)?, up.forward(b, cx, x)?);
        let op = Gate { direction: Direction::Forward, activation: self.activation };
        let hidden = b.shape(a).clone();
        let h = b.apply(op, &[a, c], "h", hidden);
        let y = down.forward(b, cx, h)?;
        Ok(Forward::saving(y, vec![a, c, h]))
    }

    fn backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, want, .. } = *back;
        let [gate, up, down] = self.projections(self.width(b.shape(x))?);
        let &[a, c, h] = &back.forward.saved[..] else {
            return Err(Error::Internal(format!("{} lost what it saved", self.name)));
        };
        if want.parameters {
            down.contribute(b, cx, h, back.gradient)?;
        }
        let dh = down.input_gradient(b, cx, h, back.gradient)?;
        let op = Gate { direction: Direction::InputGradient, activation: self.activation };
        let hidden = b.shape(a).clone();
        let [da, dc] = b.apply_several(op, &[a, c, dh], [("da", hidden.clone()), ("db", hidden)]);
        let parts = [gate.backward(b, cx, x, da, want)?, up.backward(b, cx, x, dc, want)?];
        let parts: Vec<Value> = parts.into_iter().flatten().collect();
        Ok(b.sum(&parts))
    }

    /// The mean by the product of up and down, as though the gate were open: down alone would end at the
    /// hidden units, not at the input.
    fn target(&self, b: &mut Builder, cx: &Context, x: Value, target: Value) -> Result<Value> {
        let width = self.width(b.shape(x))?;
        let [_, up, down] = self.projections(width);
        let weights = [cx.master(b, &up.weight)?, cx.master(b, &down.weight)?];
        let op = WeightProduct::new(width, self.hidden, width);
        let weight = b.apply_fixed(op, &weights, "up and down", Shape::from([width, width]));
        Ok(WeightedMean::new(weight, width, width).lower(b, x, target))
    }
}
