//! The update on a GPU: one pass over a store, bound by memory.

use super::Update;
use crate::Result;
use crate::ops::measure::{Header, LayerFigure, MeasureMemory};
use crate::ops::update::Optimizer;
use crate::shader::{Bind, GpuOperation, Operand, Recorder, Template};
use std::fmt::Write;
use std::ops::Range;

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Weights that one word of the mask of exempt weights speaks of.
const MASKED: usize = 32;

impl Update {
    /// The rule as text: `Rule`, `Moments`, and the functions `rule_of(rate, updates) -> Rule` and
    /// `apply_rule(rule, decays, w, g, &moments) -> w`, the moments in the order of
    /// [`Optimizer::slots`].
    pub(in crate::ops) fn wgsl_rule(&self) -> String {
        let text = |text: &str| {
            Template::new(&[include_str!("rule.wgsl"), text].concat()).float("RATE_FACTOR", self.rate_factor)
        };
        match self.optimizer {
            Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => text(include_str!("sgd.wgsl"))
                .float("DECAY", weight_decay)
                .float("MOMENTUM", momentum)
                .flag("NESTEROV", nesterov)
                .text(),
            Optimizer::Velocity { momentum } => {
                text(include_str!("velocity.wgsl")).float("MOMENTUM", momentum).text()
            }
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, .. }
            | Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                let decoupled = matches!(self.optimizer, Optimizer::AdamW { .. });
                text(include_str!("adam.wgsl"))
                    .float("LN_BETA1", libm::log(beta1))
                    .float("LN_BETA2", libm::log(beta2))
                    .float("MEAN_NEWS", 1.0 - beta1)
                    .float("BETA2", beta2)
                    .float("SQUARE_NEWS", 1.0 - beta2)
                    .float("EPSILON", epsilon)
                    .float("DECAY", if decoupled { 0.0 } else { weight_decay })
                    .float("DECOUPLED_DECAY", if decoupled { weight_decay } else { 0.0 })
                    .text()
            }
            Optimizer::RmsProp {
                alpha, epsilon, epsilon_in_root, momentum, centered, weight_decay, ..
            } => text(include_str!("rms_prop.wgsl"))
                .float("ALPHA", alpha)
                .float("NEWS", 1.0 - alpha)
                .float("EPSILON", if epsilon_in_root { 0.0 } else { epsilon })
                .float("ROOTED", if epsilon_in_root { epsilon } else { 0.0 })
                .float("DECAY", weight_decay)
                .float("MOMENTUM", momentum)
                .flag("HAS_MOMENTUM", momentum != 0.0)
                .flag("CENTERED", centered)
                .text(),
        }
    }

    /// One bit a weight, set where decay leaves it out; none where that makes no difference.
    pub(in crate::ops) fn exempt_mask(&self) -> Option<Vec<u32>> {
        let weight_decay = match self.optimizer {
            Optimizer::Velocity { .. } => 0.0,
            Optimizer::Sgd { weight_decay, .. }
            | Optimizer::Adam { weight_decay, .. }
            | Optimizer::AdamW { weight_decay, .. }
            | Optimizer::RmsProp { weight_decay, .. } => weight_decay,
        };
        if weight_decay == 0.0 || self.exempt.iter().all(Range::is_empty) {
            return None;
        }
        Some(self.mask_of(&self.exempt))
    }

    /// One bit a weight, set in these parts.
    pub(in crate::ops) fn mask_of(&self, parts: &[Range<usize>]) -> Vec<u32> {
        let mut mask = vec![0; self.len.div_ceil(MASKED)];
        for index in parts.iter().cloned().flatten().filter(|index| *index < self.len) {
            mask[index / MASKED] |= 1 << (index % MASKED);
        }
        mask
    }
}

/// What the measures' decision adds to the kernel.
#[derive(Default)]
struct Watch {
    memory: Option<Operand>,
    /// Of the master and of what else is copied.
    copies: Vec<Operand>,
    bindings: String,
    /// Goes back, copies, or leaves.
    decide: String,
    /// What the rate is multiplied by.
    rate: String,
}

