//! The measures on a GPU: a dispatch a value, then one that collects, then one that judges.

use super::{
    Collect, Entry, ExplosionRule, GapMetric, Header, Judge, LayerFigure, LinkBudget, Measure, MeasureMemory,
    Measured,
};
use crate::Result;
use crate::ops::segment;
use crate::shader::{GpuOperation, OFFSET_ELEMENTS, Recorder, Shader, THREADS};

/// Units of four elements that one thread takes before there is another workgroup.
const SHARE: usize = 2;

impl GpuOperation for Measure {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (a, result) = (recorder.read(0)?, recorder.write(0)?);
        let other = match self.what {
            Measured::Norm => None,
            Measured::Target | Measured::Gradient(_) => Some(recorder.read(1)?),
        };
        let mask = match self.of_steps {
            Some(_) => Some(recorder.read(1 + usize::from(other.is_some()))?),
            None => None,
        };
        let mut parts = recorder.parts(a.elements, OFFSET_ELEMENTS)?;
        if parts.is_empty() {
            parts.push(0..0);
        }
        for part in parts {
            let workgroups = part.len().div_ceil(4 * THREADS * SHARE).clamp(1, THREADS);
            let shares = recorder.table(&vec![0; 1 + Measure::SUMS * workgroups])?;
            let target = match self.what {
                Measured::Norm => "vec4<f32>()".to_string(),
                Measured::Target => "other[i]".to_string(),
                Measured::Gradient(term) => format!("fma(vec4<f32>({}), other[i], a)", term.wgsl()),
            };
            let scaled = target.contains("control.");
            let mut shader = Shader::new("measure", include_str!("measure.wgsl"))
                .section("TARGET", target)
                .section(
                    "COUNTS",
                    if mask.is_some() { "mask[at / constants.of_step] != 0.0" } else { "true" },
                )
                .section("PLACE", if mask.is_some() { "let at = constants.first + number;" } else { "" })
                .flag("CONTINUES", part.start > 0)
                .flag("ALONE", other.is_none())
                .flag("MASKED", mask.is_some())
                .section("JOIN", segment::join("join", "vec4<f32>", THREADS, "a + b"))
                .read("value", "vec4<f32>", a.slice(part.start, part.len())?)
                // How many workgroups are done, and 0 again in the end; then their sums' bits.
                .write("shares", "atomic<u32>", shares)
                .write("result", "f32", result.clone());
            if let Some(other) = &other {
                shader = shader.read("other", "vec4<f32>", other.slice(part.start, part.len())?);
            }
            if let (Some(mask), Some(of_step)) = (&mask, self.of_steps) {
                shader = shader
                    .read("mask", "f32", mask.clone())
                    .number("first", part.start)
                    .number("of_step", of_step.max(1));
            }
            shader
                .when(scaled, |shader| shader.control(recorder))
                .number("elements", part.len())
                // No more than there are threads in one.
                .number("workgroups", workgroups)
                .groups(recorder, workgroups)?;
        }
        Ok(())
    }
}

/// Adds the sums that the step reads from operand `first` on, and the cases in which a thread finds its number
/// among them.
fn with_sums(
    mut shader: Shader,
    recorder: &Recorder<'_>,
    memory: MeasureMemory,
    entries: &[Entry],
    first: usize,
) -> Result<Shader> {
    let mut cases = String::new();
    for (number, entry) in entries.iter().enumerate() {
        shader = shader.read(&format!("sums{number}"), "f32", recorder.read(first + number)?);
        cases += &format!(
            "case {number}u: {{ value = sums{number}[min(part, {last}u)]; place = {place}u; }}\n",
            last = Measure::SUMS - 1,
            place = memory.entry(*entry),
        );
    }
    Ok(shader.section("CASES", cases))
}

impl GpuOperation for Collect {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let shader = Shader::new("collect", include_str!("collect.wgsl"))
            .threads(64)
            .constant("SUMS", Measure::SUMS)
            .write("memory", "f32", recorder.write(0)?)
            .number("accumulate", recorder.accumulate());
        with_sums(shader, recorder, self.memory, &self.entries, 0)?.groups(recorder, 1)
    }
}

impl GpuOperation for Judge {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let norms: Vec<u32> = self.norms.iter().flatten().map(|norm| *norm as u32).collect();
        let forward = !norms.is_empty();
        let norms = recorder.table(if forward { &norms } else { &[0] })?;
        let rule = self.explosion;
        let ExplosionRule { gap_threshold, explosion_limit, recovery_rate } = rule.unwrap_or_default();
        let header = |what| MeasureMemory::header(what);
        let mut shader = Shader::new("judge", include_str!("judge.wgsl"))
            .read("losses", "f32", recorder.read(0)?)
            .write("memory", "f32", recorder.write(0)?)
            // Where the squared norms of each layer's input and output are.
            .read("norms", "vec2<u32>", norms)
            .number("rows", recorder.rows())
            .constant("LAYERS", self.memory.layers)
            .constant("ROWS", self.memory.rows())
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
            .section("NORM_IS_FINITE", if self.has_norm { "is_finite(norm[0])" } else { "true" });
        if self.has_norm {
            shader = shader.read("norm", "f32", recorder.read(1)?);
        }
        let first = 1 + usize::from(self.has_norm);
        with_sums(shader, recorder, self.memory, &self.entries, first)?.groups(recorder, 1)
    }
}
