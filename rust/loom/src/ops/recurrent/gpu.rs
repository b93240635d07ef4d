//! The loop on a GPU: one dispatch for each direction goes through all steps, a workgroup for some rows, with its weights in
//! registers where they fit. Where they are many, workgroups share out the units as well, and stay, or each step is a
//! dispatch of its own.

use super::gpu_kernel::{ROWS, RowKernel, UNROLLED, sum_over};
use super::gpu_operands::{BackwardOperands, ForwardOperands};
use super::gpu_quantized::Quantized;
use super::{Cell, Recurrent};
use crate::ops::Direction;
use crate::shader::product::Storage;
use crate::shader::{GpuOperation, Operand, Recorder, Shader, THREADS, add_line};
use crate::{Error, Result};
use std::ops::Range;

/// The rounds that all loops of a kernel may have together on a software adapter, which ends them then.
const MOST_ROUNDS: usize = 60_000;

/// What makes threads see what the others hold: in workgroup memory, where that fits.
fn barrier(fits: bool) -> &'static str {
    if fits { "workgroupBarrier();" } else { "storageBarrier();\n    workgroupBarrier();" }
}

impl Recurrent {
    /// Refuses what a software adapter would not run to its end.
    fn check_rounds(&self, recorder: &Recorder<'_>, terms: usize) -> Result<()> {
        let each = terms / UNROLLED + terms % UNROLLED + 4;
        let rounds = self.time * (each * self.units.div_ceil(THREADS) + 1);
        if recorder.capabilities().software && rounds > MOST_ROUNDS {
            return Err(Error::Device(format!(
                "{self} has loops that are too long for this software adapter; use the device \"cpu\""
            )));
        }
        Ok(())
    }

    /// Elements of a row of the initial state, and where a direction's start in it.
    pub(super) fn state_place(&self, direction: usize) -> (usize, usize) {
        let (len, offset) = self.initial_extents();
        (len, offset + direction * self.cell.states() * self.units)
    }

    /// How many rows share a workgroup that holds `held` numbers a row, and whether they fit its memory.
    fn sharing(&self, recorder: &Recorder<'_>, held: usize) -> (usize, bool) {
        let fits = |rows: usize| held * rows * 4 <= recorder.capabilities().workgroup_storage;
        let rows = if recorder.rows() > 1 && (fits(ROWS) || !fits(1)) { ROWS } else { 1 };
        (rows, fits(rows))
    }

    /// A hidden-to-hidden weight as plain numbers, for the gradient transposed.
    pub(super) fn plain_weight(&self, recorder: &mut Recorder<'_>, weight: Operand) -> Result<Operand> {
        let turned = self.direction != Direction::Forward;
        let storage = Storage::of(weight.packing);
        if storage == Storage::Float32 && !turned {
            return Ok(weight);
        }
        let gates = self.cell.gates() * self.units;
        let plain = recorder.scratch(self.units * gates)?;
        let scale = if storage == Storage::Int8 { " * scales[at % GATES]" } else { "" };
        storage
            .declare(Shader::new("recurrent weight", include_str!("weights.wgsl")), "packed", [1; 2], &weight)
            .write("plain", "f32", plain.clone())
            .constant("UNITS", self.units)
            .constant("GATES", gates)
            .flag("TURNED", turned)
            .section("ELEMENT", storage.element("packed", 1) + scale)
            .elements(recorder, self.units * gates)?;
        Ok(plain)
    }

    /// Runs a direction's kernel, with what both ways have in common, and its memory.
    fn run(
        &self,
        recorder: &mut Recorder<'_>,
        RowKernel { shader, rows }: RowKernel,
        direction: usize,
        held: usize,
    ) -> Result<()> {
        let groups = recorder.rows().div_ceil(rows);
        let fits = self.sharing(recorder, held).1;
        let shader = match fits {
            true => shader.append(&format!("var<workgroup> hold: array<Lanes, {held}>;\n")),
            false => shader.write("hold", "Lanes", recorder.scratch(groups * held * rows)?),
        };
        self.constants(shader, direction)
            .threads(self.units.next_power_of_two().clamp(32, THREADS))
            .constant("ROWS", rows)
            // Workgroup memory has a part for one workgroup alone.
            .constant("HELD", if fits { 0 } else { held })
            .section("BARRIER", barrier(fits))
            .groups(recorder, groups)
    }

