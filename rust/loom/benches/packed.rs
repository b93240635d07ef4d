//! Products of packed weights, where the memory bounds them.
//!
//! `cargo bench --bench packed -- --table` prints three tables and is done in a few minutes; without `--table`
//! criterion's measurements follow. The first is a dense layer of 4096 inputs and 4096 outputs for one row
//! and for a few, its weights in each packed type: weights rotate through 256 MiB, so that none is in a cache
//! when its turn comes, and times stand against those of float32 and against the memory's speed, which the
//! same program measures before and after by reading 256 MiB on the same threads. The second is the three
//! products of a perceptron of 784, 512, 512 and 10 units, whose weights stay in the caches, for one row and
//! for batches. The third is a batch of 256 rows of the large layer, in float32 and with activations
//! quantised to int8. `--types=int4,mxfp8_e4m3` measures these alone beside float32, `--small` the second
//! table alone.

use criterion::{BenchmarkId, Criterion, Throughput};
use loom::dtype::{DType, Packing};
use loom::matrix::{
    IntegerWeight, NoEpilogue, Output, PackedPanels, Start, Strided, integer_product, product,
};
use loom::simd::Cpu;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Inputs and outputs of the layer.
const EXTENT: usize = 4096;
/// Bytes that weights rotate through.
const ROTATION: usize = 256 << 20;
/// Rows of the first table.
const ROWS: [usize; 3] = [1, 4, 8];
/// Inputs and outputs of the products of the second table, and its rows.
const SMALL: [(usize, usize); 3] = [(784, 512), (512, 512), (512, 10)];
const SMALL_ROWS: [usize; 5] = [1, 4, 16, 64, 256];

/// Rows of the third table.
const BATCH: usize = 256;
/// The types of the third table.
const INTEGERS: [DType; 4] = [DType::Int8, DType::Int4, DType::Ternary, DType::Q8_0];

/// The types that were asked for, or all, float32 first.
fn types() -> Vec<DType> {
    let asked = std::env::args().find_map(|argument| argument.strip_prefix("--types=").map(str::to_owned));
    let others = DType::all().filter(|dtype| *dtype != DType::Float32);
    let wanted = others
        .filter(|dtype| asked.as_ref().is_none_or(|asked| asked.split(',').any(|name| name == dtype.name())));
    std::iter::once(DType::Float32).chain(wanted).collect()
}

/// Copies of one packed weight, as many as fill the rotation.
struct Rotation {
    packing: Packing,
    bytes: Vec<u8>,
    scales: Vec<f32>,
}

impl Rotation {
    fn new(cpu: &Cpu, dtype: DType, (inputs, outputs): (usize, usize), rotation: usize) -> Self {
        let packing = Packing::new(dtype, inputs, outputs);
        let mut state = 1u32;
        let weights: Vec<f32> = (0..packing.elements())
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect();
        let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
        let encoded = packing.encode(Some(cpu), &weights, &mut bytes, &mut scales);
        assert!(encoded.is_ok(), "the weights fit every type");
        Self { packing, bytes: bytes.repeat((rotation / packing.bytes()).max(1)), scales }
    }

    /// Calls `with` with a closure that computes one product, with the next weights each time, and with
    /// activations quantised to int8 if so.
    fn run(&self, cpu: &Cpu, rows: usize, quantized: bool, with: impl FnOnce(&mut dyn FnMut())) {
        let (inputs, outputs) = (self.packing.rows, self.packing.channels);
        let values: Vec<f32> = (0..rows * inputs).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
        let mut y = vec![0.0; rows * outputs];
        let x = Strided::left(&values, rows, inputs);
        let mut copies = self.bytes.chunks_exact(self.packing.bytes()).cycle();
        with(&mut || {
            let Some(bytes) = copies.next() else { return };
            let output = Output::new(black_box(&mut y), rows, outputs);
            match self.packing.dtype {
                DType::Float32 => {
                    let weights = Strided::right(bytemuck::cast_slice(bytes), inputs, outputs);
                    product(cpu, &x, &weights, Start::Zero, &NoEpilogue, output);
                }
                dtype if quantized => match IntegerWeight::new(self.packing, bytes, &self.scales) {
                    Ok(weights) => integer_product(cpu, &values, &weights, Start::Zero, &NoEpilogue, output),
                    Err(error) => panic!("{dtype}: {error}"),
                },
                _ => {
                    let weights = PackedPanels::new(self.packing, bytes, &self.scales);
                    product(cpu, &x, &weights, Start::Zero, &NoEpilogue, output);
                }
            }
        });
    }
}

/// The best time of a call in so long.
fn best(total: Duration, call: &mut dyn FnMut()) -> Duration {
    call();
    let (begun, mut best) = (Instant::now(), Duration::MAX);
    while begun.elapsed() < total {
        let start = Instant::now();
        call();
        best = best.min(start.elapsed());
    }
    best
}

/// The memory's speed for reading, in bytes a second.
fn bandwidth(cpu: &Cpu) -> f64 {
    const PIECE: usize = 1 << 20;
    let data = vec![1u64; ROTATION / size_of::<u64>()];
    let found = AtomicU64::new(0);
    let time = best(Duration::from_secs(2), &mut || {
        // Neighbouring pieces to one thread at a time, as the products read.
        cpu.pool().run(ROTATION / PIECE, &|task| {
            let piece = &data[task * PIECE / 8..(task + 1) * PIECE / 8];
            let mut sums = [0u64; 32];
            for values in piece.chunks_exact(sums.len()) {
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
            }
            found.fetch_add(sums.iter().sum(), Ordering::Relaxed);
        });
    });
    black_box(found);
    ROTATION as f64 / time.as_secs_f64()
}

