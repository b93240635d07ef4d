//! The loop on a GPU by workgroups that stay until the last step, where all of them run at the same time.
//!
//! A dispatch a step (see [`gpu_stepwise`](super::gpu_stepwise)) waits for the one before, and reads its weights anew. Here
//! a workgroup has the weights of some units in registers, goes through all steps with some rows, and hands what it
//! makes to the others by memory: persistent kernels as of Diamos et al. (2016), Persistent RNNs. Who waits looks at
//! each value until it is there; nobody waits for a workgroup that has not started, since there are no more than the
//! device runs at once.

use super::gpu_kernel::{RowKernel, sum_shares};
use super::gpu_operands::{BackwardOperands, ForwardOperands};
use super::{Cell, Recurrent};
use crate::Result;
use crate::shader::{Operand, Recorder, Shader, THREADS, add_line};

/// Elements of the hidden-to-hidden weight from which on units are shared out among workgroups. Of fewer, the workgroup that
/// goes through all steps by itself waits for nobody.
const SOME_WEIGHTS: usize = 2 * 1024;
/// Units of a workgroup, of which the fewer the better.
const TILES: [usize; 3] = [8, 16, 32];
/// Vectors of four rows of a workgroup.
const VECTORS: [usize; 3] = [1, 2, 4];
/// Weights that a thread holds at most: with what else it holds, two workgroups fit the registers of a multiprocessor.
const MOST_WEIGHTS: usize = 48;
/// Bytes of workgroup memory, likewise.
const MOST_BYTES: usize = 32 * 1024;
/// Elements that are handed over at most, each of which has a place of its own.
const MOST_EXCHANGED: usize = 1 << 26;

/// How a step's product is shared out.
pub(super) struct Resident {
    /// Units of a workgroup.
    tile: usize,
    /// Vectors of four rows of a workgroup.
    vectors: usize,
    /// Sums of a unit: its gates, or one for the gradient.
    parts: usize,
    /// Terms of a sum.
    terms: usize,
    /// How many threads share a sum.
    split: usize,
    tiles: usize,
    blocks: usize,
}

impl Resident {
    /// The one with the least to do in a step, if there is one that the device runs all at once.
    fn new(op: &Recurrent, recorder: &Recorder<'_>, parts: usize, terms: usize) -> Option<Self> {
        let capabilities = recorder.capabilities();
        let threads = THREADS.min(capabilities.workgroup_threads);
        let fits = |shares: &Self| {
            let bytes = (shares.threads() + shares.held()) * shares.vectors * 16;
            shares.share() <= MOST_WEIGHTS
                && shares.lanes() <= parts * shares.split
                && bytes <= capabilities.workgroup_storage.min(MOST_BYTES)
                && shares.groups() <= capabilities.concurrent_groups
                && shares.exchanged(op) <= MOST_EXCHANGED.min(capabilities.max_binding / 4)
        };
        let candidates = TILES.into_iter().flat_map(|tile| VECTORS.map(|vectors| (tile, vectors)));
        let candidates = candidates.filter(|(tile, _)| tile * parts <= threads);
        let shares = candidates.map(|(tile, vectors)| Self {
            tile,
            vectors,
            parts,
            terms,
            split: threads / (tile * parts),
            tiles: op.units.div_ceil(tile),
            blocks: recorder.rows().div_ceil(4 * vectors),
        });
        shares.filter(fits).min_by_key(|shares| (shares.share() * shares.vectors, shares.vectors))
    }

    fn threads(&self) -> usize {
        self.tile * self.parts * self.split
    }

    fn groups(&self) -> usize {
        self.tiles * self.blocks
    }

    /// Rows of a workgroup.
    fn lanes(&self) -> usize {
        4 * self.vectors
    }

    /// Terms of a thread.
    fn share(&self) -> usize {
        self.terms.div_ceil(self.split)
    }

    /// Terms of all threads, of which the last may have more than there are.
    fn held(&self) -> usize {
        self.split * self.share()
    }

    /// Elements that are handed over in all steps.
    fn exchanged(&self, op: &Recurrent) -> usize {
        op.time.saturating_mul(self.blocks * self.terms * self.lanes())
    }

    /// Memory in which nothing has been handed over yet.
    fn exchange(&self, op: &Recurrent, recorder: &mut Recorder<'_>) -> Result<Operand> {
        let elements = self.exchanged(op);
        let exchange = recorder.scratch(elements)?;
        Shader::new(format!("{op} begins"), include_str!("resident_begin.wgsl"))
            .write("exchange", "u32", exchange.clone())
            .elements(recorder, elements)?;
        Ok(exchange)
    }

