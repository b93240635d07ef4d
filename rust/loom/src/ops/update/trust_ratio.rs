//! What each parameter's rate is multiplied by under a rule that goes by norms.

use super::Update;
use super::table::{MOMENTS, Rule, RuleVisitor, SCALARS};
use crate::Result;
use crate::ops::element_loops::{first, load};
use crate::ops::segment;
use crate::ops::update::gpu::MOMENT_NAMES;
use crate::ops::{Args, Operation};
use crate::shader::{GpuOperation, OFFSET_ELEMENTS, Operand, Recorder, Shader, THREADS};
use crate::simd::{Kernel, LANES, Real, Vector, array_of};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements whose squares are summed before they join the total.
const CHUNK: usize = 4096;
/// Units of four elements that one thread of a device looks at before there is another workgroup.
const SHARE: usize = 4;

/// The norm of each parameter over that of the directions it is about to take: reads the store's gradient,
/// master and moments, writes one number a parameter (parameters,): 1 where one of the two is nothing, or the
/// parameter is frozen.
///
/// Chunks of 4,096 elements of each parameter by the 16-lane rule, chunk totals in order in `f64`.
#[derive(Clone, Debug)]
pub struct TrustRatio {
    /// What is about to be done with the store.
    pub update: Box<Update>,
    /// Where each parameter stands in the flat master.
    pub parts: Vec<Range<usize>>,
}

impl TrustRatio {
    /// Whether the parameter that starts here is of these parts.
    fn is_in(parts: &[Range<usize>], start: usize) -> bool {
        parts.iter().any(|part| part.contains(&start))
    }
}

impl fmt::Display for TrustRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trust_ratio.{} {}", self.update.optimizer.name(), self.update.len)
    }
}

/// A chunk's sums of squares: of weights, of directions.
struct Squares<'a, T> {
    update: &'a Update,
    scalars: [T; SCALARS],
    w: &'a [T],
    g: &'a [T],
    moments: [&'a [T]; MOMENTS],
}

impl<T: Real> Kernel<T> for Squares<'_, T> {
    type Output = [T; 2];

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> [T; 2] {
        self.update.optimizer.visit(Sums::<V> { squares: &self, vector: PhantomData })
    }
}

struct Sums<'a, 'b, V: Vector> {
    squares: &'b Squares<'a, V::Element>,
    vector: PhantomData<V>,
}

/// A vector's elements of what may be absent, as a rule's further moments are: zeros then. A function, since a closure that
/// is called at several places is compiled for no instruction set.
#[inline(always)]
fn part<V: Vector>(of: &[V::Element], start: usize, end: usize) -> V {
    match of.get(start..end) {
        Some(part) => load(part),
        None => V::splat(V::Element::ZERO),
    }
}

impl<V: Vector> RuleVisitor for Sums<'_, '_, V> {
    type Output = [V::Element; 2];

    #[inline(always)]
    fn visit<R: Rule>(self, rule: R) -> [V::Element; 2] {
        let Squares { scalars, w, g, moments, .. } = *self.squares;
        let scalars = array_of(|i| V::splat(scalars[i]));
        let zero = V::splat(V::Element::ZERO);
        let (mut weights, mut directions) = (zero, zero);
        for start in (0..w.len()).step_by(LANES) {
            let end = w.len().min(start + LANES);
            let x = part::<V>(w, start, end);
            let mut at = [zero; MOMENTS];
            for (at, moment) in at.iter_mut().zip(moments) {
                *at = part(moment, start, end);
            }
            let direction = rule.direction(scalars, x, part(g, start, end), at);
            let mut squares = [x * x, direction * direction];
            if end - start < LANES {
                for square in &mut squares {
                    *square = first(end - start, *square);
                }
            }
            weights = weights + squares[0];
            directions = directions + squares[1];
        }
        [weights.reduce_sum(), directions.reduce_sum()]
    }
}

