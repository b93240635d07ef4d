//! Softmax on a GPU: one dispatch either way.

use super::Softmax;
use crate::ops::{Direction, segment};
use crate::shader::{GpuOperation, Recorder, Shader, THREADS};
use crate::{Error, Result};

impl GpuOperation for Softmax {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (names, result, body) = match self.direction {
            Direction::Forward => (&["x"][..], "y", include_str!("forward.wgsl")),
            Direction::InputGradient => (&["y", "dy"][..], "dx", include_str!("backward.wgsl")),
            Direction::WeightGradient => {
                return Err(Error::Internal("a softmax has no weight to take a gradient of".into()));
            }
        };
        // Neighbouring threads take neighbouring elements: classes, or positions.
        let lanes = if self.inner == 1 { segment::lanes(self.classes, THREADS) } else { 1 };
        let join = segment::join("class_largest", "f32", lanes, "max(a, b)")
            + &segment::join("class_sum", "f32", lanes, "a + b");
        // Class axes of the whole batch.
        let positions = recorder.rows() * self.outer * self.inner;
        Shader::new(self.to_string(), include_str!("softmax.wgsl"))
            .constant("CLASSES", self.classes)
            .constant("INNER", self.inner)
            .constant("LANES", lanes)
            .float("FACTOR", 1.0 / self.temperature)
            .section("JOIN", join)
            .section("BODY", body)
            .reads(recorder, names.iter().copied())?
            .write(result, "f32", recorder.write(0)?)
            .number("positions", positions)
            .groups(recorder, positions.div_ceil(THREADS / lanes))
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Setting, numbers};
    use crate::simd::Cpu;
    use proptest::prelude::*;

    fn both(
        rows: usize,
        (outer, classes, inner): (usize, usize, usize),
        temperature: f64,
        extra: Option<f32>,
    ) {
        let op = |direction| Softmax { direction, outer, classes, inner, temperature };
        let len = rows * outer * classes * inner;
        let mut x: Vec<f32> = numbers::<f32>(1, len).iter().map(|x| x * 5.0).collect();
        if let Some(extra) = extra {
            x[len / 2] = extra;
        }
        let forward = Setting::new(rows, &[&x], &[len]);
        check(op(Direction::Forward), &forward);
        let y = forward.run_on(&op(Direction::Forward), Cpu::global().unwrap()).unwrap();
        let dy: Vec<f32> = numbers(2, len);
        check(op(Direction::InputGradient), &Setting::new(rows, &[y[0].real(), &dy], &[len]));
    }

    #[test]
    fn extents_of_every_kind() {
        for extents in [(1, 1, 1), (1, 10, 1), (2, 1000, 1), (1, 3, 100), (3, 256, 1)] {
            for rows in [1, 67] {
                both(rows, extents, 1.0, None);
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite_show_where_they_do_on_the_cpu() {
        for extra in [1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            both(2, (1, 5, 1), 1.0, Some(extra));
            both(2, (1, 5, 3), 1.0, Some(extra));
        }
    }

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(8))]

        #[test]
        fn any_extents(
            rows in 1..40usize, outer in 1..3usize, classes in 1..70usize,
            inner in prop_oneof![Just(1), 2..40usize], temperature in 0.3..4.0,
        ) {
            both(rows, (outer, classes, inner), temperature, None);
        }
    }
}
