//! The loop on a GPU where its weights are many: each step is a dispatch of its own, over all units.
//!
//! A workgroup that goes through all steps reads all weights in each of them, and one multiprocessor waits for
//! that while the others have nothing to do. Here a workgroup takes [`TILE`] units of some rows; its threads share
//! out the gates and the terms of their sums, whose parts are then added in order, and finish a unit of a row
//! each. What a step hands to the next one changes places between two buffers, in which rows lie side by side:
//! (blocks of rows, terms, rows of a block).

use super::gpu_kernel::{RowKernel, sum_over, sum_shares};
use super::gpu_operands::{BackwardOperands, ForwardOperands};
use super::{Cell, Recurrent};
use crate::Result;
use crate::shader::{Bind, Kernel, Operand, Recorder, Shader, THREADS, add_line};

/// Elements of the hidden-to-hidden weight from which on steps are dispatches of their own: about what stays in
/// the first-level cache of a multiprocessor.
const MANY_WEIGHTS: usize = 24 * 1024;
/// Units of a workgroup: as many neighbouring weights as memory hands over at a time.
const TILE: usize = 8;
/// Vectors of weights and states that a thread asks for at once: the terms of its sum in a round of its loop.
const ASKED_AT_ONCE: usize = 32;
/// Workgroups that a large device takes at a time: while there are fewer, each takes fewer rows.
const WORKGROUPS: usize = 256;

/// How a step's product is shared out.
struct Shares {
    /// Vectors of four rows that a workgroup takes.
    vectors: usize,
    /// Sums of a unit: its gates, or one for the gradient.
    parts: usize,
    /// Terms of a sum.
    terms: usize,
    /// How many threads share a sum.
    split: usize,
}

impl Shares {
    fn new(op: &Recurrent, recorder: &Recorder<'_>, parts: usize, terms: usize) -> Self {
        let capabilities = recorder.capabilities();
        let split = THREADS.min(capabilities.workgroup_threads) / (TILE * parts);
        let shares = |vectors: usize| Self { vectors, parts, terms, split };
        // A vector for each thread, and threads enough to finish as many rows.
        let fits = |shares: &Self| {
            TILE * parts * split * shares.vectors * 16 <= capabilities.workgroup_storage
                && shares.lanes() <= parts * split
        };
        let few = |shares: &Self| shares.groups(op, recorder) <= WORKGROUPS;
        let larger = [2, 4].map(shares).into_iter().filter(fits);
        larger.fold(shares(1), |best, next| if few(&best) { best } else { next })
    }

    /// Rows of a workgroup.
    fn lanes(&self) -> usize {
        4 * self.vectors
    }

    /// Memory for so many numbers of each row.
    fn memory(&self, recorder: &mut Recorder<'_>, numbers: usize) -> Result<Operand> {
        let blocks = recorder.rows().div_ceil(self.lanes());
        recorder.scratch(blocks * self.lanes() * numbers)
    }

    fn groups(&self, op: &Recurrent, recorder: &Recorder<'_>) -> usize {
        op.units.div_ceil(TILE) * recorder.rows().div_ceil(self.lanes())
    }

    /// Declares the product, of whose parts the sum named `sum(part)` of a unit takes its own.
    fn declare(&self, shader: Shader, op: &Recurrent, sum: impl Fn(usize) -> String) -> Shader {
        let vectors = 0..self.vectors;
        let mut product = String::new();
        vectors.clone().for_each(|v| add_line!(product, "var sum{v} = vec4<f32>();"));
        let term = |k: &str| {
            let mut term = format!(
                "    {{\n    let at = begin + {k};\n    \
                 let factor = vec4<f32>(weight[at * COLUMNS + lane % PARTS * UNITS + unit]);\n"
            );
            for v in vectors.clone() {
                let held = format!("previous[(block * TERMS + at) * VECTORS + {v}u]");
                add_line!(term, "    sum{v} = fma({held}, factor, sum{v});");
            }
            term + "    }"
        };
        product += &sum_over("length", ASKED_AT_ONCE / self.vectors, term);
        vectors.clone().for_each(|v| add_line!(product, "\nparts[thread * VECTORS + {v}u] = sum{v};"));
        product += "workgroupBarrier();";
        shader
            .threads(TILE * self.parts * self.split)
            .constant("TILE", TILE)
            .constant("TILES", op.units.div_ceil(TILE))
            .constant("VECTORS", self.vectors)
            .constant("LANES", self.lanes())
            .constant("PARTS", self.parts)
            .constant("TERMS", self.terms)
            .constant("COLUMNS", self.parts * op.units)
            .constant("SHARE", self.terms.div_ceil(self.split))
            .section("PRODUCT", product)
            .section("SUMS", sum_shares(self.split, self.parts, sum))
    }
}

impl Recurrent {
    /// Whether steps are dispatches of their own; those of a GRU that resets first would each be two.
    pub(super) fn is_stepwise(&self) -> bool {
        self.cell != Cell::ResetFirstGru && self.units * self.units * self.cell.gates() > MANY_WEIGHTS
    }