impl Operation for TrustRatio {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let update = &*self.update;
        let (g, w) = (args.read::<T>(0), args.read::<T>(1));
        let slots = update.optimizer.slots().len();
        let moments: [&[T]; MOMENTS] =
            std::array::from_fn(|slot| if slot < slots { args.read::<T>(2 + slot) } else { &[] });
        let (cpu, values) = (args.cpu, args.values);
        let ratios = args.write::<T>(0);
        for (ratio, part) in ratios.iter_mut().zip(&self.parts) {
            *ratio = T::ONE;
            if Self::is_in(&update.frozen, part.start) {
                continue;
            }
            let scalars = update.scalars::<T>(1.0, values, !Self::is_in(&update.exempt, part.start));
            let mut sums = vec![[T::ZERO; 2]; part.len().div_ceil(CHUNK)];
            cpu.pool().for_each_chunk(&mut sums, 1, |chunk, sum| {
                let start = part.start + chunk * CHUNK;
                let range = start..part.end.min(start + CHUNK);
                let squares = Squares {
                    update,
                    scalars,
                    w: &w[range.clone()],
                    g: &g[range.clone()],
                    moments: moments.map(|moment| moment.get(range.clone()).unwrap_or_default()),
                };
                sum[0] = T::dispatch(cpu.isa(), squares);
            });
            let total = |of: usize| sums.iter().map(|sum| sum[of].to_f64()).sum::<f64>().sqrt();
            let (weights, directions) = (total(0), total(1));
            if weights > 0.0 && directions > 0.0 {
                *ratio = T::from_f64(weights / directions);
            }
        }
        Ok(())
    }
}

