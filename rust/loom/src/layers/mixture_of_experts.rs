//! Feed-forward layers of which each step takes a few.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::projection::Projection;
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
use crate::ops::pointwise::{Activation, Saved};
use crate::ops::{Direction, ExpertProduct, Gate, Mix, MixPart, Pointwise, Route};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result};

settings! {
    /// Experts of which each step goes through the few that a router chooses (Shazeer et al. 2017), as in Mixtral
    /// and Qwen's mixtures: (..., width) to (..., width).
    ///
    /// The router's logits are `x router_weight^T`; the `top_k` greatest choose, and what the chosen experts make is
    /// summed by their shares in the softmax. An expert is `down(activation(gate(x)) up(x))`, or where not `gated`
    /// `down(activation(up(x)))`. Gradients reach the chosen experts and, through their shares, the router.
    ///
    /// Parameters, as the outside sees them: `router_weight` (experts, width), `gate_weight` and `up_weight`
    /// (experts, units, width), `down_weight` (experts, width, units); with shared units `shared_gate_weight` and
    /// `shared_up_weight` (shared_units, width), `shared_down_weight` (width, shared_units), and with a shared gate
    /// `shared_router_weight` (1, width). The routers stay float where a layer is packed.
    #[derive(Clone, Debug, PartialEq)]
    pub struct MixtureOfExperts "mixture_of_experts" {
        /// How many there are.
        experts: usize [least 1, most 65_536],
        /// How many each step goes through.
        top_k: usize [least 1],
        /// Extent between the products of each.
        units: usize [least 1],
    } optional {
        /// The function of the gate, or where there is none of the units.
        activation: Activation = Activation::Silu,
        /// Whether a second product, through the activation, multiplies the units.
        gated: bool = true,
        /// Whether the shares of the chosen ones are made to sum to 1.
        normalize: bool = true,
        /// Units of one more expert that every step goes through; none unless given.
        shared_units: Option<usize> [least 1] = None,
        /// Whether that one counts by the logistic function of a trained product, as in Qwen 2's mixture.
        shared_gate: bool = false,
        /// How the weights start; Xavier normal unless named.
        weight_initializer: Option<Initializer> = None,
    }
}

impl MixtureOfExperts {
    /// Gated experts of so many units, of which each step goes through `top_k`.
    pub fn new(experts: usize, top_k: usize, units: usize) -> Self {
        Self::with_defaults(experts, top_k, units)
    }
}

impl Configured for MixtureOfExperts {
    fn validate(&self) -> Result<()> {
        let Self { experts, top_k, .. } = self;
        if top_k > experts {
            return Err(Error::Value(format!("top_k ({top_k}) must be at most experts ({experts})")));
        }
        if self.shared_gate && self.shared_units.is_none() {
            return Err(Error::Value("a shared_gate needs shared_units, which it is for".into()));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        let plain = Self { gated: false, activation: Activation::GeluTanh, ..Self::new(4, 2, 5) };
        let shared = Self { shared_units: Some(6), normalize: false, ..Self::new(3, 2, 4) };
        vec![
            Sample::new(Self::new(4, 2, 6), [3, 5]),
            Sample::new(Self::new(1, 1, 1), [1]),
            Sample::new(Self { normalize: false, ..plain.clone() }, [4]),
            Sample::new(Self { shared_units: Some(3), activation: Activation::Tanh, ..plain }, [2, 3, 7]),
            Sample::new(Self { shared_gate: true, ..shared }, [5, 6]),
        ]
    }
}

/// The operations of a layer on steps of this width.
struct Parts<'a> {
    layer: &'a MixtureOfExperts,
    width: usize,
}

/// What the experts, or the shared one, make of steps before the product that leads back to their width.
#[derive(Clone, Copy)]
struct Units {
    /// What goes through the activation, where that is not `up`.
    gate: Option<Value>,
    up: Value,
    hidden: Value,
}

impl MixtureOfExperts {
    fn parts(&self, input: &Shape) -> Result<Parts<'_>> {
        match input.last() {
            Some(width) if *width > 0 && !input.is_empty() => Ok(Parts { layer: self, width: *width }),
            _ => Err(shape_error("MixtureOfExperts", "at least one axis, (..., width)", input)),
        }
    }

    /// The function of the units.
    fn open(&self, b: &mut Builder, gate: Option<Value>, up: Value) -> Units {
        let shape = b.shape(up).clone();
        let activation = self.activation;
        let hidden = match gate {
            Some(gate) => {
                b.apply(Gate { direction: Direction::Forward, activation }, &[gate, up], "h", shape)
            }
            None => b.apply(Pointwise::forward(activation), &[up], "h", shape),
        };
        Units { gate, up, hidden }
    }

    /// The gradients of what [`open`](Self::open) has read: the gate's, if there is one, and the other.
    fn close(&self, b: &mut Builder, units: Units, gradient: Value) -> (Option<Value>, Value) {
        let shape = b.shape(gradient).clone();
        let activation = self.activation;
        let Units { gate, up, hidden } = units;
        match gate {
            Some(gate) => {
                let op = Gate { direction: Direction::InputGradient, activation };
                let results = [("dgate", shape.clone()), ("dup", shape)];
                let [dgate, dup] = b.apply_several(op, &[gate, up, gradient], results);
                (Some(dgate), dup)
            }
            None => {
                let saved = match activation.saved() {
                    Saved::Output => hidden,
                    Saved::Input => up,
                };
                (None, b.apply(Pointwise::backward(activation), &[saved, gradient], "dup", shape))
            }
        }
    }
}

