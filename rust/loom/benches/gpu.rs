//! Products and training steps on a GPU: `cargo bench --bench gpu`.
//!
//! With `--table` one table of absolute figures, with `--kernels` the time of each kernel too, with
//! `--mixed` steps in mixed precision beside single.
//! `LOOM_GPU=1` takes the second GPU.

use criterion::Criterion;
use loom::gpu::bench::{mixed_product, single_product};
use loom::gpu::{Gpu, Timing};
use loom::layers::{Conv2D, Dense, Flatten, MaxPool2D, Padding};
use loom::ops::pointwise::Activation;
use loom::train::{Epoch, Examples, LossConfig, Trainer, TrainingConfig};
use loom::{Device, Network, Precision, Result, tensor_view};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn mlp(precision: Precision, sizes: &[usize]) -> Result<Network> {
    let mut network = Network::with_options([sizes[0]], [1, 1, 1], precision, 0)?;
    for (index, units) in sizes[1..].iter().enumerate() {
        let activation = if index + 2 < sizes.len() { Activation::Relu } else { Activation::Linear };
        network.add([0, 0, 0], Dense::new(*units).activation(activation))?;
    }
    Ok(network)
}

fn cnn(precision: Precision) -> Result<Network> {
    let mut network = Network::with_options([1, 28, 28], [1, 1, 1], precision, 0)?;
    for filters in [32, 64] {
        let convolution = Conv2D::new(filters, [3, 3]).padding(Padding::Explicit([1, 1]));
        network.add([0, 0, 0], convolution.activation(Activation::Relu))?;
        network.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
    }
    network.add([0, 0, 0], Flatten {})?;
    network.add([0, 0, 0], Dense::new(128).activation(Activation::Relu))?;
    network.add([0, 0, 0], Dense::new(10))?;
    Ok(network)
}

/// Numbers around zero that look random.
fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

/// Training steps over resident data, as many as asked for.
struct Steps {
    network: Network,
    trainer: Trainer,
    epoch: Epoch,
    config: TrainingConfig,
    shape: Vec<usize>,
    input: Vec<f32>,
    labels: Vec<i32>,
}

impl Steps {
    fn new(mut network: Network, batch: usize, device: &str, rows: usize) -> Result<Self> {
        network.to(device)?;
        let shape = [&[rows], &network.input_shape()[..]].concat();
        let input = noise(shape.iter().product());
        let labels: Vec<i32> = (0..rows as i32).map(|i| i % 8).collect();
        let config = TrainingConfig {
            batch_size: batch,
            // Thousands of steps on the same batches would end in numbers that no training has.
            learning_rate: 1e-6,
            // Drawing the order is the epoch's work, not the step's.
            shuffle: false,
            loss: LossConfig::parse("cross_entropy")?,
            ..TrainingConfig::default()
        };
        let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
        let trainer = Trainer::new(&mut network, &config, &examples, 1 << 20)?;
        let epoch = Epoch::new(&config, rows);
        Ok(Self { network, trainer, epoch, config, shape, input, labels })
    }

    /// Runs at least this many steps; returns how many, and how long one took.
    fn run(&mut self, least: u64) -> Result<(u64, Duration)> {
        let examples = Examples::classified(tensor_view(&self.shape, &self.input)?, &self.labels);
        let started = Instant::now();
        let mut done = 0;
        while done < least {
            if self.epoch.is_done(&self.network) {
                loom::train::end_epoch(&mut self.network);
                self.epoch.begin(&self.config, self.network.optimizer_state().epoch);
            }
            let limit = Duration::from_secs(60);
            let reports =
                self.epoch.advance(&mut self.trainer, &mut self.network, &examples, least - done, limit)?;
            done += reports.len() as u64;
        }
        Ok((done, started.elapsed() / done as u32))
    }
}

type Make = fn(Precision) -> Result<Network>;

const CASES: [(&str, Make, usize); 6] = [
    ("784-512-512-10, batch 64", |precision| mlp(precision, &[784, 512, 512, 10]), 64),
    ("784-512-512-10, batch 1,024", |precision| mlp(precision, &[784, 512, 512, 10]), 1024),
    ("128-512-512-8, batch 64", |precision| mlp(precision, &[128, 512, 512, 8]), 64),
    ("128-512-512-8, batch 1,024", |precision| mlp(precision, &[128, 512, 512, 8]), 1024),
    ("MNIST CNN, batch 64", cnn, 64),
    ("MNIST CNN, batch 1,024", cnn, 1024),
];

/// Rows of the data sets: as many as MNIST has, or enough for a step or two in software.
fn rows(gpu: &Gpu) -> usize {
    if gpu.adapter().software { 2048 } else { 1 << 16 }
}

/// Products in a row: as many as take a tenth of a second or so, in which the clock is up.
fn repeats(n: usize) -> usize {
    (8192 / n).pow(3).clamp(5, 500)
}

