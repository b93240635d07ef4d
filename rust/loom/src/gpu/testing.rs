//! What tests of kernels share: the GPU they run on, one operation by itself, how close is close enough.

use super::Gpu;
use super::dispatch::Dispatch;
use super::frame::Frame;
use super::steps::{CONTROL_WORDS, control_before, encode_step};
use crate::Result;
pub(crate) use crate::device::testing::in_part;
use crate::dtype::testing::Sample;
use crate::dtype::{DType, Packing};
use crate::ops::testing::{Data, Setting};
use crate::ops::{BiasGradient, Encode, Op, Operation};
use crate::shader::testing::takes;
use crate::shader::{
    Accelerator, BothGradients, Numbers, OFFSET_ELEMENTS, Operand, Recorded, Recorder, VersionOperands,
};
use crate::simd::{Cpu, Real};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The first GPU, which may be software. Without one the test is skipped, unless
/// `LOOM_REQUIRE_GPU=1` says that there must be one.
pub(crate) fn gpu() -> Option<Arc<Gpu>> {
    match super::open(0) {
        Ok(gpu) => Some(gpu),
        Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("LOOM_REQUIRE_GPU is set, and {error}")
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// The same GPU, opened for one test alone.
pub(crate) fn own_gpu() -> Option<Arc<Gpu>> {
    gpu().and_then(|_| super::open_another(0))
}

/// Settings of property tests on a GPU: so many cases, half as many by software, the same ones every time. Each shape
/// may be another kernel, and a driver that cannot compile one in time is to meet it again.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: if in_part(1, 2) { cases } else { cases.div_ceil(2) },
        rng_seed: RngSeed::Fixed(0x1007),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A packed parameter as an operand.
pub(crate) struct Packed<'a> {
    pub(crate) packing: Packing,
    pub(crate) bytes: &'a [u8],
    pub(crate) scales: &'a [f32],
}

impl<'a> Packed<'a> {
    pub(crate) fn of(sample: &'a Sample) -> Self {
        Self { packing: sample.packing, bytes: sample.bytes(), scales: &sample.scales }
    }
}

fn bytes_of(data: &Data<f32>) -> &[u8] {
    match data {
        Data::Real(elements) => bytemuck::cast_slice(elements),
        Data::Index(elements) => bytemuck::cast_slice(elements),
    }
}

fn operand(gpu: &Gpu, data: &Data<f32>) -> Result<Operand> {
    let bytes = bytes_of(data);
    let operand = Operand::allocate(gpu, "test", bytes.len() / 4)?;
    gpu.upload(operand.allocation(), 0, bytes);
    Ok(operand)
}

/// The results of one operation on the GPU. `packed` replaces the operand of its number.
pub(crate) fn run(
    gpu: &Gpu,
    op: &Op,
    setting: &Setting<f32>,
    packed: Option<(usize, Packed<'_>)>,
) -> Result<Vec<Data<f32>>> {
    run_with(gpu, op, setting, packed, |_| ())
}

/// [`run`] with a recorder that `change` has changed: what the verdict was, how much kernels see.
pub(crate) fn run_with(
    gpu: &Gpu,
    op: &Op,
    setting: &Setting<f32>,
    packed: Option<(usize, Packed<'_>)>,
    change: impl FnOnce(&mut Recorder<'_>),
) -> Result<Vec<Data<f32>>> {
    run_recorded(gpu, setting, packed, |recorder| {
        change(recorder);
        op.record(recorder)
    })
}

/// The results of what `record` records.
pub(crate) fn run_recorded(
    gpu: &Gpu,
    setting: &Setting<f32>,
    packed: Option<(usize, Packed<'_>)>,
    record: impl FnOnce(&mut Recorder<'_>) -> Result<()>,
) -> Result<Vec<Data<f32>>> {
    let control = Operand::allocate(gpu, "control", CONTROL_WORDS)?;
    gpu.upload(control.allocation(), 0, bytemuck::cast_slice(&control_before(&setting.values)));
    let mut recorder = Recorder::new(gpu, setting.rows, control);
    recorder.accumulate = setting.accumulate;
    recorder.path = setting.path;
    if !setting.values.places.is_empty() {
        let places = setting.values.places.iter();
        let words: Vec<i32> =
            places.flat_map(|place| [place.sequence as i32, place.position as i32]).collect();
        recorder.row_places = Some(operand(gpu, &Data::Index(words))?);
    }
    recorder.reads = setting.reads.iter().map(|data| operand(gpu, data)).collect::<Result<_>>()?;
    if let Some((number, packed)) = packed {
        let bytes = gpu.storage("packed", packed.bytes.len() as u64)?;
        gpu.upload(&bytes, 0, packed.bytes);
        let scales = gpu.storage("scales", packed.scales.len() as u64 * 4)?;
        gpu.upload(&scales, 0, bytemuck::cast_slice(packed.scales));
        let scales = (!packed.scales.is_empty()).then_some((&scales, packed.scales.len()));
        recorder.reads[number] = Operand::packed(&bytes, packed.packing, scales);
    }
    recorder.writes = setting.writes.iter().map(|data| operand(gpu, data)).collect::<Result<_>>()?;
    record(&mut recorder)?;
    are_repeated(&recorder.recorded);
    let (table, group) = super::frame::new_table(gpu, 1)?;
    gpu.upload(&table, 0, &encode_step(&setting.values, 0));
    let mut frame = Frame::begin(gpu, &group);
    for dispatch in &Dispatch::all(gpu, recorder.recorded, 0) {
        frame.record(dispatch, 0);
    }
    frame.finish(1)?;
    let mut results = setting.writes.clone();
    let mut parts: Vec<(Operand, &mut [u8])> = Vec::new();
    for (operand, result) in recorder.writes.iter().zip(&mut results) {
        let bytes = match result {
            Data::Real(elements) => bytemuck::cast_slice_mut(elements),
            Data::Index(elements) => bytemuck::cast_slice_mut(elements),
        };
        parts.push((operand.clone(), bytes));
    }
    gpu.download(&mut parts)?;
    drop(parts);
    Ok(results)
}

/// [`run`] where kernels see no more than `bytes` of a buffer at a time.
pub(crate) fn run_within(gpu: &Gpu, op: &Op, setting: &Setting<f32>, bytes: usize) -> Result<Vec<Data<f32>>> {
    run_with(gpu, op, setting, None, |recorder| recorder.max_binding = bytes)
}

/// [`run`] where kernels have so many bytes of workgroup memory.
pub(crate) fn run_with_workgroups_of(
    gpu: &Gpu,
    op: &Op,
    setting: &Setting<f32>,
    bytes: usize,
) -> Result<Vec<Data<f32>>> {
    run_with(gpu, op, setting, None, |recorder| recorder.workgroup_storage = bytes)
}

/// [`run`] after these words of the prelude's `Control`: applies, skipped, halted, halted step.
pub(crate) fn run_after(
    gpu: &Gpu,
    op: &Op,
    setting: &Setting<f32>,
    control: [u32; 4],
) -> Result<Vec<Data<f32>>> {
    run_with(gpu, op, setting, None, |recorder| {
        gpu.upload(recorder.control.allocation(), 0, bytemuck::cast_slice(&control));
    })
}

/// The results of a weight gradient and of the bias gradient that goes with it, `setting.writes` in that
/// order: both lie in one memory, the bias first if `bias_first`. An operation that leaves the bias to
/// others leaves it unchanged.
pub(crate) fn run_both(
    gpu: &Gpu,
    op: &Op,
    setting: &Setting<f32>,
    sum: &BiasGradient,
    bias_first: bool,
) -> Result<Vec<Data<f32>>> {
    let [weights, biases] = [0, 1].map(|i| setting.writes[i].real().len());
    let [first, second] = if bias_first { [biases, weights] } else { [weights, biases] };
    let start = first.next_multiple_of(OFFSET_ELEMENTS);
    let whole = Operand::allocate(gpu, "both gradients", start + second)?;
    let parts = [whole.slice(0, first)?, whole.slice(start, second)?];
    let [one, other] = parts;
    let (weight, bias) = if bias_first { (other, one) } else { (one, other) };
    for (operand, data) in [&weight, &bias].into_iter().zip(&setting.writes) {
        gpu.upload(operand.allocation(), operand.offset(), bytes_of(data));
    }
    run_with(gpu, op, setting, None, |recorder| {
        recorder.both = BothGradients::of(&weight, &bias, sum.into(), recorder.max_binding);
        recorder.writes = vec![weight, bias];
    })
}

/// The codes and scales of a parameter, encoded on the GPU where kernels see no more than `limit` bytes
/// of a buffer at a time, and the verdict was that the step `applies`.
pub(crate) fn encoded(
    gpu: &Gpu,
    dtype: DType,
    data: &[f32],
    channels: usize,
    limit: usize,
    applies: u32,
) -> Result<(Vec<u8>, Vec<f32>)> {
    let packing = Packing::new(dtype, data.len() / channels, channels);
    let mut bytes = vec![0; packing.bytes()];
    let mut scales = vec![0.0; packing.scale_words()];
    let held = gpu.storage("packed", bytes.len() as u64)?;
    let held_scales = gpu.storage("scales", scales.len() as u64 * 4)?;
    let held_scales = (!scales.is_empty()).then_some((&held_scales, scales.len()));
    let packed = Operand::packed(&held, packing, held_scales);
    let master = operand(gpu, &Data::Real(data.to_vec()))?;
    let version = VersionOperands { master, packed: packed.clone(), packing };
    let op = Op::Encode(Encode { store: 0 });
    run_with(gpu, &op, &Setting::new(1, &[], &[]), None, |recorder| {
        recorder.versions = vec![version];
        recorder.max_binding = recorder.max_binding.min(limit);
        gpu.upload(recorder.control.allocation(), 0, bytemuck::cast_slice(&[applies, 0, 0, 0]));
    })?;
    let mut parts: Vec<(Operand, &mut [u8])> = vec![(packed.clone(), &mut bytes)];
    if let Some(operand) = packed.scales() {
        parts.push((operand, bytemuck::cast_slice_mut(&mut scales)));
    }
    gpu.download(&mut parts)?;
    drop(parts);
    Ok((bytes, scales))
}

/// Runs an operation on the CPU and on the GPU, and twice there: the results must agree within the
/// operation's tolerance, and the GPU's with each other to the bit.
#[track_caller]
pub(crate) fn check(op: impl Operation + Into<Op> + Clone, setting: &Setting<f32>) {
    let Some(gpu) = gpu() else { return };
    let name: Op = op.clone().into();
    let cpu = Cpu::global().expect("a CPU");
    let expected = setting.run_on(&op, cpu).expect("the CPU to run the operation");
    let found = run(&gpu, &name, setting, None).unwrap_or_else(|error| panic!("{name}: {error}"));
    compare(&name, &expected, &found);
    let again = run(&gpu, &name, setting, None).expect("the GPU to run the operation again");
    for (one, other) in found.iter().zip(&again) {
        assert!(bytes_of(one) == bytes_of(other), "{name}: two runs differ");
    }
}

/// [`check`] for an operation in mixed precision: the CPU runs it plainly, on operands rounded to binary16.
#[track_caller]
pub(crate) fn check_mixed(plain: impl Operation + Into<Op> + Clone, setting: &Setting<f32>) {
    let Some(gpu) = gpu() else { return };
    let op = plain.clone().into().into_mixed();
    let cpu = Cpu::global().expect("a CPU");
    let expected =
        setting.with_rounded(to_float16).run_on(&plain, cpu).expect("the CPU to run the operation");
    let found = run(&gpu, &op, setting, None).unwrap_or_else(|error| panic!("{op}: {error}"));
    compare(&op, &expected, &found);
    let again = run(&gpu, &op, setting, None).expect("the GPU to run the operation again");
    for (one, other) in found.iter().zip(&again) {
        assert!(bytes_of(one) == bytes_of(other), "{op}: two runs differ");
    }
}

/// The nearest number that binary16 has.
pub(crate) fn to_float16(x: f32) -> f32 {
    half::f16::from_f32(x).to_f32()
}

/// Asserts that results agree within the operation's tolerance; indices must be the same.
#[track_caller]
pub(crate) fn compare(op: &Op, expected: &[Data<f32>], found: &[Data<f32>]) {
    for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
        match (expected, found) {
            (Data::Real(expected), Data::Real(found)) => {
                let scale = expected.iter().fold(1.0f64, |scale, x| scale.max(x.to_f64().abs()));
                for (i, (e, f)) in expected.iter().zip(found).enumerate() {
                    let error = (e.to_f64() - f.to_f64()).abs() / scale;
                    let same = e == f || (e.is_nan() && f.is_nan());
                    assert!(
                        same || error <= op.tolerance(),
                        "{op}: result {number} at {i}: {f} on the GPU, {e} on the CPU, off by {error:.2e}"
                    );
                }
            }
            (expected, found) => assert_eq!(expected, found, "{op}: result {number}"),
        }
    }
}

/// Asserts that naga takes what a kernel for several lists of operands is made of each of these: adapters in software
/// see no arrays of operands. Kernels that are called alike are alike but for their extents, so one of them is tried.
fn are_repeated(recorded: &[Recorded]) {
    static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    for recorded in recorded {
        let Recorded::Kernel(call) = recorded else { continue };
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.get_or_insert_default().insert(call.kernel.label().into()) {
            continue;
        }
        drop(seen);
        for numbers in [Numbers::Same, Numbers::Own] {
            if let Some(kernel) = call.kernel.repeated(4, numbers) {
                takes(&kernel);
            }
        }
    }
}