impl Parts<'_> {
    fn router(&self) -> Projection {
        Projection::named("router", self.width, self.layer.experts, false)
    }

    /// Gate, up and down of the shared expert, and what weighs it.
    fn shared(&self) -> Option<([Projection; 3], Projection)> {
        let units = self.layer.shared_units?;
        let of = |name, inputs, outputs| Projection::named(name, inputs, outputs, false);
        let parts = [
            of("shared_gate", self.width, units),
            of("shared_up", self.width, units),
            of("shared_down", units, self.width),
        ];
        Some((parts, of("shared_router", self.width, 1)))
    }

    fn route(&self, direction: Direction) -> Route {
        let MixtureOfExperts { experts, top_k, normalize, .. } = *self.layer;
        Route { direction, experts, top_k, normalize }
    }

    /// The product with gate or up, of steps, or with down, of what each expert has made of them.
    fn product(&self, direction: Direction, down: bool) -> ExpertProduct {
        let MixtureOfExperts { experts, top_k, units, .. } = *self.layer;
        let (inputs, outputs) = if down { (units, self.width) } else { (self.width, units) };
        ExpertProduct { direction, experts, top_k, inputs, outputs, spread: !down }
    }

    fn mix(&self, part: MixPart, branches: usize) -> Mix {
        Mix { part, branches, len: self.width }
    }

    /// What slots make with one of the experts' weights.
    fn forward(&self, b: &mut Builder, cx: &Context, x: Value, choices: Value, name: &str) -> Result<Value> {
        let op = self.product(Direction::Forward, name == DOWN);
        let mut shape = b.shape(choices).to_vec();
        shape.push(op.outputs);
        let weight = cx.read(b, name)?;
        Ok(b.apply(op, &[x, choices, weight], "z", Shape::new(shape)))
    }

    /// Pushes the gradient of one of the experts' weights, and returns that of what they read.
    fn backward(
        &self,
        b: &mut Builder,
        back: &Backward<'_>,
        (x, choices, gradient): (Value, Value, Value),
        name: &str,
    ) -> Result<Option<Value>> {
        let down = name == DOWN;
        if back.want.parameters {
            let op = self.product(Direction::WeightGradient, down);
            back.cx.contribute(b, name, op, &[x, choices, gradient])?;
        }
        // Whatever the input's is worth, gate and up need that of the hidden units.
        if !down && !back.want.inputs {
            return Ok(None);
        }
        let weight = back.cx.read(b, name)?;
        let shape = b.shape(x).clone();
        let op = self.product(Direction::InputGradient, down);
        Ok(Some(b.apply(op, &[gradient, choices, weight], "dx", shape)))
    }
}

const GATE: &str = "gate_weight";
const UP: &str = "up_weight";
const DOWN: &str = "down_weight";