    /// Defines what all kernels of a direction know of it.
    pub(super) fn constants(&self, shader: Shader, direction: usize) -> Shader {
        // The last state has nothing around it, unlike the initial one's gradient.
        let (row, at) = match self.direction {
            Direction::Forward => (self.state_len(), direction * self.cell.states() * self.units),
            _ => self.state_place(direction),
        };
        shader
            .constant("UNITS", self.units)
            .constant("TIME", self.time)
            .constant("DIRECTIONS", self.directions)
            .constant("DIRECTION", direction)
            .constant("STATE_ROW", row)
            .constant("STATE_AT", at)
            .constant("STATE_START", at - direction * self.cell.states() * self.units)
            .constant("STATE_LEN", self.state_len())
            .flag("BACKWARD", direction == 1)
            .flag("SEQUENCES", self.sequences)
            .flag("KEEPS", self.keeps)
            .flag("STATE", self.state)
            .flag("CELLS", self.cell == Cell::Lstm)
    }

    fn record_forward(&self, recorder: &mut Recorder<'_>, direction: usize) -> Result<()> {
        let (units, cell) = (self.units, self.cell);
        let gates = cell.gates() * units;
        let operands = ForwardOperands::new(self, recorder, direction)?;
        let quantized = self.quantized_weight(recorder, &operands.weight, direction)?;
        if quantized.is_none()
            && let Some(shares) = self.alone_forward(recorder)
        {
            return self.record_alone_forward(recorder, operands, direction, &shares);
        }
        if quantized.is_none()
            && self.has_resident_units()
            && let Some(shares) = self.resident_forward(recorder)
        {
            return self.record_resident_forward(recorder, operands, direction, &shares);
        }
        if quantized.is_none() && self.is_stepwise() {
            return self.record_forward_steps(recorder, operands, direction);
        }
        let plain = match &quantized {
            Some(quantized) => quantized.codes.clone(),
            None => self.plain_weight(recorder, operands.weight.clone())?,
        };
        let products = if cell == Cell::ResetFirstGru { 2 } else { 1 };
        self.check_rounds(recorder, products * units * (1 + usize::from(quantized.is_some())))?;
        let states = (2 + usize::from(cell == Cell::Lstm || cell == Cell::ResetFirstGru)) * units;
        let held = states + if quantized.is_some() { products * units } else { 0 };
        let (rows, fits) = self.sharing(recorder, held);

        let quantize = |source: &str, at: usize| match &quantized {
            Some(_) => super::gpu_quantized::quantize(source, at, barrier(fits)),
            None => String::new(),
        };
        let reset = match cell {
            Cell::ResetFirstGru => {
                self.forward_reset(quantized.as_ref(), barrier(fits)) + &quantize("reset", states + units)
            }
            _ => String::new(),
        };
        let shader = Shader::new(self.to_string(), include_str!("forward.wgsl"))
            .section("QUANTIZE", quantize("before", states))
            .section("RESET", reset)
            .section("STEP", self.forward_step(quantized.as_ref()));
        let mut kernel = RowKernel::new(shader, rows, recorder.rows())
            .load("input", operands.input.clone(), self.time * gates)
            .with(|shader| shader.read("weight", "f32", plain));
        if let Some(quantized) = &quantized {
            kernel = quantized.declare(kernel);
        }
        let kernel = operands.start(self, operands.declare(self, kernel), direction);
        self.run(recorder, kernel, direction, held)
    }

    /// WGSL that adds to the sums of some gates the products with what is held from `source` on.
    fn products(&self, source: &str, some: Range<usize>, quantized: Option<&Quantized>) -> String {
        let (gates, units) = (self.cell.gates(), self.units);
        if let Some(quantized) = quantized {
            return quantized.sums(source, some, gates, units);
        }
        let term = |k: &str| {
            let mut term = format!("    {{\n    let other = hold[{source} + {k}];\n");
            for gate in some.clone() {
                let at = format!("({k}) * {}u + {}u + unit", gates * units, gate * units);
                add_line!(term, "    z{gate} = fma(other, Lanes(weight[{at}]), z{gate});");
            }
            term + "    }"
        };
        format!("{{\n{}\n}}", sum_over("UNITS", UNROLLED, term))
    }

