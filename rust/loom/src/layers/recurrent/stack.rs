//! How recurrent layers lower: a product over time and batch, the loop, and products after it.

use super::{CarriedSpec, Cell, Context, Error, Forward, Initializer, ParameterSpec, Result, Shape, Want};
use crate::layers::projection::Projection;
use crate::layers::{mask_of, shape_error};
use crate::ops::{self, BiasGradient, Combination, Direction, Dropout, Recurrent, Slice, Term};
use crate::program::{Builder, CellValues, Value};
use crate::weights::Layout;
use serde::{Deserialize, Serialize};

/// Where a recurrent layer's state starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitialState {
    /// At zero.
    #[default]
    Zeros,
    /// Where training puts it: a parameter `state_l0` for each layer of the stack.
    Learned,
    /// At a second input (layers x directions x states x units numbers, in any shape): for each layer
    /// and each direction in it h, then an LSTM's c.
    Context,
}

/// One or more layers of one kind of cell on top of each other.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// The layer's name in messages.
    pub kind: &'static str,
    pub cell: Cell,
    pub units: usize,
    pub layers: usize,
    pub directions: usize,
    pub return_sequences: bool,
    pub bias: bool,
    pub dropout: f64,
    pub stateful: bool,
    pub initial_state: InitialState,
    pub weight_initializer: Option<Initializer>,
    pub recurrent_initializer: Option<Initializer>,
}

/// `weight_ih_l0`, `bias_hh_l1_reverse`: PyTorch's names.
pub(super) fn name(what: &str, layer: usize, direction: usize) -> String {
    let suffix = if direction == 1 { "_reverse" } else { "" };
    format!("{what}_l{layer}{suffix}")
}

/// What a layer of the stack leaves for its backward lowering, in order.
struct Saved<'a> {
    input: Value,
    before: &'a [Value],
    saved: &'a [Value],
    /// Where the loop started, if not at zero.
    initial: Option<Value>,
}

impl Stack {
    pub fn validate(&self) -> Result<()> {
        if self.stateful && self.directions == 2 {
            return Err(Error::Value(
                "a layer that reads the sequence from its end too cannot be stateful".into(),
            ));
        }
        if self.stateful && self.initial_state != InitialState::Zeros {
            return Err(Error::Value(
                "a stateful layer starts at zeros, so initial_state must be \"zeros\"".into(),
            ));
        }
        Ok(())
    }

    /// Elements of the pre-activations of one direction.
    fn gates(&self) -> usize {
        self.units.saturating_mul(self.cell.gates())
    }

    /// Numbers of one layer's state.
    fn state_len(&self) -> usize {
        self.units.saturating_mul(self.directions * self.cell.states())
    }

    /// Features that layer `layer` of the stack reads.
    fn width(&self, layer: usize, features: usize) -> usize {
        if layer == 0 { features } else { self.units.saturating_mul(self.directions) }
    }

