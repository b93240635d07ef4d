//! Sums of products of codes against plain loops over 64-bit integers, and what is made of them.

use super::*;
use crate::dtype::{DType, Granularity, Packing};
use crate::matrix::tests::{bits, machines, numbers};
use crate::matrix::{Bias, NoEpilogue};
use crate::simd::Isa;
use proptest::prelude::*;

struct Packed {
    packing: Packing,
    bytes: Vec<u8>,
    scales: Vec<f32>,
}

impl Packed {
    fn new(dtype: DType, granularity: Option<Granularity>, k: usize, n: usize) -> Self {
        let granularity = dtype.granularity(granularity).unwrap_or(dtype.row().granularity);
        let packing = Packing::new(dtype, k, n).with(granularity);
        let weights = numbers::<f32>((k * 31 + n) as u64, k * n);
        let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
        packing.encode(None, &weights, &mut bytes, &mut scales).unwrap();
        Self { packing, bytes, scales }
    }

    fn weight(&self) -> IntegerWeight<'_> {
        IntegerWeight::new(self.packing, &self.bytes, &self.scales).unwrap()
    }

    /// Codes by decoding elsewhere and dividing by the scale.
    fn codes(&self) -> Vec<i64> {
        let Packing { rows: k, channels: n, .. } = self.packing;
        let mut decoded = vec![0.0f32; k * n];
        self.packing.decode(Isa::portable(), &self.bytes, &self.scales, &mut decoded);
        let scale = |k: usize, column: usize| {
            let mut scales = [0.0; COLUMNS];
            self.weight().scales(k, column..column + 1, &mut scales);
            scales[0]
        };
        let code = |(at, value): (usize, &f32)| {
            let scale = scale(at / n, at % n);
            if scale == 0.0 { 0 } else { (value / scale).round() as i64 }
        };
        decoded.iter().enumerate().map(code).collect()
    }
}

/// Rows of x, one of zeros among them, quantised by the definition, in f64 where that is exact.
fn quantize(x: &[f32]) -> (f32, Vec<i64>) {
    let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let scale = if largest / 127.0 == 0.0 { 1.0 } else { largest / 127.0 };
    (scale, x.iter().map(|x| (x / scale).round_ties_even().clamp(-127.0, 127.0) as i64).collect())
}

fn activations(m: usize, k: usize) -> Vec<f32> {
    let mut x = numbers::<f32>((m * 7 + k) as u64, m * k);
    x[..k].fill(0.0);
    x
}

