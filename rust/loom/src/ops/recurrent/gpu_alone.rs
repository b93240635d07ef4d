//! The loop on a GPU by workgroups that wait for nobody: where the threads of one hold all weights in registers, it goes
//! through all steps of some rows by itself.
//!
//! A step is then a product out of registers and workgroup memory, and two barriers. What no step makes (inputs, masks,
//! what the step forward has kept) is asked for a step before it is needed.

use super::gpu_kernel::RowKernel;
use super::gpu_operands::{BackwardOperands, ForwardOperands};
use super::{Cell, Recurrent};
use crate::Result;
use crate::shader::{Recorder, Shader, add_line};

/// Sums of a thread.
const WIDTHS: [usize; 2] = [2, 4];
/// Threads of a workgroup, at most.
const MOST_THREADS: usize = 512;
/// Registers of a multiprocessor and of a thread, of which the loop takes some for itself.
const REGISTERS: usize = 64 * 1024;
const MOST_REGISTERS: usize = 255;
const OTHER_REGISTERS: usize = 36;
/// Workgroups that a multiprocessor runs side by side before rows are taken four at a time.
const SIDE_BY_SIDE: usize = 2;

/// How the threads of a workgroup share out a step's product.
pub(super) struct Alone {
    /// Rows of a workgroup.
    rows: usize,
    /// Sums of all threads, the gates of all units or the gradients of all.
    sums: usize,
    /// Terms of a sum.
    terms: usize,
    /// Sums of a thread, each `columns` after the one before.
    width: usize,
    columns: usize,
    /// How many threads share a sum.
    split: usize,
}

impl Alone {
    /// The one that takes least time, if weights fit a workgroup's registers.
    fn new(op: &Recurrent, recorder: &Recorder<'_>, sums: usize, terms: usize) -> Option<Self> {
        let capabilities = recorder.capabilities();
        // Registers are known where it is known what runs at the same time.
        if capabilities.concurrent_groups == 0 {
            return None;
        }
        let most_threads = MOST_THREADS.min(capabilities.workgroup_threads);
        let rows = if recorder.rows() > SIDE_BY_SIDE * capabilities.concurrent_groups { 4 } else { 1 };
        let candidate = |width: usize, split: usize| Self {
            rows,
            sums,
            terms,
            width,
            columns: sums.div_ceil(width),
            split,
        };
        let fits = |shares: &Self| {
            let threads = shares.threads();
            let registers = MOST_REGISTERS.min(REGISTERS / threads.next_multiple_of(32).max(1));
            let bytes = (shares.held() + shares.parts()) * rows * 4;
            (op.units..=most_threads).contains(&threads)
                && shares.weights() + OTHER_REGISTERS + shares.width * rows <= registers
                && bytes <= capabilities.workgroup_storage
        };
        let candidates = WIDTHS.into_iter().flat_map(|width| (1..=32).map(move |split| (width, split)));
        let candidates = candidates.map(|(width, split)| candidate(width, split));
        candidates.filter(fits).min_by_key(|shares| shares.cost(op.units))
    }

    fn threads(&self) -> usize {
        self.columns * self.split
    }

    /// Terms of a thread.
    fn share(&self) -> usize {
        self.terms.div_ceil(self.split)
    }

    fn weights(&self) -> usize {
        self.share() * self.width
    }

    /// Terms of all threads, of which the last may have more than there are.
    fn held(&self) -> usize {
        self.split * self.share()
    }

    /// Sums that threads leave each other.
    fn parts(&self) -> usize {
        self.threads() * self.width
    }

    /// About how many cycles a step takes: four schedulers multiply side by side, workgroup memory hands a number to each
    /// thread of one subgroup, and whoever finishes a unit goes through its parts.
    fn cost(&self, units: usize) -> usize {
        let subgroups = self.threads().div_ceil(32);
        let multiplying = subgroups.div_ceil(4) * self.weights();
        let reading = subgroups * (self.share() + self.width);
        let finishing = self.sums / units * self.split;
        multiplying + reading + finishing * (2 + units.div_ceil(32))
    }

    /// Declares the product, and sums that `sum(part)` names for each part of a unit.
    fn declare(&self, shader: Shader, units: usize, sum: impl Fn(usize) -> String) -> Shader {
        let (share, width, columns) = (self.share(), self.width, self.columns);
        let mut weights =
            format!("let begin = thread / {columns}u * {share}u;\nlet column = thread % {columns}u;\n");
        for k in 0..share {
            for part in 0..width {
                let place = part * columns;
                let at = format!(
                    "min(begin + {k}u, {}u) * {}u + min({place}u + column, {}u)",
                    self.terms - 1,
                    self.sums,
                    self.sums - 1
                );
                let there = format!("begin + {k}u < {}u", self.terms);
                add_line!(weights, "let weight{k}_{part} = Lanes(select(0.0, weight[{at}], {there}));");
            }
        }
        let mut product = String::new();
        (0..width).for_each(|part| add_line!(product, "var sum{part} = Lanes();"));
        for k in 0..share {
            add_line!(product, "let term{k} = held[begin + {k}u];");
            for part in 0..width {
                add_line!(product, "sum{part} = fma(term{k}, weight{k}_{part}, sum{part});");
            }
        }
        for part in 0..width {
            let at = format!("thread / {columns}u * {}u + {}u + column", columns * width, part * columns);
            add_line!(product, "parts[{at}] = sum{part};");
        }
        // A loop over parts that lie in vectors of rows takes half as long again.
        let mut sums = String::new();
        for part in 0..self.split {
            for number in 0..self.sums / units {
                let at = part * columns * width + number * units;
                add_line!(sums, "{} += parts[{at}u + unit];", sum(number));
            }
        }
        shader
            .append(&format!(
                "var<workgroup> held: array<Lanes, {}>;\nvar<workgroup> parts: array<Lanes, {}>;\n",
                self.held(),
                self.parts()
            ))
            .threads(self.threads())
            .constant("ROWS", self.rows)
            .constant("TERMS", self.terms)
            .constant("HELD", self.held())
            .section("WEIGHTS", weights)
            .section("PRODUCT", product)
            .section("SUMS", sums)
    }

