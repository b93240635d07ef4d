//! What the tests of operations share: running one everywhere, scalar sums, finite differences.

use super::Operation;
use crate::ops::{Args, StepValues};
use crate::simd::{Cpu, Isa, LANES, Real};
use std::sync::OnceLock;

/// Every instruction set of this machine on one thread and on three, portable on one thread first.
pub(crate) fn cpus() -> &'static [Cpu] {
    static CPUS: OnceLock<Vec<Cpu>> = OnceLock::new();
    CPUS.get_or_init(|| {
        let all = |threads| {
            Isa::available()
                .into_iter()
                .map(move |isa| Cpu::with_threads(isa, threads).expect("threads to start"))
        };
        all(1).chain(all(3)).collect()
    })
}

/// An operand or a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data<T> {
    Real(Vec<T>),
    Index(Vec<i32>),
}

impl<T: Real> Data<T> {
    pub(crate) fn real(&self) -> &[T] {
        match self {
            Data::Real(elements) => elements,
            Data::Index(_) => panic!("indices where real numbers were expected"),
        }
    }

    pub(crate) fn indices(&self) -> &[i32] {
        match self {
            Data::Index(elements) => elements,
            Data::Real(_) => panic!("real numbers where indices were expected"),
        }
    }

    fn bits(&self) -> Vec<u64> {
        match self {
            // The sign and payload of a NaN are nobody's promise.
            Data::Real(x) => x.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits_u64() }).collect(),
            Data::Index(x) => x.iter().map(|x| *x as u64).collect(),
        }
    }
}

impl<T> From<Vec<i32>> for Data<T> {
    fn from(elements: Vec<i32>) -> Self {
        Data::Index(elements)
    }
}

/// What an operation is run on.
#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) rows: usize,
    pub(crate) accumulate: bool,
    pub(crate) path: u32,
    pub(crate) values: StepValues,
    pub(crate) reads: Vec<Data<T>>,
    /// What the results hold before.
    pub(crate) writes: Vec<Data<T>>,
}

impl<T: Real> Setting<T> {
    /// Reads these real operands, writes real results of these lengths over rubbish.
    pub(crate) fn new(rows: usize, reads: &[&[T]], writes: &[usize]) -> Self {
        Self {
            rows,
            accumulate: false,
            path: 0,
            values: StepValues::default(),
            reads: reads.iter().map(|x| Data::Real(x.to_vec())).collect(),
            writes: writes.iter().map(|len| Data::Real(vec![T::from_f64(-77.0); *len])).collect(),
        }
    }

    /// The results on one processor.
    pub(crate) fn run_on(&self, op: &impl Operation, cpu: &Cpu) -> crate::Result<Vec<Data<T>>> {
        let mut results = self.writes.clone();
        let mut args = Args::new(cpu, self.rows, &self.values);
        args.accumulate = self.accumulate;
        args.path = self.path;
        for (i, operand) in self.reads.iter().enumerate() {
            match operand {
                Data::Real(elements) => args.set_read(i, elements),
                Data::Index(elements) => args.set_read(i, elements),
            }
        }
        for (i, result) in results.iter_mut().enumerate() {
            match result {
                Data::Real(elements) => args.set_write(i, elements),
                Data::Index(elements) => args.set_write(i, elements),
            }
        }
        op.run::<T>(&mut args)?;
        Ok(results)
    }

    /// The results, which must be the same bits on every instruction set and number of threads.
    #[track_caller]
    pub(crate) fn run(&self, op: &impl Operation) -> Vec<Data<T>> {
        let results = self.run_on(op, &cpus()[0]).expect("the operation to run");
        for cpu in &cpus()[1..] {
            let others = self.run_on(op, cpu).expect("the operation to run");
            for (i, (result, other)) in results.iter().zip(&others).enumerate() {
                let (expected, found) = (result.bits(), other.bits());
                let place = expected.iter().zip(&found).position(|(a, b)| a != b);
                assert_eq!(place, None, "{op}: result {i} on {cpu:?} differs: {result:?} {other:?}");
            }
        }
        results
    }

    /// The same with the first two operands, those of a product, rounded.
    pub(crate) fn with_rounded(&self, round: impl Fn(T) -> T) -> Self {
        let mut setting = self.clone();
        for operand in setting.reads.iter_mut().take(2) {
            *operand = Data::Real(operand.real().iter().map(|x| round(*x)).collect());
        }
        setting
    }

    /// The first result.
    #[track_caller]
    pub(crate) fn result(&self, op: &impl Operation) -> Vec<T> {
        self.result_number(op, 0)
    }

    /// A result by its number.
    #[track_caller]
    pub(crate) fn result_number(&self, op: &impl Operation, number: usize) -> Vec<T> {
        self.run(op)[number].real().to_vec()
    }
}

/// Ordinary numbers, the same for the same seed: about normal, some of them zeros of either sign.
pub(crate) fn numbers<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    (0..len)
        .map(|_| match (next() * 40.0) as usize {
            0 => T::ZERO,
            1 => -T::ZERO,
            _ => T::from_f64((next() + next() + next() - 1.5) * 2.0),
        })
        .collect()
}

/// The order of every reduction along an extent: 16 lanes and one tree.
pub(crate) fn lane_sum<T: Real>(x: impl IntoIterator<Item = T>) -> T {
    let mut lanes = [T::ZERO; LANES];
    for (i, x) in x.into_iter().enumerate() {
        lanes[i % LANES] += x;
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// Equal to the bit.
#[track_caller]
pub(crate) fn assert_bits<T: Real>(found: &[T], expected: &[T]) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        let same = a.to_bits_u64() == b.to_bits_u64() || (a.is_nan() && b.is_nan());
        assert!(same, "element {i}: {a} for {b}");
    }
}

/// Equal within `tolerance` of the largest magnitude, or of 1 where that is smaller.
#[track_caller]
pub(crate) fn assert_close<T: Real>(found: &[T], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1.0, |scale: f64, x| scale.max(x.abs()));
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a.to_f64() - b).abs() <= tolerance * scale, "element {i}: {a} for {b:e}, scale {scale:e}");
    }
}

/// The gradient of `f` at `x` by central differences.
pub(crate) fn differences(x: &[f64], mut f: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    let step = 1e-5;
    let mut x = x.to_vec();
    (0..x.len())
        .map(|i| {
            let at = x[i];
            x[i] = at + step;
            let above = f(&x);
            x[i] = at - step;
            let below = f(&x);
            x[i] = at;
            (above - below) / (2.0 * step)
        })
        .collect()
}

/// Checks a gradient against central differences: relative error below 1e-6.
#[track_caller]
pub(crate) fn assert_gradient(gradient: &[f64], x: &[f64], f: impl FnMut(&[f64]) -> f64) {
    assert_close(gradient, &differences(x, f), 1e-6);
}
