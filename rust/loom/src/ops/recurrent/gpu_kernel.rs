//! What the kernels of the loop read and write, some rows at a time.

use super::{InitialState, Recurrent};
use crate::ops::pointwise::WGSL_PRELUDE;
use crate::shader::{Operand, Shader, add_line};

/// Rows that share a workgroup, where there are so many and their states fit.
pub(super) const ROWS: usize = 4;
/// How many terms of a sum stand in one round of its loop.
pub(super) const UNROLLED: usize = 4;
/// The components of a vector of rows.
const COMPONENTS: [&str; ROWS] = ["x", "y", "z", "w"];

/// A loop over k from 0 to `extent`, so many terms in a round.
pub(super) fn sum_over(extent: &str, unrolled: usize, term: impl Fn(&str) -> String) -> String {
    let terms: Vec<String> = (0..unrolled).map(|k| term(&format!("k + {k}u"))).collect();
    format!(
        "var k = 0u;\nfor (; k + {unrolled}u <= {extent}; k += {unrolled}u) {{\n{}\n}}\n\
         for (; k < {extent}; k++) {{\n{}\n}}",
        terms.join("\n"),
        term("k")
    )
}

/// Adds up what the threads of a workgroup have left of a unit's sums, in order: the sum named `sum(part)` takes the
/// `split` shares that are its own.
pub(super) fn sum_shares(split: usize, parts: usize, sum: impl Fn(usize) -> String) -> String {
    let mut sums = format!("for (var part = 0u; part < {split}u; part++) {{\n");
    for part in 0..parts {
        let at = format!("((part * PARTS + {part}u) * TILE + thread % TILE) * VECTORS + lane / 4u");
        add_line!(sums, "    {} += parts[{at}][lane % 4u];", sum(part));
    }
    sums + "}"
}

/// A kernel that takes so many rows side by side, as `Lanes`, and what it reads and writes of them.
pub(super) struct RowKernel {
    pub(super) shader: Shader,
    pub(super) rows: usize,
}

impl RowKernel {
    /// A kernel for so many of these rows at a time.
    pub(super) fn new(shader: Shader, rows: usize, of: usize) -> Self {
        let lanes = if rows == 1 { "alias Lanes = f32;" } else { "alias Lanes = vec4<f32>;" };
        let mut shader = shader.number("rows", of).append(&format!("{WGSL_PRELUDE}\n{lanes}\n"));
        // The larger of two numbers as drivers see it drops a NaN.
        for (name, function) in
            [("tanh", "loom_tanh(x)"), ("sigmoid", "loom_sigmoid(x)"), ("relu", "loom_at_least(x, 0.0)")]
        {
            let of = |component: &str| function.replace('x', &format!("x.{component}"));
            let value = match rows {
                1 => function.to_string(),
                _ => format!("Lanes({})", COMPONENTS.map(of).join(", ")),
            };
            shader = shader.append(&format!("fn {name}_of(x: Lanes) -> Lanes {{\n    return {value};\n}}\n"));
        }
        Self { shader, rows }
    }

    /// The same with what this makes of its shader.
    pub(super) fn with(self, change: impl FnOnce(Shader) -> Shader) -> Self {
        Self { shader: change(self.shader), rows: self.rows }
    }

    /// `load_name(first, at)`: element `at` of some rows of `len` elements. Rows that are not there
    /// repeat the last.
    pub(super) fn load(self, name: &str, operand: Operand, len: usize) -> Self {
        let of = |row: usize| format!("{name}[min(first + {row}u, constants.rows - 1u) * {len}u + at]");
        let rows: Vec<String> = (0..self.rows).map(of).collect();
        let value = if self.rows == 1 { rows.concat() } else { format!("Lanes({})", rows.join(", ")) };
        self.with(|shader| {
            shader.read(name, "f32", operand).append(&format!(
                "fn load_{name}(first: u32, at: u32) -> Lanes {{\n    return {value};\n}}\n"
            ))
        })
    }

    /// `store_name(first, at, value)`; does nothing where there is no such result.
    pub(super) fn store(self, name: &str, operand: Option<Operand>, len: usize) -> Self {
        let (rows, of) = (self.rows, COMPONENTS.iter().enumerate());
        let store = |(row, component): (usize, &&str)| {
            let value = if rows == 1 { "value".into() } else { format!("value.{component}") };
            format!(
                "    if first + {row}u < constants.rows {{\n        \
                 {name}[(first + {row}u) * {len}u + at] = {value};\n    }}\n"
            )
        };
        let body: String = if operand.is_some() { of.take(rows).map(store).collect() } else { String::new() };
        self.with(|shader| {
            let shader = match operand {
                Some(operand) => shader.write(name, "f32", operand),
                None => shader,
            };
            shader.append(&format!("fn store_{name}(first: u32, at: u32, value: Lanes) {{\n{body}}}\n"))
        })
    }

    /// `is_real(first, time)`, by the mask where there is one.
    pub(super) fn mask(self, mask: Option<Operand>, time: usize) -> Self {
        let truth = if self.rows == 1 { "bool" } else { "vec4<bool>" };
        let (kernel, value) = match mask {
            None => (self, format!("{truth}(true)")),
            Some(mask) => (self.load("mask", mask, time), "load_mask(first, time) != Lanes()".into()),
        };
        kernel.with(|shader| {
            shader.append(&format!(
                "fn is_real(first: u32, time: u32) -> {truth} {{\n    return {value};\n}}\n"
            ))
        })
    }

    /// The body of `initial_state`, from the state's element `at` of a direction.
    pub(super) fn initial(self, op: &Recurrent, operand: Option<Operand>, direction: usize) -> Self {
        let body = |kernel: Self, text: &str| kernel.with(|shader| shader.section("INITIAL", text));
        let Some(operand) = operand else { return body(self, "return Lanes();") };
        let (len, at) = op.state_place(direction);
        match op.initial {
            InitialState::Rows { .. } => {
                body(self.load("initial", operand, len), &format!("return load_initial(first, {at}u + at);"))
            }
            _ => body(
                self.with(|shader| shader.read("initial", "f32", operand)),
                &format!("return Lanes(initial[{at}u + at]);"),
            ),
        }
    }
}
