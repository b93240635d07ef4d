//! What passes between the network and a layer: what the layer asks for, and what it finds while it lowers itself.

use crate::dtype::DType;
use crate::matrix::IntegerWeight;
use crate::ops::{CacheType, Decode, Op};
use crate::program::{Builder, LayerPath, ParameterRef, Place, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result};
use std::borrow::Cow;

/// A parameter that a layer asks for.
#[derive(Clone, Debug)]
pub struct ParameterSpec {
    /// Its name in the layer, such as `weight`.
    pub name: Cow<'static, str>,
    /// How it is stored and how the outside sees it.
    pub layout: Layout,
    /// How it starts.
    pub initializer: Initializer,
    /// Inputs that meet in one output, for the initialiser's scale.
    pub fan_in: usize,
    /// Outputs that one input reaches, for the initialiser's scale.
    pub fan_out: usize,
    /// Whether it takes on the layer's numeric type, which all operations that read it must then take; biases
    /// and gains stay float, and are decoded before they are read where they are packed by name.
    pub morphable: bool,
    /// Whether it is a bias or the gain of a norm, which an optimizer's `decay_exempt` leaves out of the decay.
    pub decay_exempt: bool,
    /// Whether it is the weight of a product beside which a product of low rank may stand; see [`BoundAdapter`].
    pub adaptable: bool,
}

/// A parameter as a layer finds it while lowering.
#[derive(Clone, Debug)]
pub struct BoundParameter {
    /// Its name in the layer.
    pub name: Cow<'static, str>,
    /// Where it is.
    pub reference: ParameterRef,
    /// Its storage extents.
    pub shape: Shape,
    /// The packed type the forward pass reads; `None` for the master.
    pub active: Option<DType>,
    /// Whether operations read it packed; otherwise it is decoded for them.
    pub reads_packed: bool,
    /// Whether products with the packed type quantise their other operand to int8.
    pub quantized: bool,
    /// Whether it is packed in blocks along its rows, so that products with the transpose can do so, too.
    pub by_rows: bool,
    /// Whether its gradient is wanted where those of the layer's parameters are.
    pub trained: bool,
    /// What is read in its place, where the layer around this one makes that of it.
    pub made: Option<Value>,
}

impl BoundParameter {
    /// As the forward pass reads it.
    pub(super) fn read(&self, b: &mut Builder) -> Value {
        if let Some(made) = self.made {
            return made;
        }
        let value = b.parameter(self.reference, self.shape.clone(), self.active);
        if self.active.is_some() && !self.reads_packed {
            return b.apply_fixed(Decode, &[value], "decoded", self.shape.clone());
        }
        if self.quantized && self.active.is_some() {
            b.quantize_activations(value);
        }
        value
    }

    /// Whether products with its transpose quantise their other operand.
    pub(super) fn multiplies_codes_by_rows(&self) -> bool {
        self.quantized
            && self.by_rows
            && self.active.is_some_and(|dtype| IntegerWeight::TYPES.contains(&dtype))
    }

    /// Pushes what adds to its gradient, unless nothing trains it; of what is read in its place whoever made that
    /// [finds](Builder::take_gradient) the gradient.
    pub(super) fn contribute(&self, b: &mut Builder, op: impl Into<Op>, reads: &[Value]) {
        match self.made {
            _ if !self.trained => {}
            None => b.contribute(op, reads, self.reference, self.shape.clone()),
            Some(made) => {
                let gradient = b.apply_fixed(op, reads, "gradient", self.shape.clone());
                b.leave_gradient(made, gradient);
            }
        }
    }
}

/// A product of low rank beside that with a weight, as a layer finds it while lowering.
#[derive(Clone, Debug)]
pub struct BoundAdapter {
    /// The name of the weight in the layer.
    pub weight: Cow<'static, str>,
    /// What makes a few numbers of what the weight multiplies, (rank, inputs).
    pub down: BoundParameter,
    /// What makes outputs of these, (outputs, rank).
    pub up: BoundParameter,
    /// The length of what each output is made with, (outputs,), where weights are decomposed into length and
    /// direction.
    pub magnitude: Option<BoundParameter>,
    /// What the outputs are multiplied by.
    pub scale: f64,
    /// With which probability training zeroes what it reads.
    pub dropout: f64,
    /// Its number among those of the layer of the cell.
    pub number: usize,
}

/// What a layer keeps or carries, as it finds it while lowering.
#[derive(Clone, Debug)]
pub struct BoundState {
    /// Its name in the layer.
    pub name: Cow<'static, str>,
    /// Its number among those of the network.
    pub number: usize,
    /// Its extents; those of one row for what is carried.
    pub shape: Shape,
}

/// Where what layers carry lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrying {
    /// In memory of its own, from call to call.
    #[default]
    Calls,
    /// In the ring of a mesh, from tick to tick.
    Ticks,
    /// There, in a program that computes a tick again: what it left for the next one stays.
    Again,
}

