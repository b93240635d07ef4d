//! The update on a GPU: one pass over a store, bound by memory.

use super::Update;
use super::table::{MOMENTS, Rule, RuleVisitor, Step};
use crate::Result;
use crate::ops::measure::{Header, LayerFigure, MeasureMemory};
use crate::ops::pointwise::Arithmetic;
use crate::ops::pointwise::wgsl::{self, Formula};
use crate::shader::{Bind, GpuOperation, Operand, Recorder, Shader, Template};
use std::ops::Range;

/// Weights that one word of a mask speaks of.
const MASKED: usize = 32;
/// What the text calls moments, in the order of the optimizer's slots.
pub(in crate::ops) const MOMENT_NAMES: [&str; MOMENTS] = ["a", "b", "c"];

impl Update {
    /// The rule as text: `Rule`, `Moments`, and the functions `rule_of(rate, updates) -> Rule` and
    /// `apply_rule(rule, decays, w, g, &moments) -> w`, the moments in the order of
    /// [`Optimizer::slots`].
    pub(in crate::ops) fn wgsl_rule(&self) -> String {
        let text = Template::new(include_str!("rule.wgsl"))
            .float("RATE_FACTOR", self.rate_factor)
            .float("DECAY", self.optimizer.weight_decay())
            .section("FUNCTIONS", self.optimizer.visit(Text))
            .text();
        wgsl::with_prelude(text)
    }

    /// One bit a weight, set where decay leaves it out; none where that makes no difference.
    fn exempt_mask(&self) -> Option<Vec<u32>> {
        if self.optimizer.weight_decay() == 0.0 || self.exempt.iter().all(Range::is_empty) {
            return None;
        }
        Some(self.mask_of(&self.exempt))
    }

    /// One bit a weight, set in these parts.
    fn mask_of(&self, parts: &[Range<usize>]) -> Vec<u32> {
        let mut mask = vec![0; self.len.div_ceil(MASKED)];
        for index in parts.iter().cloned().flatten().filter(|index| *index < self.len) {
            mask[index / MASKED] |= 1 << (index % MASKED);
        }
        mask
    }
}

/// The functions `scalars_of` and `update_of` of `rule.wgsl`.
struct Text;

impl RuleVisitor for Text {
    type Output = String;

    fn visit<R: Rule>(self, rule: R) -> String {
        let formula = Formula::default();
        let updates = formula.argument("updates");
        let seen = |beta| -updates.times(libm::log(beta)).call("precise_exp_m1");
        let [rate, decay] = ["rate", "decay"].map(|name| formula.argument(name));
        let step = Step { rate, decay, seen: &seen, number: updates };
        let (body, scalars) = formula.render(&rule.scalars(&step));
        let scalars_of = format!(
            "fn scalars_of(rate: f32, decay: f32, updates: f32) -> Scalars {{\n{body}    return Scalars({});\n}}\n",
            scalars.join(", ")
        );
        let formula = Formula::default();
        let [w, g] = ["w", "g"].map(|name| formula.argument(name));
        let scalars = ["scalars.a", "scalars.b", "scalars.c", "scalars.d"].map(|name| formula.argument(name));
        let (w, moments) = rule.update(scalars, w, g, MOMENT_NAMES.map(|name| formula.argument(name)));
        let [a, b, c] = moments;
        let (body, made) = formula.render(&[w, a, b, c]);
        let direction_of = if R::BY_NORMS { direction_text(rule) } else { String::new() };
        scalars_of
            + &direction_of
            + &format!(
                "fn update_of(scalars: Scalars, w: f32, g: f32, a: f32, b: f32, c: f32) -> Made {{\n{body}    return \
                 Made({});\n}}\n",
                made.join(", ")
            )
    }
}

/// The function `direction_of`, whose arguments are those of `update_of`.
fn direction_text<R: Rule>(rule: R) -> String {
    let formula = Formula::default();
    let [w, g] = ["w", "g"].map(|name| formula.argument(name));
    let scalars = ["scalars.a", "scalars.b", "scalars.c", "scalars.d"].map(|name| formula.argument(name));
    let direction = rule.direction(scalars, w, g, MOMENT_NAMES.map(|name| formula.argument(name)));
    let (body, made) = formula.render(&[direction]);
    format!(
        "fn direction_of(scalars: Scalars, w: f32, g: f32, a: f32, b: f32, c: f32) -> f32 {{\n{body}    return {};\n}}\n",
        made[0]
    )
}

/// What the measures' decision adds to the kernel.
#[derive(Default)]
struct Watch {
    memory: Option<Operand>,
    /// Of the master and of what else is copied.
    copies: Vec<Operand>,
    /// Goes back, copies, or leaves.
    decide: String,
    /// What the rate is multiplied by.
    rate: String,
}

