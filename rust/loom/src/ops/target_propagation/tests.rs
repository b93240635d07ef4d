//! Weighted means against the formulas written plainly.

use super::*;
use crate::ops::testing::{Data, Setting, assert_bits, lane_sum, numbers};
use crate::simd::Real;
use proptest::prelude::*;

fn sums<T: Real>(inputs: usize, outputs: usize) {
    let weight = numbers::<T>(3, inputs * outputs);
    let expected: Vec<T> = weight.chunks(outputs).map(|row| lane_sum(row.iter().map(|x| x.abs()))).collect();
    let setting = Setting::new(5, &[&weight], &[inputs]);
    assert_bits(&setting.result(&AbsoluteSums { inputs, outputs }), &expected);
}

fn weight_product(op: &WeightProduct) -> Setting<f32> {
    let hidden = op.groups * op.repeats * op.extent;
    let a = numbers(1, op.inputs * op.groups * op.extent);
    let b = numbers(2, hidden * op.outputs);
    Setting::new(3, &[&a, &b], &[op.inputs * op.outputs])
}

fn product_by_formula(op: &WeightProduct, a: &[f32], b: &[f32]) -> Vec<f32> {
    let WeightProduct { inputs, outputs, groups, repeats, extent } = *op;
    let mut made = Vec::new();
    for i in 0..inputs {
        for o in 0..outputs {
            let mut sum = 0.0f32;
            for k in 0..groups * repeats * extent {
                let column = k / (repeats * extent) * extent + k % extent;
                sum = a[i * groups * extent + column].mul_add(b[k * outputs + o], sum);
            }
            made.push(sum);
        }
    }
    made
}

fn mean<T: Real>(op: &MeanTarget, rows: usize) -> Setting<T> {
    let len = rows * op.steps * op.features;
    let sums = numbers::<T>(1, if op.last { rows * op.features } else { len });
    // Some of them too small to divide by.
    let weights: Vec<T> = (0..op.features).map(|i| T::from_f64((i % 5) as f64 * 0.004 + 0.003)).collect();
    let x = numbers::<T>(2, len);
    let mut setting = Setting::new(rows, &[&sums, &weights, &x], &[len]);
    if op.mask {
        let mask = (0..rows * op.steps).map(|i| if i % 3 == 1 || i % 7 > 4 { T::ZERO } else { T::ONE });
        setting.reads.push(Data::Real(mask.collect()));
    }
    setting
}

fn mean_by_formula<T: Real>(op: &MeanTarget, setting: &Setting<T>) -> Vec<T> {
    let [sums, weights, x] = [0, 1, 2].map(|number| setting.reads[number].real());
    let real = |step: usize| !op.mask || setting.reads[3].real()[step] == T::ONE;
    let mut made = x.to_vec();
    for row in 0..setting.rows {
        let steps: Vec<usize> = (row * op.steps..(row + 1) * op.steps).filter(|step| real(*step)).collect();
        let steps = if op.last { &steps[steps.len().saturating_sub(1)..] } else { &steps[..] };
        for step in steps {
            for j in (0..op.features).filter(|j| weights[*j].to_f64() >= 0.01) {
                let place = if op.last { row } else { *step };
                made[step * op.features + j] = sums[place * op.features + j] / weights[j];
            }
        }
    }
    made
}

fn means() -> impl Strategy<Value = MeanTarget> {
    (1..6usize, 1..70usize, any::<[bool; 2]>()).prop_map(|(steps, features, [last, mask])| MeanTarget {
        steps,
        features,
        last,
        mask,
    })
}

fn products() -> impl Strategy<Value = WeightProduct> {
    (1..20usize, 1..40usize, 1..4usize, 1..4usize, 1..20usize).prop_map(
        |(inputs, outputs, groups, repeats, extent)| WeightProduct {
            inputs,
            outputs,
            groups,
            repeats,
            extent,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn sums_are_of_magnitudes(inputs in 1..40usize, outputs in 1..70usize) {
        sums::<f32>(inputs, outputs);
        sums::<f64>(inputs, outputs);
    }

    #[test]
    fn blocks_of_rows_meet_the_columns_of_their_group(op in products()) {
        let setting = weight_product(&op);
        let expected = product_by_formula(&op, setting.reads[0].real(), setting.reads[1].real());
        assert_bits(&setting.result(&op), &expected);
    }

    #[test]
    fn means_are_taken_where_there_are_weights(op in means(), rows in 1..5usize) {
        let setting = mean::<f32>(&op, rows);
        assert_bits(&setting.result(&op), &mean_by_formula(&op, &setting));
        let setting = mean::<f64>(&op, rows);
        assert_bits(&setting.result(&op), &mean_by_formula(&op, &setting));
    }
}

#[test]
fn large_extents_are_cut_into_tasks() {
    sums::<f32>(100, 1000);
    let op = MeanTarget { steps: 40, features: 300, last: false, mask: true };
    let setting = mean::<f32>(&op, 5);
    assert_bits(&setting.result(&op), &mean_by_formula(&op, &setting));
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;
    use crate::gpu::testing::check;

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(10))]

        #[test]
        fn products_agree(op in products()) {
            check(op.clone(), &weight_product(&op));
        }

        #[test]
        fn means_agree(op in means(), rows in 1..5usize) {
            check(op.clone(), &mean(&op, rows));
        }
    }

    #[test]
    fn sums_agree() {
        for (inputs, outputs) in [(1, 1), (7, 300), (33, 64)] {
            let weight = numbers(3, inputs * outputs);
            check(AbsoluteSums { inputs, outputs }, &Setting::new(2, &[&weight], &[inputs]));
        }
    }
}
