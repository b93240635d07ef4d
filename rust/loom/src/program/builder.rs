//! Collects the steps of a program while layers and trainers lower themselves.

use super::{
    InnerLayer, Kind, Phase, Ports, Program, Rewrites, Step, ValueInfo, Write, plan, prepare, rewrite, saved,
};
use crate::dtype::DType;
use crate::ops::{Direction, Loss, Op, ShortFloat, Sum};
use crate::program::{LayerPath, ParameterRef, Place, Value};
use crate::tensor::{Precision, Shape};
use crate::{Result, extents};
use std::collections::{HashMap, HashSet};

/// Lowering target: layers and trainers push operations, the builder keeps track
/// of values and of who writes them.
pub struct Builder {
    values: Vec<ValueInfo>,
    steps: Vec<Step>,
    /// Steps that run once everything else has.
    commits: Vec<Step>,
    phase: Phase,
    at: Option<LayerPath>,
    stored: HashMap<Place, Value>,
    written_gradients: HashSet<ParameterRef>,
    /// Whether gradients that earlier steps have made are used up.
    restarted: bool,
    commits_suppressed: bool,
    /// What steps pushed now wait for although they do not read it.
    after: Option<Value>,
    precision: Precision,
    /// Packed weights whose products quantise the other operand.
    quantized: HashSet<Value>,
    /// What was made of a value with a parameter that stands beside another, for who comes later.
    beside: HashMap<(ParameterRef, Value), Value>,
    /// Gradients of values that are read in the place of parameters.
    left: HashMap<Value, Value>,
    /// The values that callers will hand in and read out.
    pub ports: Ports,
    /// Where recurrent layers leave their cells' states and gradients while they lower theirs; `None`
    /// where nobody asks, as at the beginning.
    pub cells: Option<Vec<CellValues>>,
    /// Where layers inside others leave what they read, what they made and its gradient while they lower theirs;
    /// `None` where nobody asks, as at the beginning.
    pub inner_gradients: Option<Vec<InnerGradient>>,
    /// What the update of each store reads, where that is made before it.
    pub update_operands: HashMap<usize, Vec<Value>>,
    /// Whether layers inside others leave what they read and make among the ports.
    pub looks_inside: bool,
    /// Whether layers leave the gradients of what they read there.
    pub keeps_input_gradients: bool,
    /// In what activations wait for the backward pass; as they are computed where `None`, as at the beginning.
    pub saved_activations: Option<ShortFloat>,
    /// Whether what is made of parameters alone is made once for all runs between two moves of these: in programs that
    /// move none themselves.
    pub prepares: bool,
}

/// The states of a recurrent layer's cells after each step and the gradients that reach them, both
/// (time, directions x units) a row: c of an LSTM, h of a GRU. Gradients are those with all that comes
/// through later steps and through the output; at padded steps they are zero.
#[derive(Clone, Debug)]
pub struct CellValues {
    /// The layer.
    pub path: LayerPath,
    /// What the cells held.
    pub states: Value,
    /// The gradient of it.
    pub gradient: Value,
    /// Which steps are real, where some are padding.
    pub mask: Option<Value>,
}

/// What a layer inside another read and made, and the gradient of what it made.
#[derive(Clone, Debug)]
pub struct InnerGradient {
    /// The layer.
    pub path: LayerPath,
    /// What it read.
    pub input: Value,
    /// What it made.
    pub output: Value,
    /// The gradient of that.
    pub gradient: Value,
    /// Which steps of what it read and of what it made are real, where some are padding.
    pub masks: [Option<Value>; 2],
}

/// What keys the random draws of a layer's steps, and of those of no layer.
fn path_of(at: Option<&LayerPath>) -> u32 {
    at.map_or(0, LayerPath::hash32)
}

impl Builder {
    /// An empty program in this precision.
    pub fn new(precision: Precision) -> Self {
        Self {
            values: Vec::new(),
            steps: Vec::new(),
            commits: Vec::new(),
            phase: Phase::Forward,
            at: None,
            stored: HashMap::new(),
            written_gradients: HashSet::new(),
            restarted: false,
            commits_suppressed: false,
            after: None,
            precision,
            quantized: HashSet::new(),
            beside: HashMap::new(),
            left: HashMap::new(),
            ports: Ports::default(),
            cells: None,
            inner_gradients: None,
            update_operands: HashMap::new(),
            looks_inside: false,
            keeps_input_gradients: false,
            saved_activations: None,
            prepares: false,
        }
    }