impl Update {
    /// Binds the memory of the measures, and the copies, from this binding on.
    fn record_watch(&self, recorder: &Recorder<'_>, binding: usize) -> Result<Watch> {
        let Some(watched) = self.watched else { return Ok(Watch { rate: "1.0".into(), ..Watch::default() }) };
        let header = MeasureMemory::header;
        let mut watch = Watch {
            memory: Some(recorder.read(1)?),
            bindings: format!("@group(0) @binding({binding}) var<storage, read> measures: array<f32>;\n"),
            rate: format!("measures[{}]", header(Header::RateFactor)),
            ..Watch::default()
        };
        let moments = self.optimizer.slots().len();
        let (mut keep, mut restore) = (String::new(), String::new());
        if watched.keeps {
            let arrays = ["master", "moment_a", "moment_b", "moment_c"];
            let kept = std::iter::once(true).chain(Self::kept_moments(&self.optimizer));
            for (array, kept) in arrays.into_iter().zip(kept) {
                // Writing to a string cannot fail.
                if !kept {
                    let _ = writeln!(restore, "{array}[i] = vec4<f32>();");
                    continue;
                }
                let number = watch.copies.len();
                watch.copies.push(recorder.write(1 + moments + number)?);
                let _ = writeln!(
                    watch.bindings,
                    "@group(0) @binding({}) var<storage, read_write> copy_{number}: array<vec4<f32>>;",
                    binding + 1 + number
                );
                let _ = writeln!(keep, "copy_{number}[i] = {array}[i];");
                let _ = writeln!(restore, "{array}[i] = copy_{number}[i];");
            }
        }
        watch.decide = format!(
            "if measures[{action}] == 2.0 {{\n{restore}\nreturn;\n}}\nif measures[{action}] != 1.0 || control.applies == \
             0u {{ return; }}\n{keep}",
            action = header(Header::Action)
        );
        if let Some(layer) = watched.layer {
            let gate = watched.memory.figure(layer, LayerFigure::Gate);
            let _ = writeln!(watch.decide, "if measures[{gate}] < 0.0 {{ return; }}");
            let _ = write!(watch.rate, " * measures[{gate}]");
        }
        Ok(watch)
    }
}

