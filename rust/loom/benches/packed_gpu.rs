//! Products of packed weights on a GPU, where the memory bounds them: `cargo bench --bench packed_gpu`.
//!
//! A dense layer of 4096 inputs and 4096 outputs in each packed type, for one row, for a few, and for a batch;
//! weights rotate through 256 MiB and more (16 MiB of a smaller layer in software), so that none is in a cache
//! when its turn comes. Times are the device's own, by timestamps, each product waiting for the one before:
//! medians of several rounds over all types; ratios are to float32 in the same run. `--variants` prints how long
//! other ways to share the work out take, `--types int8,q4_0` only those types, `--rows 1,8` only so many rows.
//! `LOOM_GPU=1` takes the second GPU.

use loom::dtype::{DType, Packing};
use loom::gpu::Gpu;
use loom::gpu::bench::{How, Rotation};
use loom::shader::product::{Along, Stream};
use loom::{Device, Precision, Result};
use std::time::{Duration, Instant};

/// Rows of the products.
const ROWS: [usize; 4] = [1, 4, 8, 256];
/// The types that activations can be quantised for.
const INTEGERS: [DType; 7] =
    [DType::Int8, DType::Int4, DType::Int2, DType::Ternary, DType::Binary, DType::Q8_0, DType::Q4_0];

/// Numbers around zero that look random.
fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

/// What is measured.
struct Bench<'a> {
    gpu: &'a Gpu,
    /// Inputs and outputs of the layer.
    extent: usize,
    /// Bytes that weights rotate through.
    rotation: usize,
    /// How often all of it is measured.
    rounds: usize,
    /// How often each copy is used.
    times: usize,
    rows: Vec<usize>,
    weights: Vec<f32>,
}

impl Bench<'_> {
    /// Microseconds of a product.
    fn times(&self, rotation: &Rotation<'_>, rows: usize, how: How) -> Result<f64> {
        let x = noise(rows * self.extent);
        let times = if rows > 8 { self.times.div_ceil(4) } else { self.times };
        Ok(rotation.product(&x, how, times)?.1 * 1e6)
    }

    fn packed(&self, dtype: DType) -> (Packing, Vec<u8>, Vec<f32>) {
        let packing = Packing::new(dtype, self.extent, self.extent);
        let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
        let cpu = loom::simd::Cpu::global().ok();
        let encoded = packing.encode(cpu, &self.weights, &mut bytes, &mut scales);
        assert!(encoded.is_ok(), "the weights fit every type");
        (packing, bytes, scales)
    }

    /// The weights of a type in memory, and what they are.
    fn rotation(&self, dtype: DType) -> Result<(Packing, Rotation<'_>)> {
        let (packing, bytes, scales) = self.packed(dtype);
        let copies = self.rotation.div_ceil(bytes.len());
        Ok((packing, Rotation::new(self.gpu, packing, &bytes, &scales, copies)?))
    }

    /// An idle device's clock is low.
    fn warm(&self) -> Result<()> {
        let (_, rotation) = self.rotation(DType::Int8)?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            self.times(&rotation, 4, How::Chosen)?;
        }
        Ok(())
    }

    fn table(&self, types: &[DType]) -> Result<()> {
        // Products of a type, and the times of every round: what else the device does, and its clock, falls on
        // neighbouring types of one round, not on a type.
        let mut measured: Vec<(String, usize, Vec<Vec<f64>>)> = Vec::new();
        for round in 0..self.rounds {
            self.warm()?;
            let mut line = 0;
            for dtype in types {
                let (packing, rotation) = self.rotation(*dtype)?;
                for how in [How::Chosen, How::Quantized] {
                    if how == How::Quantized && !INTEGERS.contains(dtype) {
                        continue;
                    }
                    if round == 0 {
                        let name =
                            if how == How::Chosen { dtype.to_string() } else { format!("{dtype}, int8") };
                        measured.push((name, packing.nbytes(), vec![Vec::new(); self.rows.len()]));
                    }
                    for (times, rows) in measured[line].2.iter_mut().zip(&self.rows) {
                        times.push(self.times(&rotation, *rows, how)?);
                    }
                    line += 1;
                }
            }
        }
        println!("{0} x {0}, as a network makes it; medians of {1} rounds", self.extent, self.rounds);
        print!("{:20}", "");
        self.rows
            .iter()
            .for_each(|rows| print!(" | {:>9} {:>6} {:>7}", format!("{rows} rows us"), "GB/s", "ratio"));
        println!();
        let median = |times: &[f64]| {
            let mut sorted = times.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        for (name, bytes, times) in &measured {
            print!("{name:20}");
            for (times, float) in times.iter().zip(&measured[0].2) {
                let time = median(times);
                let rate = *bytes as f64 / time / 1e3;
                print!(" | {time:>9.1} {rate:>6.0} {:>6.2}x", median(float) / time);
            }
            println!();
        }
        Ok(())
    }

    /// Other ways to share the work out.
    fn variants(&self, types: &[DType]) -> Result<()> {
        for dtype in types {
            let (_, rotation) = self.rotation(*dtype)?;
            self.warm()?;
            for rows in self.rows.iter().filter(|rows| **rows <= 8) {
                let Some((chosen, parts)) = rotation.stream(*rows)? else { continue };
                println!("{dtype}, {rows} rows");
                let mut found = Vec::new();
                let mut tried = vec![(How::Stream(chosen, parts), "chosen")];
                tried.extend(shapes(chosen, *rows, dtype.row().bits as u32).into_iter().map(|how| (how, "")));
                tried.push((How::FewRows(4), ""));
                for (how, note) in tried {
                    // What does not suit the type or the device is left out.
                    if let Ok(time) = self.times(&rotation, *rows, how) {
                        println!("    {time:>8.1} us  {} {note}", text(&how));
                        found.push((time, how));
                    }
                }
                found.sort_by(|one, other| one.0.total_cmp(&other.0));
                if let Some((time, how)) = found.first() {
                    println!("  best: {time:.1} us, {}", text(how));
                }
            }
        }
        Ok(())
    }
}

