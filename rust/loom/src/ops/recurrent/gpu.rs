//! The loop on a GPU: one dispatch for each direction goes through all steps.

use super::gpu_kernel::{ROWS, RowKernel, UNROLLED, sum_over};
use super::gpu_quantized::Quantized;
use super::{Cell, InitialState, Recurrent};
use crate::ops::Direction;
use crate::shader::product::Storage;
use crate::shader::{GpuOperation, Operand, Recorder, Shader, THREADS, add_line};
use crate::{Error, Result};

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
    fn plain_weight(&self, recorder: &mut Recorder<'_>, weight: Operand) -> Result<Operand> {
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
        // The last state has nothing around it, unlike the initial one's gradient.
        let (row, at) = match self.direction {
            Direction::Forward => (self.state_len(), direction * self.cell.states() * self.units),
            _ => self.state_place(direction),
        };
        let groups = recorder.rows().div_ceil(rows);
        let fits = self.sharing(recorder, held).1;
        let shader = match fits {
            true => shader.append(&format!("var<workgroup> hold: array<Lanes, {held}>;\n")),
            false => shader.write("hold", "Lanes", recorder.scratch(groups * held * rows)?),
        };
        shader
            .threads(self.units.next_power_of_two().clamp(32, THREADS))
            .constant("UNITS", self.units)
            .constant("TIME", self.time)
            .constant("DIRECTIONS", self.directions)
            .constant("DIRECTION", direction)
            // Workgroup memory has a part for one workgroup alone.
            .constant("HELD", if fits { 0 } else { held })
            .constant("STATE_ROW", row)
            .constant("STATE_AT", at)
            .constant("STATE_START", at - direction * self.cell.states() * self.units)
            .constant("STATE_LEN", self.state_len())
            .flag("BACKWARD", direction == 1)
            .flag("SEQUENCES", self.sequences)
            .flag("KEEPS", self.keeps)
            .flag("STATE", self.state)
            .flag("CELLS", self.cell == Cell::Lstm)
            .section("BARRIER", barrier(fits))
            .groups(recorder, groups)
    }

    fn record_forward(&self, recorder: &mut Recorder<'_>, direction: usize) -> Result<()> {
        let (units, directions, cell) = (self.units, self.directions, self.cell);
        let gates = cell.gates() * units;
        let weight = recorder.read(directions + direction)?;
        let quantized = self.quantized_weight(recorder, &weight, direction)?;
        let plain = match &quantized {
            Some(quantized) => quantized.codes.clone(),
            None => self.plain_weight(recorder, weight)?,
        };
        self.check_rounds(recorder, units * (1 + usize::from(quantized.is_some())))?;
        let states = (2 + usize::from(cell == Cell::Lstm)) * units;
        let held = states + if quantized.is_some() { units } else { 0 };
        let (rows, fits) = self.sharing(recorder, held);

        let quantize = quantized
            .as_ref()
            .map_or(String::new(), |_| super::gpu_quantized::quantize(states, barrier(fits)));
        let shader = Shader::new(self.to_string(), include_str!("forward.wgsl"))
            .section("QUANTIZE", quantize)
            .section("STEP", self.forward_step(quantized.as_ref()));
        let mut kernel = RowKernel::new(shader, rows, recorder.rows())
            .load("input", recorder.read(direction)?, self.time * gates)
            .with(|shader| shader.read("weight", "f32", plain));
        if let Some(quantized) = &quantized {
            kernel = quantized.declare(kernel);
        }
        let mut next = 2 * directions;
        if self.bias {
            let bias = recorder.read(next + direction)?;
            kernel = kernel.with(|shader| shader.read("bias", "f32", bias));
            next += directions;
        }
        let mut initial = None;
        if self.initial != InitialState::Zeros {
            initial = Some(recorder.read(next)?);
            next += 1;
        }
        let mask = if self.mask { Some(recorder.read(next)?) } else { None };
        kernel = kernel.initial(self, initial, direction).mask(mask, self.time);
        let mut resumed = String::new();
        if self.resumes {
            next += usize::from(self.mask);
            kernel = kernel.load("left", recorder.read(next)?, self.state_len());
            let at = direction * cell.states() * units;
            resumed = format!(
                "if steps[constants.step].position > 0u {{\n        return load_left(first, {at}u + at);\n    }}"
            );
        }
        kernel = kernel.with(|shader| shader.section("RESUMED", resumed));

        kernel = kernel.store("y", Some(recorder.write(0)?), self.output_len());
        let kept = |number: usize| if self.keeps { recorder.write(number).map(Some) } else { Ok(None) };
        kernel = kernel.store("before", kept(1 + direction)?, self.time * units).store(
            "saved",
            kept(1 + directions + direction)?,
            self.time * cell.saved() * units,
        );
        let number = if self.keeps { 1 + 2 * directions } else { 1 };
        let state = if self.state { Some(recorder.write(number)?) } else { None };
        self.run(recorder, kernel.store("state", state, self.state_len()), direction, held)
    }

    /// WGSL of one unit's step: from `old` to `h`, with what is kept.
    fn forward_step(&self, quantized: Option<&Quantized>) -> String {
        let (cell, units) = (self.cell, self.units);
        let gates = cell.gates();
        let mut text = String::new();
        let out = &mut text;
        for gate in 0..gates {
            let column = gate * units;
            let input = format!("load_input(first, time * {}u + {column}u + unit)", gates * units);
            let bias = format!("Lanes(bias[{column}u + unit])");
            // A GRU's candidate takes the input's share after the reset gate.
            let start = match (cell == Cell::Gru && gate == 2, self.bias) {
                (false, true) => format!("{input} + {bias}"),
                (false, false) => input.clone(),
                (true, true) => bias,
                (true, false) => "Lanes()".into(),
            };
            add_line!(out, "var z{gate} = {start};");
            if cell == Cell::Gru && gate == 2 {
                add_line!(out, "let x = {input};");
            }
        }
        let term = |k: &str| {
            let mut term = format!("    {{\n    let other = hold[before + {k}];\n");
            for gate in 0..gates {
                let at = format!("({k}) * {}u + {}u + unit", gates * units, gate * units);
                add_line!(term, "    z{gate} = fma(other, Lanes(weight[{at}]), z{gate});");
            }
            term + "    }"
        };
        match quantized {
            Some(quantized) => add_line!(out, "{}", quantized.sums(gates, units)),
            None => add_line!(out, "{}", sum_over("UNITS", term)),
        }
        let saved: &[&str] = match cell {
            Cell::Tanh => {
                add_line!(out, "let h = tanh_of(z0);");
                &["h"]
            }
            Cell::Relu => {
                add_line!(out, "let h = relu_of(z0);");
                &["h"]
            }
            Cell::Lstm => {
                add_line!(out, "let i = sigmoid_of(z0);");
                add_line!(out, "let f = sigmoid_of(z1);");
                add_line!(out, "let g = tanh_of(z2);");
                add_line!(out, "let o = sigmoid_of(z3);");
                add_line!(out, "let last = hold[cells + unit];");
                add_line!(out, "let c = select(last, fma(f, last, i * g), real);");
                add_line!(out, "hold[cells + unit] = c;");
                add_line!(out, "let h = o * tanh_of(c);");
                &["i", "f", "g", "o", "c"]
            }
            Cell::Gru => {
                add_line!(out, "let r = sigmoid_of(z0);");
                add_line!(out, "let z = sigmoid_of(z1);");
                add_line!(out, "let n = tanh_of(fma(r, z2, x));");
                add_line!(out, "let h = fma(z, old - n, n);");
                &["r", "z", "n", "z2"]
            }
        };
        if self.keeps {
            for (number, name) in saved.iter().enumerate() {
                let at = format!("(time * {}u + {number}u) * UNITS + unit", saved.len());
                // Of a padded step only c counts, which is what it was.
                let value = if *name == "c" { "c".into() } else { format!("select(Lanes(), {name}, real)") };
                add_line!(out, "store_saved(first, {at}, {value});");
            }
        }
        text
    }

    fn record_backward(&self, recorder: &mut Recorder<'_>, direction: usize) -> Result<()> {
        let (units, directions, cell) = (self.units, self.directions, self.cell);
        let gates = cell.gates() * units;
        let weight = recorder.read(1 + direction)?;
        let weight = self.plain_weight(recorder, weight)?;
        self.check_rounds(recorder, gates)?;
        let held = (cell.gates() + cell.states()) * units;
        let (rows, _) = self.sharing(recorder, held);

        let term =
            |k: &str| format!("    sum = fma(hold[shares + {k}], Lanes(weight[({k}) * UNITS + unit]), sum);");
        let shader = Shader::new(self.to_string(), include_str!("backward.wgsl"))
            .constant("GATES", cell.gates())
            .section("SUM", sum_over("GATES * UNITS", term))
            .section("STEP", self.backward_step());
        let mut kernel = RowKernel::new(shader, rows, recorder.rows())
            .load("dy", recorder.read(0)?, self.output_len())
            .with(|shader| shader.read("weight", "f32", weight));
        let mut next = 1 + directions;
        if cell == Cell::Gru {
            kernel = kernel.load("before", recorder.read(next + direction)?, self.time * units);
            next += directions;
        }
        kernel = kernel.load("saved", recorder.read(next + direction)?, self.time * cell.saved() * units);
        next += directions;
        let mut initial = None;
        if cell == Cell::Lstm && self.initial != InitialState::Zeros {
            initial = Some(recorder.read(next)?);
            next += 1;
        }
        let mask = if self.mask { Some(recorder.read(next)?) } else { None };
        kernel = kernel.initial(self, initial, direction).mask(mask, self.time);

        let splits = cell.splits_gradient();
        let shares = if splits { Some(recorder.write(directions + direction)?) } else { None };
        kernel = kernel.store("dx", Some(recorder.write(direction)?), self.time * gates);
        kernel = kernel.store("share", shares, self.time * gates);
        let number = if splits { 2 * directions } else { directions };
        let state = if self.state { Some(recorder.write(number)?) } else { None };
        let number = number + usize::from(self.state);
        let cells = if self.cell_gradients { Some(recorder.write(number)?) } else { None };
        kernel = kernel.store("state", state, self.initial_extents().0).store(
            "cell_gradient",
            cells,
            self.steps_len(),
        );
        self.run(recorder, kernel, direction, held)
    }

    /// WGSL of one unit's step backward: from `dh` to `direct`, what of it does not pass through the product.
    fn backward_step(&self) -> String {
        let cell = self.cell;
        let mut text = String::new();
        let out = &mut text;
        let names: &[&str] = match cell {
            Cell::Tanh | Cell::Relu => &["h"],
            Cell::Lstm => &["i", "f", "g", "o", "c"],
            Cell::Gru => &["r", "z", "n", "q"],
        };
        for (number, name) in names.iter().enumerate() {
            let at = format!("(time * {}u + {number}u) * UNITS + unit", names.len());
            add_line!(out, "let {name} = load_saved(first, {at});");
        }
        add_line!(out, "let one = Lanes(1.0);");
        // A gate's gradient, and where they differ that of the state's share.
        let gates: &[[&str; 2]] = match cell {
            Cell::Tanh => &[["dh * (one - h * h)"; 2]],
            Cell::Relu => &[["select(Lanes(), dh, h > Lanes())"; 2]],
            Cell::Lstm => {
                add_line!(out, "let t = tanh_of(c);");
                add_line!(out, "let after = hold[cells + unit];");
                add_line!(out, "let dc = after + dh * o * (one - t * t);");
                add_line!(out, "var last: Lanes;");
                add_line!(out, "if step > 0u {{");
                add_line!(out, "    last = load_saved(first, (earlier * 5u + 4u) * UNITS + unit);");
                add_line!(out, "}} else {{");
                add_line!(out, "    last = initial_state(first, UNITS + unit);\n}}");
                add_line!(out, "hold[cells + unit] = select(after, dc * f, real);");
                &[
                    ["dc * g * (i * (one - i))"; 2],
                    ["dc * last * (f * (one - f))"; 2],
                    ["dc * i * (one - g * g)"; 2],
                    ["dh * t * (o * (one - o))"; 2],
                ]
            }
            Cell::Gru => {
                add_line!(out, "let old = load_before(first, time * UNITS + unit);");
                add_line!(out, "let dn = dh * (one - z) * (one - n * n);");
                &[["dn * q * (r * (one - r))"; 2], ["dh * (old - n) * (z * (one - z))"; 2], ["dn", "dn * r"]]
            }
        };
        if self.cell_gradients {
            let state = if cell == Cell::Lstm { "dc" } else { "dh" };
            let at = "(time * DIRECTIONS + DIRECTION) * UNITS + unit";
            add_line!(out, "store_cell_gradient(first, {at}, select(Lanes(), {state}, real));");
        }
        for (number, [input, share]) in gates.iter().enumerate() {
            let at = format!("(time * GATES + {number}u) * UNITS + unit");
            add_line!(out, "let d{number} = select(Lanes(), {share}, real);");
            add_line!(out, "hold[shares + {number}u * UNITS + unit] = d{number};");
            if cell.splits_gradient() {
                add_line!(out, "store_share(first, {at}, d{number});");
                add_line!(out, "store_dx(first, {at}, select(Lanes(), {input}, real));");
            } else {
                add_line!(out, "store_dx(first, {at}, d{number});");
            }
        }
        add_line!(out, "let direct = {};", if cell == Cell::Gru { "dh * z" } else { "Lanes()" });
        text
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
