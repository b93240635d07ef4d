//! Products with packed transposes against the three plain loops over decoded weights, bit for bit.

use super::TurnedPanels;
use crate::dtype::{DType, Granularity, Packing};
use crate::matrix::tests::{bits, machines, numbers};
use crate::matrix::{Bias, Output, Start, Strided, product, product_reference, product_serial};
use crate::simd::{Isa, Real};
use proptest::prelude::*;

fn check<T: Real>(packing: Packing, m: usize, start: Start) {
    let (n, k) = (packing.rows, packing.channels);
    let weights = numbers::<f32>((k * 1000 + n) as u64, packing.elements());
    let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
    packing.encode(None, &weights, &mut bytes, &mut scales).unwrap();
    let mut decoded = vec![T::ZERO; n * k];
    packing.decode(Isa::portable(), &bytes, &scales, &mut decoded);
    let (a, bias, before) = (numbers::<T>(11, m * k), numbers::<T>(12, n), numbers::<T>(13, m * (n + 1)));
    let (a, bias) = (Strided::left(&a, m, k), Bias::Columns(&bias));
    let mut expected = before.clone();
    let plain = Strided::right_transposed(&decoded, k, n);
    product_reference(&a, &plain, start, &bias, Output::strided(&mut expected, m, n, n + 1));
    let turned = TurnedPanels::new(packing, &bytes, &scales);
    for cpu in machines() {
        let mut c = before.clone();
        product(cpu, &a, &turned, start, &bias, Output::strided(&mut c, m, n, n + 1));
        assert!(bits(&c) == bits(&expected), "[{m}, {k}] x [.., {n}] {packing:?} on {cpu:?}");
        c.copy_from_slice(&before);
        product_serial(cpu.isa(), &a, &turned, start, &bias, Output::strided(&mut c, m, n, n + 1));
        assert!(bits(&c) == bits(&expected), "[{m}, {k}] x [.., {n}] {packing:?} on one thread");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn products_with_packed_transposes_are_those_of_decoded_values(
        dtype in 0..DType::all().len(),
        (m, k, n) in (prop_oneof![4 => 1..10_usize, 1 => 10..40_usize], 1..90_usize, 1..400_usize),
        granularity in prop_oneof![
            2 => Just(None),
            1 => Just(Some(Granularity::Tensor)),
            1 => (1..40_usize).prop_map(|rows| Some(Granularity::Block(rows))),
        ],
        continues in any::<bool>(),
        double in any::<bool>(),
    ) {
        let dtype = DType::all().nth(dtype).unwrap_or(DType::Int8);
        let granularity = dtype.granularity(granularity).unwrap_or(dtype.row().granularity);
        let packing = Packing::new(dtype, n, k).with(granularity);
        let start = if continues { Start::Continue } else { Start::Zero };
        if double { check::<f64>(packing, m, start) } else { check::<f32>(packing, m, start) }
    }
}

/// A table that is cut into tasks, columns and blocks of inputs.
#[test]
fn large_tables_are_their_decoded_values() {
    for dtype in [DType::Float16, DType::Int8, DType::Int4, DType::Q8_0, DType::Q4_0, DType::MxFp4] {
        check::<f32>(Packing::new(dtype, 3001, 1100), 1, Start::Zero);
        check::<f32>(Packing::new(dtype, 1027, 1100), 5, Start::Continue);
    }
}
