//! Every way through the product against the three plain loops, bit for bit.

use super::*;
use crate::simd::Real;
use half::bf16;
use proptest::prelude::*;
use std::ops::Range;
use std::sync::OnceLock;

/// Every instruction set that this machine has, on 1, 2 and 3 threads.
pub(super) fn machines() -> &'static [Cpu] {
    static MACHINES: OnceLock<Vec<Cpu>> = OnceLock::new();
    MACHINES.get_or_init(|| {
        let with = |isa: Isa| (1..=3).map(move |threads| Cpu::with_threads(isa, threads).unwrap());
        Isa::available().into_iter().flat_map(with).collect()
    })
}

/// Numbers of many magnitudes, so that another order of sums shows in the bits.
pub(super) fn numbers<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
            T::from_f64(f64::from(unit) * ((state >> 20 & 7) as f64 - 3.0).exp2())
        })
        .collect()
}

pub(super) fn bits<T: Real>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// How an operand lies in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Plain,
    Transposed,
    /// Rows further apart than they are long.
    Gap(usize),
    /// Neither extent contiguous.
    Spread(usize),
}

impl Layout {
    /// The operand of `depth` by `lanes`, with neighbouring lanes contiguous where plain.
    fn operand<T: Real>(self, data: &[T], depth: usize, lanes: usize) -> Strided<'_, T> {
        match self {
            Layout::Plain => Strided::new(data, depth, lanes, lanes, 1),
            Layout::Transposed => Strided::new(data, depth, lanes, 1, depth),
            Layout::Gap(gap) => Strided::new(data, depth, lanes, lanes + gap, 1),
            Layout::Spread(step) => Strided::new(data, depth, lanes, lanes * step, step),
        }
    }

    fn room(self, depth: usize, lanes: usize) -> usize {
        match self {
            Layout::Plain | Layout::Transposed => depth * lanes,
            Layout::Gap(gap) => depth * (lanes + gap),
            Layout::Spread(step) => depth * lanes * step,
        }
    }
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![
        3 => Just(Layout::Plain),
        3 => Just(Layout::Transposed),
        1 => (1..5_usize).prop_map(Layout::Gap),
        1 => (2..4_usize).prop_map(Layout::Spread),
    ]
}

/// An epilogue that depends on the value and its place, and counts on being applied once.
struct Marked;

impl<T: Real> Epilogue<T> for Marked {
    fn apply(&self, _: Isa, row: usize, column: usize, piece: &mut [T]) {
        for (j, z) in piece.iter_mut().enumerate() {
            *z *= T::from_usize(1 + (row * 7 + (column + j) * 3) % 11);
        }
    }
}

/// Compares with the reference on every machine, serially too.
fn check<T: Real>(
    a: &dyn PanelSource<T>,
    b: &dyn PanelSource<T>,
    start: Start,
    epilogue: &dyn Epilogue<T>,
    row_gap: usize,
) {
    let (m, n) = (a.lanes(), b.lanes());
    let stride = n + row_gap;
    let before = numbers::<T>(99, m * stride);
    let mut expected = before.clone();
    product_reference(a, b, start, epilogue, Output::strided(&mut expected, m, n, stride));
    for cpu in machines() {
        let mut c = before.clone();
        product(cpu, a, b, start, epilogue, Output::strided(&mut c, m, n, stride));
        assert!(bits(&c) == bits(&expected), "[{m}, {}] x [.., {n}] {start:?} on {cpu:?}", a.depth());
        if cpu.pool().threads() == 1 {
            c.copy_from_slice(&before);
            product_serial(cpu.isa(), a, b, start, epilogue, Output::strided(&mut c, m, n, stride));
            assert!(bits(&c) == bits(&expected), "[{m}, {}] x [.., {n}] {start:?} serial", a.depth());
        }
    }
}

fn check_strided<T: Real>(
    (m, k, n): (usize, usize, usize),
    (left, right): (Layout, Layout),
    start: Start,
    epilogue: usize,
    row_gap: usize,
) {
    let a = numbers::<T>(1, left.room(k, m));
    let b = numbers::<T>(2, right.room(k, n));
    let bias = numbers::<T>(3, m.max(n));
    let epilogues: [&dyn Epilogue<T>; 4] = [
        &NoEpilogue,
        &Bias::Columns(&bias[..n]),
        &Bias::Rows(&bias[..m]),
        &(Bias::Columns(&bias[..n]), Marked),
    ];
    check(&left.operand(&a, k, m), &right.operand(&b, k, n), start, epilogues[epilogue], row_gap);
}