    /// Steps pushed from here on belong to `phase`.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// The layer that steps pushed now belong to.
    pub fn layer(&self) -> Option<LayerPath> {
        self.at.clone()
    }

    /// Steps pushed from here on belong to the layer at `path`.
    pub fn set_layer(&mut self, path: Option<LayerPath>) {
        self.at = path;
    }

    /// What is to be written once the step has been found good.
    pub(crate) fn commits(&self) -> &[Step] {
        &self.commits
    }

    /// The steps so far.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What is known of a value.
    pub fn info(&self, value: Value) -> &ValueInfo {
        &self.values[value.index()]
    }

    /// One row's extents of a value.
    pub fn shape(&self, value: Value) -> &Shape {
        &self.values[value.index()].shape
    }

    fn define(&mut self, info: ValueInfo) -> Value {
        self.values.push(info);
        Value((self.values.len() - 1) as u32)
    }

    fn temporary(&mut self, label: &'static str, shape: Shape, per_row: bool, kind: Kind) -> Value {
        self.define(ValueInfo {
            label,
            shape,
            per_row,
            kind,
            place: Place::Buffer(usize::MAX),
            pinned: false,
        })
    }

    /// A value the caller fills before the run: one `shape` a row.
    pub fn input(&mut self, label: &'static str, shape: Shape, kind: Kind) -> Value {
        let value = self.temporary(label, shape, true, kind);
        self.pin(value);
        value
    }

    /// Something that persists: a master, a version, a gradient, a moment.
    pub fn stored(&mut self, label: &'static str, shape: Shape, place: Place) -> Value {
        if let Some(value) = self.stored.get(&place) {
            return *value;
        }
        let value =
            self.define(ValueInfo { label, shape, per_row: false, kind: Kind::Real, place, pinned: true });
        self.stored.insert(place, value);
        value
    }

    /// A parameter as the forward pass reads it: its master, or the packed version of `active`.
    pub fn parameter(&mut self, parameter: ParameterRef, shape: Shape, active: Option<DType>) -> Value {
        match active {
            Some(dtype) => self.stored("version", shape, Place::Version(parameter, dtype)),
            None => self.stored("master", shape, Place::Master(parameter)),
        }
    }

    /// Has forward products with this packed weight quantise their other operand to int8.
    pub fn quantize_activations(&mut self, weight: Value) {
        self.quantized.insert(weight);
    }

    /// What was [made](Self::make_beside) of a value with a parameter that stands beside another.
    pub(crate) fn made_beside(&self, of: (ParameterRef, Value)) -> Option<Value> {
        self.beside.get(&of).copied()
    }

    /// Keeps what was made of a value with a parameter that stands beside another.
    pub(crate) fn make_beside(&mut self, of: (ParameterRef, Value), made: Value) {
        self.beside.insert(of, made);
    }

    /// Leaves the gradient of a value that is read in the place of a parameter, for who has made it.
    pub(crate) fn leave_gradient(&mut self, of: Value, gradient: Value) {
        self.left.insert(of, gradient);
    }

    /// Takes the gradient that was [left](Self::leave_gradient) of a value, if any was.
    pub(crate) fn take_gradient(&mut self, of: Value) -> Option<Value> {
        self.left.remove(&of)
    }

    /// What a layer keeps beside its parameters.
    pub fn state(&mut self, label: &'static str, shape: Shape, number: usize) -> Value {
        self.stored(label, shape, Place::State(number))
    }

    /// What a layer carries from call to call, one `shape` a row.
    pub fn carried(&mut self, label: &'static str, shape: Shape, number: usize) -> Value {
        let place = Place::Carried(number);
        if let Some(value) = self.stored.get(&place) {
            return *value;
        }
        let value =
            self.define(ValueInfo { label, shape, per_row: true, kind: Kind::Real, place, pinned: true });
        self.stored.insert(place, value);
        value
    }

    /// What member `member` of a clocked network's ring held `age` ticks ago, one `shape` a row.
    pub fn ring(&mut self, label: &'static str, shape: Shape, member: usize, age: usize) -> Value {
        let place = Place::Ring { member, age };
        if let Some(value) = self.stored.get(&place) {
            return *value;
        }
        let value =
            self.define(ValueInfo { label, shape, per_row: true, kind: Kind::Real, place, pinned: true });
        self.stored.insert(place, value);
        value
    }