impl Update {
    /// What is bound, and done, where the measures decide.
    fn watch(&self, recorder: &Recorder<'_>) -> Result<Watch> {
        let Some(watched) = self.watched else { return Ok(Watch { rate: "1.0".into(), ..Watch::default() }) };
        let header = MeasureMemory::header;
        let mut watch = Watch {
            memory: Some(recorder.read(self.memory_operand())?),
            rate: format!("measures[{}]", header(Header::RateFactor)),
            ..Watch::default()
        };
        let moments = self.optimizer.slots().len();
        let (mut keep, mut restore) = (String::new(), String::new());
        if watched.keeps {
            let arrays = ["master", "moment_a", "moment_b", "moment_c"];
            let kept = std::iter::once(true).chain(Self::kept_moments(&self.optimizer));
            for (array, kept) in arrays.into_iter().zip(kept) {
                if !kept {
                    restore += &format!("{array}[i] = vec4<f32>();\n");
                    continue;
                }
                let number = watch.copies.len();
                watch.copies.push(recorder.write(1 + moments + number)?);
                keep += &format!("copy_{number}[i] = {array}[i];\n");
                restore += &format!("{array}[i] = copy_{number}[i];\n");
            }
        }
        watch.decide = format!(
            "if measures[{action}] == 2.0 {{\n{restore}\nreturn;\n}}\nif measures[{action}] != 1.0 || control.applies == \
             0u {{ return; }}\n{keep}",
            action = header(Header::Action)
        );
        if let Some(layer) = watched.layer {
            let gate = watched.memory.figure(layer, LayerFigure::Gate);
            watch.decide += &format!("if measures[{gate}] < 0.0 {{ return; }}\n");
            watch.rate += &format!(" * measures[{gate}]");
        }
        Ok(watch)
    }
}

/// The kernel of an update, made or only looked at, with what both have in common filled in.
pub(in crate::ops) struct StoreKernel {
    pub(in crate::ops) shader: Shader,
    /// Whether the master and the moments are written.
    bind: fn(Operand) -> Bind,
    masks: Vec<(&'static str, Operand)>,
    /// Where parameters start, and what their rates are multiplied by, where the rule goes by norms.
    ratios: Option<[Operand; 2]>,
    /// The moments as they are to become, where that is known already.
    made: Vec<Operand>,
}

impl StoreKernel {
    /// The kernel of this update, which binds the master and the moments by `bind`.
    pub(in crate::ops) fn new(
        label: &str,
        update: &Update,
        recorder: &mut Recorder<'_>,
        bind: fn(Operand) -> Bind,
    ) -> Result<Self> {
        let frozen =
            update.frozen.iter().any(|part| !part.is_empty()).then(|| update.mask_of(&update.frozen));
        let masks = [("exempt", update.exempt_mask()), ("frozen", frozen)];
        let masks: Vec<(&str, Operand)> = masks
            .into_iter()
            .filter_map(|(name, mask)| Some((name, mask?)))
            .map(|(name, mask)| Ok((name, recorder.table(&mask)?)))
            .collect::<Result<_>>()?;
        let slots = &MOMENT_NAMES[..update.optimizer.slots().len()];
        let beside = update.optimizer.is_made_beside();
        let made = match beside {
            true => (0..slots.len()).map(|slot| recorder.read(1 + slot)).collect::<Result<_>>()?,
            false => Vec::new(),
        };
        let held = if beside { "made" } else { "moment" };
        let load: String = slots.iter().map(|name| format!("moments.{name} = {held}_{name}[i];\n")).collect();
        let shader = Shader::new(format!("{label}.{}", update.optimizer.name()), include_str!("update.wgsl"))
            .section("RULE", update.wgsl_rule())
            .section("LOAD", load)
            .section("BASE_RATE", update.rate.map_or("now.rate".into(), |rate| format!("{:?}f", rate as f32)))
            .constant("UPDATE", update.repeat[0])
            .constant("UPDATES", update.repeat[1]);
        let ratios = match update.optimizer.goes_by_norms() {
            true => {
                let starts: Vec<u32> = update.offsets.iter().map(|offset| *offset as u32).collect();
                Some([recorder.table(&starts)?, recorder.read(1)?])
            }
            false => None,
        };
        let shader = match &ratios {
            Some(_) => shader
                .section("RATIOS", include_str!("ratio_of.wgsl"))
                .section("RATIO", " * ratio_of(constants.start + 4u * i)")
                .constant("STARTS", update.offsets.len()),
            None => shader.section("RATIOS", "").section("RATIO", ""),
        };
        let mut kernel = Self { shader, bind, masks, ratios, made };
        let exempt =
            kernel.mask("exempt").map_or(String::new(), |bits| format!("decays = {bits} == vec4<u32>();"));
        kernel.shader = kernel.shader.section("EXEMPT", exempt);
        Ok(kernel)
    }