fn table(gpu: &Arc<Gpu>, device: &str, kernels: bool) -> Result<()> {
    println!("{}", gpu.adapter());
    let sizes: &[usize] = if gpu.adapter().software { &[256] } else { &[512, 1024, 2048, 4096, 8192] };
    for &n in sizes {
        let operand = noise(n * n);
        let (_, seconds) = single_product(gpu, n, [&operand, &operand], repeats(n))?;
        let rate = 2.0 * (n as f64).powi(3) / seconds / 1e12;
        println!("f32 product {n:>5}            {:>10.1} us {rate:>8.1} TFLOP/s", seconds * 1e6);
    }
    for n in if gpu.capabilities().cooperative_matrices { &[1024, 4096, 8192][..] } else { &[] } {
        let half: Vec<u16> = noise(n * n).into_iter().map(loom::dtype::f32_to_float16).collect();
        let (_, seconds) = mixed_product(gpu, *n, [&half, &half], true, repeats(*n))?;
        let rate = 2.0 * (*n as f64).powi(3) / seconds / 1e12;
        println!("mixed product {n:>5}          {:>10.1} us {rate:>8.1} TFLOP/s", seconds * 1e6);
    }
    for (name, make, batch) in CASES {
        let network = make(Precision::Float32)?;
        steps_table(gpu, name, Steps::new(network, batch, device, rows(gpu))?, 1000, kernels)?;
    }
    Ok(())
}

/// Steps in mixed precision beside single, of wide networks too.
fn mixed_table(gpu: &Arc<Gpu>, device: &str, kernels: bool) -> Result<()> {
    println!("{}", gpu.adapter());
    const WIDE: (&str, Make, usize) =
        ("4096 x 4, batch 4,096", |precision| mlp(precision, &[4096, 4096, 4096, 4096, 10]), 4096);
    let others = CASES.into_iter().filter(|(name, ..)| !name.starts_with("128"));
    for (name, make, batch) in [WIDE].into_iter().chain(others) {
        for precision in [Precision::Float32, Precision::Mixed] {
            let wide = batch == WIDE.2;
            let (rows, least) = if wide { (2 * batch, 8) } else { (rows(gpu), 1000) };
            let steps = Steps::new(make(precision)?, batch, device, rows)?;
            steps_table(gpu, &format!("{name}, {precision}"), steps, least, kernels)?;
        }
    }
    Ok(())
}

fn steps_table(gpu: &Arc<Gpu>, name: &str, mut steps: Steps, least: u64, kernels: bool) -> Result<()> {
    let least = if gpu.adapter().software { 4 } else { least };
    // An idle device's clock is low.
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(250) {
        steps.run(least / 2)?;
    }
    gpu.reset_statistics();
    let best = (0..3).map(|_| steps.run(least)).collect::<Result<Vec<_>>>()?;
    let best = best.iter().map(|(_, time)| *time).min().unwrap_or_default();
    let statistics = gpu.statistics();
    let dispatches = statistics.dispatches / statistics.steps.max(1);
    gpu.reset_statistics();
    gpu.set_timing(Timing::Frames)?;
    let (done, _) = steps.run(least / 4)?;
    let device_time = gpu.statistics().device_seconds / done as f64;
    gpu.set_timing(Timing::Off)?;
    println!(
        "{name:38} {:>10.1} us a step, {:.1} on the device, {dispatches} dispatches",
        best.as_secs_f64() * 1e6,
        device_time * 1e6
    );
    if kernels {
        gpu.reset_statistics();
        gpu.set_timing(Timing::Kernels)?;
        let (done, _) = steps.run(16)?;
        gpu.set_timing(Timing::Off)?;
        for kernel in gpu.kernel_times() {
            let each = kernel.seconds / done as f64 * 1e6;
            println!("    {each:>9.1} us  {:>4} x {}", kernel.runs / done, kernel.label);
        }
    }
    Ok(())
}

fn measure(criterion: &mut Criterion, gpu: &Gpu, device: &str) -> Result<()> {
    for (name, make, batch) in CASES {
        let mut steps = Steps::new(make(Precision::Float32)?, batch, device, rows(gpu))?;
        steps.run(1)?;
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|count| match steps.run(count) {
                Ok((_, each)) => each * count as u32,
                Err(error) => panic!("{error}"),
            });
        });
    }
    Ok(())
}

fn run() -> Result<()> {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let device = match std::env::var("LOOM_GPU") {
        Ok(number) => format!("gpu:{number}"),
        Err(_) => "gpu".to_string(),
    };
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
    if asked("--mixed") {
        return mixed_table(&gpu, &device, asked("--kernels"));
    }
    if asked("--table") || asked("--kernels") {
        return table(&gpu, &device, asked("--kernels"));
    }
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    measure(&mut criterion, &gpu, &device)?;
    criterion.final_summary();
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