    pub fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let expected = if self.initial_state == InitialState::Context { 2 } else { 1 };
        if inputs.len() != expected {
            return Err(Error::Shape(format!("{} takes {expected} inputs, got {}", self.kind, inputs.len())));
        }
        let [time, features] = inputs[0][..] else {
            let remedy = if inputs[0][..].len() == 1 {
                "; return_sequences=True of a recurrent layer before it keeps the steps, and a series of numbers is \
                 (time, 1)"
            } else {
                ""
            };
            let name = self.kind.to_uppercase();
            return Err(Error::Shape(format!(
                "{name} expects a sequence, (time, features), got {}{remedy}",
                inputs[0]
            )));
        };
        if time == 0 || features == 0 {
            return Err(shape_error(self.kind, "at least one step and one feature", &inputs[0]));
        }
        if let Some(context) = inputs.get(1)
            && context.len() != self.state_len().saturating_mul(self.layers)
        {
            let expected = format!(
                "a context of {} numbers ({} layers x {} directions x {} states x {} units)",
                self.state_len().saturating_mul(self.layers),
                self.layers,
                self.directions,
                self.cell.states(),
                self.units
            );
            return Err(shape_error(self.kind, &expected, context));
        }
        Ok(self.output_of(self.return_sequences, time))
    }

    fn output_of(&self, sequences: bool, time: usize) -> Shape {
        let width = self.units.saturating_mul(self.directions);
        if sequences { Shape::from([time, width]) } else { Shape::from([width]) }
    }

    pub fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let features = inputs[0].last().copied().unwrap_or(1);
        let (units, gates, blocks) = (self.units, self.gates(), self.cell.gates());
        let forget = Initializer::ConstantBlock { value: 1.0, block: 1, blocks };
        let first_bias = if self.cell == Cell::Lstm { forget } else { Initializer::Zeros };
        let mut specs = Vec::new();
        for layer in 0..self.layers {
            let width = self.width(layer, features);
            for direction in 0..self.directions {
                let weight = |what: &str, inputs: usize, initializer: Initializer| ParameterSpec {
                    name: name(what, layer, direction).into(),
                    layout: Layout::input_major([gates, inputs]),
                    initializer,
                    fan_in: inputs,
                    fan_out: units,
                    morphable: true,
                    decay_exempt: false,
                    // The product with the input is one before the steps; that with the state is among them.
                    adaptable: what == "weight_ih",
                };
                let input = self.weight_initializer.unwrap_or(Initializer::XavierNormal);
                let hidden = Initializer::OrthogonalBlocks { gain: 1.0, blocks };
                let hidden = self.recurrent_initializer.unwrap_or(hidden);
                let hidden = weight("weight_hh", units, hidden);
                specs.push(weight("weight_ih", width, input));
                specs.push(hidden.clone());
                for (what, initializer) in [("bias_ih", first_bias), ("bias_hh", Initializer::Zeros)]
                    .into_iter()
                    .filter(|_| self.bias)
                {
                    let layout = Layout::plain([gates]);
                    let name = name(what, layer, direction).into();
                    specs.push(ParameterSpec {
                        name,
                        layout,
                        initializer,
                        morphable: false,
                        decay_exempt: true,
                        adaptable: false,
                        ..hidden.clone()
                    });
                }
            }
            if self.initial_state == InitialState::Learned {
                specs.push(ParameterSpec {
                    name: name("state", layer, 0).into(),
                    layout: Layout::plain([self.directions, self.cell.states(), units]),
                    initializer: Initializer::Zeros,
                    fan_in: units,
                    fan_out: units,
                    morphable: false,
                    decay_exempt: false,
                    adaptable: false,
                });
            }
        }
        specs
    }

    /// The state of each layer; a sequence that is read from its end as well cannot come in pieces.
    pub fn carried(&self) -> Vec<CarriedSpec> {
        let layers = if self.directions == 1 { self.layers } else { 0 };
        let spec = |layer| CarriedSpec {
            name: name("state", layer, 0).into(),
            shape: Shape::from([self.cell.states(), self.units]),
            initial: 0.0,
            in_training: self.stateful,
            by_place: false,
            packable: None,
        };
        (0..layers).map(spec).collect()
    }

    /// The loop of a layer of the stack.
    fn op(&self, cx: &Context, layer: usize, time: usize) -> Recurrent {
        let initial = match self.initial_state {
            InitialState::Zeros => ops::recurrent::InitialState::Zeros,
            InitialState::Learned => ops::recurrent::InitialState::Shared,
            InitialState::Context => ops::recurrent::InitialState::Rows {
                offset: layer * self.state_len(),
                stride: self.layers * self.state_len(),
            },
        };
        Recurrent {
            cell: self.cell,
            direction: Direction::Forward,
            time,
            units: self.units,
            directions: self.directions,
            sequences: layer + 1 < self.layers || self.return_sequences,
            bias: self.bias,
            initial,
            mask: cx.mask.is_some(),
            resumes: false,
            keeps: cx.keeps,
            state: false,
            cell_gradients: false,
            quantized: [false; 2],
        }
    }

    pub fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let mut value = inputs[0];
        let time = b.shape(value)[0];
        mask_of(cx, b, self.kind, b.shape(value))?;
        let mut inner = Vec::with_capacity(self.layers);
        for layer in 0..self.layers {
            if layer > 0 {
                value = self.drop_out(b, cx, layer, value, "y");
            }
            let forward = self.layer_forward(b, cx, layer, value, inputs.get(1).copied(), time)?;
            value = forward.output;
            inner.push(forward);
        }
        Ok(Forward { inner, ..Forward::new(value) })
    }

    /// Dropout between layers of the stack, or of a gradient on its way back; each layer draws for itself.
    fn drop_out(&self, b: &mut Builder, cx: &Context, layer: usize, x: Value, label: &'static str) -> Value {
        if !cx.training || self.dropout == 0.0 {
            return x;
        }
        let (at, shape) = (b.layer(), b.shape(x).clone());
        b.set_layer(Some(cx.path.inner(layer)));
        let dropped =
            b.apply(Dropout { rate: self.dropout, features: shape.len(), shared: 1 }, &[x], label, shape);
        b.set_layer(at);
        dropped
    }

    /// What x (`ih`) or the state (`hh`) has of a direction's pre-activations.
    fn share(&self, of: &str, inputs: usize, layer: usize, direction: usize) -> Projection {
        let named = |what: &str| name(&format!("{what}_{of}"), layer, direction).into();
        let bias = self.bias.then(|| named("bias"));
        Projection { weight: named("weight"), bias, inputs, outputs: self.gates() }
    }

    /// A parameter of every direction, as the forward pass reads it.
    fn each(&self, b: &mut Builder, cx: &Context, what: &str, layer: usize) -> Result<Vec<Value>> {
        (0..self.directions).map(|direction| cx.read(b, &name(what, layer, direction))).collect()
    }

    fn layer_forward(
        &self,
        b: &mut Builder,
        cx: &Context,
        layer: usize,
        x: Value,
        context: Option<Value>,
        time: usize,
    ) -> Result<Forward> {
        let width = b.shape(x)[1];
        let mut reads = Vec::new();
        for direction in 0..self.directions {
            reads.push(self.share("ih", width, layer, direction).forward(b, cx, x)?);
        }
        reads.extend(self.each(b, cx, "weight_hh", layer)?);
        if self.bias {
            reads.extend(self.each(b, cx, "bias_hh", layer)?);
        }
        let mut op = self.op(cx, layer, time);
        let carried = cx.carried(b, &name("state", layer, 0));
        let state_len = self.state_len();
        let mut initial = match self.initial_state {
            InitialState::Zeros => None,
            InitialState::Learned => Some(cx.read(b, &name("state", layer, 0))?),
            InitialState::Context => Some(
                context
                    .ok_or_else(|| Error::Internal(format!("{} was lowered without a context", self.kind)))?,
            ),
        };
        match carried {
            Some(carried) if initial.is_none() => {
                op.initial = ops::recurrent::InitialState::Rows { offset: 0, stride: state_len };
                // By the time of the backward pass the state may have moved on.
                let copy = Slice { outer: 1, total: state_len, start: 0, length: state_len, guarded: false };
                let shape = b.shape(carried).clone();
                initial = Some(b.apply(copy, &[carried], "state", shape));
            }
            Some(_) => op.resumes = true,
            None => {}
        }
        reads.extend(initial);
        reads.extend(cx.mask);
        if op.resumes {
            reads.extend(carried);
        }
        op.state = carried.is_some();
        let kept = if op.keeps { self.directions } else { 0 };
        let results = std::iter::once(("y", self.output_of(op.sequences, time)))
            .chain(std::iter::repeat_n(("before", Shape::from([time, self.units])), kept))
            .chain(std::iter::repeat_n(("saved", Shape::from([time, self.cell.saved() * self.units])), kept))
            .chain(op.state.then(|| ("state", Shape::from([self.cell.states(), self.units]))));
        let results = b.apply_list(op, &reads, results);
        if let (Some(carried), Some(state)) = (carried, results.last()) {
            let keep = Slice { guarded: cx.carries_once_good(), ..Slice::kept(state_len, 0, state_len) };
            cx.carry(b, keep, &[*state], carried);
        }
        let mut saved = vec![x];
        saved.extend_from_slice(&results[1..1 + 2 * kept]);
        saved.extend(initial);
        Ok(Forward::saving(results[0], saved))
    }

    pub fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        if !cx.keeps {
            return Err(Error::Internal(format!("{} has kept nothing for a gradient", self.kind)));
        }
        let mut gradient = Some(gradient);
        let mut to_context = Vec::new();
        for (layer, lowered) in forward.inner.iter().enumerate().rev() {
            let Some(incoming) = gradient else { break };
            let want = Want { inputs: want.inputs || layer > 0, ..want };
            let (to_input, to_state) = self.layer_backward(b, cx, layer, lowered, incoming, want)?;
            to_context.extend(to_state);
            gradient = to_input;
            if let (Some(made), true) = (gradient, layer > 0) {
                gradient = Some(self.drop_out(b, cx, layer, made, "dx"));
            }
        }
        let mut made = vec![gradient];
        if self.initial_state == InitialState::Context {
            made.push(b.sum(&to_context));
        }
        Ok(made)
    }

    /// `r h` of every step (time, units), of what a GRU that resets first has kept.
    fn reset_states(&self, b: &mut Builder, saved: Value, time: usize) -> Value {
        let (total, length) = (self.cell.saved() * self.units, self.units);
        let slice = Slice { outer: time, total, start: total - length, length, guarded: false };
        b.apply(slice, &[saved], "reset", Shape::from([time, length]))
    }

    /// The gradients of a layer's input and of the context.
    fn layer_backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        layer: usize,
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<(Option<Value>, Option<Value>)> {
        let directions = self.directions;
        let Saved { input, before, saved, initial } = match forward.saved.split_first() {
            Some((input, rest)) if rest.len() >= 2 * directions => Saved {
                input: *input,
                before: &rest[..directions],
                saved: &rest[directions..2 * directions],
                initial: rest.get(2 * directions).copied(),
            },
            _ => return Err(Error::Internal(format!("{} lost what its gradient needs", self.kind))),
        };
        let (time, width) = (b.shape(input)[0], b.shape(input)[1]);
        let (units, gates) = (self.units, self.gates());
        let mut op = Recurrent { direction: Direction::InputGradient, ..self.op(cx, layer, time) };
        if initial.is_some() && self.initial_state == InitialState::Zeros {
            // Gradients end where the batch begins.
            op.initial = ops::recurrent::InitialState::Rows { offset: 0, stride: self.state_len() };
        }
        let to_parameter = self.initial_state == InitialState::Learned && want.parameters;
        let to_context = self.initial_state == InitialState::Context && want.inputs;
        op.state = to_parameter || to_context;

        let mut reads = vec![gradient];
        reads.extend(self.each(b, cx, "weight_hh", layer)?);
        if self.cell.is_gru() {
            reads.extend_from_slice(before);
        }
        reads.extend_from_slice(saved);
        if self.cell == Cell::Lstm {
            reads.extend(initial);
        }
        reads.extend(cx.mask);
        let splits = self.cell.splits_gradient();
        let shares = if splits { 2 * directions } else { directions };
        let state = match (to_context, initial) {
            (true, Some(context)) => Some(b.shape(context).clone()),
            _ if op.state => Some(Shape::from([directions, self.cell.states(), units])),
            _ => None,
        };
        let results = std::iter::repeat_n(("share gradient", Shape::from([time, gates])), shares)
            .chain(state.map(|shape| ("state gradient", shape)));
        let asked = b.cells.is_some() && layer + 1 == self.layers && self.has_cells();
        op.cell_gradients = asked;
        let steps = Shape::from([time, directions * units]);
        let results = results.chain(asked.then_some(("cell gradient", steps)));
        let made = b.apply_list(op, &reads, results);
        let to_state = made.get(shares).copied().filter(|_| to_parameter || to_context);
        if asked && let (Some(gradient), Some(states)) = (made.last(), self.cell_states(b, forward)) {
            b.report_cells(CellValues { path: cx.path.clone(), states, gradient: *gradient, mask: cx.real });
        }

        let mut to_input = Vec::new();
        for direction in 0..directions {
            let of_input = made[direction];
            let of_state = made[if splits { directions + direction } else { direction }];
            let of_x = self.share("ih", width, layer, direction);
            if want.parameters {
                of_x.contribute(b, cx, input, of_input)?;
                let of_h = self.share("hh", units, layer, direction);
                match self.cell {
                    Cell::ResetFirstGru => {
                        let reset = self.reset_states(b, saved[direction], time);
                        let shares = ResetShares { input: of_input, state: of_state };
                        shares.contribute(b, cx, &of_h, before[direction], reset)?;
                    }
                    _ => of_h.contribute(b, cx, before[direction], of_state)?,
                }
            }
            if want.inputs {
                to_input.push(of_x.input_gradient(b, cx, input, of_input)?);
            }
        }
        if let (true, Some(gradient)) = (to_parameter, to_state) {
            let op = BiasGradient { outer: 1, channels: self.state_len(), inner: 1 };
            cx.contribute(b, &name("state", layer, 0), op, &[gradient])?;
        }
        Ok((b.sum(&to_input), to_state.filter(|_| to_context)))
    }
}

/// The gradients of both shares of the pre-activations of a GRU that resets first. Its candidate's sum is of what
/// was reset, and not in the state's.
struct ResetShares {
    input: Value,
    state: Value,
}

impl ResetShares {
    /// Pushes the gradients of the hidden-to-hidden weight and its bias.
    fn contribute(
        &self,
        b: &mut Builder,
        cx: &Context,
        of_h: &Projection,
        before: Value,
        reset: Value,
    ) -> Result<()> {
        let weight = Projection { bias: None, ..of_h.clone() };
        // What both have is equal, so that nothing is left of it.
        let rest = Combination::new([Term::fixed(1.0), Term::fixed(-1.0)]);
        let shape = b.shape(self.input).clone();
        let candidate = b.apply(rest, &[self.input, self.state], "candidate gradient", shape.clone());
        if let Some(bias) = &of_h.bias {
            let gates = of_h.outputs;
            let op = BiasGradient { outer: shape.len() / gates, channels: gates, inner: 1 };
            cx.contribute(b, bias, op, &[self.input])?;
        }
        weight.contribute(b, cx, before, self.state)?;
        weight.contribute(b, cx, reset, candidate)
    }
}
