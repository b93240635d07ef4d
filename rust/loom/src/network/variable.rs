//! Inputs whose extents differ from call to call: sequences of any length, images of any size.
//!
//! A network has the extents of its newest call; every layer's shapes follow them, and its parameters never do.
//! Programs are kept for each. Where the first axis is among those that differ, it is time, and rows of one call may
//! be of different lengths, if all layers know how to leave out padding: each row then begins with its length, one
//! number, and no layer takes what is behind its end for real.

use super::build::fits;
use super::shapes::{ExtentsKey, MOST_AXES, NetworkShapes, Variable};
use super::{Combine, Network, at_layer};
use crate::layers::Steps;
use crate::ops::{LengthMask, Slice};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result, error, extents};

/// The largest extent that is tried where a network is built before it has seen any input.
const LARGEST_TRIED: usize = 1 << 12;

impl Network {
    /// Lets these axes of the input have another extent in every call; [`set_extents`](Self::set_extents) says which.
    /// The first axis is time: the rows of a call then begin with their lengths.
    ///
    /// # Errors
    /// [`Error::Value`] for an axis that is not there or given twice, an input of more than four axes, or a network
    /// with named inputs.
    pub fn set_variable_axes(&mut self, axes: &[usize]) -> Result<()> {
        let rank = self.input_shape.rank();
        if rank > MOST_AXES && !axes.is_empty() {
            return Err(Error::Value(format!(
                "an input with axes of no fixed extent has at most {MOST_AXES} axes, and this one has {rank}"
            )));
        }
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != axes.len() || sorted.last().is_some_and(|last| *last >= rank) {
            return Err(Error::Value(format!("axes {axes:?} are not axes of an input of {rank}, each once")));
        }
        if !self.inputs.is_empty() && !axes.is_empty() {
            return Err(Error::Value("named inputs have fixed extents".into()));
        }
        self.variable = Variable { axes: sorted, ..Variable::default() };
        self.rearranged();
        Ok(())
    }

    /// The axes of the input that have no fixed extent.
    pub fn variable_axes(&self) -> &[usize] {
        &self.variable.axes
    }

    /// Whether rows are sequences of different lengths, with which they begin; known once built.
    pub fn has_lengths(&self) -> bool {
        self.is_of_time() && self.variable.equal.is_none()
    }

    /// Why sequences of different lengths cannot go through together; `None` where they can.
    pub fn lengths_refused(&self) -> Option<&str> {
        self.variable.equal.as_deref()
    }

    /// Whether the axis that has no fixed extent is time.
    fn is_of_time(&self) -> bool {
        self.variable.axes.first() == Some(&0)
    }

    /// Whether, with rows of different lengths, the output has a step for each of theirs.
    ///
    /// # Errors
    /// As [`build`](Network::build), of a network that is not built.
    pub fn output_has_steps(&self) -> Result<bool> {
        Ok(self.has_lengths() && self.flow_of_steps()?.last() == Some(&true))
    }

    /// Refuses a network whose input has axes of no fixed extent, for `what` has no meaning for it.
    pub(crate) fn check_fixed(&self, what: &str) -> Result<()> {
        if self.variable.axes.is_empty() {
            return Ok(());
        }
        Err(Error::Value(format!(
            "{what} takes an input of fixed extents; this one has {}",
            self.told_extents()
        )))
    }

    /// How many numbers stand before the input in a row: none, its length, or the numbers of the sequences that its
    /// steps are of.
    pub(crate) fn row_prefix(&self) -> usize {
        match self.variable.packed {
            true => self.input_shape.first().copied().unwrap_or(0),
            false => usize::from(self.has_lengths()),
        }
    }

    /// Whether rows hold several sequences each; see [`resize`](Self::resize).
    pub(crate) fn is_packed_in_rows(&self) -> bool {
        self.variable.packed
    }

    /// Extents of a row of the input as calls take it: with what stands before it, if anything does.
    pub fn row_shape(&self) -> Shape {
        match self.row_prefix() {
            0 => self.input_shape.clone(),
            prefix => Shape::from(prefix + self.input_shape.len()),
        }
    }