    /// Leaves a value in a ring: whoever makes it writes it there, unless it has a place already.
    pub fn settle(&mut self, value: Value, label: &'static str, member: usize, age: usize) {
        let owner = super::owner(&self.values, value);
        let made = self.steps.iter().any(|step| step.writes.contains(&owner));
        let info = &mut self.values[owner.index()];
        let free = made && !info.pinned && info.per_row && info.kind == Kind::Real;
        if free && matches!(info.place, Place::Buffer(_)) {
            info.place = Place::Ring { member, age };
            info.pinned = true;
            return;
        }
        let shape = self.shape(value).clone();
        let ring = self.ring(label, shape, member, age);
        self.effect(Sum { operands: 1 }, &[value], &[ring]);
    }

    /// Lets the steps of the backward phase read one value instead of another of the same content.
    pub fn read_instead(&mut self, value: Value, other: Value) {
        for step in self.steps.iter_mut().filter(|step| step.phase == Phase::Backward) {
            for read in step.reads.iter_mut().filter(|read| **read == value) {
                *read = other;
            }
        }
    }

    /// Drops the steps whose results nobody reads.
    pub fn prune(&mut self) {
        let mut read: HashSet<Value> = HashSet::new();
        let mut kept = Vec::with_capacity(self.steps.len());
        for step in std::mem::take(&mut self.steps).into_iter().rev() {
            let needed = step.writes.iter().any(|value| {
                let owner = super::owner(&self.values, *value);
                let info = &self.values[owner.index()];
                info.pinned || !matches!(info.place, Place::Buffer(_)) || read.contains(&owner)
            });
            if needed {
                read.extend(step.reads.iter().map(|value| super::owner(&self.values, *value)));
                kept.push(step);
            }
        }
        kept.reverse();
        self.steps = kept;
    }

    /// Pushes an operation that overwrites what a layer keeps, once the step has been found good.
    pub fn commit(&mut self, op: impl Into<Op>, reads: &[Value], writes: &[Value]) {
        if self.commits_suppressed {
            return;
        }
        let step = Step {
            op: op.into(),
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            write: Write::Set,
            phase: Phase::States,
            at: self.at.clone(),
            path: path_of(self.at.as_ref()),
            after: None,
        };
        self.commits.push(step);
    }

    /// The same elements seen with other extents.
    pub fn reshape(&mut self, value: Value, shape: Shape) -> Value {
        let info = self.values[value.index()].clone();
        debug_assert_eq!(info.shape.len(), shape.len());
        self.define(ValueInfo { shape, place: Place::Alias(value), ..info })
    }

    /// Leaves the states and gradients of a layer's cells for whoever has asked.
    pub fn report_cells(&mut self, values: CellValues) {
        if let Some(cells) = &mut self.cells {
            cells.push(values);
        }
    }

    /// Leaves the gradient of what a layer inside another has made for whoever has asked.
    pub fn report_inner_gradient(&mut self, layer: impl FnOnce() -> InnerGradient) {
        if let Some(layers) = &mut self.inner_gradients {
            layers.push(layer());
        }
    }

    /// Leaves what a layer inside another has read and made for whoever has asked, at this place in the list:
    /// what is inside it stands behind it.
    pub fn report_inner(&mut self, place: usize, layer: impl FnOnce() -> InnerLayer) {
        if self.looks_inside {
            self.ports.inner.insert(place, layer());
        }
    }

    /// Leaves the gradient of what a layer has read for whoever has asked.
    pub fn report_input_gradient(&mut self, path: &LayerPath, gradient: Option<Value>) {
        if !self.keeps_input_gradients {
            return;
        }
        let layers = self.ports.layers.iter_mut().map(|(path, values)| (&*path, values));
        let inner = self.ports.inner.iter_mut().map(|layer| (&layer.path, &mut layer.values));
        for (_, values) in layers.chain(inner).filter(|(at, _)| *at == path) {
            values.input_gradient = gradient;
        }
    }

    /// Keeps a value's content until the run ends.
    pub fn pin(&mut self, value: Value) {
        let owner = super::owner(&self.values, value);
        self.values[owner.index()].pinned = true;
    }

