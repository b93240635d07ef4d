//! Expressions on a GPU: the graph as text.

use super::graph::{Binary, Node, Unary};
use super::{Evaluate, Program, Repeated};
use crate::ops::pointwise::WGSL_PRELUDE;
use crate::shader::{GpuOperation, Recorder, Shader, add_line};
use crate::{Error, Result};

impl GpuOperation for Evaluate {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let Program { reads, results, .. } = &*self.program;
        let (functions, body) = text(self)?;
        let elements = recorder.write(0)?.elements;
        let mut shader = Shader::new(self.to_string(), include_str!("expression.wgsl"))
            .section("FUNCTIONS", [WGSL_PRELUDE, &functions].concat())
            .section("BODY", body.trim_end())
            .number("elements", elements);
        for (place, number) in reads.iter().enumerate() {
            shader = shader.read(&format!("read{number}"), "f32", recorder.read(place)?);
            let Some(Repeated { block, count, inner }) = self.repeated[place] else { continue };
            if block > 0 {
                shader = shader.number(&format!("block{number}"), block);
            }
            if count > 1 {
                shader =
                    shader.number(&format!("count{number}"), count).number(&format!("inner{number}"), inner);
            }
        }
        for place in 0..results.len() {
            shader = shader.write(&format!("result{place}"), "f32", recorder.write(place)?);
        }
        shader.elements(recorder, elements)
    }
}

/// The functions of the activations, and the statements.
fn text(op: &Evaluate) -> Result<(String, String)> {
    let Program { graph, roots, reads, results, .. } = &*op.program;
    let needed = graph.needed(roots);
    let (mut functions, mut body) = (String::new(), String::new());
    for (number, activation) in graph.activations.iter().enumerate() {
        functions += &activation.wgsl_value(&format!("activate{number}"));
        functions += &activation.wgsl_derivative(&format!("derivative{number}"));
    }
    for (id, node) in graph.nodes.iter().enumerate().filter(|(id, _)| needed[*id]) {
        let value = match *node {
            Node::Input(number) => {
                let place = reads.iter().position(|read| *read == number).unwrap_or_default();
                let within = format!("i / constants.inner{number} % constants.count{number}");
                match op.repeated[place] {
                    None => format!("read{number}[i]"),
                    Some(Repeated { block: 0, count: 1, .. }) => format!("read{number}[0]"),
                    Some(Repeated { block: 0, .. }) => format!("read{number}[{within}]"),
                    Some(Repeated { count: 1, .. }) => format!("read{number}[i / constants.block{number}]"),
                    Some(_) => format!(
                        "read{number}[i / constants.block{number} * constants.count{number} + {within}]"
                    ),
                }
            }
            Node::Constant(bits) => {
                format!("{:?}", (f64::from_bits(bits) as f32).clamp(-f32::MAX, f32::MAX))
            }
            Node::Unary(function, a) => unary(function, a),
            Node::Binary(function, a, b) => binary(function, a, b),
            Node::Select(a, b, c) => format!("select(v{b}, v{c}, v{a} == 0.0)"),
            Node::Apply(number, a) => format!("activate{number}(v{a})"),
            Node::Derive(number, saved, dy) => format!("v{dy} * derivative{number}(v{saved})"),
            Node::Sum(..) | Node::Mean(..) => {
                return Err(Error::Internal("a sum over axes in the middle of a program".into()));
            }
        };
        add_line!(body, "        let v{id} = {value};");
    }
    for (place, root) in roots.iter().take(results.len()).enumerate() {
        add_line!(body, "        result{place}[i] = v{root};");
    }
    Ok((functions, body))
}

fn unary(function: Unary, a: usize) -> String {
    match function {
        Unary::Negative => format!("-v{a}"),
        Unary::Exp => format!("exp(v{a})"),
        Unary::ExpM1 => format!("loom_exp_m1(v{a})"),
        Unary::Ln => format!("log(v{a})"),
        Unary::Ln1p => format!("loom_ln_1p_all(v{a})"),
        Unary::Sqrt => format!("sqrt(v{a})"),
        Unary::Abs => format!("abs(v{a})"),
        Unary::Sign => format!("sign(v{a})"),
        Unary::Erf => format!("loom_erf(v{a})"),
        Unary::Sin => format!("loom_sin_cos(v{a}, 0)"),
        Unary::Cos => format!("loom_sin_cos(v{a}, 1)"),
    }
}

fn binary(function: Binary, a: usize, b: usize) -> String {
    let truth = |symbol: &str| format!("select(0.0, 1.0, v{a} {symbol} v{b})");
    match function {
        Binary::Add => format!("v{a} + v{b}"),
        Binary::Subtract => format!("v{a} - v{b}"),
        Binary::Multiply => format!("v{a} * v{b}"),
        Binary::Divide => format!("v{a} / v{b}"),
        Binary::Power => format!("loom_power(v{a}, v{b})"),
        Binary::Maximum => format!("loom_max(v{a}, v{b})"),
        Binary::Minimum => format!("loom_min(v{a}, v{b})"),
        Binary::Greater => truth(">"),
        Binary::GreaterEqual => truth(">="),
        Binary::Equal => truth("=="),
        Binary::NotEqual => truth("!="),
    }
}
