//! Losses on a GPU: one dispatch, the threads of a row side by side.

use super::table::{ElementFunction, ElementVisitor};
use super::{Loss, LossFunction};
use crate::ops::pointwise::wgsl;
use crate::ops::segment;
use crate::shader::{GpuOperation, Operand, Recorder, Shader, THREADS};
use crate::{Error, Result};

/// From so many class axes a row on, each is computed for itself.
const SPREAD: usize = 16;

impl GpuOperation for Loss {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        if self.class_targets && !self.is_over_classes() {
            return Err(Error::Value(format!(
                "{self} takes real targets like its output, not class indices"
            )));
        }
        // A sequence has more class axes than a workgroup should take one after the other: each is then
        // a row to the kernel, and another adds their losses up. So it is where each has a weight of its own.
        let by_step = self.of_steps().is_some() && self.outer > 1;
        let by_place = self.weighs_inner();
        let spread = by_step || (self.is_over_classes() && self.inner == 1 && self.outer >= SPREAD);
        let rows = recorder.rows() * if spread { self.outer } else { 1 };
        let losses = recorder.write(0)?;
        let found = if spread { recorder.scratch(rows)? } else { losses.clone() };
        let label = self.to_string();
        let (shader, row_threads) = match self.is_over_classes() {
            true if spread => Loss { outer: 1, ..self.clone() }.over_classes(label),
            true => self.over_classes(label),
            false if spread => Loss { outer: 1, ..self.clone() }.over_elements(label),
            false => self.over_elements(label),
        };
        let mut shader = shader
            .section("SCALED", if self.scaled { " / control.scale" } else { "" })
            .section(
                "WEIGHT",
                match self.weighted && !by_place {
                    true => "if there {\n        weight = weights[row / PARTS];\n    }",
                    false => "",
                },
            )
            .constant("PARTS", if spread && !by_step { self.outer } else { 1 })
            .read("output", "f32", recorder.read(0)?)
            .read("targets", if self.class_targets { "i32" } else { "f32" }, recorder.read(1)?);
        if self.weighted {
            shader = shader.read("weights", "f32", recorder.read(2)?);
        }
        if let Some(factors) = &self.class_weight {
            shader = shader.read("class_weights", "f32", table(recorder, factors)?);
        }
        shader = shader.write("losses", "f32", found.clone());
        if self.gradient {
            shader = shader.write("gradient", "f32", recorder.write(1)?);
        }
        shader
            .when(self.scaled, |shader| shader.control(recorder))
            .number("rows", rows)
            .groups(recorder, rows.div_ceil(THREADS / row_threads))?;
        if !spread {
            return Ok(());
        }
        let threads = segment::lanes(self.outer, THREADS);
        let rows = recorder.rows();
        Shader::new("loss of rows", include_str!("positions.wgsl"))
            .threads(threads)
            .section("JOIN", segment::join("row_sum", "f32", threads, "a + b"))
            .read("position_losses", "f32", found)
            .write("losses", "f32", losses)
            .number("rows", rows)
            .number("positions", self.outer)
            .groups(recorder, rows)
    }
}

/// Numbers in memory of their own.
fn table(recorder: &mut Recorder<'_>, numbers: &[f64]) -> Result<Operand> {
    let words: Vec<u32> = numbers.iter().map(|x| (*x as f32).to_bits()).collect();
    recorder.table(&words)
}

/// The functions `loss_of(o, t)` and `slope_of(o, t)`, and what they call.
struct Text;

impl ElementVisitor for Text {
    type Output = String;

    fn visit<F: ElementFunction>(self, function: F) -> String {
        let value = wgsl::function("loss_of", ["o", "t"], |[o, t]| function.value(o, t));
        let slope = wgsl::function("slope_of", ["o", "t"], |[o, t]| function.slope(o, t));
        wgsl::with_prelude(value + &slope)
    }
}