/// The documented formula by plain loops.
fn expected(packed: &Packed, x: &[f32], m: usize, before: &[f32], start: Start, bias: &[f32]) -> Vec<f32> {
    let Packing { rows: k, channels: n, .. } = packed.packing;
    let (codes, weight) = (packed.codes(), packed.weight());
    let mut out = before.to_vec();
    for i in 0..m {
        let whole = &x[i * k..(i + 1) * k];
        let (scale, row) = quantize(whole);
        for j in 0..n {
            let (mut sum, mut done) = (0.0f32, 0);
            while done < k {
                let end = weight.group_end(done);
                let mut scales = [0.0; COLUMNS];
                weight.scales(done, j..j + 1, &mut scales);
                if packed.packing.has_blocks() {
                    // Activations have a scale for each block, too.
                    let (own, row) = quantize(&whole[done..end]);
                    let exact: i64 = (done..end).zip(row).map(|(k, a)| a * codes[k * n + j]).sum();
                    sum = (i32::try_from(exact).unwrap() as f32).mul_add(scales[0] * own, sum);
                } else {
                    let exact: i64 = (done..end).map(|k| row[k] * codes[k * n + j]).sum();
                    sum = (i32::try_from(exact).unwrap() as f32).mul_add(scales[0], sum);
                }
                done = end;
            }
            let value = if packed.packing.has_blocks() { sum } else { sum * scale };
            out[i * n + j] = if start == Start::Zero { value } else { out[i * n + j] + value } + bias[j];
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn products_are_the_formula_on_every_machine(
        dtype in 0..IntegerWeight::TYPES.len(),
        (m, k, n) in (1..15_usize, 1..140_usize, 1..150_usize),
        granularity in prop_oneof![
            2 => Just(None),
            1 => Just(Some(Granularity::Tensor)),
            1 => (1..40_usize).prop_map(|rows| Some(Granularity::Block(rows))),
        ],
        continues in any::<bool>(),
    ) {
        let packed = Packed::new(IntegerWeight::TYPES[dtype], granularity, k, n);
        let (x, bias) = (activations(m, k), numbers::<f32>(3, n));
        let start = if continues { Start::Continue } else { Start::Zero };
        let before = numbers::<f32>(4, m * n);
        let expected = expected(&packed, &x, m, &before, start, &bias);
        for cpu in machines() {
            let mut c = before.clone();
            let epilogue = Bias::Columns(&bias);
            integer_product(cpu, &x, &packed.weight(), start, &epilogue, Output::new(&mut c, m, n));
            prop_assert!(bits(&c) == bits(&expected), "{} on {cpu:?}", packed.packing.dtype);
        }
    }
}

/// The same integers from every instruction set there is, over depths that are cut into panels.
#[test]
fn raw_sums_are_the_same_integers_on_every_route() {
    for dtype in IntegerWeight::TYPES {
        let (m, k, n) = (9, 2300, 70);
        let packed = Packed::new(dtype, None, k, n);
        let (x, codes) = (activations(m, k), packed.codes());
        for depth in [0..k, 3..1111, 2047..2300] {
            let mut expected = vec![0i32; m * n];
            for i in 0..m {
                let (_, row) = quantize(&x[i * k..(i + 1) * k]);
                for j in 0..n {
                    let exact: i64 = depth.clone().map(|k| row[k] * codes[k * n + j]).sum();
                    expected[i * n + j] = i32::try_from(exact).unwrap();
                }
            }
            for route in Route::available() {
                let mut memory = Buffer::default();
                let rows = QuantizedRows::new(&machines()[0], route, &x, m, k, &mut memory);
                let mut sums = vec![7; m * n];
                integer_sums(route, &rows, &packed.weight(), depth.clone(), &mut sums);
                assert!(sums == expected, "{dtype} {depth:?} on {route:?}");
            }
        }
    }
}

/// The largest sums there can be, of either sign, come out exactly.
#[test]
fn the_largest_sums_are_exact() {
    let (k, n) = (DEPTH_LIMIT - 1, 3);
    let packing = Packing::new(DType::Int8, k, n);
    let bytes: Vec<u8> = [127i8 as u8, -127i8 as u8, 1].into_iter().cycle().take(k * n).collect();
    let weight = IntegerWeight::new(packing, &bytes, &[1.0; 3]).unwrap();
    let x: Vec<f32> = vec![2.5; k];
    for route in Route::available() {
        let mut memory = Buffer::default();
        let rows = QuantizedRows::new(&machines()[0], route, &x, 1, k, &mut memory);
        let mut sums = [0; 3];
        integer_sums(route, &rows, &weight, 0..k, &mut sums);
        let most = i32::try_from(127 * 127 * k as i64).unwrap();
        assert_eq!(sums, [most, -most, 127 * k as i32], "{route:?}");
    }
}

#[test]
fn rows_that_are_not_finite_give_nan_and_leave_the_others_alone() {
    let packed = Packed::new(DType::Int8, None, 40, 20);
    for cpu in machines() {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = numbers::<f32>(1, 3 * 40);
            x[50] = broken;
            let mut c = [0.0; 60];
            integer_product(cpu, &x, &packed.weight(), Start::Zero, &NoEpilogue, Output::new(&mut c, 3, 20));
            assert!(c[20..40].iter().all(|value| value.is_nan()));
            assert!(c[..20].iter().chain(&c[40..]).all(|value| value.is_finite()));
        }
    }
}

#[test]
fn other_types_and_too_many_inputs_are_refused_by_name() {
    for dtype in DType::all() {
        let checked = IntegerWeight::check_type(dtype);
        assert_eq!(checked.is_ok(), IntegerWeight::TYPES.contains(&dtype));
        if let Err(error) = checked {
            assert!(error.to_string().contains(dtype.name()) && error.to_string().contains("q8_0"));
        }
    }
    assert!(IntegerWeight::check_depth(DEPTH_LIMIT - 1).is_ok());
    assert!(IntegerWeight::check_depth(DEPTH_LIMIT).unwrap_err().to_string().contains("133144"));
}

/// Weights that are multiplied as they lie, with the instructions of every route.
#[test]
fn a_few_rows_are_the_formula_on_every_route() {
    for dtype in IntegerWeight::TYPES {
        for (m, k, n) in [
            (1, 32, 64),
            (2, 97, 40),
            (3, 101, 144),
            (7, 1, 32),
            (8, 2049, 72),
            (1, 300, 1064),
            (5, 65, 7),
            (27, 130, 50),
        ] {
            let granularity =
                if m == 3 { dtype.granularity(Some(Granularity::Block(22))).ok() } else { None };
            let packed = Packed::new(dtype, granularity, k, n);
            if !dtype.is_block_format() && (m > FEW || n < 32) {
                continue;
            }
            let (x, bias) = (activations(m, k), vec![0.0; n]);
            let expected = expected(&packed, &x, m, &vec![0.0; m * n], Start::Zero, &bias);
            for route in Route::available() {
                let mut memory = Buffer::default();
                let (cpu, weight) = (&machines()[0], packed.weight());
                let mut c = vec![7.0; m * n];
                let output = Output::new(&mut c, m, n);
                if let Some((blocks, order)) = weight.in_blocks() {
                    let rows = BlockRows::new(cpu, order, &x, (m, k), &mut memory);
                    with_sixteen(blocks, n, |bytes, missing| {
                        let (rows, dtype, start) = (&rows, blocks.packing.dtype, Start::Zero);
                        let (epilogue, c) = (&NoEpilogue, &output);
                        let piece = Piece { route, rows, dtype, bytes, missing, start, epilogue, c };
                        blocks::product(cpu, &[piece]);
                    });
                } else {
                    let rows = PlainRows::new(route.isa(), &x, m, k, &mut memory);
                    let flat = weight.in_rows().unwrap();
                    flat::product((cpu, route), &rows, flat, Start::Zero, &NoEpilogue, &output);
                }
                assert!(bits(&c) == bits(&expected), "{dtype} [{m}, {k}] x [.., {n}] on {route:?}");
            }
        }
    }
}