    /// Declares the product, of whose parts the sum named `sum(part)` of a unit takes its own, and the exchange.
    fn declare(
        &self,
        shader: Shader,
        units: usize,
        exchange: &Operand,
        sum: impl Fn(usize) -> String,
    ) -> Shader {
        let mut weights = String::from("let begin = share / PARTS * SHARE;\n");
        for k in 0..self.share() {
            let at = format!("min(begin + {k}u, TERMS - 1u) * COLUMNS + share % PARTS * UNITS + unit");
            add_line!(weights, "let weight{k} = select(0.0, weight[{at}], begin + {k}u < TERMS);");
        }
        weights += "for (var at = TERMS * VECTORS + thread; at < HELD * VECTORS; at += THREADS) {\n    \
                    held[at] = vec4<f32>();\n}";
        let vectors = 0..self.vectors;
        let mut product = String::new();
        vectors.clone().for_each(|v| add_line!(product, "var sum{v} = vec4<f32>();"));
        for k in 0..self.share() {
            for v in vectors.clone() {
                let term = format!("held[(begin + {k}u) * VECTORS + {v}u]");
                add_line!(product, "sum{v} = fma({term}, vec4<f32>(weight{k}), sum{v});");
            }
        }
        vectors.for_each(|v| add_line!(product, "parts[thread * VECTORS + {v}u] = sum{v};"));
        shader
            .append(include_str!("resident.wgsl"))
            .write("exchange", "atomic<u32>", exchange.clone())
            .threads(self.threads())
            .constant("TILE", self.tile)
            .constant("TILES", self.tiles)
            .constant("BLOCKS", self.blocks)
            .constant("VECTORS", self.vectors)
            .constant("LANES", self.lanes())
            .constant("PARTS", self.parts)
            .constant("TERMS", self.terms)
            .constant("COLUMNS", self.parts * units)
            .constant("SHARE", self.share())
            .constant("HELD", self.held())
            .section("WEIGHTS", weights)
            .section("PRODUCT", product)
            .section("SUMS", sum_shares(self.split, self.parts, sum))
    }
}

impl Recurrent {
    /// Whether there are units enough to share out; a GRU that resets first would hand over twice a step.
    pub(super) fn has_resident_units(&self) -> bool {
        self.cell != Cell::ResetFirstGru && self.units * self.units * self.cell.gates() > SOME_WEIGHTS
    }

    /// How workgroups that stay go forward, where they can.
    pub(super) fn resident_forward(&self, recorder: &Recorder<'_>) -> Option<Resident> {
        Resident::new(self, recorder, self.cell.gates(), self.units)
    }

    /// How they go backward.
    pub(super) fn resident_backward(&self, recorder: &Recorder<'_>) -> Option<Resident> {
        Resident::new(self, recorder, 1, self.cell.gates() * self.units)
    }

    pub(super) fn record_resident_forward(
        &self,
        recorder: &mut Recorder<'_>,
        operands: ForwardOperands,
        direction: usize,
        shares: &Resident,
    ) -> Result<()> {
        let gates = self.cell.gates();
        let weight = self.plain_weight(recorder, operands.weight.clone())?;
        let exchange = shares.exchange(self, recorder)?;
        let where_cells = |text: &'static str| if self.cell == Cell::Lstm { text } else { "" };
        let shader = Shader::new(self.to_string(), include_str!("resident_forward.wgsl"))
            .stays()
            .read("weight", "f32", weight)
            .section("CELLS_BEFORE", where_cells("var cell = initial_state(first, UNITS + unit);"))
            .section("START", self.cell_start(0..gates))
            .section("STEP", self.cell_forward("cell"))
            .section("KEEP", self.cell_kept())
            .section("LAST_CELLS", where_cells("store_state(first, STATE_AT + UNITS + unit, cell);"));
        let shader = shares
            .declare(self.constants(shader, direction), self.units, &exchange, |gate| format!("z{gate}"));
        let kernel = RowKernel::new(shader, 1, recorder.rows()).load(
            "input",
            operands.input.clone(),
            self.time * gates * self.units,
        );
        operands
            .start(self, operands.declare(self, kernel), direction)
            .shader
            .groups(recorder, shares.groups())
    }

    pub(super) fn record_resident_backward(
        &self,
        recorder: &mut Recorder<'_>,
        operands: BackwardOperands,
        direction: usize,
        shares: &Resident,
    ) -> Result<()> {
        let gates = self.cell.gates();
        let weight = self.plain_weight(recorder, operands.weight.clone())?;
        let exchange = shares.exchange(self, recorder)?;
        let where_cells = |text: &'static str| if self.cell == Cell::Lstm { text } else { "" };
        let step = self.cell_backward("cell", |gate| format!("let sent{gate}"));
        let mut send = String::new();
        for gate in 0..gates {
            add_line!(&mut send, "send(step, block, {gate}u * UNITS + unit, lane, sent{gate});");
        }
        let rounds = if self.state { self.time + 1 } else { self.time };
        let shader = Shader::new(self.to_string(), include_str!("resident_backward.wgsl"))
            .stays()
            .append(include_str!("output_gradient.wgsl"))
            .read("weight", "f32", weight)
            .constant("GATES", gates)
            .constant("ROUNDS", rounds)
            .section("CELLS_BEFORE", where_cells("var cell = Lanes();"))
            .section("LOADS", step.loads)
            .section("GATES_OF_UNIT", step.gates)
            .section("SEND", send)
            .section("STORES", step.stores)
            .section("LAST_CELLS", where_cells("store_state(first, STATE_AT + UNITS + unit, cell);"));
        let shader =
            shares.declare(self.constants(shader, direction), self.units, &exchange, |_| "dh".into());
        let kernel = operands.declare(self, RowKernel::new(shader, 1, recorder.rows()), direction);
        kernel.shader.groups(recorder, shares.groups())
    }
}
