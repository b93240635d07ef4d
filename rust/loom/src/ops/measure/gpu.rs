//! The measures on a GPU: a dispatch a value, then one that collects, then one that judges.

use super::{
    Collect, Entry, ExplosionRule, GapMetric, Header, Judge, LayerFigure, LinkBudget, Measure, MeasureMemory,
    Measured,
};
use crate::Result;
use crate::ops::segment;
use crate::shader::{Bind, GpuOperation, OFFSET_ELEMENTS, Recorder, Template};
use std::fmt::Write;

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Units of four elements that one thread takes before there is another workgroup.
const SHARE: usize = 2;

impl GpuOperation for Measure {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (a, result) = (recorder.read(0)?, recorder.write(0)?);
        let other = match self.what {
            Measured::Norm => None,
            Measured::Target | Measured::Gradient(_) => Some(recorder.read(1)?),
        };
        let mut parts = recorder.parts(a.elements, OFFSET_ELEMENTS)?;
        if parts.is_empty() {
            parts.push(0..0);
        }
        for part in parts {
            let workgroups = part.len().div_ceil(4 * THREADS * SHARE).clamp(1, THREADS);
            let shares = recorder.table(&vec![0; 1 + Measure::SUMS * workgroups])?;
            let mut operands = vec![
                Bind::Read(a.slice(part.start, part.len())?),
                Bind::Write(shares),
                Bind::Write(result.clone()),
            ];
            let mut declarations = String::new();
            let mut target = "vec4<f32>()".to_string();
            if let Some(other) = &other {
                operands.push(Bind::Read(other.slice(part.start, part.len())?));
                declarations += "@group(0) @binding(3) var<storage, read> other: array<vec4<f32>>;\n";
                target = "other[i]".into();
            }
            if let Measured::Gradient(term) = self.what {
                operands.push(Bind::Read(recorder.control()));
                declarations += "@group(0) @binding(4) var<storage, read> control: Control;\n";
                target = format!("fma(vec4<f32>({}), other[i], a)", term.wgsl());
            }
            let kernel = Template::new(include_str!("measure.wgsl"))
                .constant("THREADS", THREADS)
                .section("OTHER", declarations)
                .section("TARGET", target)
                .section("START", if part.start > 0 { "result[0]" } else { "vec4<f32>()" })
                .flag("ALONE", other.is_none())
                .flag("USES_CONTROL", matches!(self.what, Measured::Gradient(_)))
                .section("JOIN", segment::join("join", "vec4<f32>", THREADS, "a + b"))
                .kernel("measure");
            let constants = [part.len() as u32, workgroups as u32];
            recorder.dispatch(&kernel, &operands, &constants, workgroups)?;
        }
        Ok(())
    }
}

/// Bindings of sums from `binding` on, and the cases in which a thread finds its number among them.
fn cases(memory: MeasureMemory, entries: &[(Entry, usize)], binding: usize) -> (String, String) {
    let (mut declarations, mut body) = (String::new(), String::new());
    for (number, (entry, elements)) in entries.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            declarations,
            "@group(0) @binding({}) var<storage, read> sums{number}: array<f32>;",
            binding + number
        );
        let _ = writeln!(
            body,
            "case {number}u: {{ value = sums{number}[min(part, {last}u)]; place = {place}u; elements = {elements}u; }}",
            last = Measure::SUMS - 1,
            place = memory.entry(*entry),
        );
    }
    (declarations, body)
}

impl GpuOperation for Collect {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = vec![Bind::Write(recorder.write(0)?)];
        for number in 0..self.entries.len() {
            operands.push(Bind::Read(recorder.read(number)?));
        }
        let (declarations, body) = cases(self.memory, &self.entries, 1);
        let kernel = Template::new(include_str!("collect.wgsl"))
            .constant("SUMS", Measure::SUMS)
            .section("OPERANDS", declarations)
            .section("CASES", body)
            .kernel("collect");
        let constants = [recorder.rows() as u32, u32::from(recorder.accumulate())];
        recorder.dispatch(&kernel, &operands, &constants, 1)
    }
}

