//! Normalisation within sets whose elements lie in fours and are few enough to stay in registers: memory is read once.

use super::Normalize;
use super::gpu::either;
use crate::Result;
use crate::ops::{Direction, segment};
use crate::shader::{Operand, Recorder, Shader, THREADS, add_line};

/// Units of four elements that a thread should have, and those that it can keep.
const WISHED: usize = 4;
const MOST: usize = 8;

/// How a set is shared out among threads.
struct Kept {
    /// Units of a set.
    units: usize,
    /// Threads of a set.
    lanes: usize,
    /// Units of a thread, at most.
    each: usize,
}

impl Kept {
    /// A line for each unit of a thread, where the set has it.
    fn each(&self, line: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for i in 0..self.each {
            add_line!(text, "    let unit{i} = lane + {}u;", i * self.lanes);
            add_line!(text, "    if unit{i} < end {{ {} }}", line(i));
        }
        text
    }

    /// Declares a unit by each of these names for each unit of a thread.
    fn declare(&self, names: &[&str]) -> String {
        let mut text = String::new();
        for name in names {
            for i in 0..self.each {
                add_line!(text, "    var {name}{i} = vec4<f32>();");
            }
        }
        text
    }
}

impl Normalize {
    fn kept(&self) -> Option<Kept> {
        if self.inner != 1 || !self.set_channels().is_multiple_of(4) {
            return None;
        }
        let units = self.set_channels() / 4;
        let lanes = segment::lanes(units.div_ceil(WISHED), THREADS);
        let each = units.div_ceil(lanes);
        (each <= MOST).then_some(Kept { units, lanes, each })
    }

    /// Records it where its sets are such; whether they are.
    pub(super) fn record_kept(
        &self,
        recorder: &mut Recorder<'_>,
        residual: Option<&Operand>,
    ) -> Result<bool> {
        let Some(kept) = self.kept() else { return Ok(false) };
        let unit = "vec4<f32>";
        let gain = either(self.gain, " * gain[channels + unit]", "");
        let of_unit = |text: &str, i: usize| text.replace("unit]", &format!("unit{i}]"));
        let shader = Shader::new(self.to_string(), include_str!("kept.wgsl"));
        let mut body = String::new();
        let shader = match self.direction {
            Direction::Forward => {
                body += &kept.declare(&["x_of"]);
                add_line!(body, "    var sums = vec4<f32>();");
                body += &kept.each(|i| format!("x_of{i} = x[base + unit{i}]; sums += x_of{i};"));
                match self.centred {
                    true => add_line!(body, "    let mean = set_sum(thread, whole(sums)) / f32(EXTENT);"),
                    false => add_line!(body, "    let mean = 0.0;"),
                }
                add_line!(body, "    var squares = vec4<f32>();");
                for i in 0..kept.each {
                    add_line!(
                        body,
                        "    if unit{i} < end {{ let apart = x_of{i} - mean; squares += apart * apart; }}"
                    );
                }
                add_line!(
                    body,
                    "    let scale = 1.0 / sqrt(set_sum(thread, whole(squares)) / f32(EXTENT) + EPSILON);"
                );
                let keep_mean = either(self.centred, " means[place] = mean;", "");
                add_line!(body, "    if lane < end && lane == 0u {{ inverse[place] = scale;{keep_mean} }}");
                let bias = either(self.bias, " + bias[channels + unit]", "");
                for i in 0..kept.each {
                    let (gain, bias) = (of_unit(gain, i), of_unit(bias, i));
                    add_line!(
                        body,
                        "    if unit{i} < end {{ y[base + unit{i}] = (x_of{i} - mean) * scale{gain}{bias}; }}"
                    );
                }
                let mut shader = shader.float("EPSILON", self.epsilon).read("x", unit, recorder.read(0)?);
                let weights = [self.gain.then_some("gain"), self.bias.then_some("bias")];
                for (i, name) in weights.into_iter().flatten().enumerate() {
                    shader = shader.read(name, unit, recorder.read(1 + i)?);
                }
                let shader =
                    shader.write("y", unit, recorder.write(0)?).write("inverse", "f32", recorder.write(1)?);
                match self.centred {
                    true => shader.write("means", "f32", recorder.write(2)?),
                    false => shader,
                }
            }
            Direction::InputGradient => {
                body += &kept.declare(&["slope", "normal"]);
                add_line!(body, "    var scale = 0.0;\n    var mean = 0.0;");
                let mean = either(self.centred, " mean = means[place];", "");
                add_line!(body, "    if lane < end {{ scale = inverse[place];{mean} }}");
                add_line!(body, "    var sums = vec4<f32>();\n    var products = vec4<f32>();");
                body += &kept.each(|i| {
                    let gain = of_unit(gain, i);
                    format!(
                        "slope{i} = dy[base + unit{i}]{gain}; normal{i} = (x[base + unit{i}] - mean) * scale; \
                         sums += slope{i}; products += slope{i} * normal{i};"
                    )
                });
                match self.centred {
                    true => add_line!(body, "    let shift = set_sum(thread, whole(sums)) / f32(EXTENT);"),
                    false => add_line!(body, "    let shift = 0.0;"),
                }
                add_line!(body, "    let along = set_sum(thread, whole(products)) / f32(EXTENT);");
                let residual_text = either(residual.is_some(), " + residual[base + unit]", "");
                for i in 0..kept.each {
                    let residual = of_unit(residual_text, i);
                    add_line!(
                        body,
                        "    if unit{i} < end {{ dx[base + unit{i}] = (slope{i} - shift - normal{i} * along) * \
                         scale{residual}; }}"
                    );
                }
                let mut shader = shader;
                if let Some(residual) = residual {
                    shader = shader.read("residual", unit, residual.clone());
                }
                shader = shader.read("dy", unit, recorder.read(0)?).read("x", unit, recorder.read(1)?).read(
                    "inverse",
                    "f32",
                    recorder.read(2)?,
                );
                if self.centred {
                    shader = shader.read("means", "f32", recorder.read(3)?);
                }
                if self.gain {
                    shader = shader.read("gain", unit, recorder.read(3 + usize::from(self.centred))?);
                }
                shader.write("dx", unit, recorder.write(0)?)
            }
            Direction::WeightGradient => return Ok(false),
        };
        let sets = recorder.rows() * self.outer * self.groups;
        shader
            .constant("EXTENT", self.extent())
            .constant("UNITS", kept.units)
            .constant("GROUPS", self.groups)
            .constant("LANES", kept.lanes)
            .section("JOIN", segment::join("set_sum", "f32", kept.lanes, "a + b"))
            .section("BODY", body)
            // Of the whole batch.
            .number("sets", sets)
            .groups(recorder, sets.div_ceil(THREADS / kept.lanes))?;
        Ok(true)
    }
}
