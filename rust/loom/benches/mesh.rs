//! Ticks of a 1 x 8 x 8 grid of dense layers of 64 units, forwards, and back through a window of eight:
//! `cargo bench --bench mesh`.
//!
//! With `--table` one table of ticks per second instead, on the processor with one thread and all, and on
//! the first GPU, where there is one.

use criterion::{Criterion, Throughput};
use loom::layers::Dense;
use loom::mesh::{Given, Mesh};
use loom::network::{Combine, Link};
use loom::ops::pointwise::Activation;
use loom::simd::{Cpu, Isa};
use loom::{Device, Network, Precision, Result, tensor_view};
use std::time::{Duration, Instant};

/// Ticks of one measurement.
const TICKS: usize = 200;
/// Ticks that gradients go back through.
const WINDOW: usize = 8;

/// Numbers around zero that look random.
fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

/// The grid, clocked.
struct Clocked {
    network: Network,
    mesh: Mesh,
    gradient: Vec<f32>,
}

impl Clocked {
    fn new(device: &str, rows: usize, window: usize) -> Result<Self> {
        let mut network = Network::new([64], [1, 8, 8])?;
        for row in 0..8 {
            for column in 0..8 {
                network.add([0, row, column], Dense::new(64).activation(Activation::Tanh))?;
            }
        }
        network.link(Link { source: [0, 7, 7], target: [0, 0, 0], combine: Combine::Add, axis: None })?;
        network.to(device)?;
        let mut mesh = Mesh::new(&mut network, rows, window)?;
        let input = noise(rows * 64);
        mesh.set_input(&mut network, tensor_view(&[rows, 64], &input)?)?;
        Ok(Self { network, mesh, gradient: input })
    }

    /// Ticks, and what the last cell then holds, so that a GPU is waited for.
    fn tick(&mut self) -> Result<()> {
        self.mesh.tick(&mut self.network, TICKS)?;
        self.mesh.output(&self.network, [0, 7, 7])?;
        Ok(())
    }

    /// One window forwards, backwards, and an update.
    fn learn(&mut self) -> Result<()> {
        self.mesh.tick(&mut self.network, WINDOW)?;
        let gradient = tensor_view(&[self.mesh.rows(), 64], &self.gradient)?;
        self.mesh.backward(&mut self.network, &[Given::newest([0, 7, 7], gradient)])?;
        self.network.zero_gradients();
        self.mesh.output(&self.network, [0, 7, 7])?;
        Ok(())
    }
}

fn devices() -> Vec<&'static str> {
    let gpu = Device::open("gpu", Precision::Float32).is_ok();
    if gpu { vec!["cpu", "gpu"] } else { vec!["cpu"] }
}

fn ticks(criterion: &mut Criterion) -> Result<()> {
    for device in devices() {
        let mut group = criterion.benchmark_group(format!("mesh/{device}"));
        let mut clocked = Clocked::new(device, 1, 0)?;
        group.throughput(Throughput::Elements(TICKS as u64));
        group.bench_function("tick", |bencher| bencher.iter(|| clocked.tick()));
        let mut clocked = Clocked::new(device, 1, WINDOW)?;
        group.throughput(Throughput::Elements(WINDOW as u64));
        group.bench_function("window", |bencher| bencher.iter(|| clocked.learn()));
    }
    Ok(())
}

/// The least time of several calls.
fn best(mut call: impl FnMut() -> Result<()>) -> Result<Duration> {
    call()?;
    let mut best = Duration::MAX;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        let one = Instant::now();
        call()?;
        best = best.min(one.elapsed());
    }
    Ok(best)
}

fn table() -> Result<()> {
    println!("| device | rows | ticks/s | ticks/s, forwards and back |");
    println!("|---|---:|---:|---:|");
    for device in devices() {
        for rows in [1, 64] {
            for threads in [Some(1), None] {
                if device != "cpu" && threads.is_some() {
                    continue;
                }
                let make = |window: usize| -> Result<Clocked> {
                    let mut clocked = Clocked::new(device, rows, window)?;
                    if let Some(threads) = threads {
                        clocked.mesh.set_cpu(Cpu::with_threads(Isa::best(), threads)?);
                    }
                    Ok(clocked)
                };
                let (mut forwards, mut both) = (make(0)?, make(WINDOW)?);
                let forwards = TICKS as f64 / best(|| forwards.tick())?.as_secs_f64();
                let both = WINDOW as f64 / best(|| both.learn())?.as_secs_f64();
                let name = match threads {
                    Some(threads) => format!("{device}, {threads} thread"),
                    None => device.to_string(),
                };
                println!("| {name} | {rows} | {forwards:.0} | {both:.0} |");
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == "--table") {
        return table();
    }
    let mut criterion = Criterion::default().configure_from_args();
    ticks(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}
