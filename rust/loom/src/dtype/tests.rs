//! What the table and its codes promise.

mod golden;
mod recipes;

use super::testing::{Sample, awkward, sample, sample_by};
use super::*;
use crate::random::{Stream, Use};
use crate::tensor::Buffer;
use proptest::prelude::*;

fn normal(seed: u64, len: usize) -> Vec<f64> {
    let mut values = vec![0.0; len];
    Stream::new(seed, 0, 0, Use::Initialize).fill_normal(0, &mut values);
    values
}

fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

/// The granularities that a type can have.
fn granularities(dtype: DType) -> Vec<Option<Granularity>> {
    let all = [Granularity::Channel, Granularity::Tensor, Granularity::Block(1), Granularity::Block(5)];
    let fits = all.into_iter().map(Some).filter(|asked| dtype.granularity(*asked).is_ok());
    std::iter::once(None).chain(fits).collect()
}

#[test]
fn a_name_of_others_is_answered_with_a_type_that_there_is() {
    let names = "double half torch.half FP32 e4m3 e5m2 fp4 long int short i8 4bit byte q4 mxfp8 1bit bitnet";
    for name in names.split_whitespace() {
        let meant = elsewhere::meant(name).unwrap_or_else(|| panic!("{name} is not known"));
        assert_eq!(DType::parse(meant).unwrap().name(), meant);
        assert!(DType::parse(name).unwrap_err().to_string().contains(&format!("\"{meant}\"")), "{name}");
    }
    for (name, meant) in [("torch.float16", "float16"), ("jnp.bfloat16", "bfloat16"), ("INT8", "int8")] {
        let told = DType::parse(name).unwrap_err().to_string();
        assert!(told.contains(&format!("in loom that is \"{meant}\"")), "{told}");
    }
    assert_eq!(elsewhere::meant("float17"), None);
}

/// Type, number of elements, and words of scales of the group that element `index` belongs to.
fn group(packing: &Packing, index: usize) -> usize {
    let (row, column) = (index / packing.channels, index % packing.channels);
    match packing.granularity {
        Granularity::Block(elements) => row / elements * packing.channels + column,
        Granularity::Channel => column,
        Granularity::Tensor | Granularity::Unscaled => 0,
    }
}

fn scale(sample: &Sample, index: usize) -> f64 {
    let words = sample.packing.group_words();
    if words == 0 { 1.0 } else { f64::from(sample.scales[group(&sample.packing, index) * words]) }
}

/// Every number that codes of up to 8 bits stand for under the scale of an element, by re-coding its bits.
fn representable(sample: &Sample, index: usize) -> Vec<f64> {
    let (packing, bits) = (sample.packing, sample.packing.dtype.row().bits);
    let mut bytes = sample.bytes().to_vec();
    let (place, shift) = (index * bits / 8, index * bits % 8);
    let mask = (((1u32 << bits) - 1) << shift) as u8;
    let mut found = Vec::new();
    for code in 0..1u32 << bits {
        bytes[place] = bytes[place] & !mask | (code << shift) as u8;
        let mut out = vec![0.0f64; packing.elements()];
        packing.decode(Isa::portable(), &bytes, &sample.scales, &mut out);
        found.push(out[index]);
    }
    found.retain(|number| number.is_finite());
    found
}

/// What a code that is never emitted would stand for: -2^(bits - 1), and NaN where a float has such.
fn is_emitted(dtype: DType, number: f64, scale: f64) -> bool {
    let row = dtype.row();
    matches!(row.kind, Kind::Affine | Kind::Minimum) || number.abs() <= row.range.1 * scale * (1.0 + 1e-6)
}

