//! Named inputs that enter cells of one's choice, and named outputs from any cells.
//!
//! Several inputs travel as one row, flat one behind the other in the order in which they were named, and
//! several outputs leave as one; where inputs are sequences of different lengths, these come first. So whatever
//! feeds, keeps or shuffles rows knows of one input and one output.

use super::named::{NamedInput, NamedOutput};
use super::shapes::MOST_AXES;
use super::{Combine, Coordinates, Network};
use crate::ops::{Concat, Slice};
use crate::program::{Builder, Value};
use crate::tensor::{Precision, Shape};
use crate::{Error, Result, extents};
use std::ops::Range;

/// The most operands of one [`Concat`].
pub(super) const MOST_PARTS: usize = 8;

/// Whole numbers in rows of the input.
pub(crate) struct IndexRange<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) range: Range<usize>,
    pub(crate) limit: usize,
}

impl Network {
    /// The named inputs, in the order in which they lie in a row; none where there is one without a name.
    pub fn named_inputs(&self) -> &[NamedInput] {
        &self.inputs
    }

    /// The named outputs, in the order in which they lie in a row; none where there is one without a name.
    pub fn named_outputs(&self) -> &[NamedOutput] {
        &self.outputs
    }

    /// Gives the network several inputs: a row holds them flat, one behind the other, in this order. A cell's
    /// input is what enters there, joined as by links that concatenate where that is several, and no longer
    /// what the cell before it hands on.
    ///
    /// # Errors
    /// [`Error::Value`] for no input, a name that is empty or given twice, or an extent of zero;
    /// [`Error::Index`] for a cell that is not there.
    pub fn set_inputs(&mut self, inputs: Vec<NamedInput>) -> Result<()> {
        check_names("input", inputs.iter().map(|input| &*input.name))?;
        if !self.variable_axes().is_empty() {
            let error = "a network whose input has open extents has one without a name; give each named input its own";
            return Err(Error::Value(error.into()));
        }
        if inputs.is_empty() {
            return Err(Error::Value("inputs must name at least one input".into()));
        }
        for input in &inputs {
            let what = format!("input \"{}\"", input.name);
            if input.shape.is_empty() {
                return Err(Error::Value(format!("{what}: shape {} has an empty axis", input.shape)));
            }
            extents::check(&what, &input.shape)?;
            if input.open.iter().any(|axis| *axis >= input.shape.rank()) {
                return Err(Error::Value(format!("{what} has no axes {:?}", input.open)));
            }
            let exact = if self.precision == Precision::Float64 { 1 << 53 } else { 1 << 24 };
            if let Some(count) = input.categories.filter(|count| !(1..=exact).contains(count)) {
                return Err(Error::Value(format!(
                    "{what}: {count} categories; a network of this precision tells 1 to {exact} apart"
                )));
            }
            input.cell.map_or(Ok(0), |cell| self.cell_index(cell))?;
        }
        let open = inputs.iter().map(|input| input.open.len()).sum::<usize>();
        if open > MOST_AXES {
            return Err(Error::Value(format!(
                "the inputs have {open} axes of no fixed extent, and {MOST_AXES} at most may have none"
            )));
        }
        let shape = Shape::from(inputs.iter().map(|input| input.shape.len()).sum::<usize>());
        extents::check("all inputs together", &shape)?;
        self.input_shape = shape;
        self.inputs = inputs;
        self.rearranged();
        Ok(())
    }

    /// Names the network's outputs: what these cells hand on, flat one behind the other in a row. With none the
    /// output is what the last cell hands on.
    ///
    /// # Errors
    /// [`Error::Value`] for a name that is empty or given twice; [`Error::Index`] for a cell that is not there.
    pub fn set_outputs(&mut self, outputs: Vec<NamedOutput>) -> Result<()> {
        check_names("output", outputs.iter().map(|output| &*output.name))?;
        for output in &outputs {
            self.cell_index(output.cell)?;
        }
        self.outputs = outputs;
        self.rearranged();
        Ok(())
    }

    /// Refuses a network with several inputs or outputs, for `what` has no meaning for it; `instead` says what has.
    pub(crate) fn check_single(&self, what: &str, instead: &str) -> Result<()> {
        if self.inputs.is_empty() && self.outputs.is_empty() {
            return Ok(());
        }
        let which = if self.inputs.is_empty() { "outputs" } else { "inputs" };
        Err(Error::Value(format!(
            "{what} takes a network with one input and one output; this one has named {which}{instead}"
        )))
    }

    /// Shapes of the named outputs, once built.
    pub fn named_output_shapes(&self) -> Vec<Shape> {
        let cell = |output: &NamedOutput| self.cell_index(output.cell).ok();
        self.outputs.iter().filter_map(|output| self.cell_shapes.get(cell(output)?).cloned()).collect()
    }

