//! The loop on a GPU: one dispatch for each direction goes through all steps.

use super::gpu_bindings::Bindings;
use super::gpu_quantized::Quantized;
use super::{Cell, InitialState, Recurrent};
use crate::ops::Direction;
use crate::shader::product::Storage;
use crate::shader::{Bind, GpuOperation, Operand, Recorder, Template};
use crate::{Error, Result};

/// The most threads of a workgroup.
pub(super) const THREADS: usize = 256;
/// Rows that share a workgroup, where there are so many and their states fit.
pub(super) const ROWS: usize = 4;
/// How many terms of a sum stand in one round of its loop.
const UNROLLED: usize = 4;
/// The rounds that all loops of a kernel may have together on a software adapter, which ends them then.
const MOST_ROUNDS: usize = 60_000;

/// A loop over k from 0 to `extent`, unrolled.
pub(super) fn sum_over(extent: &str, term: impl Fn(&str) -> String) -> String {
    let terms: Vec<String> = (0..UNROLLED).map(|k| term(&format!("k + {k}u"))).collect();
    format!(
        "var k = 0u;\nfor (; k + {}u <= {extent}; k += {}u) {{\n{}\n}}\nfor (; k < {extent}; k++) {{\n{}\n}}",
        UNROLLED,
        UNROLLED,
        terms.join("\n"),
        term("k")
    )
}

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
        let element = if storage == Storage::Float32 { "f32" } else { "u32" };
        let mut bindings = Bindings::default();
        bindings.bind("packed", Bind::Read(weight.clone()), element);
        let mut value = storage.element("packed", 1);
        if let Some(scales) = weight.scales() {
            bindings.bind("scales", Bind::Read(scales), storage.scale(1).unwrap_or("f32"));
        }
        if storage == Storage::Int8 {
            value += " * scales[at % GATES]";
        }
        let plain = recorder.scratch(self.units * gates)?;
        bindings.bind("plain", Bind::Write(plain.clone()), "f32");
        let kernel = Template::new(include_str!("weights.wgsl"))
            .constant("THREADS", THREADS)
            .constant("UNITS", self.units)
            .constant("GATES", gates)
            .flag("TURNED", turned)
            .section("BINDINGS", bindings.bindings + &storage.functions("packed", "scales"))
            .section("ELEMENT", value)
            .kernel("recurrent weight");
        recorder.dispatch(&kernel, &bindings.operands, &[], (self.units * gates).div_ceil(THREADS))?;
        Ok(plain)
    }

    /// The template of a direction's kernel with what both ways have in common, and its memory.
    fn template(
        &self,
        recorder: &mut Recorder<'_>,
        text: &str,
        direction: usize,
        bindings: &mut Bindings,
        (held, fits): (usize, bool),
    ) -> Result<Template> {
        // The last state has nothing around it, unlike the initial one's gradient.
        let (row, at) = match self.direction {
            Direction::Forward => (self.state_len(), direction * self.cell.states() * self.units),
            _ => self.state_place(direction),
        };
        let groups = recorder.rows().div_ceil(bindings.rows);
        let memory = if fits {
            format!("var<workgroup> hold: array<Lanes, {held}>;")
        } else {
            let scratch = recorder.scratch(groups * held * bindings.rows)?;
            bindings.bind("hold", Bind::Write(scratch), "Lanes");
            String::new()
        };
        Ok(Template::new(text)
            .constant("THREADS", self.units.next_power_of_two().clamp(32, THREADS))
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
            .section("HELD", memory)
            .section("BARRIER", barrier(fits)))
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

        let mut bindings = Bindings { rows, ..Bindings::default() };
        bindings.load("input", recorder.read(direction)?, self.time * gates);
        bindings.bind("weight", Bind::Read(plain), "f32");
        if let Some(quantized) = &quantized {
            quantized.bind(&mut bindings);
        }
        let mut next = 2 * directions;
        if self.bias {
            bindings.bind("bias", Bind::Read(recorder.read(next + direction)?), "f32");
            next += directions;
        }
        let mut initial = None;
        if self.initial != InitialState::Zeros {
            initial = Some(recorder.read(next)?);
            next += 1;
        }
        let mut initial = bindings.initial(self, initial, direction);
        let mask = if self.mask { Some(recorder.read(next)?) } else { None };
        bindings.mask(mask, self.time);
        if self.resumes {
            next += usize::from(self.mask);
            bindings.load("left", recorder.read(next)?, self.state_len());
            let at = direction * cell.states() * units;
            initial = format!(
                "if steps[constants.step].position > 0u {{\n        return load_left(first, {at}u + at);\n    }}\n    \
                 {initial}"
            );
        }

        bindings.store("y", Some(recorder.write(0)?), self.output_len());
        let kept = |number: usize| if self.keeps { recorder.write(number).map(Some) } else { Ok(None) };
        bindings.store("before", kept(1 + direction)?, self.time * units);
        bindings.store("saved", kept(1 + directions + direction)?, self.time * cell.saved() * units);
        let number = if self.keeps { 1 + 2 * directions } else { 1 };
        let state = if self.state { Some(recorder.write(number)?) } else { None };
        bindings.store("state", state, self.state_len());

        let text = include_str!("forward.wgsl");
        let template = self.template(recorder, text, direction, &mut bindings, (held, fits))?;
        let (template, operands) = bindings.finish(template.section("INITIAL", initial));
        let quantize = quantized
            .as_ref()
            .map_or(String::new(), |_| super::gpu_quantized::quantize(states, barrier(fits)));
        let step = self.forward_step(quantized.as_ref());
        let kernel = template.section("QUANTIZE", quantize).section("STEP", step).kernel(self.to_string());
        recorder.dispatch(&kernel, &operands, &[recorder.rows() as u32], recorder.rows().div_ceil(rows))
    }

    /// WGSL of one unit's step: from `old` to `h`, with what is kept.
    fn forward_step(&self, quantized: Option<&Quantized>) -> String {
        let (cell, units) = (self.cell, self.units);
        let gates = cell.gates();
        let mut text = String::new();
        let mut line = |part: std::fmt::Arguments<'_>| Bindings::line(&mut text, part);
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
            line(format_args!("var z{gate} = {start};"));
            if cell == Cell::Gru && gate == 2 {
                line(format_args!("let x = {input};"));
            }
        }
        let term = |k: &str| {
            let mut term = format!("    {{\n    let other = hold[before + {k}];\n");
            for gate in 0..gates {
                let at = format!("({k}) * {}u + {}u + unit", gates * units, gate * units);
                Bindings::line(
                    &mut term,
                    format_args!("    z{gate} = fma(other, Lanes(weight[{at}]), z{gate});"),
                );
            }
            term + "    }"
        };
        match quantized {
            Some(quantized) => line(format_args!("{}", quantized.sums(gates, units))),
            None => line(format_args!("{}", sum_over("UNITS", term))),
        }
        let saved: &[&str] = match cell {
            Cell::Tanh => {
                line(format_args!("let h = tanh_of(z0);"));
                &["h"]
            }
            Cell::Relu => {
                line(format_args!("let h = relu_of(z0);"));
                &["h"]
            }
            Cell::Lstm => {
                line(format_args!("let i = sigmoid_of(z0);"));
                line(format_args!("let f = sigmoid_of(z1);"));
                line(format_args!("let g = tanh_of(z2);"));
                line(format_args!("let o = sigmoid_of(z3);"));
                line(format_args!("let last = hold[cells + unit];"));
                line(format_args!("let c = select(last, fma(f, last, i * g), real);"));
                line(format_args!("hold[cells + unit] = c;"));
                line(format_args!("let h = o * tanh_of(c);"));
                &["i", "f", "g", "o", "c"]
            }
            Cell::Gru => {
                line(format_args!("let r = sigmoid_of(z0);"));
                line(format_args!("let z = sigmoid_of(z1);"));
                line(format_args!("let n = tanh_of(fma(r, z2, x));"));
                line(format_args!("let h = fma(z, old - n, n);"));
                &["r", "z", "n", "z2"]
            }
        };
        if self.keeps {
            for (number, name) in saved.iter().enumerate() {
                let at = format!("(time * {}u + {number}u) * UNITS + unit", saved.len());
                // Of a padded step only c counts, which is what it was.
                let value = if *name == "c" { "c".into() } else { format!("select(Lanes(), {name}, real)") };
                line(format_args!("store_saved(first, {at}, {value});"));
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
        let (rows, fits) = self.sharing(recorder, held);

        let mut bindings = Bindings { rows, ..Bindings::default() };
        bindings.load("dy", recorder.read(0)?, self.output_len());
        bindings.bind("weight", Bind::Read(weight), "f32");
        let mut next = 1 + directions;
        if cell == Cell::Gru {
            bindings.load("before", recorder.read(next + direction)?, self.time * units);
            next += directions;
        }
        bindings.load("saved", recorder.read(next + direction)?, self.time * cell.saved() * units);
        next += directions;
        let mut initial = None;
        if cell == Cell::Lstm && self.initial != InitialState::Zeros {
            initial = Some(recorder.read(next)?);
            next += 1;
        }
        let initial = bindings.initial(self, initial, direction);
        let mask = if self.mask { Some(recorder.read(next)?) } else { None };
        bindings.mask(mask, self.time);

        bindings.store("dx", Some(recorder.write(direction)?), self.time * gates);
        let splits = cell.splits_gradient();
        let shares = if splits { Some(recorder.write(directions + direction)?) } else { None };
        bindings.store("share", shares, self.time * gates);
        let number = if splits { 2 * directions } else { directions };
        let state = if self.state { Some(recorder.write(number)?) } else { None };
        bindings.store("state", state, self.initial_extents().0);
        let number = number + usize::from(self.state);
        let cells = if self.cell_gradients { Some(recorder.write(number)?) } else { None };
        bindings.store("cell_gradient", cells, self.steps_len());

        let text = include_str!("backward.wgsl");
        let template = self.template(recorder, text, direction, &mut bindings, (held, fits))?;
        let template = template.constant("GATES", cell.gates()).section("INITIAL", initial);
        let (template, operands) = bindings.finish(template);
        let term =
            |k: &str| format!("    sum = fma(hold[shares + {k}], Lanes(weight[({k}) * UNITS + unit]), sum);");
        let template = template.section("SUM", sum_over("GATES * UNITS", term));
        let kernel = template.section("STEP", self.backward_step()).kernel(self.to_string());
        recorder.dispatch(&kernel, &operands, &[recorder.rows() as u32], recorder.rows().div_ceil(rows))
    }

    /// WGSL of one unit's step backward: from `dh` to `direct`, what of it does not pass through the product.
    fn backward_step(&self) -> String {
        let cell = self.cell;
        let mut text = String::new();
        let mut line = |part: std::fmt::Arguments<'_>| Bindings::line(&mut text, part);
        let names: &[&str] = match cell {
            Cell::Tanh | Cell::Relu => &["h"],
            Cell::Lstm => &["i", "f", "g", "o", "c"],
            Cell::Gru => &["r", "z", "n", "q"],
        };
        for (number, name) in names.iter().enumerate() {
            let at = format!("(time * {}u + {number}u) * UNITS + unit", names.len());
            line(format_args!("let {name} = load_saved(first, {at});"));
        }
        line(format_args!("let one = Lanes(1.0);"));
        // A gate's gradient, and where they differ that of the state's share.
        let gates: &[[&str; 2]] = match cell {
            Cell::Tanh => &[["dh * (one - h * h)"; 2]],
            Cell::Relu => &[["select(Lanes(), dh, h > Lanes())"; 2]],
            Cell::Lstm => {
                line(format_args!("let t = tanh_of(c);"));
                line(format_args!("let after = hold[cells + unit];"));
                line(format_args!("let dc = after + dh * o * (one - t * t);"));
                line(format_args!("var last: Lanes;"));
                line(format_args!("if step > 0u {{"));
                line(format_args!("    last = load_saved(first, (earlier * 5u + 4u) * UNITS + unit);"));
                line(format_args!("}} else {{"));
                line(format_args!("    last = initial_state(first, UNITS + unit);\n}}"));
                line(format_args!("hold[cells + unit] = select(after, dc * f, real);"));
                &[
                    ["dc * g * (i * (one - i))"; 2],
                    ["dc * last * (f * (one - f))"; 2],
                    ["dc * i * (one - g * g)"; 2],
                    ["dh * t * (o * (one - o))"; 2],
                ]
            }
            Cell::Gru => {
                line(format_args!("let old = load_before(first, time * UNITS + unit);"));
                line(format_args!("let dn = dh * (one - z) * (one - n * n);"));
                &[["dn * q * (r * (one - r))"; 2], ["dh * (old - n) * (z * (one - z))"; 2], ["dn", "dn * r"]]
            }
        };
        if self.cell_gradients {
            let state = if cell == Cell::Lstm { "dc" } else { "dh" };
            let at = "(time * DIRECTIONS + DIRECTION) * UNITS + unit";
            line(format_args!("store_cell_gradient(first, {at}, select(Lanes(), {state}, real));"));
        }
        for (number, [input, share]) in gates.iter().enumerate() {
            let at = format!("(time * GATES + {number}u) * UNITS + unit");
            line(format_args!("let d{number} = select(Lanes(), {share}, real);"));
            line(format_args!("hold[shares + {number}u * UNITS + unit] = d{number};"));
            if cell.splits_gradient() {
                line(format_args!("store_share(first, {at}, d{number});"));
                line(format_args!("store_dx(first, {at}, select(Lanes(), {input}, real));"));
            } else {
                line(format_args!("store_dx(first, {at}, d{number});"));
            }
        }
        line(format_args!("let direct = {};", if cell == Cell::Gru { "dh * z" } else { "Lanes()" }));
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