impl Layer for MixtureOfExperts {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        self.parts(input)?;
        Ok(input.clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let Ok(parts) = self.parts(&inputs[0]) else { return Vec::new() };
        let initializer = self.weight_initializer.unwrap_or(Initializer::XavierNormal);
        // Which experts are chosen would hang on how a router is rounded.
        let router = |projection: Projection| {
            let specs = projection.parameters(initializer, None);
            specs.into_iter().map(|spec| ParameterSpec { morphable: false, ..spec })
        };
        let expert = |name: &'static str, outputs, inputs| ParameterSpec {
            name: name.into(),
            layout: Layout::grouped(self.experts, outputs, inputs),
            initializer,
            fan_in: inputs,
            fan_out: outputs,
            morphable: true,
            decay_exempt: false,
            adaptable: false,
        };
        let mut specs: Vec<ParameterSpec> = router(parts.router()).collect();
        specs.extend(self.gated.then(|| expert(GATE, self.units, parts.width)));
        specs.push(expert(UP, self.units, parts.width));
        specs.push(expert(DOWN, parts.width, self.units));
        if let Some((shared, weigh)) = parts.shared() {
            let shared = shared.iter().skip(usize::from(!self.gated));
            specs.extend(shared.flat_map(|projection| projection.parameters(initializer, None)));
            specs.extend(self.shared_gate.then(|| router(weigh)).into_iter().flatten());
        }
        specs
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl OneInput for MixtureOfExperts {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = b.shape(x).clone();
        let parts = self.parts(&shape)?;
        let logits = parts.router().forward(b, cx, x)?;
        let slots = Shape::from([shape.len() / parts.width, self.top_k]);
        let results = [("gates", slots.clone()), ("choices", slots)];
        let [gates, choices] = b.apply_several(parts.route(Direction::Forward), &[logits], results);
        let gate = self.gated.then(|| parts.forward(b, cx, x, choices, GATE)).transpose()?;
        let up = parts.forward(b, cx, x, choices, UP)?;
        let units = self.open(b, gate, up);
        let made = parts.forward(b, cx, units.hidden, choices, DOWN)?;
        let mut y = b.apply(parts.mix(MixPart::Forward, self.top_k), &[gates, made], "y", shape.clone());
        let mut saved = vec![logits, gates, choices, made, units.up, units.hidden];
        saved.extend(units.gate);
        if let Some(([gate, up, down], weigh)) = parts.shared() {
            let gate = self.gated.then(|| gate.forward(b, cx, x)).transpose()?;
            let up = up.forward(b, cx, x)?;
            let units = self.open(b, gate, up);
            let mut made = down.forward(b, cx, units.hidden)?;
            saved.extend([units.up, units.hidden]);
            saved.extend(units.gate);
            if self.shared_gate {
                let logit = weigh.forward(b, cx, x)?;
                let one = b.shape(logit).clone();
                let share = b.apply(Pointwise::forward(Activation::Sigmoid), &[logit], "share", one);
                saved.extend([made, share]);
                made = b.apply(parts.mix(MixPart::Forward, 1), &[share, made], "shared", shape);
            }
            y = b.sum(&[y, made]).unwrap_or(y);
        }
        Ok(Forward::saving(y, saved))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, want, gradient, .. } = *back;
        let parts = self.parts(&b.shape(x).clone())?;
        let lost = || Error::Internal("MixtureOfExperts lost what it saved".into());
        let mut saved = back.forward.saved.iter().copied();
        let mut next = || saved.next().ok_or_else(lost);
        let [logits, gates, choices, made] = [next()?, next()?, next()?, next()?];
        let units = |next: &mut dyn FnMut() -> Result<Value>| -> Result<Units> {
            let (up, hidden) = (next()?, next()?);
            Ok(Units { gate: self.gated.then(next).transpose()?, up, hidden })
        };
        let of_experts = units(&mut next)?;
        let mut gradients = Vec::new();

        let slots = b.shape(gates).clone();
        let dgates =
            b.apply(parts.mix(MixPart::WeightGradient, self.top_k), &[made, gradient], "dgates", slots);
        let shape = b.shape(logits).clone();
        let route = parts.route(Direction::InputGradient);
        let dlogits = b.apply(route, &[logits, choices, dgates], "dlogits", shape);
        gradients.extend(parts.router().backward(b, cx, x, dlogits, want)?);

        let shape = b.shape(made).clone();
        let dmade =
            b.apply(parts.mix(MixPart::BranchGradient, self.top_k), &[gates, gradient], "dmade", shape);
        let dhidden = parts.backward(b, back, (of_experts.hidden, choices, dmade), DOWN)?.ok_or_else(lost)?;
        let (dgate, dup) = self.close(b, of_experts, dhidden);
        if let Some(dgate) = dgate {
            gradients.extend(parts.backward(b, back, (x, choices, dgate), GATE)?);
        }
        gradients.extend(parts.backward(b, back, (x, choices, dup), UP)?);

        if let Some(([gate, up, down], weigh)) = parts.shared() {
            let shared = units(&mut next)?;
            let mut dmade = gradient;
            if self.shared_gate {
                let (made, share) = (next()?, next()?);
                let (one, shape) = (b.shape(share).clone(), b.shape(made).clone());
                let mix = parts.mix(MixPart::WeightGradient, 1);
                let dshare = b.apply(mix, &[made, gradient], "dshare", one.clone());
                let derive = Pointwise::backward(Activation::Sigmoid);
                let dlogit = b.apply(derive, &[share, dshare], "dlogit", one);
                gradients.extend(weigh.backward(b, cx, x, dlogit, want)?);
                dmade = b.apply(parts.mix(MixPart::BranchGradient, 1), &[share, gradient], "dmade", shape);
            }
            if want.parameters {
                down.contribute(b, cx, shared.hidden, dmade)?;
            }
            let dhidden = down.input_gradient(b, cx, shared.hidden, dmade)?;
            let (dgate, dup) = self.close(b, shared, dhidden);
            if let Some(dgate) = dgate {
                gradients.extend(gate.backward(b, cx, x, dgate, want)?);
            }
            gradients.extend(up.backward(b, cx, x, dup, want)?);
        }
        Ok(if want.inputs { b.sum(&gradients) } else { None })
    }
}