    /// The extents as a config tells them.
    pub(super) fn extents_in_config(&self) -> Vec<Option<usize>> {
        let told = |(axis, extent): (usize, &usize)| (!self.variable.axes.contains(&axis)).then_some(*extent);
        self.input_shape.iter().enumerate().map(told).collect()
    }

    pub(crate) fn extents_key(&self) -> ExtentsKey {
        let mut key = ExtentsKey::default();
        if !self.variable.axes.is_empty() {
            key.iter_mut().zip(self.input_shape.iter()).for_each(|(key, extent)| *key = *extent);
        }
        key
    }

    /// Gives the input these extents for the calls to come.
    ///
    /// # Errors
    /// [`Error::Shape`] for extents that differ from the network's on an axis that is fixed, and naming a layer that
    /// cannot take them; [`Error::Value`] for an extent of zero. The network is then as before.
    pub fn set_extents(&mut self, extents: impl Into<Shape>) -> Result<()> {
        let extents = extents.into();
        self.build()?;
        if extents == self.input_shape {
            return Ok(());
        }
        let fixed = |axis: &usize| !self.variable.axes.contains(axis);
        let differs = |axis: usize| extents.get(axis) != self.input_shape.get(axis);
        if extents.rank() != self.input_shape.rank() || (0..extents.rank()).filter(fixed).any(differs) {
            return Err(Error::Shape(format!(
                "the input has extents {}, got {extents}",
                self.told_extents()
            )));
        }
        if extents.is_empty() {
            return Err(Error::Value(format!("an input of extents {extents} has an empty axis")));
        }
        extents::check("the input", &extents)?;
        let found = self.infer_shapes(extents.clone())?;
        self.check_parameters_fit(&found)?;
        self.take_shapes(extents, found);
        Ok(())
    }

    /// Gives the input other extents for good, where no parameter depends on them: sequences of another length.
    ///
    /// With `packed`, rows hold several sequences, one behind the other, and begin with a number for each step:
    /// that of its sequence, from 1 on, or 0 for padding. Attention sees steps of its own sequence alone.
    ///
    /// # Errors
    /// [`Error::Shape`] naming a layer that cannot take them, [`Error::Value`] for a network with named inputs or
    /// with axes of no fixed extent, and, where rows are packed, with named outputs, or naming a layer in which
    /// sequences would mix. The network is then as before.
    pub fn resize(&mut self, extents: impl Into<Shape>, packed: bool) -> Result<()> {
        let extents = extents.into();
        self.check_fixed("resize")?;
        if !self.inputs.is_empty() {
            return Err(Error::Value(
                "resize takes a network with one input; this one has named inputs, which keep the extents that they \
                 were made with"
                    .into(),
            ));
        }
        self.build()?;
        extents::check("the input", &extents)?;
        if extents == self.input_shape && packed == self.variable.packed {
            return Ok(());
        }
        if packed {
            self.check_single("packing sequences into rows", "; give each sequence a row of its own")?;
            self.check_keeps_sequences_apart()?;
        }
        if extents.is_empty() || extents.rank() != self.input_shape.rank() {
            return Err(Error::Shape(format!(
                "the input has extents {}, which cannot become {extents}",
                self.input_shape
            )));
        }
        let found = self.infer_shapes(extents.clone())?;
        self.check_parameters_fit(&found)?;
        for (placed, shapes) in self.layers().zip(&found.layers) {
            let specs = placed.layer.states(&shapes.inputs);
            let held = self.registry.kept(placed.states.clone())?;
            if !(held.len() == specs.len() && held.iter().zip(&specs).all(|(held, spec)| held.spec == *spec))
            {
                return Err(at_layer(placed, Error::Shape("what it keeps is for other extents".into())));
            }
        }
        self.take_shapes(extents, found);
        self.variable.packed = packed;
        self.invalidate();
        Ok(())
    }

    /// Refuses layers and links that would carry something from one sequence of a row to the next.
    fn check_keeps_sequences_apart(&self) -> Result<()> {
        if let Some(link) = self.links.first() {
            let error = format!("{link:?}: sequences of one row are not kept apart through links");
            return Err(Error::Value(error));
        }
        for placed in self.layers() {
            if let Some(kind) = mixing(&placed.layer.config()) {
                let error = format!(
                    "{kind} would take a sequence for the beginning of the next one of its row, or count its \
                     places on; give each sequence a row of its own"
                );
                return Err(at_layer(placed, Error::Value(error)));
            }
        }
        Ok(())
    }