fn starts() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Zero), Just(Start::Continue)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn single_precision_is_the_reference(
        shape in (1..70_usize, 1..70_usize, 1..70_usize),
        layouts in (layouts(), layouts()),
        start in starts(),
        epilogue in 0..4_usize,
        row_gap in 0..3_usize,
    ) {
        check_strided::<f32>(shape, layouts, start, epilogue, row_gap);
    }

    #[test]
    fn double_precision_is_the_reference(
        shape in (1..40_usize, 1..40_usize, 1..70_usize),
        layouts in (layouts(), layouts()),
        start in starts(),
        epilogue in 0..4_usize,
        row_gap in 0..3_usize,
    ) {
        check_strided::<f64>(shape, layouts, start, epilogue, row_gap);
    }

    #[test]
    fn few_rows_are_the_reference(
        shape in (1..17_usize, 1..70_usize, 1..700_usize),
        layouts in (layouts(), layouts()),
        start in starts(),
        epilogue in 0..4_usize,
    ) {
        check_strided::<f32>(shape, layouts, start, epilogue, 0);
    }

    #[test]
    fn packed_types_are_their_decoded_values(
        (m, k, n) in (1..40_usize, 1..70_usize, 1..150_usize),
        start in starts(),
    ) {
        check_decoded::<f32>(m, k, n, start);
        check_decoded::<f64>(m, k, n, start);
    }
}

fn check_decoded<T: Real>(m: usize, k: usize, n: usize, start: Start) {
    let a = numbers::<T>(1, m * k);
    let a = Strided::left(&a, m, k);
    let halves: Vec<bf16> = numbers::<f32>(4, k * n).into_iter().map(bf16::from_f32).collect();
    let wide: Vec<T> = halves.iter().map(|x| T::from_f64(x.to_f64())).collect();
    let codes: Vec<i8> = numbers::<f32>(5, k * n).into_iter().map(|x| (x * 16.0) as i8).collect();
    let scale = numbers::<T>(6, n);
    let decoded: Vec<T> =
        codes.iter().enumerate().map(|(i, &q)| T::from_f64(f64::from(q)) * scale[i % n]).collect();
    let packed: [(&dyn PanelSource<T>, &[T]); 2] =
        [(&Bfloat16Panels::new(&halves, k, n), &wide), (&Int8Panels::new(&codes, &scale, k, n), &decoded)];
    for (source, values) in packed {
        let mut expected = numbers::<T>(7, m * n);
        let before = expected.clone();
        let out = Output::new(&mut expected, m, n);
        product_reference(&a, &Strided::right(values, k, n), start, &NoEpilogue, out);
        for cpu in machines() {
            let mut c = before.clone();
            product(cpu, &a, source, start, &NoEpilogue, Output::new(&mut c, m, n));
            assert!(bits(&c) == bits(&expected), "[{m}, {k}] x [{k}, {n}] {start:?} on {cpu:?}");
        }
    }
}

/// Shapes that cross blocks of k, tasks, and tiles, in all layouts.
#[test]
fn large_and_odd_shapes_are_the_reference() {
    let shapes = [
        (61, 1201, 83),
        (130, 777, 37),
        (3, 2000, 530),
        (257, 65, 301),
        (1, 1000, 1),
        (1, 1, 1000),
        (300, 10, 10),
    ];
    for shape in shapes {
        for left in [Layout::Plain, Layout::Transposed] {
            for right in [Layout::Plain, Layout::Transposed] {
                check_strided::<f32>(shape, (left, right), Start::Continue, 3, 1);
            }
        }
    }
}