/// What a layer knows while it lowers itself.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Where the layer stands.
    pub path: LayerPath,
    /// What the names of its parameters start with in the layer of the cell that it is inside, if it is.
    pub name: String,
    /// Whether dropout and the like are on.
    pub training: bool,
    /// Whether a backward pass may follow: what it needs is kept.
    pub keeps: bool,
    /// Whether the program belongs to a session, which goes on from where its last call ended.
    pub session: bool,
    /// What such a session keeps keys and values as.
    pub cache: CacheType,
    /// Its parameters, in the order it asked for them.
    pub parameters: Vec<BoundParameter>,
    /// What stands beside its weights.
    pub adapters: Vec<BoundAdapter>,
    /// What it keeps.
    pub states: Vec<BoundState>,
    /// What it carries from call to call, or from tick to tick, in this program.
    pub carried: Vec<BoundState>,
    /// Which of the two, and where.
    pub carrying: Carrying,
    /// Which steps of a sequence are real: (time,) a row, 0 in padding, and 1 where real; of rows that hold several
    /// sequences the number of a step's, from 1 on.
    pub mask: Option<Value>,
    /// The same of rows whose ends are padding, which alone is left out of what is measured: not of steps that a
    /// layer hides from those inside it.
    pub real: Option<Value>,
}

impl Context {
    /// The parameter of this name.
    ///
    /// # Errors
    /// [`Error::Internal`] where the layer never asked for it.
    pub fn parameter(&self, name: &str) -> Result<&BoundParameter> {
        self.parameters
            .iter()
            .find(|parameter| parameter.name == name)
            .ok_or_else(|| Error::Internal(format!("layer {} has no parameter \"{name}\"", self.path)))
    }

    /// The parameter of this name as the forward pass reads it.
    ///
    /// # Errors
    /// As [`parameter`](Self::parameter).
    pub fn read(&self, b: &mut Builder, name: &str) -> Result<Value> {
        let parameter = self.parameter(name)?;
        Ok(parameter.read(b))
    }

    /// Whether gradients of any of its parameters, or of what stands beside them, are wanted.
    pub(super) fn trains(&self) -> bool {
        let beside = self
            .adapters
            .iter()
            .flat_map(|adapter| [Some(&adapter.down), Some(&adapter.up), adapter.magnitude.as_ref()]);
        self.parameters.iter().chain(beside.flatten()).any(|parameter| parameter.trained)
    }

    /// What stands beside the weight of this name.
    pub(super) fn adapters_of(&self, weight: &str) -> impl Iterator<Item = &BoundAdapter> {
        self.adapters.iter().filter(move |adapter| adapter.weight == weight)
    }

    /// Pushes what adds to the gradient of the parameter of this name, unless nothing trains it.
    ///
    /// # Errors
    /// As [`parameter`](Self::parameter).
    pub fn contribute(&self, b: &mut Builder, name: &str, op: impl Into<Op>, reads: &[Value]) -> Result<()> {
        self.parameter(name)?.contribute(b, op, reads);
        Ok(())
    }

    /// What the layer keeps under this name.
    ///
    /// # Errors
    /// [`Error::Internal`] where the layer never asked for it.
    pub fn state(&self, b: &mut Builder, name: &str) -> Result<Value> {
        let state = self
            .states
            .iter()
            .find(|state| state.name == name)
            .ok_or_else(|| Error::Internal(format!("layer {} keeps no \"{name}\"", self.path)))?;
        Ok(b.state("state", state.shape.clone(), state.number))
    }

    /// What the layer carries under this name, in programs that carry anything: sessions, and
    /// training and ticks where the layer asked for it.
    pub fn carried(&self, b: &mut Builder, name: &str) -> Option<Value> {
        let BoundState { shape, number, .. } = self.carried.iter().find(|carried| carried.name == name)?;
        Some(match self.carrying {
            Carrying::Calls => b.carried("carried", shape.clone(), *number),
            // What the tick before has left.
            Carrying::Ticks | Carrying::Again => b.ring("carried", shape.clone(), *number, 1),
        })
    }

    /// Whether what is carried is overwritten only once the step has been found good: in training.
    pub fn carries_once_good(&self) -> bool {
        !self.session && self.carrying == Carrying::Calls
    }

    /// Pushes what overwrites something carried: at once in a session, whose later steps may read it;
    /// in training once the step has been found good; at a tick for the next one.
    pub fn carry(&self, b: &mut Builder, op: impl Into<Op>, reads: &[Value], carried: Value) {
        match (self.carrying, b.info(carried).place) {
            (Carrying::Ticks, Place::Ring { member, .. }) => {
                let shape = b.shape(carried).clone();
                let next = b.ring("carried", shape, member, 0);
                b.effect(op, reads, &[next]);
            }
            (Carrying::Calls, _) if self.session => b.effect(op, reads, &[carried]),
            (Carrying::Calls, _) => b.commit(op, reads, &[carried]),
            _ => {}
        }
    }

    /// What a layer inside this one knows: number `index`, whose names all start with `name` and a dot.
    pub fn inner(&self, index: usize, name: &str) -> Self {
        let inner = |full: &Cow<'static, str>| {
            let rest = full.strip_prefix(name)?.strip_prefix('.')?;
            Some(Cow::Owned(rest.to_string()))
        };
        let states = |states: &[BoundState]| {
            states.iter().filter_map(|s| Some(BoundState { name: inner(&s.name)?, ..s.clone() })).collect()
        };
        Self {
            path: self.path.inner(index),
            name: if self.name.is_empty() { name.to_string() } else { format!("{}.{name}", self.name) },
            parameters: self
                .parameters
                .iter()
                .filter_map(|p| Some(BoundParameter { name: inner(&p.name)?, ..p.clone() }))
                .collect(),
            adapters: self
                .adapters
                .iter()
                .filter_map(|a| Some(BoundAdapter { weight: inner(&a.weight)?, ..a.clone() }))
                .collect(),
            states: states(&self.states),
            carried: states(&self.carried),
            ..self.clone()
        }
    }
}
