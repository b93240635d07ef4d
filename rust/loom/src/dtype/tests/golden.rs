//! Codes against ml_dtypes and the published block layouts, by what tests/golden/dtypes.py writes.

use super::*;
use crate::dtype::coding::{Coding, Fit};
use crate::dtype::float16::{BFloat16, Float16};
use crate::dtype::small_float::{E2M1, E4M3, E5M2};
use serde::Deserialize;
use std::collections::BTreeMap;

const RANDOM: usize = 1_000_000;

#[derive(Deserialize)]
struct Golden {
    floats: BTreeMap<String, Floats>,
    blocks: BlockCases,
    tables: BTreeMap<String, TableCases>,
}

#[derive(Deserialize)]
struct Floats {
    values_digest: String,
    random_digest: String,
    midpoints_digest: String,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
struct BlockCases {
    values: Vec<String>,
    bytes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct TableCases {
    levels: Vec<String>,
    values: Vec<String>,
    scales: Vec<String>,
    codes: String,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../../../../tests/golden/dtypes.json")).unwrap()
}

fn bits(text: &str) -> u32 {
    u32::from_str_radix(text, 16).unwrap()
}

/// The script's well mixed word of a place.
fn word(place: usize) -> u32 {
    let word = place as u32 + 1;
    let word = (word ^ word >> 16).wrapping_mul(0x85EB_CA6B);
    let word = (word ^ word >> 13).wrapping_mul(0xC2B2_AE35);
    word ^ word >> 16
}

fn digest(codes: impl Iterator<Item = u64>) -> String {
    let sum = codes
        .enumerate()
        .fold(0u64, |sum, (place, code)| sum.wrapping_add((code + 1).wrapping_mul(u64::from(word(place)))));
    format!("{sum:016x}")
}

/// Every code's number, a million random numbers, and all midpoints with their neighbours.
fn check<C: Coding>(golden: &Golden, name: &str, codes: u32, largest: u32, exponents: (u32, u32))
where
    C::Code: TryFrom<u32> + Into<u64>,
{
    let floats = &golden.floats[name];
    let unit = Fit { scale: 1.0, zero: 0 };
    let value = |code: u32| -> f32 {
        C::number(C::Code::try_from(code).unwrap_or_else(|_| panic!("{code} is too large")), unit)
    };
    let code = |value: f32| -> u64 {
        let single = C::code(value, unit).into();
        assert_eq!(C::code(f64::from(value), unit).into(), single, "{value:e}");
        single
    };
    // Codes that no number is encoded as, which are not finite elsewhere, mean nothing here.
    let stands = |code: u32| code & (codes / 2 - 1) <= largest;
    for (place, expected) in floats.values.iter().enumerate().filter(|(place, _)| stands(*place as u32)) {
        assert_eq!(value(place as u32).to_bits(), bits(expected), "{name}: code {place}");
    }
    if floats.values.is_empty() {
        let all = (0..codes).map(value);
        let all = all.map(|x| u64::from(if x.is_nan() { 0x7FC0_0000 } else { x.to_bits() }));
        assert_eq!(digest(all), floats.values_digest, "{name}: numbers");
    }
    let limit = value(largest);
    let random = (0..RANDOM).map(|place| {
        let exponent = exponents.0 + place as u32 % exponents.1;
        code(f32::from_bits(word(place) & 0x807F_FFFF | exponent << 23).clamp(-limit, limit))
    });
    assert_eq!(digest(random), floats.random_digest, "{name}: random numbers");
    let around = (0..largest).flat_map(|low| {
        let middle = ((f64::from(value(low)) + f64::from(value(low + 1))) / 2.0) as f32;
        let bits = middle.to_bits();
        [bits - 1, bits, bits + 1].map(f32::from_bits).into_iter().flat_map(|x| [x, -x])
    });
    assert_eq!(digest(around.map(code)), floats.midpoints_digest, "{name}: midpoints");
}

#[test]
fn small_floats_are_those_of_ml_dtypes() {
    let golden = golden();
    check::<Float16>(&golden, "float16", 1 << 16, 0x7BFF, (100, 43));
    check::<BFloat16>(&golden, "bfloat16", 1 << 16, 0x7F7F, (0, 255));
    check::<E4M3>(&golden, "float8_e4m3", 256, 0x7E, (114, 23));
    check::<E5M2>(&golden, "float8_e5m2", 256, 0x7B, (108, 36));
    check::<E2M1>(&golden, "float4_e2m1", 16, 0x7, (123, 8));
}

#[test]
fn blocks_are_those_of_the_published_layouts() {
    let BlockCases { values, bytes } = golden().blocks;
    let values: Vec<f32> = values.iter().map(|text| f32::from_bits(bits(text))).collect();
    assert_eq!(bytes.len(), DType::all().filter(|dtype| dtype.is_block_format()).count());
    for (name, expected) in bytes {
        let dtype = DType::parse(&name).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(sample(dtype, &values, 1).bytes()), expected, "{name}");
        let double: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
        assert_eq!(hex(sample(dtype, &double, 1).bytes()), expected, "{name} of doubles");
        // Outputs stand side by side in a parameter, and one after the other in the format.
        let twice: Vec<f32> = values.iter().flat_map(|value| [*value, *value]).collect();
        assert_eq!(hex(sample(dtype, &twice, 2).bytes()), expected.repeat(2), "{name} of two outputs");
    }
}

#[test]
fn levels_are_those_of_the_published_tables() {
    for (name, TableCases { levels, values, scales, codes }) in golden().tables {
        let dtype = DType::parse(&name).unwrap();
        let numbers =
            |texts: &[String]| -> Vec<f32> { texts.iter().map(|text| f32::from_bits(bits(text))).collect() };
        let (levels, values, scales) = (numbers(&levels), numbers(&values), numbers(&scales));
        let found = sample(dtype, &values, 1);
        assert_eq!(found.scales, scales, "{name}");
        let code = |place: usize| found.bytes()[place / 2] >> (place % 2 * 4) & 15;
        let own: String = (0..values.len()).map(|place| format!("{:x}", code(place))).collect();
        assert_eq!(own, codes, "{name}");
        for (place, number) in found.decoded::<f32>().into_iter().enumerate() {
            let scale = found.scales[super::group(&found.packing, place)];
            assert_eq!(number, levels[usize::from(code(place))] * scale, "{name}: element {place}");
        }
    }
}
