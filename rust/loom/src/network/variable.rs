//! Inputs whose extents differ from call to call: sequences of any length, images of any size.
//!
//! A network has the extents of its newest call; every layer's shapes follow them, and its parameters never do.
//! Programs are kept for each. Where the first axis is among those that differ, it is time, and rows of one call may
//! be of different lengths, if all layers know how to leave out padding: each row then begins with its length, one
//! number, and no layer takes what is behind its end for real. Of inputs with names each may have such axes, and
//! lengths of its own (`step_flow`).

use super::build::fits;
use super::shapes::{ExtentsKey, InputShapes, MOST_AXES, NetworkShapes, StepFlow, Variable};
use super::{NamedInput, Network, at_layer};
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
    /// with named inputs, whose own extents say so.
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
            return Err(Error::Value("the extents of each named input say which are not fixed".into()));
        }
        self.variable = Variable { axes: sorted, ..Variable::default() };
        self.rearranged();
        Ok(())
    }

    /// The axes of the input without a name that have no fixed extent.
    pub fn variable_axes(&self) -> &[usize] {
        &self.variable.axes
    }

    /// Whether any extent of any input is not fixed.
    pub fn has_open_extents(&self) -> bool {
        !self.variable.axes.is_empty() || self.inputs.iter().any(|input| !input.open.is_empty())
    }

    /// Whether rows are of sequences of different lengths, with which they begin; known once built.
    pub fn has_lengths(&self) -> bool {
        self.variable.equal.is_none() && self.variable.flow.count > 0
    }

    /// Why sequences of different lengths cannot go through together; `None` where they can.
    pub fn lengths_refused(&self) -> Option<&str> {
        self.variable.equal.as_deref()
    }

    /// Which of the lengths that a row begins with is that of each input; `None` for one of fixed extents. Known once
    /// built; of the input without a name where none has one.
    pub fn input_lengths(&self) -> &[Option<usize>] {
        &self.variable.flow.inputs
    }

    /// Which length the output without a name has steps of, where rows have lengths; `None` where it has none.
    pub fn output_length(&self) -> Option<usize> {
        self.variable.flow.leaving.last().copied().flatten().filter(|_| self.has_lengths())
    }

    /// Refuses a network whose input has axes of no fixed extent, for `what` has no meaning for it.
    pub(crate) fn check_fixed(&self, what: &str) -> Result<()> {
        if !self.has_open_extents() {
            return Ok(());
        }
        Err(Error::Value(format!(
            "{what} takes an input of fixed extents; this one has {}",
            self.told_extents()
        )))
    }

    /// How many numbers stand before the inputs in a row: none, their lengths, or the numbers of the sequences that
    /// its steps are of.
    pub(crate) fn row_prefix(&self) -> usize {
        match self.variable.packed {
            true => self.input_shape.first().copied().unwrap_or(0),
            false if self.has_lengths() => self.variable.flow.count,
            false => 0,
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
        if !self.inputs.is_empty() && self.has_open_extents() {
            return vec![None];
        }
        let told = |(axis, extent): (usize, &usize)| (!self.variable.axes.contains(&axis)).then_some(*extent);
        self.input_shape.iter().enumerate().map(told).collect()
    }

    pub(crate) fn extents_key(&self) -> ExtentsKey {
        let mut key = ExtentsKey::default();
        if !self.variable.axes.is_empty() {
            key.iter_mut().zip(self.input_shape.iter()).for_each(|(key, extent)| *key = *extent);
        }
        let open = self.inputs.iter().flat_map(|input| input.open.iter().map(|axis| input.shape[*axis]));
        key.iter_mut().zip(open).for_each(|(key, extent)| *key = extent);
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
        if !self.inputs.is_empty() {
            return Err(Error::Value("the network has named inputs; give the extents of each".into()));
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
        self.take_extents(InputShapes { row: extents, named: Vec::new() })
    }

    /// Gives the named inputs these extents for the calls to come: one sample's of each.
    ///
    /// # Errors
    /// As [`set_extents`](Self::set_extents).
    pub fn set_named_extents(&mut self, extents: Vec<Shape>) -> Result<()> {
        self.build()?;
        if extents.len() != self.inputs.len() {
            let (given, there) = (extents.len(), self.inputs.len());
            return Err(Error::Value(format!("there are {there} named inputs, and extents of {given}")));
        }
        for (input, given) in self.inputs.iter().zip(&extents) {
            let what = format!("input \"{}\"", input.name);
            let differs =
                |axis: &usize| !input.open.contains(axis) && given.get(*axis) != input.shape.get(*axis);
            if given.rank() != input.shape.rank() || (0..given.rank()).any(|axis| differs(&axis)) {
                return Err(Error::Shape(format!(
                    "{what} has extents {}, got {given}",
                    told(&input.told_extents())
                )));
            }
            if given.is_empty() {
                return Err(Error::Value(format!("{what} of extents {given} has an empty axis")));
            }
            extents::check(&what, given)?;
        }
        if self.inputs.iter().zip(&extents).all(|(input, given)| input.shape == *given) {
            return Ok(());
        }
        let row = Shape::from(extents.iter().map(Shape::len).sum::<usize>());
        extents::check("all inputs together", &row)?;
        self.take_extents(InputShapes { row, named: extents })
    }

    fn take_extents(&mut self, extents: InputShapes) -> Result<()> {
        let found = self.infer_shapes_of(extents.row.clone(), &extents.named)?;
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
        self.take_shapes(InputShapes { row: extents, named: Vec::new() }, found);
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

    /// The extents in words, of inputs with names each by its name.
    fn told_extents(&self) -> String {
        if self.inputs.is_empty() {
            return told(&self.extents_in_config());
        }
        let one = |input: &NamedInput| format!("\"{}\" {}", input.name, told(&input.told_extents()));
        self.inputs.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn take_shapes(&mut self, extents: InputShapes, NetworkShapes { layers, cells }: NetworkShapes) {
        self.put_extents(extents);
        for (placed, shapes) in self.cells.iter_mut().flatten().zip(layers) {
            placed.take_shapes(shapes);
        }
        self.cell_shapes = cells;
        self.packed_output = self.packed_output_shape();
        self.passes.newest = None;
    }

    fn put_extents(&mut self, InputShapes { row, named }: InputShapes) {
        self.input_shape = row;
        for (input, shape) in self.inputs.iter_mut().zip(named) {
            input.shape = shape;
        }
        self.programs.set_extents(self.extents_key());
    }

    /// Shapes for the extents that a network is built with.
    pub(super) fn shapes_to_build(&mut self) -> Result<NetworkShapes> {
        let (extents, shapes) = self.find_shapes()?;
        if self.has_open_extents() {
            self.put_extents(extents);
            self.check_variable(&shapes)?;
            let found = self.flow_of_steps(&shapes.cells);
            self.variable.equal = found.as_ref().err().map(ToString::to_string);
            self.variable.flow = found.unwrap_or_default();
        } else {
            self.variable.flow = StepFlow::default();
        }
        Ok(shapes)
    }

    /// Shapes for the extents that the input has, or, where layers need more of axes of no fixed extent, for the
    /// first powers of two that are enough; and these.
    pub(crate) fn find_shapes(&self) -> Result<(InputShapes, NetworkShapes)> {
        let of = |tried: InputShapes| {
            let found = self.infer_shapes_of(tried.row.clone(), &tried.named);
            found.map(|shapes| (tried, shapes))
        };
        let mut found = of(self.with_extent(|extent| extent));
        let mut extent = 1;
        while found.is_err() && extent <= LARGEST_TRIED && self.has_open_extents() {
            found = of(self.with_extent(|_| extent));
            extent *= 2;
        }
        found
    }

    /// The inputs' extents with others on the axes that are not fixed.
    fn with_extent(&self, of: impl Fn(usize) -> usize) -> InputShapes {
        let changed = |shape: &Shape, open: &[usize]| {
            let mut extents = shape.to_vec();
            open.iter().for_each(|axis| extents[*axis] = of(extents[*axis]));
            Shape::new(extents)
        };
        if self.inputs.is_empty() {
            return InputShapes { row: changed(&self.input_shape, &self.variable.axes), named: Vec::new() };
        }
        let named: Vec<Shape> = self.inputs.iter().map(|input| changed(&input.shape, &input.open)).collect();
        InputShapes { row: Shape::from(named.iter().map(Shape::len).sum::<usize>()), named }
    }

    /// Shapes for an input of other extents, where these are not fixed.
    fn shapes_elsewhere(&self) -> Result<NetworkShapes> {
        // Inputs whose steps meet have the same extents, whatever the newest call of each was.
        let named = self.inputs.iter().flat_map(|input| input.open.iter().map(|axis| input.shape[*axis]));
        let most =
            self.variable.axes.iter().map(|axis| self.input_shape[*axis]).chain(named).max().unwrap_or(0);
        let InputShapes { row, named } = self.with_extent(|_| 2 * most + 1);
        self.infer_shapes_of(row, &named)
    }

    /// What each layer would make of an input of other extents, where these are not fixed.
    pub(super) fn output_shapes_elsewhere(&self) -> Result<Vec<Shape>> {
        if !self.has_open_extents() {
            return Ok(Vec::new());
        }
        Ok(self.shapes_elsewhere()?.layers.into_iter().map(|shapes| shapes.output).collect())
    }

    /// Refuses layers whose parameters follow extents that are not fixed.
    fn check_variable(&self, shapes: &NetworkShapes) -> Result<()> {
        let others = self.shapes_elsewhere().map_err(|error| {
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
}

/// Extents in words.
pub(super) fn told(extents: &[Option<usize>]) -> String {
    let one = |extent: &Option<usize>| extent.map_or("any".into(), |extent| extent.to_string());
    let comma = if extents.len() == 1 { "," } else { "" };
    format!("({}{comma})", extents.iter().map(one).collect::<Vec<_>>().join(", "))
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
