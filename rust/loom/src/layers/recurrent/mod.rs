//! Recurrent layers: RNN, LSTM and GRU over sequences.

mod cells;
#[cfg(test)]
mod cells_tests;
mod stack;
mod targets;

use super::kind_registry::Configured;
use super::settings::{forms, kind_and_config, names, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, Steps, TargetRules, Want};
use crate::ops::recurrent::Cell;
use crate::program::{Builder, Value};
use crate::state::CarriedSpec;
use crate::tensor::Shape;
use crate::weights::Initializer;
use crate::{Error, Result, extents};
use serde::{Deserialize, Serialize};
use stack::Stack;

pub use stack::InitialState;

/// The function of a plain recurrent layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nonlinearity {
    /// The hyperbolic tangent.
    #[default]
    Tanh,
    /// The larger of the number and 0.
    Relu,
}

forms! {
    InitialState => names(&[Self::Zeros, Self::Learned, Self::Context]),
    Nonlinearity => names(&[Self::Tanh, Self::Relu]),
}

/// A recurrent layer's config with what follows from it; the three differ in their cell alone.
macro_rules! recurrent {
    (
        $(#[$doc:meta])*
        $name:ident, $kind:literal, cell: $cell:expr, also: $also:expr,
        { $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr $(; $unwritten:ident)?,)* }
    ) => {
        settings! {
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name $kind {
                /// Numbers of the hidden state, in each direction.
                units: usize [least 1],
            } optional {
                $($(#[$field_doc])* $field: $type = $default $(; $unwritten)?,)*
                /// Layers on top of each other, each over all steps of the one below.
                layers: usize [least 1, most extents::MOST_PARTS] = 1; unwritten,
                /// Whether a second loop reads the sequence from its end; its states stand after the first's.
                bidirectional: bool = false; unwritten,
                /// Whether the output has every step, instead of the last state alone.
                return_sequences: bool = false; unwritten,
                /// Whether trained numbers are added to the pre-activations.
                bias: bool = true,
                /// Probability of zeroing what one layer of the stack hands the next, in training.
                dropout: f64 [least 0.0, below 1.0] = 0.0; unwritten,
                /// Whether in training each batch goes on from the states that the one before it has left.
                stateful: bool = false; unwritten,
                /// Where the state starts.
                initial_state: InitialState = InitialState::Zeros; unwritten,
                /// How input weights start; Xavier normal unless named.
                weight_initializer: Option<Initializer> = None,
                /// How hidden-to-hidden weights start; orthogonal, each gate by itself, unless named.
                recurrent_initializer: Option<Initializer> = None,
            }
        }

        impl $name {
            /// One layer, forward in time, that hands on its last state.
            pub fn new(units: usize) -> Self {
                Self::with_defaults(units)
            }

            /// That hands on every step.
            pub fn return_sequences(self) -> Self {
                Self { return_sequences: true, ..self }
            }

            /// In both directions of time.
            pub fn bidirectional(self) -> Self {
                Self { bidirectional: true, ..self }
            }

            /// With so many layers on top of each other.
            pub fn layers(self, layers: usize) -> Self {
                Self { layers, ..self }
            }

            fn stack(&self) -> Stack {
                let cell: fn(&Self) -> Cell = $cell;
                Stack {
                    kind: stringify!($name),
                    cell: cell(self),
                    units: self.units,
                    layers: self.layers,
                    directions: if self.bidirectional { 2 } else { 1 },
                    return_sequences: self.return_sequences,
                    bias: self.bias,
                    dropout: self.dropout,
                    stateful: self.stateful,
                    initial_state: self.initial_state,
                    weight_initializer: self.weight_initializer,
                    recurrent_initializer: self.recurrent_initializer,
                }
            }
        }

        impl Layer for $name {
            kind_and_config!();

            fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
                self.stack().output_shape(inputs)
            }

            fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
                self.stack().parameters(inputs)
            }

            fn carried(&self, _inputs: &[Shape], _length: usize) -> Vec<CarriedSpec> {
                self.stack().carried()
            }

            fn takes_context(&self) -> bool {
                self.initial_state == InitialState::Context
            }

            fn is_stepwise(&self) -> bool {
                !self.bidirectional
            }

            fn steps(&self) -> Steps {
                if self.return_sequences { Steps::Kept } else { Steps::Pooled }
            }

            fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
                self.stack().forward(b, cx, inputs)
            }

            fn backward(
                &self,
                b: &mut Builder,
                cx: &Context,
                _inputs: &[Value],
                forward: &Forward,
                gradient: Value,
                want: Want,
            ) -> Result<Vec<Option<Value>>> {
                self.stack().backward(b, cx, forward, gradient, want)
            }

            fn target_rules(&self) -> &dyn TargetRules {
                self
            }
        }

        impl TargetRules for $name {
            fn target(
                &self,
                b: &mut Builder,
                cx: &Context,
                _inputs: &[Value],
                forward: &Forward,
                target: Value,
            ) -> Result<Option<Value>> {
                self.stack().target(b, cx, forward, target).map(Some)
            }

            fn target_range(&self) -> Option<(f64, f64)> {
                self.stack().target_range()
            }
        }

        impl Configured for $name {
            fn validate(&self) -> Result<()> {
                self.stack().validate()
            }

            fn samples() -> Vec<Sample> {
                let layer = Self::new;
                let learned = Self { initial_state: InitialState::Learned, ..layer(3).bidirectional() };
                let both = Self { bias: false, ..layer(3).bidirectional().return_sequences() };
                let stateful = Self { stateful: true, ..layer(4).layers(2).return_sequences() };
                let context = Self { initial_state: InitialState::Context, ..layer(2).layers(2) };
                let states = 2 * layer(2).stack().cell.states() * 2;
                let named = Self {
                    dropout: 0.4,
                    weight_initializer: Some(Initializer::Normal { std: 0.3 }),
                    recurrent_initializer: Some(Initializer::Orthogonal { gain: 0.7 }),
                    ..layer(5).layers(2)
                };
                let last = layer(17).return_sequences();
                let also: fn() -> Vec<Sample> = $also;
                let mut samples = vec![
                    Sample::new(layer(2), [131, 1]),
                    Sample::new(layer(1), [1, 1]),
                    Sample::new(learned.layers(2), [4, 3]),
                    Sample::new(both, [5, 2]),
                    Sample::new(stateful, [3, 2]),
                    Sample::new(context, [3, 2]).context([states]),
                    Sample::new(named, [2, 3]),
                    Sample::new(last, [33, 3]),
                    Sample::new(layer(3).bidirectional().return_sequences(), [4, 2]).masked(),
                    Sample::new(layer(3).layers(2), [5, 2]).masked(),
                ];
                samples.extend(also());
                samples
            }
        }
    };
}