impl GpuOperation for Judge {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let norms: Vec<u32> = self.norms.iter().flatten().map(|norm| *norm as u32).collect();
        let forward = !norms.is_empty();
        let norms = recorder.table(if forward { &norms } else { &[0] })?;
        let mut operands =
            vec![Bind::Read(recorder.read(0)?), Bind::Write(recorder.write(0)?), Bind::Read(norms)];
        let mut declarations = String::new();
        if self.has_norm {
            declarations += "@group(0) @binding(3) var<storage, read> norm: array<f32>;\n";
            operands.push(Bind::Read(recorder.read(1)?));
        }
        let (sums, cases) = cases(self.memory, &self.entries, operands.len());
        declarations += &sums;
        for number in 0..self.entries.len() {
            operands.push(Bind::Read(recorder.read(1 + usize::from(self.has_norm) + number)?));
        }
        let rule = self.explosion;
        let ExplosionRule { gap_threshold, explosion_limit, recovery_rate } = rule.unwrap_or_default();
        let header = |what| MeasureMemory::header(what);
        let kernel = Template::new(include_str!("judge.wgsl"))
            .constant("THREADS", THREADS)
            .constant("LAYERS", self.memory.layers)
            .constant("FIRST_FIGURE", self.memory.figure(0, LayerFigure::Gap))
            .constant(
                "FIGURES",
                self.memory.figure(1, LayerFigure::Gap) - self.memory.figure(0, LayerFigure::Gap),
            )
            .constant("FIRST_LAYER", self.memory.entry(Entry::Layer(0)))
            .constant("FIRST_CELL", self.memory.entry(Entry::Cell(0)))
            .constant("FIRST_RECONSTRUCTION", self.memory.entry(Entry::Reconstruction(0)))
            .constant("ACTION", header(Header::Action))
            .constant("RATE_FACTOR", header(Header::RateFactor))
            .constant("PREVIOUS_GAP", header(Header::PreviousGap))
            .constant("GROWTH", header(Header::Growth))
            .constant("EXPLOSIONS", header(Header::Explosions))
            .constant("MEAN_GAP", header(Header::MeanGap))
            .constant("HAS_PREVIOUS", header(Header::HasPrevious))
            .constant("HAS_SNAPSHOT", header(Header::HasSnapshot))
            .constant("APPLIED", header(Header::Applied))
            .constant("JUDGED", header(Header::Judged))
            .constant("RATE_BEFORE", header(Header::RateBefore))
            .constant("GAP_BEFORE", header(Header::GapBefore))
            .constant("HAD_PREVIOUS", header(Header::HadPrevious))
            .constant("HAD_SNAPSHOT", header(Header::HadSnapshot))
            .flag("FORWARD", forward)
            .flag("SQUARED", self.metric == GapMetric::Mse)
            .flag("GATED", self.budget == LinkBudget::Alignment)
            .float("LEAST_ALIGNMENT", LinkBudget::LEAST_ALIGNMENT)
            .float("BUDGET_SCALE", self.budget_scale)
            .flag("DETECTS", rule.is_some())
            .float("GAP_THRESHOLD", gap_threshold)
            .float("EXPLOSION_LIMIT", explosion_limit)
            .float("RECOVERY_RATE", recovery_rate)
            .float("CALM_GROWTH", Self::CALM_GROWTH)
            .constant("SUMS", Measure::SUMS)
            .flag("COLLECTS", !self.entries.is_empty())
            .section("OPERANDS", declarations)
            .section("CASES", cases)
            .section("NORM_IS_FINITE", if self.has_norm { "is_finite(norm[0])" } else { "true" })
            .kernel("judge");
        recorder.dispatch(&kernel, &operands, &[recorder.rows() as u32], 1)
    }
}
