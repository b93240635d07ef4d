//! The update rules against PyTorch, and against themselves on other machines.

use super::{Optimizer, TrustRatio, Update};
use crate::ops::testing::{Data, Setting};
use crate::ops::{Args, Operation, StepValues};
use crate::random::{Stream, Use};
use crate::simd::{Cpu, Isa, Real};
use crate::tensor::Precision;
use serde::Deserialize;

/// What tests/golden/optimizers.py writes.
#[derive(Deserialize)]
pub(super) struct Golden {
    checkpoints: Vec<usize>,
    pub(super) cases: Vec<Case>,
}

#[derive(Deserialize)]
pub(super) struct Case {
    pub(super) optimizer: Optimizer,
    rate: f64,
    float64: Vec<Vec<f64>>,
    float32: Vec<Vec<f64>>,
}

pub(super) fn golden() -> Golden {
    serde_json::from_str(include_str!("../../../../../tests/golden/optimizers.json")).unwrap()
}

/// Every rule that stands alone, with its options, and those by norms.
pub(super) fn rules() -> Vec<Optimizer> {
    let by_norms = ["{\"type\": \"lamb\"}", "{\"type\": \"lamb\", \"weight_decay\": 0.3, \"epsilon\": 1e-8}"];
    let by_norms = by_norms.map(|text| serde_json::from_str(text).unwrap());
    golden().cases.into_iter().map(|case| case.optimizer).chain(by_norms).collect()
}

/// What the update of a store of one parameter reads after the gradient, of this many numbers.
pub(super) fn beside(op: &Update, setting: &Setting<f32>) -> Vec<Data<f32>> {
    if !op.optimizer.goes_by_norms() {
        return Vec::new();
    }
    let mut reads = vec![setting.reads[0].clone()];
    reads.extend(setting.writes.iter().cloned());
    let parts = std::iter::once(0..op.len).collect();
    let of = Setting { reads, writes: vec![Data::Real(vec![0.0])], ..setting.clone() };
    of.run_on(&TrustRatio { update: Box::new(op.clone()), parts }, Cpu::global().unwrap()).unwrap()
}

/// A store under training: master and moments.
#[derive(Clone, Debug, PartialEq)]
struct State<T> {
    master: Vec<T>,
    moments: Vec<Vec<T>>,
}

impl<T: Real> State<T> {
    fn new(optimizer: &Optimizer, master: Vec<T>) -> Self {
        let moments = vec![vec![T::ZERO; master.len()]; optimizer.slots().len()];
        Self { master, moments }
    }

    fn update(&mut self, cpu: &Cpu, op: &Update, gradient: &[T], values: &StepValues) {
        let ratios = vec![T::from_f64(0.5); op.offsets.len()];
        let mut args = Args::new(cpu, 1, values);
        args.set_read(0, gradient);
        if op.optimizer.goes_by_norms() {
            args.set_read(1, &ratios);
        }
        args.set_write(0, &mut self.master);
        for (slot, moment) in self.moments.iter_mut().enumerate() {
            args.set_write(slot + 1, moment);
        }
        op.run::<T>(&mut args).unwrap();
    }

    fn bits(&self) -> Vec<u64> {
        std::iter::once(&self.master).chain(&self.moments).flatten().map(|x| x.to_bits_u64()).collect()
    }
}

pub(super) fn update(optimizer: &Optimizer, len: usize) -> Update {
    Update::new(optimizer.clone(), len)
}

/// The weights that the golden runs start from.
pub(super) fn initial<T: Real>(len: usize) -> Vec<T> {
    (0..len).map(|i| T::from_f64(((17 * i) % 23) as f64 / 8.0 - 11.0 / 8.0)).collect()
}

/// The gradients of the golden runs.
pub(super) fn gradient<T: Real>(len: usize, step: usize) -> Vec<T> {
    let element = |i: usize| {
        let fraction = ((37 * i + 101 * step + 2 * i * step) % 61) as f64 - 30.0;
        fraction / 32.0 / (1 << (i % 8)) as f64
    };
    (0..len).map(|i| T::from_f64(element(i))).collect()
}

fn compare<T: Real>(tolerance: f64) {
    let cpu = Cpu::with_threads(Isa::best(), 1).unwrap();
    let Golden { checkpoints, cases } = golden();
    assert!(cases.len() >= 6 + 8 + 16);
    // Rules that look at whole parameters have golden trainings, by Optax.
    let alone = |known: &&Optimizer| !known.goes_by_norms() && !known.is_made_beside();
    for known in Optimizer::ALL.iter().filter(alone).filter(|known| known.name() != "velocity") {
        assert!(cases.iter().any(|case| case.optimizer.name() == known.name()), "{known:?}");
    }
    for case in cases {
        let expected = match T::PRECISION {
            Precision::Float32 | Precision::Mixed => &case.float32,
            Precision::Float64 => &case.float64,
        };
        let len = expected[0].len();
        let op = update(&case.optimizer, len);
        let mut state = State::<T>::new(&case.optimizer, initial(len));
        let mut reached = checkpoints.iter().zip(expected);
        let mut next = reached.next();
        for step in 0..100 {
            let rate = case.rate * (1.0 - step as f64 / 128.0);
            let values = StepValues { rate, optimizer_step: step as u64 + 1, ..StepValues::default() };
            state.update(&cpu, &op, &gradient(len, step), &values);
            let Some((_, expected)) = next.filter(|(checkpoint, _)| **checkpoint == step + 1) else {
                continue;
            };
            let largest = expected.iter().fold(0.0f64, |largest, w| largest.max(w.abs()));
            for (found, expected) in state.master.iter().zip(expected) {
                let error = (found.to_f64() - expected).abs() / largest;
                assert!(
                    error <= tolerance,
                    "{:?}, step {}: {found}, not {expected}",
                    case.optimizer,
                    step + 1
                );
            }
            next = reached.next();
        }
        assert!(next.is_none());
    }
}

