//! Adafactor on a GPU.

use super::gpu::{Operands, scale, shares};
use super::{Directions, Part};
use crate::Result;
use crate::ops::segment;
use crate::ops::update::Optimizer;
use crate::shader::{Operand, Recorder, Shader, THREADS};

impl Directions {
    pub(super) fn record_adafactor(
        &self,
        recorder: &mut Recorder<'_>,
        part: &Part,
        operands: &Operands,
    ) -> Result<()> {
        let Optimizer::Adafactor {
            decay_power, clip_threshold, epsilon, scale_by_weights, least_scale, ..
        } = self.update.optimizer
        else {
            return Ok(());
        };
        let of = |operand: &Operand| part.of_operand(operand);
        let (gradient, square) = (of(&operands.gradient)?, of(&operands.moments[0])?);
        let (direction, next) = (of(&operands.direction)?, of(&operands.next[0])?);
        let repeat = self.update.repeat;
        let averages = |name: &str, text: &str, recorder: &Recorder<'_>| {
            Shader::new(format!("adafactor.{name}"), &[include_str!("adafactor.wgsl"), text].concat())
                .float("EPSILON", epsilon)
                .float("DECAY_POWER", decay_power)
                .constant("UPDATE", repeat[0])
                .constant("UPDATES", repeat[1])
                .control(recorder)
                .read("gradient", "f32", gradient.clone())
                .read("square", "f32", square.clone())
                .write("next", "f32", next.clone())
        };
        let (rows, columns, count) = (part.rows, part.columns, part.len());
        if part.matrix {
            averages("rows", include_str!("adafactor_rows.wgsl"), recorder)
                .section("JOIN", segment::join("join", "f32", THREADS, "a + b"))
                .number("columns", columns)
                .groups(recorder, rows)?;
            averages("columns", include_str!("adafactor_columns.wgsl"), recorder)
                .number("rows", rows)
                .number("columns", columns)
                .elements(recorder, columns)?;
            Shader::new("adafactor.matrix", include_str!("adafactor_matrix.wgsl"))
                .read("gradient", "f32", gradient)
                .read("next", "f32", next.clone())
                .write("direction", "f32", direction.clone())
                .number("rows", rows)
                .number("columns", columns)
                .elements(recorder, count)?;
        } else {
            averages("plain", include_str!("adafactor_plain.wgsl"), recorder)
                .write("direction", "f32", direction.clone())
                .number("elements", count)
                .elements(recorder, count)?;
        }
        let (lengths, length_shares) = shares(recorder, &direction, count)?;
        let (weights, weight_shares) = shares(recorder, &of(&operands.master)?, count)?;
        let factor = recorder.table(&[0])?;
        Shader::new("adafactor.factor", include_str!("adafactor_factor.wgsl"))
            .section("JOIN", segment::join("join", "vec3<f32>", THREADS, "a + b"))
            .float("CLIP", clip_threshold)
            .float("LEAST_SCALE", least_scale)
            .flag("SCALES", scale_by_weights)
            .flag("MATRIX", part.matrix)
            .read("lengths", "f32", lengths)
            .read("weights", "f32", weights)
            .read("next", "f32", next)
            .write("factor", "f32", factor.clone())
            .number("length_shares", length_shares)
            .number("weight_shares", weight_shares)
            .number("rows", rows)
            .number("elements", count)
            .groups(recorder, 1)?;
        scale(recorder, direction, factor, count)
    }
}
