//! Muon on a GPU.

use super::gpu::{Operands, scale, shares};
use super::muon::{self, COEFFICIENTS, STEPS};
use super::{Directions, Part};
use crate::Result;
use crate::ops::segment;
use crate::ops::update::Optimizer;
use crate::shader::{OFFSET_ELEMENTS, Operand, Recorder, Shader, THREADS};

/// Rows and columns of what a workgroup of the product computes.
const TILE: usize = 16;

/// A matrix in the scratch memory: where it starts, and from one row to the next and one column to the next.
type Placed = [usize; 3];

impl Directions {
    pub(super) fn record_muon(
        &self,
        recorder: &mut Recorder<'_>,
        part: &Part,
        operands: &Operands,
    ) -> Result<()> {
        let Optimizer::Muon { momentum, nesterov, beta1, beta2, epsilon, match_adam, .. } =
            self.update.optimizer
        else {
            return Ok(());
        };
        let of = |operand: &Operand| part.of_operand(operand);
        let placed = |shader: Shader| {
            shader
                .number("first", part.first())
                .number("rows", part.rows)
                .number("columns", part.columns)
                .number("stride", part.stride)
        };
        if !part.matrix {
            let shader = Shader::new("muon.adam", include_str!("muon_adam.wgsl"))
                .section("RULE", self.update.wgsl_rule())
                .float("BETA2", beta2)
                .float("NEW1", 1.0 - beta1)
                .float("NEW2", 1.0 - beta2)
                .float("LOG_BETA1", libm::log(beta1))
                .float("LOG_BETA2", libm::log(beta2))
                .float("EPSILON", epsilon)
                .constant("UPDATE", self.update.repeat[0])
                .constant("UPDATES", self.update.repeat[1])
                .control(recorder)
                .read("gradient", "f32", of(&operands.gradient)?)
                .read("mean", "f32", of(&operands.moments[0])?)
                .read("square", "f32", of(&operands.moments[1])?)
                .write("next_mean", "f32", of(&operands.next[0])?)
                .write("next_square", "f32", of(&operands.next[1])?)
                .write("direction", "f32", of(&operands.direction)?);
            return placed(shader).elements(recorder, part.len());
        }
        let (short, long) = (part.rows.min(part.columns), part.rows.max(part.columns));
        let whole = |elements: usize| elements.next_multiple_of(OFFSET_ELEMENTS);
        let (x, y, a, b) =
            (0, whole(part.len()), 2 * whole(part.len()), 2 * whole(part.len()) + whole(short * short));
        let shader = Shader::new("muon.begin", include_str!("muon_begin.wgsl"))
            .float("NEW", 1.0 - momentum)
            .float("MOMENTUM", momentum)
            .flag("NESTEROV", nesterov)
            .flag("TURNED", part.rows > part.columns)
            .read("gradient", "f32", of(&operands.gradient)?)
            .read("mean", "f32", of(&operands.moments[0])?)
            .write("next_mean", "f32", of(&operands.next[0])?)
            .write("scratch", "f32", operands.scratch.clone());
        placed(shader).elements(recorder, part.len())?;
        let (sums, count) = shares(recorder, &operands.scratch, part.len())?;
        let factor = recorder.table(&[0])?;
        Shader::new("muon.factor", include_str!("muon_factor.wgsl"))
            .section("JOIN", segment::join("join", "f32", THREADS, "a + b"))
            .float("EPSILON", epsilon)
            .read("sums", "f32", sums)
            .write("factor", "f32", factor.clone())
            .number("shares", count)
            .groups(recorder, 1)?;
        scale(recorder, operands.scratch.slice(0, part.len())?, factor, part.len())?;
        let [first, second, third] = COEFFICIENTS;
        for _ in 0..STEPS {
            let mut multiply =
                |extents: [usize; 3], p: Placed, q: Placed, c: usize, scales: [f64; 2], d: usize| {
                    product(recorder, &operands.scratch, (extents, p, q, c), (scales, d))
                };
            // A = X X^T, B = third A A + second A, Y = B X + first X; Y is the next X.
            multiply([short, short, long], [x, long, 1], [x, 1, long], a, [1.0, 0.0], a)?;
            multiply([short, short, short], [a, short, 1], [a, short, 1], b, [third, second], a)?;
            multiply([short, long, short], [b, short, 1], [x, long, 1], y, [1.0, first], x)?;
            copy(recorder, &operands.scratch, y, part.len())?;
        }
        let shader = Shader::new("muon.finish", include_str!("muon_finish.wgsl"))
            .float("SCALE", muon::scale(part, match_adam))
            .flag("TURNED", part.rows > part.columns)
            .read("scratch", "f32", operands.scratch.clone())
            .write("direction", "f32", of(&operands.direction)?);
        placed(shader).elements(recorder, part.len())
    }
}

/// C = scale P Q + share D, all in the scratch memory; D is stored as C is.
fn product(
    recorder: &mut Recorder<'_>,
    scratch: &Operand,
    ([rows, columns, depth], p, q, c): ([usize; 3], Placed, Placed, usize),
    ([scale, share], d): ([f64; 2], usize),
) -> Result<()> {
    let mut shader = Shader::new("muon.product", include_str!("muon_product.wgsl"))
        .threads(TILE * TILE)
        .constant("TILE", TILE)
        .write("scratch", "f32", scratch.clone())
        .number("rows", rows)
        .number("columns", columns)
        .number("depth", depth)
        .number("c", c)
        .number("d", d)
        .real("scale", scale)
        .real("share", share);
    for (names, placed) in [(["p", "p_row", "p_column"], p), (["q", "q_row", "q_column"], q)] {
        for (name, value) in names.into_iter().zip(placed) {
            shader = shader.number(name, value);
        }
    }
    shader.groups(recorder, rows.div_ceil(TILE) * columns.div_ceil(TILE))
}

/// Moves what stands at `from` to the beginning.
fn copy(recorder: &mut Recorder<'_>, scratch: &Operand, from: usize, elements: usize) -> Result<()> {
    Shader::new("muon.copy", include_str!("muon_copy.wgsl"))
        .write("scratch", "f32", scratch.clone())
        .number("source", from)
        .number("elements", elements)
        .elements(recorder, elements)
}
