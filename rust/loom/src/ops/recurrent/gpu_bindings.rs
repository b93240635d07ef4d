//! What the kernels of the loop read and write, as WGSL.

use super::gpu::ROWS;
use super::{InitialState, Recurrent};
use crate::ops::pointwise::WGSL_PRELUDE;
use crate::shader::{Bind, Operand, Template};
use std::fmt::Write;

/// The components of a vector of rows.
const COMPONENTS: [&str; ROWS] = ["x", "y", "z", "w"];

/// The bindings of a kernel with the functions that reach them.
#[derive(Default)]
pub(super) struct Bindings {
    pub(super) operands: Vec<Bind>,
    pub(super) bindings: String,
    pub(super) access: String,
    pub(super) rows: usize,
}

impl Bindings {
    pub(super) fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = text.write_fmt(line);
        text.push('\n');
    }

    pub(super) fn bind(&mut self, name: &str, bind: Bind, element: &str) {
        let access = if matches!(bind, Bind::Write(_)) { "read_write" } else { "read" };
        let number = self.operands.len();
        Self::line(
            &mut self.bindings,
            format_args!("@group(0) @binding({number}) var<storage, {access}> {name}: array<{element}>;"),
        );
        self.operands.push(bind);
    }

    /// `load_name(first, at)`: element `at` of some rows of `len` elements. Rows that are not there
    /// repeat the last.
    pub(super) fn load(&mut self, name: &str, operand: Operand, len: usize) {
        self.bind(name, Bind::Read(operand), "f32");
        let of = |row: usize| format!("{name}[min(first + {row}u, constants.rows - 1u) * {len}u + at]");
        let rows: Vec<String> = (0..self.rows).map(of).collect();
        let value = if self.rows == 1 { rows.concat() } else { format!("Lanes({})", rows.join(", ")) };
        Self::line(
            &mut self.access,
            format_args!("fn load_{name}(first: u32, at: u32) -> Lanes {{\n    return {value};\n}}"),
        );
    }

    /// `store_name(first, at, value)`; does nothing where there is no such result.
    pub(super) fn store(&mut self, name: &str, operand: Option<Operand>, len: usize) {
        let mut body = String::new();
        if let Some(operand) = operand {
            self.bind(name, Bind::Write(operand), "f32");
            for (row, component) in COMPONENTS.iter().enumerate().take(self.rows) {
                let value = if self.rows == 1 { "value".into() } else { format!("value.{component}") };
                Self::line(
                    &mut body,
                    format_args!(
                        "    if first + {row}u < constants.rows {{\n        \
                         {name}[(first + {row}u) * {len}u + at] = {value};\n    }}"
                    ),
                );
            }
        }
        Self::line(
            &mut self.access,
            format_args!("fn store_{name}(first: u32, at: u32, value: Lanes) {{\n{body}}}"),
        );
    }

    /// `is_real(first, time)`, by the mask where there is one.
    pub(super) fn mask(&mut self, mask: Option<Operand>, time: usize) {
        let truth = if self.rows == 1 { "bool" } else { "vec4<bool>" };
        let value = match mask {
            None => format!("{truth}(true)"),
            Some(mask) => {
                self.load("mask", mask, time);
                "load_mask(first, time) != Lanes()".into()
            }
        };
        Self::line(
            &mut self.access,
            format_args!("fn is_real(first: u32, time: u32) -> {truth} {{\n    return {value};\n}}"),
        );
    }

    /// The body of `initial_state`, from the state's element `at` of a direction.
    pub(super) fn initial(&mut self, op: &Recurrent, operand: Option<Operand>, direction: usize) -> String {
        let Some(operand) = operand else { return "return Lanes();".into() };
        let (len, at) = op.state_place(direction);
        match op.initial {
            InitialState::Rows { .. } => {
                self.load("initial", operand, len);
                format!("return load_initial(first, {at}u + at);")
            }
            _ => {
                self.bind("initial", Bind::Read(operand), "f32");
                format!("return Lanes(initial[{at}u + at]);")
            }
        }
    }

    /// The kernel and its operands.
    pub(super) fn finish(self, template: Template) -> (Template, Vec<Bind>) {
        let lanes = if self.rows == 1 { "alias Lanes = f32;" } else { "alias Lanes = vec4<f32>;" };
        let mut text = format!("{WGSL_PRELUDE}\n{lanes}\n");
        // The larger of two numbers as drivers see it drops a NaN.
        for (name, function) in
            [("tanh", "loom_tanh(x)"), ("sigmoid", "loom_sigmoid(x)"), ("relu", "loom_at_least(x, 0.0)")]
        {
            let of = |component: &str| function.replace('x', &format!("x.{component}"));
            let value = match self.rows {
                1 => function.to_string(),
                _ => format!("Lanes({})", COMPONENTS.map(of).join(", ")),
            };
            Self::line(
                &mut text,
                format_args!("fn {name}_of(x: Lanes) -> Lanes {{\n    return {value};\n}}"),
            );
        }
        let template = template
            .constant("ROWS", self.rows)
            .section("BINDINGS", self.bindings)
            .section("LANES", text)
            .section("ACCESS", self.access);
        (template, self.operands)
    }
}