    /// The extents, with a question mark for each that is not fixed.
    fn told_extents(&self) -> String {
        let told = self.input_shape.iter().enumerate().map(|(axis, extent)| {
            if self.variable.axes.contains(&axis) { "any".to_string() } else { extent.to_string() }
        });
        format!("({})", told.collect::<Vec<_>>().join(", "))
    }

    fn take_shapes(&mut self, extents: Shape, NetworkShapes { layers, cells }: NetworkShapes) {
        self.input_shape = extents;
        for (placed, shapes) in self.cells.iter_mut().flatten().zip(layers) {
            placed.take_shapes(shapes);
        }
        self.cell_shapes = cells;
        self.packed_output = self.packed_output_shape();
        self.programs.set_extents(self.extents_key());
        self.passes.newest = None;
    }

    /// Shapes for the extents that a network is built with.
    pub(super) fn shapes_to_build(&mut self) -> Result<NetworkShapes> {
        let (extents, shapes) = self.find_shapes()?;
        if !self.variable.axes.is_empty() {
            self.input_shape = extents;
            self.programs.set_extents(self.extents_key());
            self.check_variable(&shapes)?;
            self.variable.equal = self.flow_of_steps().err().map(|error| error.to_string());
        }
        Ok(shapes)
    }

    /// Shapes for the extents that the input has, or, where layers need more of axes of no fixed extent, for the
    /// first powers of two that are enough; and these.
    pub(crate) fn find_shapes(&self) -> Result<(Shape, NetworkShapes)> {
        let mut found =
            self.infer_shapes(self.input_shape.clone()).map(|shapes| (self.input_shape.clone(), shapes));
        let mut extent = 1;
        while found.is_err() && extent <= LARGEST_TRIED && !self.variable.axes.is_empty() {
            let tried = self.with_extent(|_| extent);
            found = self.infer_shapes(tried.clone()).map(|shapes| (tried, shapes));
            extent *= 2;
        }
        found
    }

    /// The input's extents with others on the axes that are not fixed.
    fn with_extent(&self, of: impl Fn(usize) -> usize) -> Shape {
        let mut extents = self.input_shape.to_vec();
        for axis in &self.variable.axes {
            extents[*axis] = of(extents[*axis]);
        }
        Shape::new(extents)
    }

    /// What each layer would make of an input of other extents, where these are not fixed.
    pub(super) fn output_shapes_elsewhere(&self) -> Result<Vec<Shape>> {
        if self.variable.axes.is_empty() {
            return Ok(Vec::new());
        }
        let others = self.infer_shapes(self.with_extent(|extent| 2 * extent + 1))?;
        Ok(others.layers.into_iter().map(|shapes| shapes.output).collect())
    }

    /// Refuses layers whose parameters follow extents that are not fixed.
    fn check_variable(&self, shapes: &NetworkShapes) -> Result<()> {
        let others = self.infer_shapes(self.with_extent(|extent| 2 * extent + 1)).map_err(|error| {
            error::in_context("the input has axes of no fixed extent, but with others than first", error)
        })?;
        for ((placed, here), there) in self.layers().zip(&shapes.layers).zip(&others.layers) {
            let asked = |inputs: &[Shape]| {
                let specs = placed.layer.parameters(inputs).into_iter().map(|spec| (spec.name, spec.layout));
                let kept = placed.layer.states(inputs).into_iter().map(|spec| (spec.name, spec.shape));
                (specs.collect::<Vec<_>>(), kept.collect::<Vec<_>>())
            };
            if asked(&here.inputs) != asked(&there.inputs) {
                return Err(at_layer(
                    placed,
                    Error::Shape(format!(
                        "the input's extents are {}, and the layer's parameters would follow them; put a layer \
                         before it whose output they do not change: SequencePool or a recurrent layer for steps, a \
                         global or adaptive pooling for images",
                        self.told_extents()
                    )),
                ));
            }
        }
        Ok(())
    }