fn check<T: Real>(dtype: DType, granularity: Option<Granularity>, data: &[T], channels: usize) {
    let first = sample_by(dtype, granularity, data, channels);
    let decoded: Vec<T> = first.decoded();
    assert_eq!(first.packing.bytes() + first.scales.len() * 4, first.packing.nbytes());
    let row = dtype.row();
    for (index, (value, found)) in data.iter().zip(&decoded).enumerate() {
        let (value, found, scale) = (value.to_f64(), found.to_f64(), scale(&first, index));
        assert!(found.is_finite(), "{dtype}: {value:e} became {found}");
        let step = match row.kind {
            Kind::Symmetric => scale * 0.5,
            // By what rounding the scale has shortened the range, numbers at its end saturate.
            Kind::Affine => scale * (0.5 + row.range.1.min(65535.0) * 2f64.powi(-24)),
            // Distances from the minimum are rounded on the way there and back.
            Kind::Minimum => scale * (0.5 + row.range.1 * 2f64.powi(-22)),
            // Half a unit of the fraction, or of the subnormals.
            Kind::Float => {
                let fraction = match dtype {
                    DType::Float64 => 52,
                    DType::Float32 => 23,
                    DType::Float16 => 10,
                    DType::BFloat16 => 7,
                    DType::Float8E4M3 => 3,
                    DType::Float8E5M2 => 2,
                    DType::Float4E2M1 => 1,
                    // Levels of a table, of which the nearest is looked for below.
                    _ => -8,
                };
                let least = match dtype {
                    DType::Float16 => 2f64.powi(-25),
                    DType::Float8E4M3 => scale * 2f64.powi(-10),
                    DType::Float8E5M2 => scale * 2f64.powi(-17),
                    DType::Float4E2M1 => scale * 0.25,
                    _ => 2f64.powi(-134),
                };
                (value.abs() * 2f64.powi(-fraction - 1)).max(least)
            }
            Kind::Ternary | Kind::Binary | Kind::Block => f64::INFINITY,
        };
        // Scales and quotients are rounded to the master's precision.
        let slack = value.abs() * 2f64.powi(-22) + scale * 2f64.powi(-22) + 1e-44;
        assert!(
            (value - found).abs() <= step + slack,
            "{dtype}: {value:e} became {found:e}, scale {scale:e}"
        );
    }
    if row.bits <= 8 && row.kind != Kind::Block {
        // No other code is nearer.
        for index in [0, data.len() / 2, data.len() - 1] {
            let (value, found, scale) = (data[index].to_f64(), decoded[index].to_f64(), scale(&first, index));
            for other in representable(&first, index) {
                if is_emitted(dtype, other, scale) && dtype != DType::Binary {
                    let (near, far) = ((value - found).abs(), (value - other).abs());
                    // A number near zero is a difference of larger ones.
                    let reach = if row.kind == Kind::Minimum { row.range.1 * scale } else { 0.0 };
                    let slack = (value.abs() + scale + reach) * 1e-6 + 1e-44;
                    assert!(near <= far + slack, "{dtype}: {value:e} became {found:e}, not {other:e}");
                }
            }
        }
    }
    // With the scales held, decoded codes encode to themselves: each is put in a group of its scale.
    if row.kind != Kind::Block && !(row.bits == 64 && T::PRECISION == crate::Precision::Float64) {
        let mut again = vec![0u8; first.packing.bytes()];
        first.packing.encode_held(&decoded, &mut again, &first.scales);
        assert_eq!(again, first.bytes(), "{dtype} with {granularity:?} of {data:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_type_keeps_the_nearest_number(
        rows in 1usize..40, channels in 1usize..12, seed: u64, exponent in -20i32..12, zero in 0usize..40,
    ) {
        let mut data = normal(seed, rows * channels);
        for (index, value) in data.iter_mut().enumerate() {
            *value *= if index % channels == zero { 0.0 } else { 2f64.powi(exponent) };
        }
        for dtype in DType::all() {
            for granularity in granularities(dtype) {
                check(dtype, granularity, &single(&data), channels);
                check(dtype, granularity, &data, channels);
            }
        }
    }

    #[test]
    fn tiles_are_parts_of_the_whole(
        rows in 1usize..80, channels in 1usize..40, seed: u64, from in 0usize..80, column in 0usize..40,
    ) {
        let data = single(&normal(seed, rows * channels));
        let (from, column) = (from % rows, column % channels);
        let (to, end) = ((from + 37).min(rows), (column + 19).min(channels));
        let stride = end - column + 3;
        for dtype in DType::all() {
            for granularity in granularities(dtype) {
                let sample = sample_by(dtype, granularity, &data, channels);
                let whole: Vec<f32> = sample.decoded();
                let packed = (sample.bytes(), &sample.scales[..]);
                for isa in Isa::available() {
                    let mut tile = vec![f32::NAN; (to - from) * stride];
                    sample.packing.decode_tile(isa, packed, from..to, column..end, &mut tile, stride);
                    for (row, found) in (from..to).zip(tile.chunks(stride)) {
                        let expected = &whole[row * channels + column..row * channels + end];
                        prop_assert_eq!(&found[..end - column], expected);
                        prop_assert!(found[end - column..].iter().all(|x| x.is_nan()));
                    }
                }
            }
        }
    }
}

#[test]
fn the_table_is_in_order_and_consistent() {
    for (index, row) in TABLE.iter().enumerate() {
        assert_eq!(row.dtype as usize, index);
        assert_eq!(row.block * row.bits % 8, 0);
        let scaled = row.granularity != Granularity::Unscaled;
        assert_eq!(scaled, row.kind != Float || row.bits <= 8, "{}", row.name);
        match row.kind {
            Symmetric => {
                let limit = (2f64.powi(row.bits as i32 - 1) - 1.0).max(1.0);
                assert_eq!(row.range, (-limit, limit), "{}", row.name);
            }
            Affine | Minimum => {
                assert_eq!(row.range, (0.0, 2f64.powi(row.bits as i32) - 1.0), "{}", row.name);
            }
            Float | Ternary | Binary => assert_eq!(row.range.0, -row.range.1),
            Block => assert_eq!(row.granularity, Granularity::Block(32)),
        }
        assert!(!row.rule.is_empty());
    }
    assert_eq!(DType::Q4_0.row().bits_per_weight(), 4.5);
    assert_eq!(DType::Q8_0.row().bits_per_weight(), 8.5);
    assert_eq!(DType::MxFp4.row().bits_per_weight(), 4.25);
    assert_eq!(DType::Uint4Min.row().bits_per_weight(), 6.0);
}

#[test]
fn names_go_both_ways() {
    for dtype in DType::all() {
        assert_eq!(DType::parse(dtype.name()).unwrap(), dtype);
        let text = serde_json::to_string(&dtype).unwrap();
        assert_eq!(text, format!("\"{dtype}\""));
        assert_eq!(serde_json::from_str::<DType>(&text).unwrap(), dtype);
    }
    for (given, ours) in
        [("fp16", "float16"), ("torch.bfloat", "bfloat16"), ("BF16", "bfloat16"), ("4bit", "int4")]
    {
        let told = DType::parse(given).unwrap_err().to_string();
        assert!(told.contains(&format!("\"{given}\"; in loom that is \"{ours}\". Known: ")), "{told}");
    }
    let error = DType::parse("bfloat1").unwrap_err();
    assert!(matches!(error, Error::DType(_)));
    assert!(error.to_string().contains("did you mean \"bfloat16\"?"), "{error}");
    let error = serde_json::from_str::<DType>("\"int9\"").unwrap_err();
    assert!(error.to_string().contains("unknown numeric type"));
    for text in ["channel", "tensor", "none", "block(7)"] {
        assert_eq!(text.parse::<Granularity>().unwrap().to_string(), text);
    }
    for text in ["row", "block()", "block(0)", "block(-1)", "block(2"] {
        assert!(matches!(text.parse::<Granularity>(), Err(Error::Value(_))), "{text}");
    }
}

#[test]
fn storage_is_packed() {
    for dtype in DType::all().filter(|dtype| !dtype.is_block_format()) {
        for n in 0..40 {
            assert_eq!(dtype.storage_bytes(n), (n * dtype.row().bits).div_ceil(8));
        }
    }
    for (dtype, granularity, bytes, words) in [
        (DType::Int4, None, 35, 7),
        (DType::Int4, Some(Granularity::Tensor), 35, 1),
        (DType::Int4, Some(Granularity::Block(4)), 35, 21),
        (DType::Uint8, None, 70, 14),
        (DType::Uint64, None, 560, 3),
        (DType::Int16, None, 140, 1),
        (DType::BFloat16, None, 140, 0),
        (DType::Binary, None, 9, 7),
        (DType::Q4_0, None, 7 * 18, 0),
        (DType::MxFp8E5M2, None, 7 * 33, 0),
    ] {
        let packing = Packing::new(dtype, 10, 7).with(dtype.granularity(granularity).unwrap());
        assert_eq!((packing.bytes(), packing.scale_words()), (bytes, words), "{dtype}");
    }
    for (dtype, asked) in [
        (DType::Q8_0, Granularity::Channel),
        (DType::BFloat16, Granularity::Tensor),
        (DType::Int8, Granularity::Unscaled),
    ] {
        assert!(matches!(dtype.granularity(Some(asked)), Err(Error::DType(_))), "{dtype}");
    }
}

#[test]
fn zeros_stay_zeros() {
    for dtype in DType::all() {
        for granularity in granularities(dtype) {
            for (rows, channels) in [(1, 1), (33, 3)] {
                let sample = sample_by(dtype, granularity, &vec![0.0f32; rows * channels], channels);
                assert!(sample.decoded::<f32>().iter().all(|x| *x == 0.0), "{dtype}");
                let words = sample.packing.group_words();
                // There is no code for zero in binary.
                let scale = if dtype == DType::Binary { 0.0 } else { 1.0 };
                assert!(words == 0 || sample.scales.iter().step_by(words).all(|found| *found == scale));
            }
        }
    }
    // llama.cpp's own rule.
    let zero = sample(DType::Q4_0, &[0.0f32; 32], 1);
    assert_eq!(zero.bytes()[..2], [0x00, 0x80]);
    assert!(zero.bytes()[2..].iter().all(|byte| *byte == 0x88));
}

#[test]
fn extremes_stay_finite() {
    let tiny = f32::from_bits(1);
    let cases: [&[f32]; 7] = [
        &[f32::MAX, -f32::MAX, f32::MAX / 3.0, 1.0],
        &[f32::MAX, 0.0],
        &[-f32::MAX, 0.0],
        &[f32::MAX, -f32::MAX / 2.0],
        &[tiny, -tiny, 0.0],
        &[f32::MIN_POSITIVE, -f32::MIN_POSITIVE / 2.0, 0.0, -0.0],
        &[1e-40, 2e-40, -3e-40],
    ];
    for dtype in DType::all() {
        for case in cases {
            let huge = case[0].abs() > 1e30;
            let span = case.iter().fold(0.0f32, |span, x| span.max(case[0] - x));
            if dtype.row().kind == Kind::Minimum && span.is_infinite() {
                let mut packed = ([0; 4], [0.0; 2]);
                let refused = Packing::new(dtype, case.len(), 1).encode(
                    None,
                    case,
                    &mut packed.0[..dtype.storage_bytes(case.len())],
                    &mut packed.1,
                );
                assert_eq!(refused, Err(Refusal::Overflow { index: 0 }), "{dtype}");
                continue;
            }
            // Scales are not below the normal numbers, and the codes of a binary weight are no less than they.
            let slack = if huge { 1.01 } else { 1.5 };
            let least = if huge { 0.0 } else { f32::MIN_POSITIVE };
            if huge && matches!(dtype, DType::Float16 | DType::BFloat16 | DType::Q4_0 | DType::Q8_0) {
                continue;
            }
            let found: Vec<f32> = sample(dtype, case, 1).decoded();
            let largest = case.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            for (x, found) in case.iter().zip(&found) {
                assert!(
                    found.is_finite() && found.abs() <= (largest * slack).max(least),
                    "{dtype}: {x:e} became {found:e}"
                );
            }
        }
    }
    for dtype in DType::all() {
        assert!(
            Packing::new(dtype, 0, 3)
                .encode::<f32>(None, &[], &mut [], &mut vec![0.0; Packing::new(dtype, 0, 3).scale_words()])
                .is_ok()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn awkward_groups_have_normal_scales_and_codes_that_stay(
        rows in 1usize..40, channels in 1usize..12, seed: u64,
    ) {
        let double = awkward(seed, rows, channels);
        for dtype in DType::all() {
            let limit = match dtype {
                DType::Float16 | DType::Q4_0 | DType::Q8_0 => 6e4,
                DType::BFloat16 => 3e38,
                // As far apart as one number reaches.
                _ if dtype.row().kind == Kind::Minimum => 1.7e38,
                _ => f64::from(f32::MAX),
            };
            let double: Vec<f64> = double.iter().map(|value| value.clamp(-limit, limit)).collect();
            let data = single(&double);
            for granularity in granularities(dtype) {
                let first = sample_by(dtype, granularity, &data, channels);
                let words = first.packing.group_words();
                for (number, scale) in first.scales.iter().step_by(words.max(1)).enumerate() {
                    let zeros = (0..data.len())
                        .filter(|index| group(&first.packing, *index) == number)
                        .all(|index| data[index] == 0.0);
                    let fits = match (zeros, dtype) {
                        (true, DType::Binary) => *scale == 0.0,
                        (true, _) => *scale == 1.0,
                        (false, _) => scale.is_normal() && *scale > 0.0,
                    };
                    prop_assert!(fits, "{} with {:?}: scale {:e}", dtype, granularity, scale);
                }
                if !dtype.is_block_format() {
                    let mut again = vec![0u8; first.packing.bytes()];
                    first.packing.encode_held(&first.decoded::<f32>(), &mut again, &first.scales);
                    prop_assert_eq!(again, first.bytes(), "{} with {:?} of {:?}", dtype, granularity, data);
                }
                for isa in Isa::available() {
                    let cpu = Cpu::with_threads(isa, 2).unwrap();
                    let mut bytes = vec![0; first.bytes().len()];
                    let mut scales = vec![0.0; first.scales.len()];
                    first.packing.encode(Some(&cpu), &data, &mut bytes, &mut scales).unwrap();
                    prop_assert!(bytes == first.bytes(), "{} on {:?}", dtype, isa);
                }
            }
        }
    }
}

/// By the formula, one rounding after the other.
#[test]
fn numbers_over_a_minimum_are_products_and_sums() {
    for dtype in [DType::Uint2Min, DType::Uint4Min, DType::Uint8Min] {
        let data = single(&normal(7, 70 * 3));
        for granularity in granularities(dtype) {
            let sample = sample_by(dtype, granularity, &data, 3);
            let bits = dtype.row().bits;
            for (index, found) in sample.decoded::<f32>().into_iter().enumerate() {
                let code =
                    sample.bytes()[index * bits / 8] >> (index * bits % 8) & ((1u16 << bits) - 1) as u8;
                let fit = &sample.scales[2 * group(&sample.packing, index)..][..2];
                let own = (0..data.len())
                    .filter(|other| group(&sample.packing, *other) == group(&sample.packing, index));
                let least = own.clone().map(|other| data[other]).fold(f32::INFINITY, f32::min);
                let most = own.map(|other| data[other]).fold(f32::NEG_INFINITY, f32::max);
                let scale = if least == most { 1.0 } else { (most - least) / dtype.row().range.1 as f32 };
                assert_eq!(fit, [scale, least], "{dtype}");
                assert_eq!(found, fit[0] * f32::from(code) + fit[1], "{dtype}");
                let nearest = ((data[index] - least) / scale).round_ties_even();
                assert_eq!(f32::from(code), nearest, "{dtype}");
            }
        }
    }
}

#[test]
fn equal_numbers_are_kept_over_a_minimum() {
    for dtype in [DType::Uint2Min, DType::Uint4Min, DType::Uint8Min] {
        for value in [3.7f32, -1e-30, f32::MAX, -f32::MAX, f32::from_bits(1)] {
            let found = sample(dtype, &[value; 40], 1);
            assert_eq!(found.decoded::<f32>(), [value; 40], "{dtype}");
            assert_eq!(found.scales, [1.0, value, 1.0, value], "{dtype}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Where numbers are a few units of their last place apart, several codes stand for one of them: the one that it is
    /// encoded as is the one that it comes back as. On both sides of powers of two, where that unit changes, too.
    #[test]
    fn codes_over_a_minimum_stay_where_they_are_finer_than_numbers(
        base in prop_oneof![Just(0x3F80_0000u32), Just(0x4B00_0000), Just(0x0080_0000), Just(0x7F00_0000), 1u32..0x7F00_0000],
        below in 0u32..300, steps in proptest::collection::vec(0u32..600, 2..40), negative: bool,
    ) {
        let sign = if negative { -1.0 } else { 1.0 };
        let first = base.saturating_sub(below);
        let data: Vec<f32> = steps.iter().map(|step| sign * f32::from_bits(first + step)).collect();
        for dtype in [DType::Uint2Min, DType::Uint4Min, DType::Uint8Min] {
            check(dtype, None, &data, 1);
            let double: Vec<f64> = data.iter().map(|x| f64::from(*x)).collect();
            check(dtype, None, &double, 1);
        }
    }
}

/// A column whose sum is infinite leaves the means of its neighbours alone.
#[test]
fn means_of_huge_numbers_are_finite_and_of_small_ones_beside_them_right() {
    for dtype in [DType::Ternary, DType::Binary] {
        let data: Vec<f32> = (0..64).flat_map(|_| [f32::MAX, 1e-30, 3e38]).collect();
        let scales = sample(dtype, &data, 3).scales;
        assert_eq!(scales[1], sample(dtype, &[1e-30f32; 64], 1).scales[0]);
        assert!((scales[0] / f32::MAX - 1.0).abs() < 1e-5 && (scales[2] / 3e38 - 1.0).abs() < 1e-5);
    }
}

#[test]
fn ties_go_to_even() {
    let mut data: Vec<f32> = (-126..=126).map(|half| half as f32 / 2.0).collect();
    data.push(127.0);
    let packed = sample(DType::Int8, &data, 1);
    assert_eq!(packed.scales, [1.0]);
    for (value, code) in data.iter().zip(packed.bytes()) {
        assert_eq!(f32::from(*code as i8), value.round_ties_even());
    }
    let data: Vec<f32> = (0..=510).map(|half| half as f32 / 2.0).collect();
    let packed = sample(DType::Uint8, &data, 1);
    assert_eq!(packed.scales[0], 1.0);
    for (value, code) in data.iter().zip(packed.bytes()) {
        assert_eq!(f32::from(*code), value.round_ties_even());
    }
}

#[test]
fn codes_are_packed_from_the_lowest_bits() {
    let codes = |dtype, data: &[f32]| sample(dtype, data, 1).bytes().to_vec();
    assert_eq!(codes(DType::Int4, &[7.0, -7.0, 3.0]), [0x97, 0x03]);
    assert_eq!(codes(DType::Uint4, &[0.0, 15.0, 5.0]), [0xF0, 0x05]);
    assert_eq!(codes(DType::Int2, &[1.0, -1.0, 0.0, 1.0, -1.0]), [0b0100_1101, 0b11]);
    assert_eq!(codes(DType::Binary, &[1.0, -1.0, 0.0, -0.0, -2.0]), [0b0000_1101]);
    assert_eq!(codes(DType::Int16, &[32767.0, -2.0]), [0xFF, 0x7F, 0xFE, 0xFF]);
    assert_eq!(codes(DType::Float4E2M1, &[6.0, -0.5, 1.5]), [0x97, 0x03]);
}

#[test]
fn means_are_summed_in_sixteen_lanes() {
    let data = single(&normal(3, 1000 * 3));
    for (granularity, column) in [(Granularity::Channel, 1), (Granularity::Tensor, 0)] {
        let sample = sample_by(DType::Ternary, Some(granularity), &data, 3);
        let own: Vec<f32> = match granularity {
            Granularity::Tensor => data.clone(),
            _ => data.iter().skip(column).step_by(3).copied().collect(),
        };
        let mut lanes = [0.0f32; 16];
        own.iter().enumerate().for_each(|(place, x)| lanes[place % 16] += x.abs());
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|lane| lanes[lane] += lanes[lane + half]);
        }
        assert_eq!(sample.scales[column], lanes[0] / own.len() as f32);
    }
}

#[test]
fn what_cannot_be_held_is_refused_by_name() {
    for dtype in DType::all() {
        let packing = Packing::new(dtype, 2, 2);
        let mut bytes = Buffer::zeroed(packing.bytes()).unwrap();
        let mut scales = vec![0.0; packing.scale_words()];
        for bad in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let data = [1.0, 2.0, 1e30, bad];
            let error = packing
                .encode_parameter("gate", &Rule::default(), None, &data, bytes.bytes_mut(), &mut scales)
                .unwrap_err();
            assert!(matches!(error, Error::NonFinite(_)), "{dtype}: {error}");
            let message = error.to_string();
            assert!(message.contains("\"gate\"") && message.contains("element 3"), "{message}");
            let data = single(&[1.0, bad, 2.0, 1.0]);
            let error = packing
                .encode_parameter("gate", &Rule::default(), None, &data, bytes.bytes_mut(), &mut scales)
                .unwrap_err();
            assert!(error.to_string().contains("element 1"), "{dtype}: {error}");
        }
        let data = [1.0, 2.0, 1e300, 1.0];
        let found =
            packing.encode_parameter("gate", &Rule::default(), None, &data, bytes.bytes_mut(), &mut scales);
        if dtype == DType::Float64 {
            assert!(found.is_ok());
        } else {
            let message = found.unwrap_err().to_string();
            assert!(message.contains("\"gate\" holds 1e300 at element 2"), "{dtype}: {message}");
        }
    }
    let refusal = |dtype: DType, data: [f64; 2]| {
        Packing::new(dtype, 1, 2).encode(None, &data, &mut [0; 4], &mut []).unwrap_err()
    };
    assert_eq!(refusal(DType::Float16, [65519.0, 65520.0]), Refusal::Overflow { index: 1 });
    assert_eq!(refusal(DType::BFloat16, [3.38e38, -3.4e38]), Refusal::Overflow { index: 1 });
}

/// Instruction sets and thread counts make no difference.
#[test]
fn the_same_codes_everywhere() {
    for (rows, channels) in [(1, 1), (701, 61), (33, 2_000)] {
        let double = normal(8, rows * channels);
        let data = single(&double);
        for dtype in DType::all() {
            for granularity in granularities(dtype) {
                let expected = sample_by(dtype, granularity, &data, channels);
                let decoded: Vec<f32> = expected.decoded();
                for isa in Isa::available() {
                    let cpu = Cpu::with_threads(isa, 3).unwrap();
                    let mut bytes = vec![0; expected.bytes().len()];
                    let mut scales = vec![0.0; expected.scales.len()];
                    expected.packing.encode(Some(&cpu), &data, &mut bytes, &mut scales).unwrap();
                    assert!(bytes == expected.bytes(), "{dtype} on {isa:?}");
                    let bits =
                        |scales: &[f32]| scales.iter().map(|scale| scale.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&scales), bits(&expected.scales), "{dtype} on {isa:?}");
                    let mut out = vec![0.0f32; data.len()];
                    expected.packing.decode(isa, &bytes, &scales, &mut out);
                    assert_eq!(out, decoded);
                }
            }
        }
    }
}

#[test]
fn turned_matrices_are_the_transpose() {
    let (rows, channels) = (37, 150);
    let data = single(&normal(11, rows * channels));
    let turned: Vec<f32> = (0..data.len()).map(|at| data[at % rows * channels + at / rows]).collect();
    for dtype in DType::all() {
        let stored = sample(dtype, &turned, rows);
        let packing = Packing { turned: true, rows, channels, ..stored.packing };
        assert_eq!(packing.as_stored(), stored.packing);
        let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
        packing.encode_parameter("weight", &Rule::default(), None, &data, &mut bytes, &mut scales).unwrap();
        assert_eq!(bytes, stored.bytes());
        let plain: Vec<f32> = stored.decoded();
        for (some, across) in [(0..rows, 0..channels), (5..6, 3..channels), (3..30, 7..140)] {
            let mut tile = vec![f32::NAN; some.len() * across.len()];
            let from = (stored.bytes(), &stored.scales[..]);
            packing.decode_tile(Isa::portable(), from, some.clone(), across.clone(), &mut tile, across.len());
            let expected = some.flat_map(|row| across.clone().map(move |column| (row, column)));
            for ((row, column), found) in expected.zip(tile) {
                assert_eq!(found.to_bits(), plain[column * rows + row].to_bits(), "{dtype}");
            }
        }
    }
}