recurrent!(
    /// Plain recurrence: `h = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh)`, (time, features) to
    /// (time, units) or (units,); twice as many units in both directions.
    ///
    /// Parameters have PyTorch's names and, outside, its layouts: `weight_ih_l0` (units, features),
    /// `weight_hh_l0` (units, units), `bias_ih_l0` and `bias_hh_l0` (units,), `..._reverse` for the second
    /// direction, `..._l1` for the second layer.
    ///
    /// At padded steps of a masked sequence the state stays as it is, and the output is zero.
    Rnn, "rnn", cell: |layer| match layer.activation {
        Nonlinearity::Tanh => Cell::Tanh,
        Nonlinearity::Relu => Cell::Relu,
    },
    also: Vec::new,
    {
        /// Applied to the pre-activation.
        activation: Nonlinearity = Nonlinearity::Tanh,
    }
);

recurrent!(
    /// Long short-term memory, (time, features) to (time, units) or (units,); twice as many units in
    /// both directions.
    ///
    /// With z = x W_ih^T + b_ih + h W_hh^T + b_hh in four parts: `i, f, o = sigmoid(z)`, `g = tanh(z)`,
    /// `c = f c + i g`, `h = o tanh(c)`. Parameters have PyTorch's names and, outside, its layouts, gates in
    /// its order i, f, g, o: `weight_ih_l0` (4 units, features), `weight_hh_l0` (4 units, units),
    /// `bias_ih_l0` and `bias_hh_l0` (4 units,), `..._reverse` for the second direction, `..._l1` for the
    /// second layer. The forget gate's part of `bias_ih` starts at 1.
    ///
    /// At padded steps of a masked sequence the state stays as it is, and the output is zero.
    Lstm, "lstm", cell: |_| Cell::Lstm, also: Vec::new, {}
);

recurrent!(
    /// Gated recurrent unit, (time, features) to (time, units) or (units,); twice as many units in both
    /// directions.
    ///
    /// With x and h for the input's and the state's share of each gate: `r, z = sigmoid(x + h)`,
    /// `n = tanh(x_n + r h_n)`, `h = (1 - z) n + z h`; where it does not reset after the product,
    /// `n = tanh(x_n + (r h) W_n^T + b_n)`. Parameters have PyTorch's names and, outside, its layouts, gates in
    /// its order r, z, n, as [`Lstm`]'s with 3 units for 4.
    ///
    /// At padded steps of a masked sequence the state stays as it is, and the output is zero.
    Gru, "gru", cell: |layer| if layer.reset_after { Cell::Gru } else { Cell::ResetFirstGru },
    also: || {
        let first = |units| Gru { reset_after: false, ..Gru::new(units) };
        let learned = Gru { initial_state: InitialState::Learned, ..first(3).bidirectional() };
        let both = Gru { bias: false, ..first(2).bidirectional().return_sequences() };
        let stateful = Gru { stateful: true, ..first(4).layers(2).return_sequences() };
        let context = Gru { initial_state: InitialState::Context, ..first(3) };
        vec![
            Sample::new(first(2), [40, 1]),
            Sample::new(learned.layers(2), [4, 3]),
            Sample::new(both, [5, 2]),
            Sample::new(stateful, [3, 2]),
            Sample::new(context, [3, 2]).context([3]),
            Sample::new(first(17).return_sequences(), [9, 3]),
            Sample::new(first(3).bidirectional().return_sequences(), [4, 2]).masked(),
        ]
    },
    {
        /// Whether the reset gate takes the state's share of the candidate, made already, or the state before it
        /// is multiplied (Cho et al. 2014).
        reset_after: bool = true; unwritten,
    }
);