    /// WGSL of the first half of a step of a GRU that resets first, of all units.
    fn forward_reset(&self, quantized: Option<&Quantized>, barrier: &str) -> String {
        format!(
            "let reset = held + 2u * UNITS;
        for (var unit = thread; unit < UNITS; unit += THREADS) {{
            let old = hold[before + unit];
            {}
            {}
            {}
            hold[reset + unit] = q;
        }}
        {barrier}
        ",
            self.cell_start(0..1),
            self.products("before", 0..1, quantized),
            self.cell_reset(),
        )
    }

    /// WGSL of one unit's step: from `old` to `h`, with what is kept.
    fn forward_step(&self, quantized: Option<&Quantized>) -> String {
        let gates = self.cell.gates();
        let (start, products) = match self.cell {
            Cell::ResetFirstGru => (
                self.cell_start(1..gates),
                self.products("before", 1..2, quantized) + "\n" + &self.products("reset", 2..3, quantized),
            ),
            _ => (self.cell_start(0..gates), self.products("before", 0..gates, quantized)),
        };
        format!("{start}{products}\n{}{}", self.cell_forward("hold[cells + unit]"), self.cell_kept())
    }

    /// WGSL of the first half of a step backward of a GRU that resets first, of all units.
    fn backward_candidate(&self, barrier: &str) -> String {
        format!(
            "for (var unit = thread; unit < UNITS; unit += THREADS) {{
            let dh = hold[hidden + unit];
            {}
            hold[shares + 2u * UNITS + unit] = select(Lanes(), dn, real);
        }}
        {barrier}",
            self.cell_candidate()
        )
    }

    /// WGSL of `dq`, the gradient of what a GRU has reset first.
    fn reset_gradient(&self) -> String {
        let term = |k: &str| {
            let at = format!("2u * UNITS + {k}");
            format!("    dq = fma(hold[shares + {at}], Lanes(weight[({at}) * UNITS + unit]), dq);")
        };
        format!("var dq = Lanes();\n{{\n{}\n}}\n", sum_over("UNITS", UNROLLED, term))
    }

    fn record_backward(&self, recorder: &mut Recorder<'_>, direction: usize) -> Result<()> {
        let (units, cell) = (self.units, self.cell);
        let operands = BackwardOperands::new(self, recorder, direction)?;
        if let Some(shares) = self.alone_backward(recorder) {
            return self.record_alone_backward(recorder, operands, direction, &shares);
        }
        if self.has_resident_units()
            && let Some(shares) = self.resident_backward(recorder)
        {
            return self.record_resident_backward(recorder, operands, direction, &shares);
        }
        if self.is_stepwise() {
            return self.record_backward_steps(recorder, operands, direction);
        }
        let weight = self.plain_weight(recorder, operands.weight.clone())?;
        let resets_first = cell == Cell::ResetFirstGru;
        self.check_rounds(recorder, (cell.gates() + usize::from(resets_first)) * units)?;
        let held = (cell.gates() + cell.states()) * units;
        let (rows, fits) = self.sharing(recorder, held);

        let term =
            |k: &str| format!("    sum = fma(hold[shares + {k}], Lanes(weight[({k}) * UNITS + unit]), sum);");
        let share = |gate: usize| format!("hold[shares + {gate}u * UNITS + unit]");
        let step = self.cell_backward("hold[cells + unit]", share).whole();
        let (candidate, step, summed) = match resets_first {
            false => (String::new(), step, "GATES * UNITS"),
            true => (self.backward_candidate(barrier(fits)), self.reset_gradient() + &step, "2u * UNITS"),
        };
        let shader = Shader::new(self.to_string(), include_str!("backward.wgsl"))
            .append(include_str!("output_gradient.wgsl"))
            .constant("GATES", cell.gates())
            .section("CANDIDATE", candidate)
            .section("SUM", sum_over(summed, UNROLLED, term))
            .section("STEP", step);
        let kernel =
            RowKernel::new(shader, rows, recorder.rows()).with(|shader| shader.read("weight", "f32", weight));
        self.run(recorder, operands.declare(self, kernel, direction), direction, held)
    }
}

impl GpuOperation for Recurrent {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        for direction in 0..self.directions {
            match self.direction {
                Direction::Forward => self.record_forward(recorder, direction)?,
                Direction::InputGradient => self.record_backward(recorder, direction)?,
                Direction::WeightGradient => {
                    return Err(Error::Internal("a recurrence's weight gradient is a product".into()));
                }
            }
        }
        Ok(())
    }
}
