//! Dropout on a GPU, with the CPU's masks.

use super::Dropout;
use crate::Result;
use crate::ops::draws::{Draws, GENERATOR};
use crate::shader::{GpuOperation, Operand, Recorder, Shader};

impl GpuOperation for Dropout {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, y) = (recorder.read(0)?, recorder.write(0)?);
        if self.shared > 1 {
            return self.record_shared(recorder, x, y);
        }
        let draws = Draws {
            purpose: 2,
            path: recorder.path(),
            features: self.features,
            functions: "",
            drawn: include_str!("dropout.wgsl"),
            store: "y[i / 4u][i % 4u] = select(0.0, x[i / 4u][i % 4u] * factor, keeps[word]);",
        };
        let elements = y.elements;
        draws.record(recorder, "dropout", elements, |shader| {
            shader
                .read("x", "vec4<f32>", x)
                .write("y", "vec4<f32>", y)
                .number("threshold", self.threshold())
                .real("factor", 1.0 / (1.0 - self.rate))
        })
    }
}

impl Dropout {
    /// Groups of several elements: each thread draws the word of its element's group.
    fn record_shared(&self, recorder: &mut Recorder<'_>, x: Operand, y: Operand) -> Result<()> {
        let elements = y.elements;
        Shader::new("dropout of groups", include_str!("shared.wgsl"))
            .constant("USE", 2)
            .section("GENERATOR", GENERATOR)
            .read("x", "f32", x)
            .write("y", "f32", y)
            .number("elements", elements)
            .number("groups", self.features / self.shared)
            .number("shared_elements", self.shared)
            .number("path", recorder.path())
            .number("threshold", self.threshold())
            .real("factor", 1.0 / (1.0 - self.rate))
            .elements(recorder, elements)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::{check, gpu, run};
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::simd::Cpu;
    use proptest::prelude::*;

    /// Results that are the same to the bit have the same masks; dropped and kept zeros differ in nothing
    /// but their sign.
    fn same(op: &Dropout, setting: &Setting<f32>) {
        check(op.clone(), setting);
        let Some(gpu) = gpu() else { return };
        let found = run(&gpu, &op.clone().into(), setting, None).unwrap();
        let expected = setting.run_on(op, Cpu::global().unwrap()).unwrap();
        for (found, expected) in found[0].real().iter().zip(expected[0].real()) {
            assert_eq!(found.to_bits(), expected.to_bits());
        }
    }

    fn setting(rows: usize, features: usize, row_offset: u64) -> Setting<f32> {
        let x: Vec<f32> = numbers(13, rows * features);
        let mut setting = Setting::new(rows, &[&x], &[x.len()]);
        setting.path = 0x8BCD_1234;
        setting.values.seed = 0x9234_5678_9ABC_DEF0;
        setting.values.step = 5 + (3 << 32);
        setting.values.row_offset = row_offset;
        setting
    }

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(24))]

        #[test]
        fn masks_are_those_of_the_cpu(
            rows in 1..40usize,
            features in 1..100usize,
            rate in prop_oneof![Just(0.0), Just(0.5), 0.0..1.0],
            shared in prop_oneof![Just(1), 2..20usize],
            row_offset in prop_oneof![Just(0u64), 0..100_000u64],
        ) {
            let features = features * shared;
            same(&Dropout { rate, features, shared }, &setting(rows, features, row_offset));
        }
    }

    #[test]
    fn late_rows_and_rates_near_one() {
        // Word numbers past 32 bits.
        same(&Dropout { rate: 0.3, features: 4097, shared: 1 }, &setting(3, 4097, 4_000_000));
        same(&Dropout { rate: 0.3, features: 8194, shared: 2 }, &setting(3, 8194, 4_000_000));
        same(&Dropout { rate: 1.0 - 1e-12, features: 300, shared: 1 }, &setting(3, 300, 0));
        let mut infinite = setting(1, 64, 0);
        infinite.reads = vec![Data::Real(vec![f32::INFINITY; 64])];
        same(&Dropout { rate: 0.5, features: 64, shared: 1 }, &infinite);
    }
}