    /// Extents of a row of all named outputs; none where there is one without a name.
    pub(super) fn packed_output_shape(&self) -> Option<Shape> {
        let elements = self.named_output_shapes().iter().map(|shape| shape.len()).sum::<usize>();
        (!self.outputs.is_empty()).then(|| Shape::from(elements))
    }

    /// What each named input's elements must be below, where they are whole numbers.
    pub fn index_limits(&self) -> Vec<Option<usize>> {
        (0..self.inputs.len()).map(|number| self.limit_of(number)).collect()
    }

    fn limit_of(&self, number: usize) -> Option<usize> {
        let input = &self.inputs[number];
        let cell = self.entry_cell(number)?;
        let reader = self.cells[cell..]
            .iter()
            .enumerate()
            .take_while(|(after, _)| *after == 0 || !self.begins(cell + after))
            .flat_map(|(_, layers)| layers)
            .find(|placed| !placed.layer.keeps_elements())
            .and_then(|first| first.layer.index_limit());
        match (input.categories, reader) {
            (Some(said), Some(read)) => Some(said.min(read)),
            (said, read) => said.or(read),
        }
    }

    /// Where whole numbers lie in a row of the input, and what they must be below.
    pub(crate) fn index_ranges(&self) -> Vec<IndexRange<'_>> {
        if self.inputs.is_empty() {
            let before = self.row_prefix();
            let elements = before..before + self.input_shape.len();
            let whole = self.index_limit().map(|limit| IndexRange { name: None, range: elements, limit });
            let limit = self.input_shape.first().map_or(1, |steps| steps + 1);
            let name = Some(if self.is_packed_in_rows() { "number of a sequence" } else { "length" });
            let length = (before > 0).then_some(IndexRange { name, range: 0..before, limit });
            return length.into_iter().chain(whole).collect();
        }
        let before = self.row_prefix();
        let lengths = (0..before).map(|number| IndexRange {
            name: Some("length"),
            range: number..number + 1,
            limit: self.steps_of_length(number) + 1,
        });
        let places = places(self.inputs.iter().map(|input| input.shape.len()))
            .into_iter()
            .map(|place| before + place.start..before + place.end);
        let ranges = self.inputs.iter().zip(places).enumerate().filter_map(|(number, (input, place))| {
            let limit = self.limit_of(number)?;
            Some(IndexRange { name: Some(&input.name), range: place, limit })
        });
        lengths.chain(ranges).collect()
    }

    /// The cell that an input enters, by number.
    fn entry_cell(&self, number: usize) -> Option<usize> {
        match self.inputs[number].cell {
            Some(cell) => self.cell_index(cell).ok(),
            None => (number == 0).then_some(0),
        }
    }

    /// The inputs that enter a cell.
    pub(super) fn entering(&self, cell: usize) -> Vec<usize> {
        (0..self.inputs.len()).filter(|number| self.entry_cell(*number) == Some(cell)).collect()
    }

    /// Whether flow starts anew in a cell: an input enters there.
    pub(crate) fn enters(&self, cell: usize) -> bool {
        (0..self.inputs.len()).any(|number| self.entry_cell(number) == Some(cell))
    }

    /// Whether what the cell before hands on does not flow to a cell.
    fn begins(&self, cell: usize) -> bool {
        self.enters(cell) || self.is_replaced(cell)
    }

    /// Where each named output lies in a row of the network's, once built.
    pub(crate) fn output_places(&self) -> Vec<Range<usize>> {
        places(self.named_output_shapes().iter().map(|shape| shape.len()))
    }

    /// Takes the gradients of the named outputs out of that of a whole row.
    pub(crate) fn split_gradient(&self, b: &mut Builder, gradient: Value) -> Vec<Value> {
        let places = self.output_places().into_iter().zip(self.named_output_shapes());
        places.map(|(place, shape)| slice(b, gradient, self.output_shape().len(), &place, shape)).collect()
    }

    /// Refuses inputs that enter no cell, layers that nothing comes to, and layers whose output goes nowhere.
    pub(crate) fn check_ports(&self) -> Result<()> {
        let replaces = self.links.iter().any(|link| link.combine == super::Combine::Replace);
        if self.inputs.is_empty() && self.outputs.is_empty() && !replaces {
            return Ok(());
        }
        if let Some(cell) = (0..self.cells.len()).find(|cell| self.enters(*cell) && self.is_replaced(*cell)) {
            return Err(Error::Value(format!(
                "an input enters cell {}, where a link replaces what flows there; let it enter elsewhere",
                Shape::from(self.coordinates_of(cell))
            )));
        }
        for (number, input) in self.inputs.iter().enumerate() {
            if self.entry_cell(number).is_none() {
                return Err(Error::Value(format!(
                    "input \"{}\" enters no cell; say which with enter(\"{}\", (depth, row, column))",
                    input.name, input.name
                )));
            }
            if let (Some(said), Some(read)) = (input.categories, self.limit_of(number))
                && read < said
            {
                return Err(Error::Value(format!(
                    "input \"{}\" has {said} categories, but the layer that reads them tells {read} apart",
                    input.name
                )));
            }
        }
        let first =
            (0..self.cells.len()).find(|cell| self.inputs.is_empty() || self.enters(*cell)).unwrap_or(0);
        // The cell whose output each cell hands on: its own, or where it has nothing, that of the one before.
        let mut made: Vec<usize> = Vec::with_capacity(self.cells.len());
        for (number, cell) in self.cells.iter().enumerate() {
            let arrives = |(_, link): &(usize, &super::Link)| link.combine != Combine::Context;
            let own = !cell.is_empty() || self.enters(number) || self.links_to(number)?.iter().any(arrives);
            made.push(if own || number == 0 { number } else { made[number - 1] });
        }
        let mut used = vec![false; self.cells.len()];
        for link in &self.links {
            used[made[self.cell_index(link.source)?]] = true;
        }
        for output in &self.outputs {
            let cell = self.cell_index(output.cell)?;
            if cell < first {
                return Err(Error::Value(format!(
                    "output \"{}\" comes from cell {}, where no input has entered yet",
                    output.name,
                    Shape::from(output.cell)
                )));
            }
            used[made[cell]] = true;
        }
        if let Some(last) = made.last().filter(|_| self.outputs.is_empty()) {
            used[*last] = true;
        }
        for number in 1..self.cells.len() {
            if made[number] == number && !self.begins(number) {
                used[made[number - 1]] = true;
            }
        }
        for (number, cell) in self.cells.iter().enumerate() {
            let at = Shape::from(self.coordinates_of(number));
            let links = self.links_to(number)?;
            if number < first && (!cell.is_empty() || !links.is_empty() || used[number]) {
                return Err(Error::Value(format!(
                    "nothing comes to cell {at}: the first input enters a later cell; let one enter here"
                )));
            }
            let holds = !cell.is_empty() || self.enters(number);
            if number >= first && made[number] == number && !used[number] && holds {
                return Err(Error::Value(format!(
                    "what cell {at} makes goes nowhere: link it to a later cell, make it an output, or let the next \
                     cell's input enter elsewhere"
                )));
            }
        }
        Ok(())
    }

    /// Depth, row and column of a cell.
    pub(super) fn coordinates_of(&self, number: usize) -> Coordinates {
        let [_, rows, columns] = self.grid;
        [number / (rows * columns), number / columns % rows, number % columns]
    }
}

