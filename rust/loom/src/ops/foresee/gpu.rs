//! The look ahead on a GPU: a dispatch a store that reads what the update will read, and one for all of them.

use super::{Foresee, Foreseen, Foresight, HeldParameter};
use crate::Result;
use crate::ops::Update;
use crate::ops::measure::{Header, LayerFigure, MeasureMemory};
use crate::ops::update::StoreKernel;
use crate::shader::{Bind, GpuOperation, Operand, Recorder, Shader};

impl GpuOperation for Foresee {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let found = recorder.write(0)?;
        match &self.what {
            Foreseen::Update(update, held) => record_update(recorder, update, held, found),
            Foreseen::Average(average) => {
                let (value, running) = (recorder.read(0)?, recorder.read(1)?);
                let elements = running.elements;
                Shader::new("foresee.average", include_str!("average.wgsl"))
                    .read("value", "f32", value)
                    .read("running", "f32", running)
                    .write("found", "atomic<u32>", found)
                    .number("elements", elements)
                    .real("kept", 1.0 - average.momentum)
                    .real("share", average.share(recorder.rows()))
                    .elements(recorder, elements)
            }
            Foreseen::Values => {
                let values = recorder.read(0)?;
                for part in recorder.parts(values.elements, crate::shader::OFFSET_ELEMENTS)? {
                    Shader::new("foresee.values", include_str!("values.wgsl"))
                        .read("values", "f32", values.slice(part.start, part.len())?)
                        .write("found", "atomic<u32>", found.clone())
                        .number("elements", part.len())
                        .elements(recorder, part.len())?;
                }
                Ok(())
            }
        }
    }
}

fn record_update(
    recorder: &mut Recorder<'_>,
    update: &Update,
    held: &[HeldParameter],
    found: Operand,
) -> Result<()> {
    let slots = update.optimizer.slots().len();
    let gradient = recorder.read(0)?;
    let first = update.memory_operand();
    // Where moments are made beside, those that are held are nothing to look at.
    let read = if update.optimizer.is_made_beside() { 0 } else { slots };
    let stored: Vec<Operand> = (0..=read).map(|slot| recorder.read(first + slot)).collect::<Result<_>>()?;
    let words: Vec<u32> =
        held.iter().flat_map(|held| [held.first as u32, held.end as u32, held.most.to_bits()]).collect();
    let parameters = recorder.table(if words.is_empty() { &[0, 0, 0] } else { &words })?;
    let mut kernel = StoreKernel::new("foresee", update, recorder, Bind::Read)?;
    let (mut decide, mut rate) = (String::new(), "1.0".to_string());
    let memory = update.watched.map(|_| recorder.read(first + 1 + slots)).transpose()?;
    if let Some(watched) = &update.watched {
        decide = format!("if measures[{}] != 1.0 {{ return; }}\n", MeasureMemory::header(Header::Action));
        rate = format!("measures[{}]", MeasureMemory::header(Header::RateFactor));
        if let Some(layer) = watched.layer {
            let gate = watched.memory.figure(layer, LayerFigure::Gate);
            decide += &format!("if measures[{gate}] < 0.0 {{ return; }}\n");
            rate += &format!(" * measures[{gate}]");
        }
    }
    decide += "var held = held_at(constants.first + 4u * i);\n";
    if let Some(frozen) = kernel.mask("frozen") {
        decide += &format!("held.counts = held.counts & ({frozen} == vec4<u32>());\n");
    }
    decide += "if !any(held.counts) { return; }";
    kernel.shader = kernel
        .shader
        .constant("PARAMETERS", held.len())
        .section("FUNCTIONS", include_str!("update.wgsl"))
        .section("BEFORE", "")
        .section("FINISH", "look(held, made, moments);")
        .section("DECIDE", decide)
        .section("RATE", rate);
    kernel.dispatch(recorder, update, &gradient, &stored, |shader, part| {
        let shader = shader
            .write("found", "atomic<u32>", found.clone())
            .read("parameters", "u32", parameters.clone())
            // The part's first weight.
            .number("first", part.start);
        Ok(match &memory {
            Some(memory) => shader.read("measures", "f32", memory.clone()),
            None => shader,
        })
    })
}

impl Foresight {
    /// Adds what [`Foresight`] reads to a kernel; returns the text that brings it together in `found`, an integer that
    /// is 0 before, and makes looks ready for the next step.
    pub(crate) fn bring_together(&self, mut shader: Shader, reads: &[Operand]) -> (Shader, String) {
        let mut text = String::new();
        if let Some(earlier) = reads.get(self.count).filter(|_| self.before > 0) {
            shader = shader.read("earlier", "f32", earlier.clone());
            text += "found = u32(earlier[0]);\n";
        }
        for (number, look) in reads.iter().take(self.count).enumerate() {
            shader = shader.write(&format!("look_{number}"), "u32", look.clone());
            text += &format!(
                "if found == 0u && look_{number}[0] != 0u {{ found = {}u + min(look_{number}[0], 3u); }}\n\
                 look_{number}[0] = 0u;\n",
                4 * (self.before + number + 1)
            );
        }
        (shader, text)
    }
}

impl GpuOperation for Foresight {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let shader = Shader::new("foresight", include_str!("foresight.wgsl")).threads(1).write(
            "result",
            "f32",
            recorder.write(0)?,
        );
        let reads: Vec<Operand> = (0..self.count + usize::from(self.before > 0))
            .map(|number| recorder.read(number))
            .collect::<Result<_>>()?;
        let (mut shader, looks) = self.bring_together(shader, &reads);
        let mut judge = String::new();
        if let Some((_, rule)) = &self.judged {
            let header = MeasureMemory::header;
            shader = shader.write("memory", "f32", recorder.write(1)?);
            judge = format!(
                "if found != 0u && memory[{action}] == 1.0 {{\n\
                 memory[{action}] = select(0.0, 2.0, memory[{had}] != 0.0);\n\
                 memory[{rate}] = memory[{rate_before}] * {recovery:?}f;\n\
                 memory[{gap}] = memory[{gap_before}];\n\
                 memory[{previous}] = memory[{had_previous}];\n\
                 memory[{snapshot}] = memory[{had}];\n\
                 memory[{explosions}] += 1.0;\n\
                 memory[{applied}] = 0.0;\n}}",
                action = header(Header::Action),
                had = header(Header::HadSnapshot),
                rate = header(Header::RateFactor),
                rate_before = header(Header::RateBefore),
                recovery = rule.recovery_rate as f32,
                gap = header(Header::PreviousGap),
                gap_before = header(Header::GapBefore),
                previous = header(Header::HasPrevious),
                had_previous = header(Header::HadPrevious),
                snapshot = header(Header::HasSnapshot),
                explosions = header(Header::Explosions),
                applied = header(Header::Applied),
            );
        }
        shader.section("LOOKS", looks).section("JUDGE", judge).groups(recorder, 1)
    }
}