    /// Declares what a step reads that no step makes: by what names it is known, beside `real`, and the text that reads it.
    fn ahead(&self, shader: Shader, names: &[String], loads: &str) -> Shader {
        let truth = if self.rows == 1 { "bool" } else { "vec4<bool>" };
        let (mut fields, mut known) = (format!("real: {truth},\n"), String::from("let real = ahead.real;\n"));
        for name in names {
            add_line!(fields, "{name}: Lanes,");
            add_line!(known, "var {name} = ahead.{name};");
        }
        let list: String = names.iter().map(|name| format!(", {name}")).collect();
        shader
            .section("FIELDS", fields)
            .section("LOADS", format!("{loads}\nreturn Ahead(real{list});"))
            .section("KNOWN", known)
    }
}

impl Recurrent {
    /// How a workgroup goes forward by itself, where it can; a GRU that resets first has two products a step.
    pub(super) fn alone_forward(&self, recorder: &Recorder<'_>) -> Option<Alone> {
        let sums = self.cell.gates() * self.units;
        (self.cell != Cell::ResetFirstGru).then(|| Alone::new(self, recorder, sums, self.units))?
    }

    /// How it goes backward.
    pub(super) fn alone_backward(&self, recorder: &Recorder<'_>) -> Option<Alone> {
        let terms = self.cell.gates() * self.units;
        (self.cell != Cell::ResetFirstGru).then(|| Alone::new(self, recorder, self.units, terms))?
    }

    pub(super) fn record_alone_forward(
        &self,
        recorder: &mut Recorder<'_>,
        operands: ForwardOperands,
        direction: usize,
        shares: &Alone,
    ) -> Result<()> {
        let gates = self.cell.gates();
        let weight = self.plain_weight(recorder, operands.weight.clone())?;
        let where_cells = |text: &'static str| if self.cell == Cell::Lstm { text } else { "" };
        let shader = Shader::new(self.to_string(), include_str!("alone_forward.wgsl"))
            .read("weight", "f32", weight)
            .section("CELLS_BEFORE", where_cells("var cell = initial_state(first, UNITS + unit);"))
            .section("STEP", self.cell_forward("cell"))
            .section("KEEP", self.cell_kept())
            .section("LAST_CELLS", where_cells("store_state(first, STATE_AT + UNITS + unit, cell);"));
        let mut names: Vec<String> = (0..gates).map(|gate| format!("z{gate}")).collect();
        names.extend((self.cell == Cell::Gru).then(|| "x".into()));
        let shader = shares.ahead(self.constants(shader, direction), &names, &self.cell_start(0..gates));
        let kernel = RowKernel::new(shader, shares.rows, recorder.rows()).load(
            "input",
            operands.input.clone(),
            self.time * gates * self.units,
        );
        let kernel = kernel.with(|shader| shares.declare(shader, self.units, |gate| format!("z{gate}")));
        let groups = recorder.rows().div_ceil(shares.rows);
        operands.start(self, operands.declare(self, kernel), direction).shader.groups(recorder, groups)
    }

    pub(super) fn record_alone_backward(
        &self,
        recorder: &mut Recorder<'_>,
        operands: BackwardOperands,
        direction: usize,
        shares: &Alone,
    ) -> Result<()> {
        let weight = self.plain_weight(recorder, operands.weight.clone())?;
        let where_cells = |text: &'static str| if self.cell == Cell::Lstm { text } else { "" };
        let step = self.cell_backward("cell", |gate| format!("held[{gate}u * UNITS + unit]"));
        let rounds = if self.state { self.time + 1 } else { self.time };
        let shader = Shader::new(self.to_string(), include_str!("alone_backward.wgsl"))
            .append(include_str!("output_gradient.wgsl"))
            .read("weight", "f32", weight)
            .constant("GATES", self.cell.gates())
            .constant("ROUNDS", rounds)
            .section("CELLS_BEFORE", where_cells("var cell = Lanes();"))
            .section("GATES_OF_UNIT", step.gates)
            .section("STORES", step.stores)
            .section("LAST_CELLS", where_cells("store_state(first, STATE_AT + UNITS + unit, cell);"));
        let names: Vec<String> = step.names.iter().chain(&["output"]).map(ToString::to_string).collect();
        let shader = shares.ahead(self.constants(shader, direction), &names, &step.loads);
        let kernel = RowKernel::new(shader, shares.rows, recorder.rows())
            .with(|shader| shares.declare(shader, self.units, |_| "dh".into()));
        let groups = recorder.rows().div_ceil(shares.rows);
        operands.declare(self, kernel, direction).shader.groups(recorder, groups)
    }
}