/// Puts values at their places in a row of so many elements; what none covers is zero.
pub(crate) fn row_of(b: &mut Builder, parts: &[(Range<usize>, Value)], total: usize) -> Value {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|(place, _)| place.start);
    while parts.len() > MOST_PARTS {
        let chunk = |b: &mut Builder, parts: &[(Range<usize>, Value)]| {
            let place = parts[0].0.start..parts[parts.len() - 1].0.end;
            (place.clone(), put(b, parts, place))
        };
        parts = parts.chunks(MOST_PARTS).map(|parts| chunk(b, parts)).collect();
    }
    put(b, &parts, 0..total)
}

fn put(b: &mut Builder, parts: &[(Range<usize>, Value)], place: Range<usize>) -> Value {
    let places = parts.iter().map(|(part, _)| (part.start - place.start, part.len())).collect();
    let values: Vec<Value> = parts.iter().map(|(_, value)| *value).collect();
    let op = Concat { outer: 1, total: place.len(), parts: places };
    b.apply(op, &values, "row", Shape::from(place.len()))
}

pub(crate) fn slice(b: &mut Builder, row: Value, total: usize, place: &Range<usize>, shape: Shape) -> Value {
    let op = Slice { outer: 1, total, start: place.start, length: place.len(), guarded: false };
    b.apply(op, &[row], "part", shape)
}

pub(super) fn places(lengths: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut start = 0;
    lengths
        .map(|length| {
            start += length;
            start - length..start
        })
        .collect()
}

fn check_names<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if name.is_empty() || seen.contains(&name) {
            let why = if name.is_empty() { "is empty" } else { "is given twice" };
            return Err(Error::Value(format!("the name \"{name}\" of an {what} {why}")));
        }
        seen.push(name);
    }
    Ok(())
}