fn table(cpu: &Cpu) {
    let before = bandwidth(cpu);
    let types = types();
    let measured: Vec<Vec<Duration>> = types
        .iter()
        .map(|dtype| {
            let weights = Rotation::new(cpu, *dtype, (EXTENT, EXTENT), ROTATION);
            let time = |rows: &usize| {
                let mut time = Duration::MAX;
                weights.run(cpu, *rows, false, |call| time = best(Duration::from_millis(700), call));
                time
            };
            ROWS.iter().map(time).collect()
        })
        .collect();
    let after = bandwidth(cpu);
    let memory = before.max(after);
    println!(
        "{EXTENT} x {EXTENT} on {}, {} threads; the memory is read at {:.1} GB/s ({:.1} and {:.1})",
        cpu.isa(),
        cpu.pool().threads(),
        memory / 1e9,
        before / 1e9,
        after / 1e9
    );
    print!("{:12}", "");
    for rows in ROWS {
        print!(" | {:>9} {:>6} {:>8} {:>7}", format!("{rows} rows us"), "GB/s", "% memory", "ratio");
    }
    println!();
    for (dtype, times) in types.iter().zip(&measured) {
        let bytes = Packing::new(*dtype, EXTENT, EXTENT).nbytes() as f64;
        print!("{:12}", dtype.name());
        for (time, float) in times.iter().zip(&measured[0]) {
            let rate = bytes / time.as_secs_f64();
            print!(
                " | {:>9.0} {:>6.1} {:>8.0} {:>6.1}x",
                time.as_secs_f64() * 1e6,
                rate / 1e9,
                rate / memory * 100.0,
                float.as_secs_f64() / time.as_secs_f64()
            );
        }
        println!();
    }
}

/// A perceptron's products, weights in the caches.
fn small_table(cpu: &Cpu) {
    let measure = |dtype: DType| -> Vec<f64> {
        let weights = SMALL.map(|extents| Rotation::new(cpu, dtype, extents, 0));
        let time = |rows: usize| {
            let mut sum = Duration::ZERO;
            for weights in &weights {
                weights.run(cpu, rows, false, |call| sum += best(Duration::from_millis(200), call));
            }
            sum.as_secs_f64()
        };
        SMALL_ROWS.into_iter().map(time).collect()
    };
    let types = types();
    let measured: Vec<Vec<f64>> = types.iter().map(|dtype| measure(*dtype)).collect();
    // Once more, as a machine may be busier at one time than at another.
    let again = measure(DType::Float32);
    let float: Vec<f64> = measured[0].iter().zip(again).map(|(first, second)| first.min(second)).collect();
    println!("\n784-512-512-10 in the caches, time and ratio to float32");
    print!("{:12}", "");
    for rows in SMALL_ROWS {
        print!(" | {:>11} {:>5}", format!("{rows} rows us"), "");
    }
    println!();
    for (dtype, times) in types.iter().zip(&measured) {
        print!("{:12}", dtype.name());
        for (time, float) in times.iter().zip(&float) {
            print!(" | {:>11.1} {:>5.2}", time * 1e6, time / float);
        }
        println!();
    }
}

/// A batch with activations in float32 and in int8.
fn batch_table(cpu: &Cpu) {
    let time = |dtype: DType, quantized: bool| {
        let mut time = Duration::MAX;
        let weights = Rotation::new(cpu, dtype, (EXTENT, EXTENT), ROTATION);
        weights.run(cpu, BATCH, quantized, |call| time = best(Duration::from_secs(2), call));
        time.as_secs_f64()
    };
    // Before and after, as a machine may be busier at one time than at another.
    let before = time(DType::Float32, false);
    let integers: Vec<f64> = INTEGERS.iter().map(|dtype| time(*dtype, true)).collect();
    let float = before.min(time(DType::Float32, false));
    println!("\n{BATCH} rows, weights and activations");
    println!("{:24} {:>9.1} ms {:>6.1}x", "float32, float32", float * 1e3, 1.0);
    for (dtype, time) in INTEGERS.iter().zip(integers) {
        println!("{:24} {:>9.1} ms {:>6.1}x", format!("{dtype}, int8"), time * 1e3, float / time);
    }
}

fn measure(criterion: &mut Criterion, cpu: &Cpu) {
    let mut group = criterion.benchmark_group("packed");
    group.sample_size(10).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200));
    for dtype in types() {
        let weights = Rotation::new(cpu, dtype, (EXTENT, EXTENT), ROTATION);
        for rows in ROWS {
            group.throughput(Throughput::Bytes(weights.packing.nbytes() as u64));
            let id = BenchmarkId::new(dtype.name(), format!("{rows} rows"));
            weights.run(cpu, rows, false, |call| {
                group.bench_function(id, |bencher| bencher.iter(&mut *call));
            });
        }
    }
    group.finish();
}

fn main() {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let cpu = Cpu::global().unwrap_or_else(|error| panic!("{error}"));
    if !asked("--test") {
        if !asked("--small") {
            table(cpu);
        }
        small_table(cpu);
        if !asked("--small") && types().len() == DType::all().len() {
            batch_table(cpu);
        }
    }
    if !asked("--table") {
        let mut criterion = Criterion::default().configure_from_args();
        measure(&mut criterion, cpu);
        criterion.final_summary();
    }
}