impl Loss {
    /// The text of a loss of single elements, and how many threads a row has.
    fn over_elements(&self, label: String) -> (Shader, usize) {
        let threads = segment::lanes(self.elements(), THREADS);
        let gradient = match (self.gradient, self.weighs_inner()) {
            (true, true) => {
                "gradient[i] = slope_of(o, t) * (scale * weights[row * INNER + element % INNER]);"
            }
            (true, false) => "gradient[i] = slope_of(o, t) * scale;",
            (false, _) => "",
        };
        let shader = Shader::new(label, include_str!("elements.wgsl"))
            .constant("ELEMENTS", self.elements())
            .constant("ROW_THREADS", threads)
            .constant("INNER", self.inner)
            .section("FUNCTION", self.function.visit(Text).unwrap_or_default())
            .section(
                "FACTOR",
                if self.weighs_inner() { " * weights[row * INNER + element % INNER]" } else { "" },
            )
            .section("GRADIENT", gradient)
            .section("JOIN", segment::join("row_sum", "f32", threads, "a + b"));
        (shader, threads)
    }

    /// The text of a loss over classes, and how many threads a row has.
    fn over_classes(&self, label: String) -> (Shader, usize) {
        // Neighbouring threads take neighbouring elements: classes, or positions.
        let lanes = if self.inner == 1 { segment::lanes(self.classes, THREADS) } else { 1 };
        let position_lanes = segment::lanes(self.positions(), THREADS / lanes);
        let mut join = segment::join("row_sum", "f32", lanes * position_lanes, "a + b");
        let (text, gradient, factor) = match self.function {
            LossFunction::CrossEntropy { temperature } | LossFunction::KullbackLeibler { temperature } => {
                join += &segment::join("class_largest", "f32", lanes, "max(a, b)");
                join += &segment::join("class_sums", "vec2<f32>", lanes, "a + b");
                let gradient = "gradient[i] = (exp(logit) * share - t) * (scale * FACTOR);";
                (include_str!("cross_entropy.wgsl"), gradient, 1.0 / temperature)
            }
            LossFunction::Focal { temperature, .. } => {
                join += &segment::join("class_largest", "f32", lanes, "max(a, b)");
                join += &segment::join("class_sum", "f32", lanes, "a + b");
                join += include_str!("looks.wgsl");
                let gradient = "gradient[i] = (exp(-cost) * slopes - own) * (scale * FACTOR);";
                (include_str!("focal.wgsl"), gradient, 1.0 / temperature)
            }
            _ => {
                let gradient = "gradient[i] = select(0.0, -t / probability * scale, asked);";
                (include_str!("likelihood.wgsl"), gradient, 1.0)
            }
        };
        let mut wanted = String::from(match self.class_targets {
            true => "var t = select(0.0, 1.0, targets[axis] == i32(class_index));",
            false => "var t = targets[i];",
        });
        if self.label_smoothing != 0.0 {
            wanted += "\n    t = t * KEPT + UNIFORM;";
        }
        if self.class_weight.is_some() {
            wanted += "\n    t *= class_weights[class_index];";
        }
        wanted += "\n    return t;";
        // What a position counts beside the row, around what it has come to.
        let [before, after] = match self.weighs_inner() {
            true => [include_str!("place.wgsl"), "loss = others + loss * factor;"],
            false => ["", ""],
        };
        let text = format!("{before}{text}{after}");
        let divergence = matches!(self.function, LossFunction::KullbackLeibler { .. });
        let text = text.replace("#{ENTROPY}", if divergence { " + log(t)" } else { "" });
        let shader = Shader::new(label, include_str!("classes.wgsl"))
            .constant("OUTER", self.outer)
            .constant("CLASSES", self.classes)
            .constant("INNER", self.inner)
            .constant("LANES", lanes)
            .constant("POSITION_LANES", position_lanes)
            .float("FACTOR", factor)
            .when(matches!(self.function, LossFunction::Focal { .. }), |shader| {
                let mut function = self.function;
                shader.float("GAMMA", function.setting().map_or(1.0, |setting| *setting.value))
            })
            .float("KEPT", 1.0 - self.label_smoothing)
            .float("UNIFORM", self.label_smoothing / self.classes as f64)
            .flag("LOOKS_AT_ALL", !self.class_targets || self.label_smoothing != 0.0)
            .section("JOIN", join)
            .section("WANTED", wanted)
            .section("LOSS", text)
            .section("GRADIENT", if self.gradient { gradient } else { "" });
        (shader, lanes * position_lanes)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::tests::{example, loss, losses};
    use super::*;
    use crate::gpu::testing::{check, in_part};
    use proptest::prelude::*;

    const OVER_CLASSES: [LossFunction; 3] = [
        LossFunction::CrossEntropy { temperature: 1.0 },
        LossFunction::Focal { temperature: 0.8, gamma: 1.5 },
        LossFunction::NegativeLogLikelihood,
    ];

    /// Every loss, and again with settings that are not the default.
    fn functions() -> impl Iterator<Item = LossFunction> {
        let others = [LossFunction::CrossEntropy { temperature: 0.7 }, LossFunction::Huber { delta: 0.5 }];
        LossFunction::ALL.iter().copied().chain(others)
    }

    fn check_example(op: Loss, rows: usize) {
        let example = example::<f32>(op.clone(), rows, 17);
        check(op, &example.setting());
    }

    #[test]
    fn every_function_and_layout() {
        let mut number = 0;
        for function in functions() {
            for (rows, outer, classes, inner) in
                [(1, 1, 1, 1), (300, 1, 10, 1), (3, 2, 300, 1), (2, 2, 3, 150), (3, 17, 5, 1), (1, 300, 9, 1)]
            {
                number += 1;
                // All layouts of some functions, and some of all.
                if !in_part(number + number / 6, 2) {
                    continue;
                }
                let mut op = loss(function, outer, classes, inner);
                op.weighted = inner != 1;
                op.by_place = inner == 150 || outer == 300;
                op.weighted |= op.by_place;
                check_example(op.clone(), rows);
                op.class_targets = op.is_over_classes();
                op.gradient = classes != 300;
                if op.class_targets {
                    check_example(op, rows);
                }
            }
        }
    }

    #[test]
    fn every_option_of_losses_over_classes() {
        for function in OVER_CLASSES {
            for class_targets in [false, true] {
                for (label_smoothing, weights) in [(0.1, false), (0.0, true), (0.2, true)] {
                    let mut op = loss(function, 1, 10, 1);
                    (op.class_targets, op.label_smoothing) = (class_targets, label_smoothing);
                    op.class_weight = weights.then(|| (0..10).map(|class| 0.3 + f64::from(class)).collect());
                    check_example(op, 65);
                }
            }
        }
    }

    #[test]
    fn a_scaled_gradient_is_the_gradient_times_the_scale() {
        for function in functions() {
            let op = loss(function, 1, 5, 1);
            let mut setting = example::<f32>(op.clone(), 3, 9).setting();
            setting.values.loss_scale = 1024.0;
            let plain = setting.result_number(&op, 1);
            let scaled = Loss { scaled: true, ..op };
            check(scaled.clone(), &setting);
            for (scaled, plain) in setting.result_number(&scaled, 1).iter().zip(plain) {
                assert_eq!(scaled.to_bits(), (plain * 1024.0).to_bits());
            }
        }
    }

    #[test]
    fn a_divisor_of_zero_makes_the_gradient_zero() {
        for function in functions() {
            let mut op = loss(function, 1, 5, 1);
            op.weighted = true;
            let mut example = example::<f32>(op.clone(), 2, 9);
            example.weights = vec![0.0; 2];
            assert_eq!(example.setting().values.loss_divisor, 0.0);
            check(op, &example.setting());
        }
    }

    #[test]
    fn numbers_that_are_not_finite_show_where_they_do_on_the_cpu() {
        for function in functions() {
            for class_targets in [false, true] {
                for number in [f32::NAN, f32::NEG_INFINITY, f32::INFINITY] {
                    let mut op = loss(function, 1, 5, 1);
                    op.class_targets = class_targets && op.is_over_classes();
                    if function == LossFunction::NegativeLogLikelihood && number < 0.0 {
                        continue; // no probability
                    }
                    let mut example = example::<f32>(op.clone(), 2, 8);
                    example.output[2] = number;
                    check(op, &example.setting());
                }
            }
        }
    }

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(10))]

        #[test]
        fn any_loss(op in losses(1..40, 40), rows in 1..70usize) {
            check_example(op, rows);
        }
    }
}