    /// The four bits of a mask that thread i needs, where there is such a mask.
    pub(in crate::ops) fn mask(&self, wanted: &str) -> Option<String> {
        let (name, _) = self.masks.iter().find(|(name, _)| *name == wanted)?;
        Some(format!(
            "(vec4<u32>({name}[i / 8u]) >> (vec4<u32>(i % 8u * 4u) + vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u))"
        ))
    }

    /// Runs over the store in parts, with its gradient, and its master and moments in `stored`; `declare` adds
    /// what else there is for a part.
    pub(in crate::ops) fn dispatch(
        self,
        recorder: &mut Recorder<'_>,
        update: &Update,
        gradient: &Operand,
        stored: &[Operand],
        declare: impl Fn(Shader, Range<usize>) -> Result<Shader>,
    ) -> Result<()> {
        let names = ["master", "moment_a", "moment_b", "moment_c"];
        // The mask of a part starts at whole units too.
        for part in recorder.parts(update.len, 64 * MASKED)? {
            let (first, count) = (part.start, part.len());
            let gradient = gradient.slice(first, count)?;
            let mut shader = self.shader.clone().control(recorder).read("gradient", "vec4<f32>", gradient);
            for (name, operand) in names.into_iter().zip(stored) {
                shader = shader.bind(name, "array<vec4<f32>>", (self.bind)(operand.slice(first, count)?));
            }
            for (name, made) in MOMENT_NAMES.into_iter().zip(&self.made) {
                shader = shader.read(&format!("made_{name}"), "vec4<f32>", made.slice(first, count)?);
            }
            if let Some([starts, ratios]) = &self.ratios {
                shader = shader.read("starts", "u32", starts.clone()).read("ratios", "f32", ratios.clone());
                shader = shader.number("start", first);
            }
            for (name, mask) in &self.masks {
                shader = shader.read(name, "u32", mask.slice(first / MASKED, count.div_ceil(MASKED))?);
            }
            let units = count.div_ceil(4);
            declare(shader.number("units", units), part)?.elements(recorder, units)?;
        }
        Ok(())
    }
}

impl GpuOperation for Update {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let gradient = recorder.read(0)?;
        let slots = self.optimizer.slots().len();
        let written: Vec<_> = (0..=slots).map(|slot| recorder.write(slot)).collect::<Result<_>>()?;
        let mut kernel = StoreKernel::new("update", self, recorder, Bind::Write)?;
        let (mut load, mut finish) = (String::new(), String::from("master[i] = made;"));
        for name in &MOMENT_NAMES[..slots] {
            finish += &format!("\nmoment_{name}[i] = moments.{name};");
        }
        if let Some(frozen) = kernel.mask("frozen") {
            // Everything is put back where the weight is frozen.
            load = format!("let stays = {frozen} != vec4<u32>();\nvar before = moments;");
            if self.optimizer.is_made_beside() {
                for name in &MOMENT_NAMES[..slots] {
                    load += &format!("\nbefore.{name} = moment_{name}[i];");
                }
            }
            finish = "master[i] = select(made, master[i], stays);".into();
            for name in &MOMENT_NAMES[..slots] {
                finish += &format!("\nmoment_{name}[i] = select(moments.{name}, before.{name}, stays);");
            }
        }
        let watch = self.watch(recorder)?;
        kernel.shader = kernel
            .shader
            .section("FUNCTIONS", "")
            .section("BEFORE", load)
            .section("FINISH", finish)
            .section("DECIDE", format!("{}\nif control.applies == 0u {{ return; }}", watch.decide))
            .section("RATE", &watch.rate);
        kernel.dispatch(recorder, self, &gradient, &written, |mut shader, part| {
            if let Some(memory) = &watch.memory {
                shader = shader.read("measures", "f32", memory.clone());
            }
            for (number, copy) in watch.copies.iter().enumerate() {
                let copy = copy.slice(part.start, part.len())?;
                shader = shader.write(&format!("copy_{number}"), "vec4<f32>", copy);
            }
            Ok(shader)
        })
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::Optimizer;
    use super::super::tests::{beside, gradient, initial, rules, update, with_moments};
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
                "square" | "largest" | "change" => positive(0),
                // Below the root of the square in the same place.
                _ => numbers(0, op.len),
            };
            setting.writes.push(Data::Real(moment));
        }
        (setting.values.rate, setting.values.optimizer_step) = (0.01, step);
        setting.reads.extend(beside(op, &setting));
        setting
    }

    #[test]
    fn every_rule_and_option() {
        for optimizer in rules() {
            for (len, step) in [(1, 1), (37, 4), (2050, 1000)] {
                let op = Update { rate_factor: 0.5, ..update(&optimizer, len) };
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