#[test]
fn matches_pytorch_in_f64() {
    compare::<f64>(1e-9);
}

#[test]
fn matches_pytorch_in_f32() {
    compare::<f32>(1e-5);
}

/// Three updates with random weights and gradients.
fn trained<T: Real>(cpu: &Cpu, op: &Update) -> State<T> {
    let stream = Stream::new(1, 0, 0, Use::Initialize);
    let mut numbers = vec![0.0; 4 * op.len];
    stream.fill_normal(0, &mut numbers);
    let numbers: Vec<T> = numbers.into_iter().map(T::from_f64).collect();
    let (master, gradients) = numbers.split_at(op.len);
    let mut state = State::new(&op.optimizer, master.to_vec());
    for (step, gradient) in gradients.chunks_exact(op.len).enumerate() {
        let values = StepValues { rate: 0.01, optimizer_step: step as u64 + 1, ..StepValues::default() };
        state.update(cpu, op, gradient, &values);
    }
    state
}

fn same_everywhere<T: Real>() {
    let reference = Cpu::with_threads(Isa::portable(), 1).unwrap();
    for optimizer in rules() {
        for len in [1, 15, 16, 37, 40_000] {
            // A long store only for one rule of each number of moments.
            if len > 100 && optimizer != with_moments(optimizer.slots().len()) {
                continue;
            }
            let op = update(&optimizer, len);
            let expected = trained::<T>(&reference, &op).bits();
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let cpu = Cpu::with_threads(isa, threads).unwrap();
                    assert!(trained::<T>(&cpu, &op).bits() == expected, "{op:?} on {isa}, {threads} threads");
                }
            }
        }
    }
}

/// The first golden rule with this many moments.
pub(super) fn with_moments(count: usize) -> Optimizer {
    golden()
        .cases
        .into_iter()
        .map(|case| case.optimizer)
        .find(|optimizer| optimizer.slots().len() == count)
        .unwrap()
}

#[test]
fn the_same_bits_everywhere() {
    same_everywhere::<f32>();
    same_everywhere::<f64>();
}

/// Each element follows the rule that holds where it stands, wherever the cuts are.
#[test]
fn exempt_parts_do_not_decay() {
    let cpu = Cpu::with_threads(Isa::best(), 2).unwrap();
    let (len, exempt) = (50, vec![0..3, 20..41]);
    for optimizer in rules() {
        let whole = trained::<f64>(&cpu, &update(&optimizer, len));
        let free = trained::<f64>(&cpu, &update(&without_decay(&optimizer), len));
        let mixed = trained::<f64>(&cpu, &Update { exempt: exempt.clone(), ..update(&optimizer, len) });
        let pairs = std::iter::once((&mixed.master, &whole.master, &free.master)).chain(
            mixed
                .moments
                .iter()
                .zip(&whole.moments)
                .zip(&free.moments)
                .map(|((mixed, whole), free)| (mixed, whole, free)),
        );
        for (mixed, whole, free) in pairs {
            for index in 0..len {
                let expected = if exempt.iter().any(|part| part.contains(&index)) { free } else { whole };
                assert_eq!(mixed[index], expected[index], "{optimizer:?}, element {index}");
            }
        }
    }
}

/// What is frozen stays, with its moments, and the rest moves as ever.
#[test]
fn frozen_parts_stay() {
    let cpu = Cpu::with_threads(Isa::best(), 2).unwrap();
    let (len, frozen) = (50, vec![0..3, 20..41]);
    for optimizer in rules() {
        let exempt = vec![2..25, 45..46];
        let op = Update { frozen: frozen.clone(), exempt: exempt.clone(), ..update(&optimizer, len) };
        let mixed = trained::<f64>(&cpu, &op);
        let decaying = trained::<f64>(&cpu, &Update { exempt, ..update(&optimizer, len) });
        let mut start = vec![0.0; len];
        Stream::new(1, 0, 0, Use::Initialize).fill_normal(0, &mut start);
        for index in 0..len {
            let is_frozen = frozen.iter().any(|part| part.contains(&index));
            let expected = if is_frozen { start[index] } else { decaying.master[index] };
            assert_eq!(mixed.master[index], expected, "{optimizer:?}, element {index}");
            assert!(!is_frozen || mixed.moments.iter().all(|moment| moment[index] == 0.0));
        }
    }
}

fn without_decay(optimizer: &Optimizer) -> Optimizer {
    let mut config = serde_json::to_value(optimizer).unwrap();
    config["weight_decay"] = 0.0.into();
    serde_json::from_value(config).unwrap()
}

#[test]
fn the_rate_factor_scales_the_rate() {
    let cpu = Cpu::with_threads(Isa::best(), 1).unwrap();
    let optimizer = Optimizer::default();
    let values = |rate| StepValues { rate, ..StepValues::default() };
    let mut slowed = State::<f64>::new(&optimizer, initial(20));
    let mut plain = slowed.clone();
    slowed.update(
        &cpu,
        &Update { rate_factor: 0.25, ..update(&optimizer, 20) },
        &gradient(20, 1),
        &values(0.5),
    );
    plain.update(&cpu, &update(&optimizer, 20), &gradient(20, 1), &values(0.125));
    assert_eq!(slowed, plain);
}