    fn push(&mut self, op: Op, reads: &[Value], writes: Vec<Value>, write: Write) {
        let (phase, at) = (self.phase, self.at.clone());
        let mut op = if self.precision == Precision::Mixed { op.into_mixed() } else { op };
        if let Op::Product(product) = &mut op
            && product.direction == Direction::Forward
        {
            product.quantized = reads.get(1).is_some_and(|weight| self.quantized.contains(weight));
        }
        if let Op::Recurrent(recurrent) = &mut op
            && recurrent.direction == Direction::Forward
        {
            for direction in 0..recurrent.directions {
                let weight = reads.get(recurrent.directions + direction);
                recurrent.quantized[direction] = weight.is_some_and(|weight| self.quantized.contains(weight));
            }
        }
        if let Op::Convolution(convolution) = &mut op {
            let weight = reads.get(1).filter(|_| convolution.direction == Direction::Forward);
            convolution.quantized = weight.is_some_and(|weight| self.quantized.contains(weight));
        }
        let after = self.after;
        let path = path_of(at.as_ref());
        self.steps.push(Step { op, reads: reads.to_vec(), writes, write, phase, at, path, after });
    }

    /// Pushes an operation with one result, of one `shape` a row.
    pub fn apply(&mut self, op: impl Into<Op>, reads: &[Value], label: &'static str, shape: Shape) -> Value {
        let out = self.temporary(label, shape, true, Kind::Real);
        self.push(op.into(), reads, vec![out], Write::Set);
        out
    }

    /// Pushes an operation with a real result and indices beside it, one of each `shape` a row.
    pub fn apply_indexed(
        &mut self,
        op: impl Into<Op>,
        reads: &[Value],
        label: &'static str,
        shape: Shape,
    ) -> (Value, Value) {
        let out = self.temporary(label, shape.clone(), true, Kind::Real);
        let indices = self.temporary("indices", shape, true, Kind::Index);
        self.push(op.into(), reads, vec![out, indices], Write::Set);
        (out, indices)
    }

    /// Pushes an operation that makes so many indices a row.
    pub fn apply_to_indices(
        &mut self,
        op: impl Into<Op>,
        reads: &[Value],
        label: &'static str,
        count: usize,
    ) -> Value {
        let out = self.temporary(label, Shape::from(count), true, Kind::Index);
        self.push(op.into(), reads, vec![out], Write::Set);
        out
    }

