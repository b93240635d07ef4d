//! The loop of a recurrent layer over a sequence, in one or both directions of time.

mod cells;
mod cpu;
mod gpu;
mod gpu_alone;
mod gpu_cell;
mod gpu_kernel;
mod gpu_operands;
mod gpu_quantized;
mod gpu_resident;
mod gpu_stepwise;
#[cfg(test)]
mod quantized_tests;
#[cfg(test)]
mod tests;
mod weights;

use super::Direction;
use std::fmt;

/// How a recurrent layer makes its next state; gates are in PyTorch's order.
///
/// With z the gates' pre-activations, that is the input's share and `h W + b`:
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// `h = tanh(z)`.
    Tanh,
    /// `h = max(z, 0)`.
    Relu,
    /// `i, f, o = sigmoid(z)`, `g = tanh(z)`, `c = f c + i g`, `h = o tanh(c)`; gates i, f, g, o
    /// (Hochreiter and Schmidhuber 1997, with forget gate).
    Lstm,
    /// `r, z = sigmoid(z)`, `n = tanh(x_n + r (h W_n + b_n))`, `h = n + z (h - n)`; gates r, z, n
    /// (reset after the product, as in cuDNN and PyTorch).
    Gru,
    /// The same with `n = tanh(x_n + (r h) W_n + b_n)`: reset before the product (Cho et al. 2014).
    ResetFirstGru,
}

impl Cell {
    /// Numbers that a unit's pre-activation has.
    pub fn gates(self) -> usize {
        match self {
            Cell::Tanh | Cell::Relu => 1,
            Cell::Lstm => 4,
            Cell::Gru | Cell::ResetFirstGru => 3,
        }
    }

    /// Numbers that a unit's state has: the hidden state h, then an LSTM's cell state c.
    pub fn states(self) -> usize {
        match self {
            Cell::Lstm => 2,
            _ => 1,
        }
    }

    /// Numbers a unit leaves at each step for the gradient: h, or i, f, g, o, c, or r, z, n and what r
    /// is multiplied by; for a GRU that resets first r, z, n and r h.
    pub fn saved(self) -> usize {
        match self {
            Cell::Tanh | Cell::Relu => 1,
            Cell::Lstm => 5,
            Cell::Gru | Cell::ResetFirstGru => 4,
        }
    }

    /// Whether it has the gates of a GRU.
    pub fn is_gru(self) -> bool {
        matches!(self, Cell::Gru | Cell::ResetFirstGru)
    }

    /// Whether the gradients of the input's share and of the state's share differ.
    pub fn splits_gradient(self) -> bool {
        self.is_gru()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cell::Tanh => "rnn_tanh",
            Cell::Relu => "rnn_relu",
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
            Cell::ResetFirstGru => "gru_reset_first",
        })
    }
}

/// What the state is before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InitialState {
    /// Zeros.
    Zeros,
    /// Read from an operand (directions, states, units) without a batch axis.
    Shared,
    /// Read from an operand with `stride` elements a row, of which (directions, states, units) from
    /// element `offset` on are this loop's.
    Rows {
        /// Where this loop's part of a row starts.
        offset: usize,
        /// Elements of a row.
        stride: usize,
    },
}