#[test]
fn an_empty_sum_is_the_start_and_empty_outputs_are_left_alone() {
    let (a, b) = ([0.0_f32; 0], [0.0_f32; 0]);
    let mut c = [5.0_f32; 6];
    let bias = [1.0, 2.0, 3.0];
    let epilogue = Bias::Columns(&bias);
    for cpu in machines() {
        let (a, b) = (Strided::left(&a, 2, 0), Strided::right(&b, 0, 3));
        c.fill(5.0);
        product(cpu, &a, &b, Start::Continue, &epilogue, Output::new(&mut c, 2, 3));
        assert_eq!(c, [6.0, 7.0, 8.0, 6.0, 7.0, 8.0]);
        product(cpu, &a, &b, Start::Zero, &epilogue, Output::new(&mut c, 2, 3));
        assert_eq!(c, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
        product(
            cpu,
            &Strided::left(&bias, 1, 3),
            &Strided::right(&[], 3, 0),
            Start::Zero,
            &NoEpilogue,
            Output::new(&mut [], 1, 0),
        );
        product(
            cpu,
            &Strided::left(&[], 0, 1),
            &Strided::right(&bias, 1, 3),
            Start::Zero,
            &NoEpilogue,
            Output::new(&mut [], 0, 3),
        );
    }
}

/// However operands lie, and however many rows and columns share what would be packed.
#[test]
fn empty_sums_of_any_layout_are_the_start() {
    let layouts = [Layout::Plain, Layout::Transposed, Layout::Gap(3), Layout::Spread(2)];
    for left in layouts {
        for right in layouts {
            for shape in [(1, 0, 3), (13, 0, 70), (40, 0, 90), (300, 0, 5)] {
                check_strided::<f32>(shape, (left, right), Start::Continue, 3, 1);
            }
        }
    }
}

/// Negative zero, infinities and denormals go the reference's way.
#[test]
fn special_values_are_the_references() {
    let special = [0.0, -0.0, f32::INFINITY, f32::MIN_POSITIVE, 1e-42, -1e-42, 1e38, -1e38, 1.0];
    let a: Vec<f32> = (0..14 * 20).map(|i| special[i * 5 % 9]).collect();
    let b: Vec<f32> = (0..20 * 40)
        .map(|i| special[(i * 7 + i / 40) % 9])
        .map(|x| if x == f32::INFINITY { 2.0 } else { x })
        .collect();
    let (a, b) = (Strided::left(&a, 14, 20), Strided::right(&b, 20, 40));
    let mut expected = [0.0_f32; 14 * 40];
    product_reference(&a, &b, Start::Zero, &NoEpilogue, Output::new(&mut expected, 14, 40));
    for cpu in machines() {
        let mut c = [0.0_f32; 14 * 40];
        product(cpu, &a, &b, Start::Zero, &NoEpilogue, Output::new(&mut c, 14, 40));
        for (c, expected) in c.iter().zip(&expected) {
            assert!(c.to_bits() == expected.to_bits() || c.is_nan() && expected.is_nan());
        }
    }
}

#[test]
fn extents_that_do_not_fit_are_refused() {
    let refused = |body: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err();
    let data = [0.0_f32; 12];
    assert!(refused(&|| _ = Strided::new(&data, 3, 4, 5, 1)));
    assert!(refused(&|| _ = Strided::new(&data, usize::MAX, 2, 2, 1)));
    assert!(refused(&|| _ = Strided::left(&data, 3, 5)));
    assert!(refused(&|| _ = Output::new(&mut [0.0_f32; 11], 3, 4)));
    assert!(refused(&|| _ = Output::strided(&mut [0.0_f32; 12], 3, 4, 3)));
    assert!(refused(&|| _ = Int8Panels::new(&[0; 12], &data[..3], 3, 4)));
    assert!(refused(&|| {
        let (a, b) = (Strided::left(&data, 3, 4), Strided::right(&data, 3, 4));
        product(&machines()[0], &a, &b, Start::Zero, &NoEpilogue, Output::new(&mut [0.0; 12], 3, 4));
    }));
}

/// A source of the kind that unfolds: it has no memory to be read in place.
struct Counting {
    depth: usize,
    lanes: usize,
}

impl PanelSource<f32> for Counting {
    fn depth(&self) -> usize {
        self.depth
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn pack(&self, _: Isa, depth: Range<usize>, lanes: Range<usize>, width: usize, out: &mut [f32]) {
        out.fill(0.0);
        for (row, k) in depth.enumerate() {
            for (column, lane) in lanes.clone().enumerate() {
                out[row * width + column] = (k as f32 - 3.5) / (lane + 1) as f32;
            }
        }
    }
}

#[test]
fn sources_that_only_pack_serve_on_either_side() {
    for (m, k, n) in [(1, 400, 50), (30, 20, 200), (75, 801, 33)] {
        let (a, b) = (Counting { depth: k, lanes: m }, Counting { depth: k, lanes: n });
        check::<f32>(&a, &b, Start::Zero, &NoEpilogue, 0);
    }
}