/// Shapes around one: each may take the driver a quarter of a second to compile.
fn shapes(chosen: Stream, rows: usize, bits: u32) -> Vec<How> {
    let mut found = Vec::new();
    let all_codes: &[u32] = if bits > 8 { &[4] } else { &[4, 8] };
    let unrolls: &[u32] = if rows > 4 { &[1] } else { &[2, 4] };
    for &codes in all_codes {
        for &unroll in unrolls {
            for threads in [256, 512, 1024] {
                if chosen.along == Along::Across {
                    // Bytes of a row of weights side by side.
                    let bytes = |wide: u32| wide * codes * bits / 8;
                    for wide in [2, 4, 8, 16].into_iter().filter(|wide| [16, 32, 64].contains(&bytes(*wide)))
                    {
                        let shape = Stream { threads, lanes: threads / wide, codes, unroll, ..chosen };
                        found.push(How::Stream(shape, 1));
                    }
                } else {
                    for (lanes, columns) in [(32, 2), (128, 1), (128, 2), (256, 2)] {
                        let shape = Stream { threads, lanes, codes: codes * 2, columns, unroll, ..chosen };
                        found.push(How::Stream(shape, 1));
                    }
                }
            }
        }
    }
    // Sums that registers would not hold.
    found.retain(|how| match how {
        How::Stream(shape, _) => rows as u32 * shape.codes * shape.columns <= 128 && shape.lanes > 0,
        _ => true,
    });
    found
}

fn text(how: &How) -> String {
    match how {
        How::Stream(shape, parts) => format!(
            "{} threads, {} lanes, {} codes, {} columns, unrolled {}, {parts} parts",
            shape.threads, shape.lanes, shape.codes, shape.columns, shape.unroll
        ),
        other => format!("{other:?}"),
    }
}

/// What follows a flag, cut at commas.
fn listed(flag: &str) -> Option<Vec<String>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != flag);
    arguments.nth(1).map(|list| list.split(',').map(str::to_string).collect())
}

fn run() -> Result<()> {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let device = std::env::var("LOOM_GPU").map_or("gpu".to_string(), |number| format!("gpu:{number}"));
    let gpu = match Device::open(&device, Precision::Float32) {
        Ok(device) => match Gpu::of(device.engine()) {
            Some(gpu) => gpu,
            None => return Ok(()),
        },
        Err(error) => {
            println!("nothing to measure: {error}");
            return Ok(());
        }
    };
    let software = gpu.adapter().software || asked("--test");
    let (extent, rotation, rounds, times) =
        if software { (512, 2 << 20, 1, 1) } else { (4096, 512 << 20, 5, 16) };
    let types = match listed("--types") {
        Some(names) => names.iter().map(|name| DType::parse(name)).collect::<Result<Vec<_>>>()?,
        None => [DType::Float32].into_iter().chain(DType::all().filter(|d| *d != DType::Float32)).collect(),
    };
    let rows =
        listed("--rows").map_or(ROWS.to_vec(), |rows| rows.iter().filter_map(|r| r.parse().ok()).collect());
    let bench = Bench { gpu: &gpu, extent, rotation, rounds, times, rows, weights: noise(extent * extent) };
    println!("{}", gpu.adapter());
    if asked("--variants") { bench.variants(&types) } else { bench.table(&types) }
}

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
