//! A network, a batch capacity and a mode, lowered to a list of steps over
//! planned buffers: immutable, printable, run by an engine.
//!
//! Every value has one writer and any number of readers. What persists beyond a
//! run (masters, gradients, optimizer moments, running statistics) stands in the
//! network's registry; a step names it by [`Place`].

mod access;
mod builder;
mod dump;
mod engine;
mod evaluating;
mod frames;
mod memory;
mod plan;
mod prepare;
mod rewrite;
#[cfg(test)]
mod rewrite_tests;
mod saved;
#[cfg(feature = "gpu")]
mod sharing;
#[cfg(feature = "gpu")]
mod together;

pub use crate::state::{LayerPath, ParameterRef, Place, Value};
pub use access::{Access, Part, PartOwner};
pub use builder::{Builder, CellValues, InnerGradient};
pub use engine::{Engine, Frames, Provider, Run, RunMemory};
pub(crate) use engine::{is_same, resolve};
pub use frames::{FrameStep, FrameTick, Outcome, Outcomes, Resident};
pub use rewrite::{MOST_UPDATED_ROWS, Rewrites};
#[cfg(feature = "gpu")]
pub(crate) use sharing::{LARGE, Sharing};
#[cfg(feature = "gpu")]
pub(crate) use together::{Together, Unit, units};

use crate::ops::{Op, Term};
use crate::tensor::{Precision, Shape};

/// What the elements of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Numbers in the network's precision.
    Real,
    /// 32-bit signed integers: class labels, indices of maxima.
    Index,
}

/// What is known of a value when the program is built.
#[derive(Clone, Debug)]
pub struct ValueInfo {
    /// What it is, for dumps: `input`, `weight`, `z`, `a`, `dx`...
    pub label: &'static str,
    /// Extents of one row; of the whole where `per_row` is false.
    pub shape: Shape,
    /// Whether there is one such shape for each row of the batch.
    pub per_row: bool,
    /// What its elements are.
    pub kind: Kind,
    /// Where its elements are.
    pub place: Place,
    /// Whether it must keep its content until the run ends.
    pub pinned: bool,
}

impl ValueInfo {
    /// Elements for a batch of `rows`.
    pub fn len(&self, rows: usize) -> usize {
        self.shape.len() * if self.per_row { rows } else { 1 }
    }

    /// Whether a row holds no element.
    pub fn is_empty(&self) -> bool {
        self.shape.is_empty()
    }
}

/// The parts of a program, in the order they run; an engine can stop between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// What is made of parameters alone, in programs that do not move them: once for all runs between two moves.
    Prepare,
    /// Input to output.
    Forward,
    /// The loss and its gradient.
    Loss,
    /// Gradients of inputs and parameters.
    Backward,
    /// Where gradients may be exchanged between machines.
    Exchange,
    /// Norms, clipping factors, permission to update.
    Verdict,
    /// What layers keep and carry takes on what the step has made of it.
    States,
    /// Optimizers write the masters.
    Update,
    /// Versions are encoded anew.
    Commit,
}

/// How a step writes to its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Write {
    /// Overwrites.
    #[default]
    Set,
    /// Adds to what is there.
    Add,
    /// Overwrites a gradient that is zeroed, adds to one that is not: known when it runs.
    First,
}

/// One operation with what it reads and writes.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is computed.
    pub op: Op,
    /// Its operands, in the order the operation documents.
    pub reads: Vec<Value>,
    /// Its results, in the order the operation documents.
    pub writes: Vec<Value>,
    /// How the results are written.
    pub write: Write,
    /// When it runs.
    pub phase: Phase,
    /// The layer it belongs to; `None` for the trainer's own steps.
    pub at: Option<LayerPath>,
    /// What keys its random draws: a number for that layer.
    pub path: u32,
    /// A value that is to be there first although it is not read, since what is made would take up memory before
    /// anyone needs it.
    pub after: Option<Value>,
}

/// A layer's part of the history, for looking at it after a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct LayerValues {
    /// What the layer read.
    pub input: Value,
    /// Before the activation, where the layer has one.
    pub preactivation: Option<Value>,
    /// What it handed on.
    pub output: Value,
    /// The gradient of what it read, as far as that goes through this layer; where it is kept and there is one.
    pub input_gradient: Option<Value>,
    /// Which steps of what it handed on are real, by numbers other than 0, where some are padding.
    pub real: Option<Value>,
}

impl LayerValues {
    /// Those there are.
    fn all(&self) -> [Option<Value>; 5] {
        [Some(self.input), self.preactivation, Some(self.output), self.input_gradient, self.real]
    }

    /// What figures are made of.
    pub(crate) fn figured(&self) -> impl Iterator<Item = Value> + use<> {
        std::iter::once(self.output).chain(self.real)
    }
}

/// A layer inside a composite one, as it was lowered.
#[derive(Clone, Debug)]
pub struct InnerLayer {
    /// Where it stands.
    pub path: LayerPath,
    /// What the names of its parameters start with in the layer of the cell: `layers.0`.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its kind and settings.
    pub config: serde_json::Value,
    /// What it read and made.
    pub values: LayerValues,
}