    pub(super) fn record_forward_steps(
        &self,
        recorder: &mut Recorder<'_>,
        operands: ForwardOperands,
        direction: usize,
    ) -> Result<()> {
        let (units, gates) = (self.units, self.cell.gates());
        let weight = self.plain_weight(recorder, operands.weight.clone())?;
        let shares = Shares::new(self, recorder, gates, units);
        let held = [shares.memory(recorder, units)?, shares.memory(recorder, units)?];
        let cells = match self.cell {
            Cell::Lstm => Some(shares.memory(recorder, units)?),
            _ => None,
        };
        let with_cells = |shader: Shader| match cells.clone() {
            Some(cells) => shader.write("cells", "f32", cells),
            None => shader,
        };
        let where_cells = |text: &'static str| if cells.is_some() { text } else { "" };

        let begin = Shader::new(format!("{self} begins"), include_str!("step_begin.wgsl"))
            .write("next", "f32", held[0].clone())
            .constant("UNITS", units)
            .constant("LANES", shares.lanes())
            .section("CELLS_BEFORE", where_cells("cells[i] = initial_state(first, UNITS + unit);"));
        let begin = RowKernel::new(with_cells(begin), 1, recorder.rows());
        let elements = held[0].elements;
        operands.start(self, begin, direction).shader.elements(recorder, elements)?;

        let step = |[previous, next]: [&Operand; 2], rows: usize| {
            let shader = Shader::new(self.to_string(), include_str!("step_forward.wgsl"))
                .read("previous", "vec4<f32>", previous.clone())
                .write("next", "f32", next.clone())
                .read("weight", "f32", weight.clone())
                .section("START", self.cell_start(0..gates))
                .section("STEP", self.cell_forward("cells[held]") + &self.cell_kept())
                .section(
                    "LAST_CELLS",
                    where_cells("store_state(first, STATE_AT + UNITS + unit, cells[held]);"),
                );
            let shader = shares
                .declare(self.constants(with_cells(shader), direction), self, |gate| format!("z{gate}"));
            let kernel = RowKernel::new(shader, 1, rows).load(
                "input",
                operands.input.clone(),
                self.time * gates * units,
            );
            operands.declare(self, kernel).shader.number("at", 0u32).finish()
        };
        let groups = shares.groups(self, recorder);
        let rows = recorder.rows();
        let kernels = [step([&held[0], &held[1]], rows)?, step([&held[1], &held[0]], rows)?];
        dispatch_each(recorder, &kernels, 0..self.time, groups)
    }

    pub(super) fn record_backward_steps(
        &self,
        recorder: &mut Recorder<'_>,
        operands: BackwardOperands,
        direction: usize,
    ) -> Result<()> {
        let (units, gates) = (self.units, self.cell.gates());
        let weight = self.plain_weight(recorder, operands.weight.clone())?;
        let shares = Shares::new(self, recorder, 1, gates * units);
        let held = [shares.memory(recorder, gates * units)?, shares.memory(recorder, gates * units)?];
        let carry = shares.memory(recorder, units)?;
        let cells = match self.cell {
            Cell::Lstm => Some(shares.memory(recorder, units)?),
            _ => None,
        };
        let where_cells = |text: &'static str| if cells.is_some() { text } else { "" };
        let share = |gate: usize| format!("next[((block * GATES + {gate}u) * UNITS + unit) * LANES + lane]");

        let step = |[previous, next]: [&Operand; 2], rows: usize| {
            let shader = Shader::new(self.to_string(), include_str!("step_backward.wgsl"))
                .append(include_str!("output_gradient.wgsl"))
                .read("previous", "vec4<f32>", previous.clone())
                .write("next", "f32", next.clone())
                .write("carry", "f32", carry.clone())
                .read("weight", "f32", weight.clone())
                .constant("GATES", gates)
                .section(
                    "NO_CELLS",
                    where_cells("if constants.left == TIME {\n        cells[held] = 0.0;\n    }"),
                )
                .section("STEP", self.cell_backward("cells[held]", share).whole())
                .section(
                    "LAST_CELLS",
                    where_cells("store_state(first, STATE_AT + UNITS + unit, cells[held]);"),
                );
            let shader = match cells.clone() {
                Some(cells) => shader.write("cells", "f32", cells),
                None => shader,
            };
            let shader = shares.declare(self.constants(shader, direction), self, |_| "dh".into());
            let kernel = operands.declare(self, RowKernel::new(shader, 1, rows), direction);
            kernel.shader.number("left", 0u32).finish()
        };
        let groups = shares.groups(self, recorder);
        let rows = recorder.rows();
        let kernels = [step([&held[0], &held[1]], rows)?, step([&held[1], &held[0]], rows)?];
        // The gradient of the initial state is what is left for no step.
        let last = if self.state { 0 } else { 1 };
        dispatch_each(recorder, &kernels, (last..=self.time).rev(), groups)
    }
}

/// Dispatches two kernels in turn, once for each of these values of their last number.
fn dispatch_each(
    recorder: &mut Recorder<'_>,
    kernels: &[(Kernel, Vec<Bind>, Vec<u32>); 2],
    values: impl Iterator<Item = usize>,
    groups: usize,
) -> Result<()> {
    for ((kernel, binds, numbers), value) in kernels.iter().cycle().zip(values) {
        let mut numbers = numbers.clone();
        if let Some(last) = numbers.last_mut() {
            *last = value as u32;
        }
        recorder.dispatch(kernel.clone(), binds.clone(), numbers, groups)?;
    }
    Ok(())
}
