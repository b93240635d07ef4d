//! The look ahead on a GPU: a dispatch a store that reads what the update will read, and one for all of them.

use super::{Foresee, Foreseen, Foresight, HeldParameter};
use crate::Result;
use crate::ops::Update;
use crate::ops::measure::{Header, LayerFigure, MeasureMemory};
use crate::shader::{Bind, GpuOperation, Operand, Recorder, Template};
use std::fmt::Write;

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Weights that one word of a mask speaks of.
const MASKED: usize = 32;

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
    let exempt = update.exempt_mask();
    let frozen = update.frozen.iter().any(|part| !part.is_empty()).then(|| update.mask_of(&update.frozen));
    let masks: Vec<(&str, Operand)> = [("exempt", exempt), ("frozen", frozen)]
        .into_iter()
        .filter_map(|(name, mask)| Some((name, mask?)))
        .map(|(name, mask)| Ok((name, recorder.table(&mask)?)))
        .collect::<Result<_>>()?;
    let (mut bindings, mut load, mut odd) = (String::new(), String::new(), String::new());
    let mut binding = 5;
    let mut bind = |name: &str, kind: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(bindings, "@group(0) @binding({binding}) var<storage, read> {name}: array<{kind}>;");
        binding += 1;
    };
    for name in ["a", "b", "c"].into_iter().take(slots) {
        bind(&format!("moment_{name}"), "vec4<f32>");
        let _ = writeln!(load, "moments.{name} = moment_{name}[i];");
        let _ = writeln!(odd, "if any(counts & is_odd(moments.{name})) {{ wrong = 2u; }}");
    }
    masks.iter().for_each(|(name, _)| bind(name, "u32"));
    let bits = |name: &str| {
        format!(
            "(vec4<u32>({name}[i / 8u]) >> (vec4<u32>(i % 8u * 4u) + vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u))"
        )
    };
    let has = |wanted: &str| masks.iter().any(|(name, _)| *name == wanted);
    let exempt = match has("exempt") {
        true => format!("decays = {} == vec4<u32>();", bits("exempt")),
        false => String::new(),
    };
    let frozen = match has("frozen") {
        true => format!("counts = counts & ({} == vec4<u32>());", bits("frozen")),
        false => String::new(),
    };
    let (mut decide, mut rate) = (String::new(), "1.0".to_string());
    let memory = match &update.watched {
        Some(watched) => {
            bind("measures", "f32");
            decide = format!("if measures[{}] != 1.0 {{ return; }}", MeasureMemory::header(Header::Action));
            rate = format!("measures[{}]", MeasureMemory::header(Header::RateFactor));
            if let Some(layer) = watched.layer {
                let gate = watched.memory.figure(layer, LayerFigure::Gate);
                let _ = write!(decide, "\nif measures[{gate}] < 0.0 {{ return; }}");
                let _ = write!(rate, " * measures[{gate}]");
            }
            Some(recorder.read(2 + slots)?)
        }
        None => None,
    };
    let kernel = Template::new(include_str!("update.wgsl"))
        .constant("THREADS", THREADS)
        .constant("PARAMETERS", held.len())
        .section("BINDINGS", bindings)
        .section("RULE", update.wgsl_rule())
        .section("EXEMPT", exempt)
        .section("FROZEN", frozen)
        .section("LOAD", load)
        .section("MOMENTS", odd)
        .section("DECIDE", decide)
        .section("BASE_RATE", update.rate.map_or("now.rate".into(), |rate| format!("{:?}f", rate as f32)))
        .section("RATE", rate)
        .constant("UPDATE", update.repeat[0])
        .constant("UPDATES", update.repeat[1])
        .kernel(format!("foresee.{}", update.optimizer.name()));
    // The mask of a part starts at whole units too.
    for part in recorder.parts(update.len, 64 * MASKED)? {
        let (first, count) = (part.start, part.len());
        let mut operands = vec![
            Bind::Read(recorder.control()),
            Bind::Read(gradient.slice(first, count)?),
            Bind::Read(master.slice(first, count)?),
            Bind::Write(found.clone()),
            Bind::Read(parameters.clone()),
        ];
        for moment in &moments {
            operands.push(Bind::Read(moment.slice(first, count)?));
        }
        for (_, mask) in &masks {
            operands.push(Bind::Read(mask.slice(first / MASKED, count.div_ceil(MASKED))?));
        }
        operands.extend(memory.clone().map(Bind::Read));
        let units = count.div_ceil(4);
        recorder.dispatch(&kernel, &operands, &[units as u32, first as u32], units.div_ceil(THREADS))?;
    }
    Ok(())
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