impl GpuOperation for Update {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let gradient = recorder.read(0)?;
        let slots = self.optimizer.slots().len();
        let written: Vec<_> = (0..=slots).map(|slot| recorder.write(slot)).collect::<Result<_>>()?;
        let exempt = self.exempt_mask();
        let frozen = self.frozen.iter().any(|part| !part.is_empty()).then(|| self.mask_of(&self.frozen));
        // The names of the masks there are, with their words.
        let masks = [("exempt", exempt), ("frozen", frozen)];
        let masks: Vec<(&str, Operand)> = masks
            .into_iter()
            .filter_map(|(name, mask)| Some((name, mask?)))
            .map(|(name, mask)| Ok((name, recorder.table(&mask)?)))
            .collect::<Result<_>>()?;
        let (mut bindings, mut load, mut store) = (String::new(), String::new(), String::new());
        for (slot, name) in ["a", "b", "c"].into_iter().enumerate().take(slots) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                bindings,
                "@group(0) @binding({}) var<storage, read_write> moment_{name}: array<vec4<f32>>;",
                3 + slot
            );
            let _ = writeln!(load, "moments.{name} = moment_{name}[i];");
            let _ = writeln!(store, "moment_{name}[i] = moments.{name};");
        }
        for (number, (name, _)) in masks.iter().enumerate() {
            let _ = writeln!(
                bindings,
                "@group(0) @binding({}) var<storage, read> {name}: array<u32>;",
                3 + slots + number
            );
        }
        let has = |wanted: &str| masks.iter().any(|(name, _)| *name == wanted);
        // Four bits of a mask.
        let bits = |name: &str| {
            format!(
                "(vec4<u32>({name}[i / 8u]) >> (vec4<u32>(i % 8u * 4u) + vec4<u32>(0u, 1u, 2u, 3u)) & \
                 vec4<u32>(1u))"
            )
        };
        let exempt = match has("exempt") {
            true => format!("decays = {} == vec4<u32>();", bits("exempt")),
            false => String::new(),
        };
        if has("frozen") {
            // Everything is put back where the weight is frozen.
            let _ = writeln!(load, "let stays = {} != vec4<u32>();\nlet before = moments;", bits("frozen"));
            for name in ["a", "b", "c"].into_iter().take(slots).rev() {
                store = format!("moments.{name} = select(moments.{name}, before.{name}, stays);\n{store}");
            }
        }
        let frozen =
            if has("frozen") { "master[i] = select(made, master[i], stays);" } else { "master[i] = made;" };
        let watch = self.record_watch(recorder, 3 + slots + masks.len())?;
        bindings += &watch.bindings;
        let kernel = Template::new(include_str!("update.wgsl"))
            .constant("THREADS", THREADS)
            .section("BINDINGS", bindings)
            .section("RULE", self.wgsl_rule())
            .section("EXEMPT", exempt)
            .section("LOAD", load)
            .section("FREEZE", frozen)
            .section("STORE", store)
            .section("DECIDE", watch.decide)
            .section("BASE_RATE", self.rate.map_or("now.rate".into(), |rate| format!("{:?}f", rate as f32)))
            .section("RATE", watch.rate)
            .constant("UPDATE", self.repeat[0])
            .constant("UPDATES", self.repeat[1])
            .kernel(format!("update.{}", self.optimizer.name()));
        // The mask of a part starts at whole units too.
        for part in recorder.parts(self.len, 64 * MASKED)? {
            let (first, count) = (part.start, part.len());
            let mut operands =
                vec![Bind::Read(recorder.control()), Bind::Read(gradient.slice(first, count)?)];
            for operand in &written {
                operands.push(Bind::Write(operand.slice(first, count)?));
            }
            for (_, mask) in &masks {
                operands.push(Bind::Read(mask.slice(first / MASKED, count.div_ceil(MASKED))?));
            }
            if let Some(memory) = &watch.memory {
                operands.push(Bind::Read(memory.clone()));
            }
            for copy in &watch.copies {
                operands.push(Bind::Write(copy.slice(first, count)?));
            }
            let units = count.div_ceil(4);
            recorder.dispatch(&kernel, &operands, &[units as u32], units.div_ceil(THREADS))?;
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::tests::{golden, gradient, initial, update, with_moments};
    use super::*;
    use crate::gpu::testing::{check, compare, gpu, run_after, run_within};
    use crate::ops::Op;
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::simd::Cpu;

    /// A store in the middle of training, whose squares are not less than their means allow: where
    /// gradient and decay cancel and all before were zeros, one rounding is the whole step.
    fn setting(op: &Update, step: u64) -> Setting<f32> {
        let positive = |seed| numbers::<f32>(seed, op.len).into_iter().map(|x| x * x + 0.05).collect();
        let mut setting = Setting::new(1, &[&gradient(op.len, 3)], &[]);
        setting.writes = vec![Data::Real(initial(op.len))];
        for name in op.optimizer.slots() {
            let moment: Vec<f32> = match *name {
                "square" => positive(0),
                // Below the root of the square in the same place.
                _ => numbers(0, op.len),
            };
            setting.writes.push(Data::Real(moment));
        }
        (setting.values.rate, setting.values.optimizer_step) = (0.01, step);
        setting
    }

    #[test]
    fn every_rule_and_option() {
        for case in golden().cases {
            for (len, step) in [(1, 1), (37, 4), (2050, 1000)] {
                let op = Update { rate_factor: 0.5, ..update(&case.optimizer, len) };
                check(op.clone(), &setting(&op, step));
                let exempt = vec![0..1, 3..30, 32..33];
                let op = Update { exempt, ..op };
                check(op.clone(), &setting(&op, step));
                let op = Update { frozen: vec![2..5, 31..36], ..op };
                check(op.clone(), &setting(&op, step));
            }
        }
    }

    /// From nothing on, for so long that errors would add up.
    #[test]
    fn many_steps_stay_together() {
        let Some(gpu) = gpu() else { return };
        for optimizer in (0..4).map(with_moments) {
            let op = update(&optimizer, 70);
            let name: Op = op.clone().into();
            let mut here = setting(&op, 1);
            here.writes = vec![Data::Real(initial(op.len))];
            here.writes.resize(1 + optimizer.slots().len(), Data::Real(vec![0.0; op.len]));
            let mut there = here.clone();
            for step in 0..50 {
                for setting in [&mut here, &mut there] {
                    setting.reads = vec![Data::Real(gradient(op.len, step))];
                    setting.values.optimizer_step = step as u64 + 1;
                }
                here.writes = here.run_on(&op, Cpu::global().unwrap()).unwrap();
                there.writes = crate::gpu::testing::run(&gpu, &name, &there, None).unwrap();
            }
            let errors = here.writes[0].real().iter().zip(there.writes[0].real()).map(|(x, y)| (x - y).abs());
            assert!(errors.fold(0.0, f32::max) < 2e-5, "{optimizer:?}");
        }
    }

    #[test]
    fn a_store_larger_than_a_binding_is_updated_in_parts() {
        let Some(gpu) = gpu() else { return };
        for moments in 0..4 {
            let op = Update {
                exempt: vec![100..200, 2040..2060, 9000..9001],
                frozen: vec![150..300, 5000..5001],
                ..update(&with_moments(moments), 10_003)
            };
            let name: Op = op.clone().into();
            let setting = setting(&op, 2);
            let whole = crate::gpu::testing::run(&gpu, &name, &setting, None).unwrap();
            assert_eq!(run_within(&gpu, &name, &setting, 16_384 + 100).unwrap(), whole);
            assert!(run_within(&gpu, &name, &setting, 256).is_err());
        }
    }

    #[test]
    fn the_verdict_counts() {
        let Some(gpu) = gpu() else { return };
        let op = update(&Optimizer::default(), 100);
        let name: Op = op.clone().into();
        let setting = setting(&op, 9);
        assert_eq!(run_after(&gpu, &name, &setting, [0, 1, 0, 0]).unwrap(), setting.writes);
        let found = run_after(&gpu, &name, &setting, [1, 6, 0, 0]).unwrap();
        let mut earlier = setting;
        earlier.values.optimizer_step = 3;
        compare(&name, &earlier.run_on(&op, Cpu::global().unwrap()).unwrap(), &found);
    }

    #[test]
    fn moments_that_fade_away_end_at_zero() {
        let Some(gpu) = gpu() else { return };
        for optimizer in (1..4).map(with_moments) {
            let op = update(&optimizer, 4);
            let mut setting = setting(&op, 3);
            setting.reads = vec![Data::Real(vec![0.0; 4])];
            for moment in &mut setting.writes[1..] {
                *moment = Data::Real(vec![1.2e-38, -1.2e-38, 1e-40, 0.0]);
            }
            for moment in &crate::gpu::testing::run(&gpu, &op.clone().into(), &setting, None).unwrap()[1..] {
                assert!(moment.real().iter().all(|x| *x == 0.0 || x.is_normal()), "{optimizer:?} {moment:?}");
            }
        }
    }
}