    /// Pushes an operation with several real results, of one such shape a row each.
    pub fn apply_several<const N: usize>(
        &mut self,
        op: impl Into<Op>,
        reads: &[Value],
        results: [(&'static str, Shape); N],
    ) -> [Value; N] {
        let values = results.map(|(label, shape)| self.temporary(label, shape, true, Kind::Real));
        self.push(op.into(), reads, values.to_vec(), Write::Set);
        values
    }

    /// [`apply_several`](Self::apply_several) for results that have no batch axis.
    pub fn apply_several_fixed<const N: usize>(
        &mut self,
        op: impl Into<Op>,
        reads: &[Value],
        results: [(&'static str, Shape); N],
    ) -> [Value; N] {
        let values = results.map(|(label, shape)| self.temporary(label, shape, false, Kind::Real));
        self.push(op.into(), reads, values.to_vec(), Write::Set);
        values
    }

    /// Pushes an operation with any number of real results, each of its own extents a row.
    pub fn apply_list(
        &mut self,
        op: impl Into<Op>,
        reads: &[Value],
        results: impl IntoIterator<Item = (&'static str, Shape)>,
    ) -> Vec<Value> {
        let results: Vec<Value> = results
            .into_iter()
            .map(|(label, shape)| self.temporary(label, shape, true, Kind::Real))
            .collect();
        self.push(op.into(), reads, results.clone(), Write::Set);
        results
    }

    /// [`apply_list`](Self::apply_list) for results that have no batch axis.
    pub fn apply_list_fixed(
        &mut self,
        op: impl Into<Op>,
        reads: &[Value],
        results: impl IntoIterator<Item = (&'static str, Shape)>,
    ) -> Vec<Value> {
        let results: Vec<Value> = results
            .into_iter()
            .map(|(label, shape)| self.temporary(label, shape, false, Kind::Real))
            .collect();
        self.push(op.into(), reads, results.clone(), Write::Set);
        results
    }

    /// Pushes an operation whose result has no batch axis.
    pub fn apply_fixed(
        &mut self,
        op: impl Into<Op>,
        reads: &[Value],
        label: &'static str,
        shape: Shape,
    ) -> Value {
        let out = self.temporary(label, shape, false, Kind::Real);
        self.push(op.into(), reads, vec![out], Write::Set);
        out
    }

    /// [`apply_fixed`](Self::apply_fixed) of an operation that writes a given value, too.
    pub fn apply_fixed_beside(
        &mut self,
        op: impl Into<Op>,
        reads: &[Value],
        label: &'static str,
        shape: Shape,
        beside: Option<Value>,
    ) -> Value {
        let out = self.temporary(label, shape, false, Kind::Real);
        self.push(op.into(), reads, std::iter::once(out).chain(beside).collect(), Write::Set);
        out
    }

    /// Pushes a loss: one number a row, and the gradient of `shape` where the operation makes one.
    pub fn apply_loss(&mut self, op: Loss, reads: &[Value], shape: Shape) -> (Value, Option<Value>) {
        let row_losses = self.temporary("row losses", Shape::from(1), true, Kind::Real);
        let gradient = op.gradient.then(|| self.temporary("gradient", shape, true, Kind::Real));
        self.push(op.into(), reads, [Some(row_losses), gradient].into_iter().flatten().collect(), Write::Set);
        (row_losses, gradient)
    }

    /// Pushes an operation that writes given values (an update, an encoding).
    pub fn effect(&mut self, op: impl Into<Op>, reads: &[Value], writes: &[Value]) {
        self.push(op.into(), reads, writes.to_vec(), Write::Set);
    }

    /// [`effect`](Self::effect) of an operation that replaces what a step's first batch finds, and adds
    /// to it in later ones.
    pub fn effect_of_batch(&mut self, op: impl Into<Op>, reads: &[Value], writes: &[Value]) {
        self.push(op.into(), reads, writes.to_vec(), Write::First);
    }

    /// Gradients are contributed anew from here on: the next contribution to each replaces it.
    pub fn restart_gradients(&mut self) {
        self.restarted = true;
        self.written_gradients.clear();
    }

    /// Whether what layers keep stays as it is from here on: a pass that only looks again.
    pub fn suppress_commits(&mut self, suppressed: bool) {
        self.commits_suppressed = suppressed;
    }

    /// Lowers something a second time, of which nobody is told and by which nothing that is kept moves on; it is
    /// made once there is what it is made for.
    ///
    /// # Errors
    /// Whatever lowering it says.
    pub(crate) fn again<R>(&mut self, after: Value, lower: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let suppressed = std::mem::replace(&mut self.commits_suppressed, true);
        let looks_inside = std::mem::take(&mut self.looks_inside);
        let outside = self.after.replace(after);
        let made = lower(self);
        (self.commits_suppressed, self.looks_inside, self.after) = (suppressed, looks_inside, outside);
        made
    }

    /// Pushes an operation whose result is a contribution to a parameter's gradient.
    ///
    /// The first contribution of a program replaces a zeroed gradient and adds to
    /// another; later ones (tied weights) always add.
    pub fn contribute(&mut self, op: impl Into<Op>, reads: &[Value], parameter: ParameterRef, shape: Shape) {
        let gradient = self.stored("gradient", shape, Place::Gradient(parameter));
        let write = match (self.written_gradients.insert(parameter), self.restarted) {
            (true, false) => Write::First,
            (true, true) => Write::Set,
            (false, _) => Write::Add,
        };
        self.push(op.into(), reads, vec![gradient], write);
    }

    /// The sum of the contributions to one value's gradient; `None` where nothing contributes.
    pub fn sum(&mut self, contributions: &[Value]) -> Option<Value> {
        let (first, rest) = contributions.split_first()?;
        let mut total = *first;
        for group in rest.chunks(3) {
            let mut reads = vec![total];
            reads.extend_from_slice(group);
            let shape = self.shape(total).clone();
            total = self.apply(Sum { operands: reads.len() }, &reads, "sum", shape);
        }
        Some(total)
    }

    /// Rewrites, plans buffers and closes the program.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::Memory`](crate::Error::Memory) for a value that is too
    /// large, by itself or for `capacity` rows: what the program's kernels compute with has passed here.
    pub fn finish(mut self, capacity: usize, rewrites: &Rewrites) -> Result<Program> {
        for info in &self.values {
            extents::check(format_args!("\"{}\"", info.label), &info.shape)?;
            let rows = if info.per_row { capacity } else { 1 };
            extents::elements(format_args!("\"{}\"", info.label), rows, info.shape.len())?;
        }
        // Last in the list as well, so that what they read is still there.
        self.steps.append(&mut self.commits);
        let mut program = Program {
            values: self.values,
            steps: self.steps,
            buffers: Vec::new(),
            capacity,
            precision: self.precision,
            ports: self.ports,
        };
        rewrite::apply(&mut program, rewrites);
        if let Some(format) = self.saved_activations {
            saved::narrow(&mut program, format);
        }
        if self.prepares {
            prepare::prepare(&mut program);
        }
        plan::assign_buffers(&mut program);
        Ok(program)
    }
}