/// The target of a layer's output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetValue {
    /// As it stands.
    Value(Value),
    /// The output plus this many times the gradient of the loss.
    Gradient(Value, Term),
}

/// The values that callers hand in and read out.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// The batch.
    pub input: Option<Value>,
    /// The network's output.
    pub output: Option<Value>,
    /// Class indices or real targets.
    pub target: Option<Value>,
    /// One factor a row.
    pub sample_weight: Option<Value>,
    /// The loss of each row, times its weight.
    pub row_losses: Option<Value>,
    /// The gradient of the loss with respect to the output.
    pub output_gradient: Option<Value>,
    /// The gradients of the loss with respect to the named outputs, where there are such.
    pub output_gradients: Vec<Value>,
    /// The gradient with respect to the input.
    pub input_gradient: Option<Value>,
    /// The global norm of the gradients.
    pub gradient_norm: Option<Value>,
    /// What a look ahead at all that the step is about to write has found, on devices that look ahead.
    pub foreseen: Option<Value>,
    /// What it has looked at, in order: the layer and where it stands.
    pub foresight: Vec<(Option<LayerPath>, Place)>,
    /// The memory of the measures, where every layer is measured.
    pub measures: Option<Value>,
    /// Whether the step is judged by them.
    pub judges: bool,
    /// Whether that may take the step before back.
    pub recovers: bool,
    /// What each layer read and made, by path; filled where the program pins them.
    pub layers: Vec<(LayerPath, LayerValues)>,
    /// The same of layers inside others; filled where the program looks inside.
    pub inner: Vec<InnerLayer>,
    /// What was asked for, each in one or several values.
    pub asked: Vec<Vec<Value>>,
    /// The target of each layer's output, by the layer's number; filled where the program pins layers and
    /// makes targets.
    pub targets: Vec<(usize, TargetValue)>,
}

impl Ports {
    /// The outputs of layers that are pinned, those inside others as well, and which of their steps are real.
    pub(crate) fn looked_at(&self) -> impl Iterator<Item = Value> + '_ {
        let layers = self.layers.iter().map(|(_, values)| values);
        layers.chain(self.inner.iter().map(|layer| &layer.values)).flat_map(LayerValues::figured)
    }

    /// Every value that somebody outside looks at or fills.
    fn values(&self) -> impl Iterator<Item = Value> + '_ {
        let named = [
            self.input,
            self.output,
            self.target,
            self.sample_weight,
            self.row_losses,
            self.output_gradient,
            self.input_gradient,
            self.gradient_norm,
            self.measures,
        ];
        let layers = self.layers.iter().map(|(_, values)| values);
        let layers = layers.chain(self.inner.iter().map(|layer| &layer.values)).flat_map(LayerValues::all);
        let layers = layers.chain(self.asked.iter().flatten().map(|value| Some(*value)));
        let targets = self.targets.iter().map(|(_, target)| match target {
            TargetValue::Value(value) | TargetValue::Gradient(value, _) => Some(*value),
        });
        named.into_iter().chain(layers).chain(targets).flatten()
    }
}

/// A network lowered for one mode and any number of rows up to `capacity`.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) values: Vec<ValueInfo>,
    pub(crate) steps: Vec<Step>,
    /// Bytes of each planned buffer at full capacity.
    pub(crate) buffers: Vec<usize>,
    pub(crate) capacity: usize,
    pub(crate) precision: Precision,
    pub(crate) ports: Ports,
}

impl Program {
    /// The steps, in the order they run.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What is known of a value.
    pub fn value(&self, value: Value) -> &ValueInfo {
        &self.values[value.index()]
    }

    /// The values that callers hand in and read out.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// The most rows a run may hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The arithmetic of its real values.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes that a run of this program allocates.
    pub fn run_bytes(&self) -> usize {
        self.buffers.iter().sum()
    }

    /// Whether steps of it are run only when parameters have moved.
    pub(crate) fn prepares(&self) -> bool {
        self.steps.first().is_some_and(|step| step.phase == Phase::Prepare)
    }

    /// Whether steps of it are computed by the host, wherever it runs.
    pub(crate) fn computes_on_host(&self) -> bool {
        self.steps.iter().any(|step| matches!(&step.op, Op::Custom(custom) if custom.0.on_host()))
    }

    /// Whether it overwrites what layers keep or carry once the step has been found good.
    pub(crate) fn commits_states(&self) -> bool {
        let kept = |value: &Value| {
            matches!(self.value(self.owner(*value)).place, Place::State(_) | Place::Carried(_))
        };
        self.steps.iter().any(|step| step.phase == Phase::States && step.writes.iter().any(kept))
    }

    /// Whether it reads or writes what layers carry from call to call.
    pub(crate) fn carries(&self) -> bool {
        self.values.iter().any(|info| matches!(info.place, Place::Carried(_)))
    }

    /// Follows aliases to the value that owns the memory.
    pub(crate) fn owner(&self, value: Value) -> Value {
        owner(&self.values, value)
    }
}

fn owner(values: &[ValueInfo], mut value: Value) -> Value {
    while let Place::Alias(of) = values[value.index()].place {
        value = of;
    }
    value
}