/// The loop over a sequence's steps, forward and backward.
///
/// The input's share of the pre-activations is made before it, by one product over time and batch, and
/// so are the weights' gradients after it, from the gradients of the pre-activations. Direction 0 goes
/// forward in time, direction 1, where there is one, backward; "each" means once for each direction.
///
/// Forward reads
/// - each: the input's share (time, gates x units);
/// - each: the hidden-to-hidden weight (units, gates x units), plain or packed;
/// - each, with a `bias`: the state's bias (gates x units,);
/// - with an `initial` state that is not zeros: that;
/// - with a `mask`: (time,), 0 where the step is padding: the state stays as it is;
/// - where it `resumes`: a state (directions, states, units), which replaces the initial one where the
///   session has seen steps before;
///
/// and writes
/// - y: with `sequences` (time, directions x units), zero at padded steps; else the last h
///   (directions x units);
/// - if it `keeps` for the gradient, each: h before each step (time, units);
/// - then, each: what [`Cell::saved`] says (time, saved x units), of a padded step zeros but for c;
/// - with `state`: the last state (directions, states, units).
///
/// Input gradient reads
/// - dy, of y's extents;
/// - each: the hidden-to-hidden weight;
/// - each: h before each step, for a GRU;
/// - each: what was saved;
/// - the initial state, for an LSTM where it is not zeros;
/// - the mask, if there is one;
///
/// and writes
/// - each: the gradient of the input's share (time, gates x units);
/// - each, for a GRU: the gradient of the state's share, that is of `h W + b`; for one that resets first zero
///   for the last gate, whose sum is not of h but of `r h`; for the other cells they are the same;
/// - with `state`: the gradient of the initial state, laid out a row as the `Rows` it came from, zero
///   outside of this loop's part; (directions, states, units) if it is shared;
/// - with `cell_gradients`: the gradient of an LSTM's c, or of the others' h, after each step (time,
///   directions x units), with all that reaches it through later steps and through the output; zero at
///   padded steps.
///
/// Sums over units run in order from the input's share (or, backward, from the gradient that comes from
/// the output) with fused multiply-add; that of the gradient of `r h` starts at zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recurrent {
    /// How the next state is made.
    pub cell: Cell,
    /// Forward or input gradient.
    pub direction: Direction,
    /// Steps of the sequence.
    pub time: usize,
    /// Numbers of the hidden state in each direction.
    pub units: usize,
    /// 1: forward in time; 2: backward as well.
    pub directions: usize,
    /// Whether y has every step.
    pub sequences: bool,
    /// Whether a bias is added to the state's share.
    pub bias: bool,
    /// Where the loop starts.
    pub initial: InitialState,
    /// Whether steps may be padding.
    pub mask: bool,
    /// Whether the loop goes on from where a session's last call ended.
    pub resumes: bool,
    /// Whether the forward direction keeps what the gradient needs.
    pub keeps: bool,
    /// Whether the last state is written, or the gradient of the initial one.
    pub state: bool,
    /// Whether the gradient of the cell's state after each step is written; of the input gradient.
    pub cell_gradients: bool,
    /// For each direction whether each row's h is quantised to int8 before every step and multiplied with the
    /// codes of the weight, which is packed in symmetric integers, as
    /// [`integer_product`](crate::matrix::integer_product) says; of the forward direction in single
    /// precision.
    pub quantized: [bool; 2],
}

impl Recurrent {
    /// The numbers of a row's state: (directions, states, units).
    pub fn state_len(&self) -> usize {
        self.directions * self.cell.states() * self.units
    }

    /// Elements of a row of the initial state, and where this loop's start in it.
    fn initial_extents(&self) -> (usize, usize) {
        match self.initial {
            InitialState::Rows { offset, stride } => (stride, offset),
            InitialState::Zeros | InitialState::Shared => (self.state_len(), 0),
        }
    }

    /// Whether a direction multiplies quantised states.
    fn is_quantized(&self, direction: usize) -> bool {
        self.direction == Direction::Forward && self.quantized[direction]
    }

    /// The numbers of a row of all steps' states in both directions.
    fn steps_len(&self) -> usize {
        self.time * self.directions * self.units
    }

    /// The numbers of a row of y.
    fn output_len(&self) -> usize {
        self.directions * self.units * if self.sequences { self.time } else { 1 }
    }
}

/// `recurrent.forward lstm 64 x32 both`
impl fmt::Display for Recurrent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recurrent.{} {} {} x{}", self.direction, self.cell, self.units, self.time)?;
        if self.directions == 2 {
            write!(f, " both")?;
        }
        if self.sequences {
            write!(f, " sequences")?;
        }
        if self.initial != InitialState::Zeros {
            write!(f, " from_state")?;
        }
        if self.mask {
            write!(f, " masked")?;
        }
        if self.cell_gradients {
            write!(f, " cells")?;
        }
        if self.is_quantized(0) || self.is_quantized(1) {
            write!(f, " int8")?;
        }
        Ok(())
    }
}
