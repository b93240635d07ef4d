//! The look ahead on a GPU: a dispatch a store that reads what the update will read, and one for all of them.

use super::{Foresee, Foreseen, Foresight, HeldParameter};
use crate::Result;
use crate::ops::Update;
use crate::ops::measure::{Header, LayerFigure, MeasureMemory};
use crate::ops::update::StoreKernel;
use crate::shader::{Bind, GpuOperation, Operand, Recorder, Template};
use std::fmt::Write;

/// Threads of a workgroup.
const THREADS: usize = 256;

impl GpuOperation for Foresee {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let found = recorder.write(0)?;
        match &self.what {
            Foreseen::Update(update, held) => record_update(recorder, update, held, found),
            Foreseen::Average(average) => {
                let (value, running) = (recorder.read(0)?, recorder.read(1)?);
                let elements = running.elements;
                let kernel = Template::new(include_str!("average.wgsl"))
                    .constant("THREADS", THREADS)
                    .kernel("foresee.average");
                let share = average.share(recorder.rows()) as f32;
                let kept = (1.0 - average.momentum) as f32;
                let constants = [elements as u32, kept.to_bits(), share.to_bits()];
                let operands = [Bind::Read(value), Bind::Read(running), Bind::Write(found)];
                recorder.dispatch(&kernel, &operands, &constants, elements.div_ceil(THREADS))
            }
            Foreseen::Values => {
                let values = recorder.read(0)?;
                let kernel = Template::new(include_str!("values.wgsl"))
                    .constant("THREADS", THREADS)
                    .kernel("foresee.values");
                for part in recorder.parts(values.elements, crate::shader::OFFSET_ELEMENTS)? {
                    let operands =
                        [Bind::Read(values.slice(part.start, part.len())?), Bind::Write(found.clone())];
                    let groups = part.len().div_ceil(THREADS);
                    recorder.dispatch(&kernel, &operands, &[part.len() as u32], groups)?;
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
    let (gradient, master) = (recorder.read(0)?, recorder.read(1)?);
    let moments: Vec<Operand> = (0..slots).map(|slot| recorder.read(2 + slot)).collect::<Result<_>>()?;
    let words: Vec<u32> =
        held.iter().flat_map(|held| [held.first as u32, held.end as u32, held.most.to_bits()]).collect();
    let parameters = recorder.table(if words.is_empty() { &[0, 0, 0] } else { &words })?;
    let mut kernel = StoreKernel::new(update, recorder, 3, "read")?;
    let (mut decide, mut rate) = (String::new(), "1.0".to_string());
    let memory = update.watched.map(|_| recorder.read(2 + slots)).transpose()?;
    let mut others = vec![("read_write", "found", "atomic<u32>"), ("read", "parameters", "u32")];
    if let Some(watched) = &update.watched {
        others.push(("read", "measures", "f32"));
        // Writing to a string cannot fail.
        let _ =
            writeln!(decide, "if measures[{}] != 1.0 {{ return; }}", MeasureMemory::header(Header::Action));
        rate = format!("measures[{}]", MeasureMemory::header(Header::RateFactor));
        if let Some(layer) = watched.layer {
            let gate = watched.memory.figure(layer, LayerFigure::Gate);
            let _ = writeln!(decide, "if measures[{gate}] < 0.0 {{ return; }}");
            let _ = write!(rate, " * measures[{gate}]");
        }
    }
    for (number, (access, name, element)) in others.into_iter().enumerate() {
        let binding = kernel.next + number;
        let _ = writeln!(
            kernel.bindings,
            "@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;"
        );
    }
    decide += "var held = held_at(constants.first + 4u * i);\n";
    if let Some(frozen) = kernel.mask("frozen") {
        let _ = writeln!(decide, "held.counts = held.counts & ({frozen} == vec4<u32>());");
    }
    decide += "if !any(held.counts) { return; }";
    kernel.template = kernel
        .template
        .constant("PARAMETERS", held.len())
        .section("FUNCTIONS", include_str!("update.wgsl"))
        .section("BEFORE", "")
        .section("FINISH", "look(held, made, moments);")
        .section("DECIDE", decide)
        .section("RATE", rate);
    kernel.dispatch(recorder, update, "foresee", |part| {
        let slice = |operand: &Operand| operand.slice(part.start, part.len()).map(Bind::Read);
        let before = [&gradient, &master].into_iter().chain(&moments).map(slice).collect::<Result<_>>()?;
        let mut after = vec![Bind::Write(found.clone()), Bind::Read(parameters.clone())];
        after.extend(memory.clone().map(Bind::Read));
        Ok([before, after])
    })
}

impl GpuOperation for Foresight {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = vec![Bind::Write(recorder.write(0)?)];
        let (mut declarations, mut looks) = (String::new(), String::new());
        for number in 0..self.count {
            // Writing to a string cannot fail.
            let _ = writeln!(
                declarations,
                "@group(0) @binding({}) var<storage, read_write> look_{number}: array<u32>;",
                operands.len()
            );
            let _ = writeln!(
                looks,
                "if found == 0.0 && look_{number}[0] != 0u {{ found = f32({}u + min(look_{number}[0], 3u)); }}\n\
                 look_{number}[0] = 0u;",
                4 * (self.before + number + 1)
            );
            operands.push(Bind::Write(recorder.read(number)?));
        }
        let mut start = "0.0";
        if self.before > 0 {
            let _ = writeln!(
                declarations,
                "@group(0) @binding({}) var<storage, read> earlier: array<f32>;",
                operands.len()
            );
            operands.push(Bind::Read(recorder.read(self.count)?));
            start = "earlier[0]";
        }
        let mut judge = String::new();
        if let Some((_, rule)) = &self.judged {
            let header = MeasureMemory::header;
            let _ = writeln!(
                declarations,
                "@group(0) @binding({}) var<storage, read_write> memory: array<f32>;",
                operands.len()
            );
            operands.push(Bind::Write(recorder.write(1)?));
            let _ = write!(
                judge,
                "if found != 0.0 && memory[{action}] == 1.0 {{\n\
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
        let kernel = Template::new(include_str!("foresight.wgsl"))
            .section("OPERANDS", declarations)
            .section("START", start)
            .section("LOOKS", looks)
            .section("JUDGE", judge)
            .kernel("foresight");
        recorder.dispatch(&kernel, &operands, &[], 1)
    }
}
