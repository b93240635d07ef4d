//! Products of a few rows against the three plain loops over decoded weights, bit for bit.

use super::Decoding;
use crate::dtype::{DType, Granularity, Packing};
use crate::matrix::tests::{bits, machines, numbers};
use crate::matrix::{
    Bias, NoEpilogue, Output, PackedPanels, PanelSource, Start, Strided, product, product_reference,
    product_serial,
};
use proptest::prelude::*;

/// Every type; float32 is read in place elsewhere.
fn types() -> Vec<DType> {
    DType::all().collect()
}

struct Packed {
    packing: Packing,
    bytes: Vec<u8>,
    scales: Vec<f32>,
}

impl Packed {
    fn new(packing: Packing, seed: u64) -> Self {
        let mut weights = numbers::<f32>(seed, packing.elements());
        // A column of zeros has the scale of zeros.
        weights.iter_mut().step_by(packing.channels).for_each(|weight| *weight = 0.0);
        let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
        packing.encode(None, &weights, &mut bytes, &mut scales).unwrap();
        Self { packing, bytes, scales }
    }

    fn panels(&self) -> PackedPanels<'_> {
        PackedPanels::new(self.packing, &self.bytes, &self.scales)
    }
}

fn check(packed: &Packed, m: usize, start: Start, row_gap: usize) {
    let Packing { rows: k, channels: n, dtype, granularity, .. } = packed.packing;
    let a = numbers::<f32>(11, m * k);
    let (bias, before) = (numbers::<f32>(12, n), numbers::<f32>(13, m * (n + row_gap)));
    let (a, b, bias) = (Strided::left(&a, m, k), packed.panels(), Bias::Columns(&bias));
    let mut expected = before.clone();
    product_reference(&a, &b, start, &bias, Output::strided(&mut expected, m, n, n + row_gap));
    for cpu in machines() {
        let mut c = before.clone();
        product(cpu, &a, &b, start, &bias, Output::strided(&mut c, m, n, n + row_gap));
        assert!(bits(&c) == bits(&expected), "[{m}, {k}] x [.., {n}] {dtype} {granularity} on {cpu:?}");
        c.copy_from_slice(&before);
        product_serial(cpu.isa(), &a, &b, start, &bias, Output::strided(&mut c, m, n, n + row_gap));
        assert!(bits(&c) == bits(&expected), "[{m}, {k}] x [.., {n}] {dtype} {granularity} on one thread");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    #[test]
    fn a_few_rows_of_packed_types_are_their_decoded_values(
        dtype in 0..types().len(),
        (m, k, n) in (prop_oneof![4 => 1..10_usize, 1 => 10..70_usize], 1..90_usize, prop_oneof![1..700_usize, (4..90_usize).prop_map(|n| n * 8)]),
        granularity in prop_oneof![
            2 => Just(None),
            1 => Just(Some(Granularity::Tensor)),
            1 => (1..40_usize).prop_map(|rows| Some(Granularity::Block(rows))),
        ],
        continues in any::<bool>(),
        row_gap in 0..3_usize,
    ) {
        let dtype = types()[dtype];
        let granularity = dtype.granularity(granularity).unwrap_or(dtype.row().granularity);
        let packed = Packed::new(Packing::new(dtype, k, n).with(granularity), (k * 1000 + n) as u64);
        check(&packed, m, if continues { Start::Continue } else { Start::Zero }, row_gap);
    }
}

/// Shapes that are cut into tasks and blocks of k.
#[test]
fn large_shapes_of_all_types_are_their_decoded_values() {
    for dtype in types() {
        for (m, k, n) in
            [(1, 1100, 648), (3, 700, 264), (8, 301, 264), (1, 77, 523), (9, 301, 264), (64, 70, 341)]
        {
            check(&Packed::new(Packing::new(dtype, k, n), 5), m, Start::Zero, 0);
        }
    }
}

/// Every byte there is, also those that encoding does not make.
#[test]
fn every_code_decodes_as_elsewhere() {
    for dtype in types() {
        let mut packed = Packed::new(Packing::new(dtype, 64, 512), 3);
        for (index, byte) in packed.bytes.iter_mut().enumerate() {
            *byte = (index * 7 + index / 256) as u8;
        }
        // Any scale, and any wide float, but infinity and NaN.
        let (size, highest) = match dtype {
            DType::Q4_0 | DType::Q8_0 => (packed.bytes.len() / (2 * 512), 1),
            DType::MxFp8E4M3 | DType::MxFp8E5M2 | DType::MxFp4 => (packed.bytes.len() / (2 * 512), 0),
            DType::Float16 | DType::BFloat16 => (2, 1),
            DType::Float32 => (4, 3),
            DType::Float64 => (8, 7),
            _ => (1, 0),
        };
        if size > 1 {
            packed.bytes.chunks_exact_mut(size).for_each(|code| code[highest] &= 0xBF);
        }
        check(&packed, 2, Start::Zero, 0);
        check(&packed, 17, Start::Zero, 0);
    }
}

/// Signed zeros, infinities and the smallest numbers of the activations, and scales at both ends.
#[test]
fn special_activations_and_scales_are_the_references() {
    let special = [0.0, -0.0, 1e-42, -1e-42, 1e38, -1e38, f32::INFINITY, 1.0, f32::MIN_POSITIVE];
    for dtype in types() {
        let mut packed = Packed::new(Packing::new(dtype, 9, 128), 8);
        let words = packed.packing.group_words().max(1);
        let scales = packed.scales.iter_mut().step_by(words);
        for (scale, by) in scales.zip([1e-40_f32, 1e-30, 1.0, 1e20].into_iter().cycle()) {
            *scale *= by;
        }
        for turn in 0..9 {
            let a: Vec<f32> = (0..9).map(|i| special[(i * 2 + turn) % 9]).collect();
            let (a, b) = (Strided::left(&a, 1, 9), packed.panels());
            let mut expected = [-0.0; 128];
            product_reference(&a, &b, Start::Continue, &NoEpilogue, Output::new(&mut expected, 1, 128));
            for cpu in machines() {
                let mut c = [-0.0; 128];
                product(cpu, &a, &b, Start::Continue, &NoEpilogue, Output::new(&mut c, 1, 128));
                for (column, (c, expected)) in c.iter().zip(&expected).enumerate() {
                    let same = c.to_bits() == expected.to_bits() || c.is_nan() && expected.is_nan();
                    assert!(same, "{dtype}: {c} is not {expected} in column {column} on {cpu:?}");
                }
            }
        }
    }
}

/// Zero points that no code stands for, which files may hold.
#[test]
fn zero_points_beyond_the_codes_are_the_references() {
    for dtype in [DType::Uint2, DType::Uint4, DType::Uint8, DType::Uint16, DType::Uint32, DType::Uint64] {
        for zero in [3u32, 200, 70_000, 1 << 31, u32::MAX] {
            let mut packed = Packed::new(Packing::new(dtype, 40, 64), 1);
            let words = packed.packing.group_words();
            packed.scales.chunks_exact_mut(words).skip(7).for_each(|fit| fit[1] = f32::from_bits(zero));
            check(&packed, 2, Start::Zero, 0);
        }
    }
}

#[test]
fn types_are_read_row_by_row_where_they_can_be() {
    let way = |dtype: DType, channels: usize| {
        let packed = Packed::new(Packing::new(dtype, 40, channels), 1);
        PanelSource::<f32>::streamed(&packed.panels()).map(|streamed| streamed.decoding)
    };
    for dtype in DType::all() {
        let expected = match dtype.row().bits {
            _ if dtype.is_block_format() => Decoding::Blocks,
            64 => Decoding::Ahead,
            32 if dtype != DType::Float32 => Decoding::Ahead,
            _ => Decoding::Rows,
        };
        assert_eq!(way(dtype, 64), Some(expected), "{dtype}");
        assert_eq!(way(dtype, 31), None, "{dtype}");
    }
    assert_eq!(way(DType::Int4, 65), Some(Decoding::Ahead));
}