    fn check_parameters_fit(&self, found: &NetworkShapes) -> Result<()> {
        for (placed, shapes) in self.layers().zip(&found.layers) {
            let specs = placed.layer.parameters(&shapes.inputs);
            let fit = placed.store.is_none_or(|store| fits(&self.registry.stores[store], &specs));
            if !fit {
                let error = Error::Shape("its parameters are for other extents".into());
                return Err(at_layer(placed, error));
            }
        }
        Ok(())
    }

    /// Whether what each cell hands on has a step for each of the input's, where rows have lengths.
    ///
    /// # Errors
    /// [`Error::Value`] naming a layer or link that would take padding for real.
    fn flow_of_steps(&self) -> Result<Vec<bool>> {
        let mut handed_on: Vec<bool> = Vec::with_capacity(self.cells.len());
        let mut steps = self.is_of_time();
        // Where time is the only axis, whatever works along the last one mixes steps.
        let mut alone = self.input_shape.rank() == 1;
        for (number, cell) in self.cells.iter().enumerate() {
            let mut context = false;
            for (source, link) in self.links_to(number)? {
                let there = handed_on.get(source).copied();
                if link.combine == Combine::Context {
                    context = there != Some(false);
                } else if there != Some(steps) && (steps || there != Some(false)) {
                    return Err(Error::Value(
                        "sequences of different lengths cannot take a link that points back, or that joins them with \
                         what has no steps"
                            .into(),
                    ));
                }
            }
            for placed in cell {
                if !self.is_of_time() {
                    continue;
                }
                if placed.layer.takes_context() && (steps || context) {
                    let error = "a second input cannot be of sequences of different lengths, nor beside them";
                    return Err(at_layer(placed, Error::Value(error.into())));
                }
                let reads_indices = placed.layer.index_limit().is_some();
                let whole = placed.layer.steps() == Steps::Whole || (alone && !reads_indices);
                alone &= !reads_indices;
                match placed.layer.steps() {
                    _ if steps && whole => {
                        return Err(at_layer(
                            placed,
                            Error::Value("it would take the padding of shorter sequences for real".into()),
                        ));
                    }
                    Steps::Pooled => steps = false,
                    _ => {}
                }
            }
            handed_on.push(steps);
        }
        Ok(handed_on)
    }

    /// Takes a row apart: the sequence, and which of its steps are real.
    pub(super) fn lower_lengths(&self, b: &mut Builder, row: Value) -> (Value, Value) {
        let (steps, prefix) = (self.input_shape[0], self.row_prefix());
        let total = prefix + self.input_shape.len();
        let part = |start, length| Slice { outer: 1, total, start, length, guarded: false };
        if self.variable.packed {
            let numbers = b.apply(part(0, steps), &[row], "sequences", Shape::from(steps));
            let sequence = part(steps, total - steps);
            return (b.apply(sequence, &[row], "sequence", self.input_shape.clone()), numbers);
        }
        let length = b.apply(part(0, 1), &[row], "length", Shape::from(1));
        let mask = b.apply(LengthMask { steps }, &[length], "mask", Shape::from(steps));
        let sequence = b.apply(part(1, total - 1), &[row], "sequence", self.input_shape.clone());
        (sequence, mask)
    }
}

/// Layers that work on each step by itself, or know which steps are of one sequence; those that hold others count
/// by what they hold.
const APART: [&str; 24] = [
    "activation",
    "checkpoint",
    "dense",
    "dropout",
    "embedding",
    "expr",
    "gaussian_noise",
    "geglu",
    "l2_norm",
    "layer_norm",
    "masked_softmax",
    "mixture_of_experts",
    "multi_head_attention",
    "parallel",
    "prelu",
    "residual",
    "rms_norm",
    "scale",
    "sequential",
    "soft_cap",
    "softmax",
    "swiglu",
    "tied_head",
    "gumbel_softmax",
];

/// The kind of a layer, or of one within it, that does not keep the sequences of a row apart.
fn mixing(config: &serde_json::Value) -> Option<String> {
    match config {
        serde_json::Value::Object(entries) => {
            let kind = entries.get("type").and_then(|kind| kind.as_str());
            let own = kind.filter(|kind| !APART.contains(kind)).map(String::from);
            own.or_else(|| entries.values().find_map(mixing))
        }
        serde_json::Value::Array(entries) => entries.iter().find_map(mixing),
        _ => None,
    }
}