impl GpuOperation for TrustRatio {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let update = &*self.update;
        let slots = &MOMENT_NAMES[..update.optimizer.slots().len()];
        let read: Vec<Operand> =
            (0..2 + slots.len()).map(|number| recorder.read(number)).collect::<Result<_>>()?;
        // Where the sums of each parameter's workgroups start, and its dispatches.
        let (mut starts, mut dispatches, mut workgroups) = (vec![0u32], Vec::new(), 0usize);
        for part in &self.parts {
            if !Self::is_in(&update.frozen, part.start) {
                for piece in recorder.parts(part.len(), OFFSET_ELEMENTS)? {
                    let count = piece.len().div_ceil(4 * THREADS * SHARE).clamp(1, THREADS);
                    dispatches.push((part.start, piece, workgroups, count));
                    workgroups += count;
                }
            }
            starts.push(workgroups as u32);
        }
        let squares = recorder.table(&vec![0; 2 * workgroups.max(1)])?;
        let values = |names: &str| -> String {
            let of = |lane: &str| {
                let moments: String = ["a", "b", "c"].map(|name| format!(", {name}.{lane}")).concat();
                format!("direction_of(scalars, w.{lane}, g.{lane}{moments})")
            };
            names.chars().map(|lane| of(&lane.to_string())).collect::<Vec<_>>().join(", ")
        };
        let load: String = MOMENT_NAMES
            .iter()
            .map(|name| match slots.contains(name) {
                true => format!("let {name} = moment_{name}[i];\n"),
                false => format!("let {name} = vec4<f32>();\n"),
            })
            .collect();
        for (start, piece, first, count) in dispatches {
            let of = |operand: &Operand| operand.slice(start + piece.start, piece.len());
            let mut shader = Shader::new(
                format!("trust_ratio.{}", update.optimizer.name()),
                include_str!("trust_ratio.wgsl"),
            )
            .section("RULE", update.wgsl_rule())
            .section("JOIN", segment::join("join", "vec2<f32>", THREADS, "a + b"))
            .section("LOAD", &load)
            .section("DIRECTIONS", values("xyzw"))
            .constant("UPDATE", update.repeat[0])
            .constant("UPDATES", update.repeat[1])
            .flag("DECAYS", !Self::is_in(&update.exempt, start))
            .control(recorder)
            .read("gradient", "vec4<f32>", of(&read[0])?)
            .read("master", "vec4<f32>", of(&read[1])?)
            .write("squares", "vec2<f32>", squares.clone())
            .number("elements", piece.len())
            .number("first", first)
            .number("workgroups", count);
            for (name, moment) in slots.iter().zip(&read[2..]) {
                shader = shader.read(&format!("moment_{name}"), "vec4<f32>", of(moment)?);
            }
            shader.groups(recorder, count)?;
        }
        Shader::new("trust_ratios", include_str!("trust_ratios.wgsl"))
            .read("starts", "u32", recorder.table(&starts)?)
            .read("squares", "vec2<f32>", squares)
            .write("ratios", "f32", recorder.write(0)?)
            .number("parameters", self.parts.len())
            .elements(recorder, self.parts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Optimizer;
    use super::super::tests::update;
    use super::*;
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::simd::{Cpu, Isa};

    /// Parameters of several lengths with room between them, of which one is all zeros, one is frozen and one
    /// does not decay.
    fn case(moment: f32) -> (TrustRatio, Setting<f32>) {
        let parts = vec![0..5, 64..9064, 9088..9089, 9152..9160, 9216..9250];
        let len = 9280;
        let optimizer: Optimizer =
            serde_json::from_str(r#"{"type": "lamb", "weight_decay": 0.3}"#).expect("a rule");
        let update = Update {
            offsets: parts.iter().map(|part| part.start).collect(),
            exempt: std::iter::once(9216..9250).collect(),
            frozen: std::iter::once(9088..9089).collect(),
            ..update(&optimizer, len)
        };
        let positive: Vec<f32> = numbers::<f32>(4, len).iter().map(|x| moment * (x * x + 0.05)).collect();
        let mut master: Vec<f32> = numbers(2, len);
        master[9152..9160].fill(0.0);
        // Nobody's numbers count for nobody.
        master[9270] = f32::NAN;
        let mean: Vec<f32> = numbers::<f32>(3, len).iter().map(|x| moment * x).collect();
        let reads = [numbers(1, len), master, mean, positive];
        let reads: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
        let mut setting = Setting::new(1, &reads, &[parts.len()]);
        setting.values.optimizer_step = 7;
        (TrustRatio { update: Box::new(update), parts }, setting)
    }

    /// The plain loop in f64.
    fn plain(op: &TrustRatio, setting: &Setting<f32>) -> Vec<f64> {
        let at = |operand: usize, place: usize| f64::from(setting.reads[operand].real()[place]);
        let n = setting.values.optimizer_step as f64;
        op.parts
            .iter()
            .map(|part| {
                let decay = if part.start == 9216 { 0.0 } else { 0.3 };
                let direction = |i: usize| {
                    let g = at(0, i);
                    let mean = (0.9 * at(2, i) + 0.1 * g) / (1.0 - 0.9f64.powf(n));
                    let square = (0.999 * at(3, i) + 0.001 * g * g) / (1.0 - 0.999f64.powf(n));
                    mean / (square.sqrt() + 1e-6) + decay * at(1, i)
                };
                let norm = |f: &dyn Fn(usize) -> f64| part.clone().map(|i| f(i) * f(i)).sum::<f64>().sqrt();
                let (weights, directions) = (norm(&|i| at(1, i)), norm(&direction));
                if weights == 0.0 || part.start == 9088 { 1.0 } else { weights / directions }
            })
            .collect()
    }

    #[test]
    fn norms_of_parameters_over_those_of_their_directions() -> crate::Result<()> {
        for moment in [1.0, 0.0] {
            let (op, setting) = case(moment);
            let reference = setting.run_on(&op, &Cpu::with_threads(Isa::portable(), 1)?)?;
            for (found, expected) in reference[0].real().iter().zip(plain(&op, &setting)) {
                assert!((f64::from(*found) / expected - 1.0).abs() < 2e-6, "{found}, not {expected}");
            }
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let found = setting.run_on(&op, &Cpu::with_threads(isa, threads)?)?;
                    assert!(found == reference, "{isa}, {threads} threads");
                }
            }
        }
        Ok(())
    }

    /// Whatever is infinite must show in the update that follows.
    #[test]
    fn what_is_not_finite_is_not_hidden() -> crate::Result<()> {
        let (op, mut setting) = case(1.0);
        if let Data::Real(gradient) = &mut setting.reads[0] {
            gradient[70] = f32::NAN;
        }
        let found = setting.run_on(&op, Cpu::global()?)?;
        assert_eq!(found[0].real()[1].to_bits(), 1.0f32.to_bits());
        Ok(())
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn devices_agree() {
        for moment in [1.0, 0.0] {
            let (op, setting) = case(moment);
            crate::gpu::testing::check(op.clone(), &setting);
            let Some(gpu) = crate::gpu::testing::gpu() else { return };
            let there = crate::gpu::testing::run_within(&gpu, &op.clone().into(), &setting, 1024).unwrap();
            let here = setting.run_on(&op, Cpu::global().unwrap()).unwrap();
            crate::gpu::testing::compare(&op.into(), &here, &there);
        }
    }
}
