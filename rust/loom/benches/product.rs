//! The matrix product against the machine's peak.
//!
//! `cargo bench --bench product -- --table` prints a table and is done in half
//! a minute; without `--table` criterion's measurements follow. The peak is
//! what this program's own loop of independent fused multiply-adds reaches on
//! the same threads and instruction set, before and after the table; a figure
//! measured by another program can be handed in as `LOOM_FMA_PEAK` (GFLOP/s),
//! and counts where it is larger.

use criterion::{BenchmarkId, Criterion, Throughput};
use half::bf16;
use loom::matrix::{Bfloat16Panels, Int8Panels, NoEpilogue, Output, PanelSource, Start, Strided, product};
use loom::simd::{Cpu, Level};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How B lies in memory, or A where it is the transposed one.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A and B row after row: forward.
    Plain,
    /// B transposed: the gradient of a layer's input.
    InputGradient,
    /// A transposed: the gradient of a layer's weight.
    WeightGradient,
    Bfloat16,
    Int8,
}

struct Case {
    name: &'static str,
    m: usize,
    k: usize,
    n: usize,
    kind: Kind,
}

const fn case(name: &'static str, m: usize, k: usize, n: usize, kind: Kind) -> Case {
    Case { name, m, k, n, kind }
}

const CASES: [Case; 28] = [
    case("square", 512, 512, 512, Kind::Plain),
    case("square", 1024, 1024, 1024, Kind::Plain),
    case("square", 2048, 2048, 2048, Kind::Plain),
    case("square", 4096, 4096, 4096, Kind::Plain),
    case("forward", 64, 784, 512, Kind::Plain),
    case("forward", 64, 512, 512, Kind::Plain),
    case("forward", 64, 512, 10, Kind::Plain),
    case("input gradient", 64, 512, 512, Kind::InputGradient),
    case("input gradient", 64, 10, 512, Kind::InputGradient),
    case("weight gradient", 784, 64, 512, Kind::WeightGradient),
    case("weight gradient", 512, 64, 512, Kind::WeightGradient),
    case("weight gradient", 512, 64, 10, Kind::WeightGradient),
    case("forward", 1024, 784, 512, Kind::Plain),
    case("forward", 1024, 512, 512, Kind::Plain),
    case("forward", 1024, 512, 10, Kind::Plain),
    case("input gradient", 1024, 512, 512, Kind::InputGradient),
    case("weight gradient", 784, 1024, 512, Kind::WeightGradient),
    case("weight gradient", 512, 1024, 512, Kind::WeightGradient),
    case("one row", 1, 512, 512, Kind::Plain),
    case("one row", 1, 512, 8, Kind::Plain),
    case("one row, bfloat16", 1, 512, 512, Kind::Bfloat16),
    case("one row, int8", 1, 512, 512, Kind::Int8),
    case("input gradient", 1, 512, 512, Kind::InputGradient),
    case("weight gradient", 512, 1, 512, Kind::WeightGradient),
    case("rows", 4, 512, 512, Kind::Plain),
    case("rows", 16, 512, 512, Kind::Plain),
    case("forward, bfloat16", 64, 784, 512, Kind::Bfloat16),
    case("forward, int8", 64, 784, 512, Kind::Int8),
];

impl Case {
    fn operations(&self) -> f64 {
        2.0 * self.m as f64 * self.k as f64 * self.n as f64
    }

    /// Calls `with` with a closure that computes the product once.
    fn run(&self, cpu: &Cpu, with: impl FnOnce(&mut dyn FnMut())) {
        let &Case { m, k, n, kind, .. } = self;
        let values = |len: usize| (0..len).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect::<Vec<f32>>();
        let (a, b, scale) = (values(m * k), values(k * n), values(n));
        let halves: Vec<bf16> = b.iter().map(|&x| bf16::from_f32(x)).collect();
        let codes: Vec<i8> = b.iter().map(|&x| (x * 127.0) as i8).collect();
        let mut c = vec![0.0_f32; m * n];
        let left = match kind {
            Kind::WeightGradient => Strided::left_transposed(&a, m, k),
            _ => Strided::left(&a, m, k),
        };
        let (plain, transposed) = (Strided::right(&b, k, n), Strided::right_transposed(&b, k, n));
        let (half, int8) = (Bfloat16Panels::new(&halves, k, n), Int8Panels::new(&codes, &scale, k, n));
        let right: &dyn PanelSource<f32> = match kind {
            Kind::Plain | Kind::WeightGradient => &plain,
            Kind::InputGradient => &transposed,
            Kind::Bfloat16 => &half,
            Kind::Int8 => &int8,
        };
        with(&mut || {
            product(cpu, &left, right, Start::Zero, &NoEpilogue, Output::new(black_box(&mut c), m, n))
        });
    }
}

/// The best time of one call, over repeated batches that fill `total`.
fn best(total: Duration, call: &mut dyn FnMut()) -> Duration {
    let begun = Instant::now();
    call();
    let once = begun.elapsed();
    let batch = (Duration::from_micros(200).as_nanos() / once.as_nanos().max(1)).clamp(1, 1000) as u32;
    let mut best = once;
    let begun = Instant::now();
    while begun.elapsed() < total {
        let start = Instant::now();
        for _ in 0..batch {
            call();
        }
        best = best.min(start.elapsed() / batch);
    }
    best
}

/// GFLOP/s of nothing but fused multiply-adds, on all threads.
fn peak(cpu: &Cpu) -> f64 {
    const ROUNDS: usize = 100_000;
    let chains = |operations: usize, round: &(dyn Fn(usize) -> f32 + Sync)| {
        let threads = cpu.pool().threads();
        let time = best(Duration::from_millis(500), &mut || {
            cpu.pool().run(threads, &|_| {
                black_box(round(ROUNDS));
            });
        });
        (threads * operations * ROUNDS) as f64 / time.as_secs_f64() / 1e9
    };
    match cpu.isa().level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction set was found on this machine.
        Level::Avx512 => chains(12 * 8 * 32, &|rounds| unsafe { fma::avx512(rounds) }),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => chains(12 * 8 * 16, &|rounds| unsafe { fma::avx2(rounds) }),
        _ => chains(12 * 8 * 2, &fma::portable),
    }
}

/// Twelve independent chains, eight steps a round, all unrolled.
mod fma {
    macro_rules! chains {
        ($rounds:ident, $start:expr, $step:expr) => {{
            let mut sums: [_; 12] = std::array::from_fn(|i| $start(i as f32 * 1e-3));
            for _ in 0..$rounds {
                chains!(@steps sums, $step; 0 1 2 3 4 5 6 7);
            }
            sums
        }};
        (@steps $sums:ident, $step:expr; $($n:literal)*) => {
            $(let _ = $n; for sum in &mut $sums { *sum = $step(*sum); })*
        };
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    pub fn avx512(rounds: usize) -> f32 {
        use std::arch::x86_64::*;
        let (x, y) = (_mm512_set1_ps(0.999), _mm512_set1_ps(1e-4));
        let sums = chains!(rounds, |v| _mm512_set1_ps(v), |sum| _mm512_fmadd_ps(sum, x, y));
        sums.into_iter().map(|sum| _mm512_cvtss_f32(sum)).sum()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    pub fn avx2(rounds: usize) -> f32 {
        use std::arch::x86_64::*;
        let (x, y) = (_mm256_set1_ps(0.999), _mm256_set1_ps(1e-4));
        let sums = chains!(rounds, |v| _mm256_set1_ps(v), |sum| _mm256_fmadd_ps(sum, x, y));
        sums.into_iter().map(|sum| _mm256_cvtss_f32(sum)).sum()
    }

    pub fn portable(rounds: usize) -> f32 {
        let sums = chains!(rounds, |v: f32| v, |sum: f32| sum.mul_add(0.999, 1e-4));
        sums.into_iter().sum()
    }
}

fn table(cpu: &Cpu) {
    let given = std::env::var("LOOM_FMA_PEAK").ok().and_then(|text| text.parse().ok()).unwrap_or(0.0_f64);
    let before = peak(cpu);
    let measured: Vec<Duration> = CASES
        .iter()
        .map(|case| {
            let mut time = Duration::MAX;
            let total = Duration::from_millis(if case.operations() > 1e11 { 3000 } else { 400 });
            case.run(cpu, |call| time = best(total, call));
            time
        })
        .collect();
    let after = peak(cpu);
    let peak = before.max(after).max(given);
    println!(
        "f32 product on {}, {} threads; FMA peak {peak:.0} GFLOP/s (measured {before:.0} and {after:.0}{})",
        cpu.isa(),
        cpu.pool().threads(),
        if given > 0.0 { format!(", given {given:.0}") } else { String::new() }
    );
    println!("{:20} {:>16} {:>12} {:>9} {:>7}", "", "m x k x n", "us", "GFLOP/s", "% peak");
    for (case, time) in CASES.iter().zip(measured) {
        let rate = case.operations() / time.as_secs_f64() / 1e9;
        println!(
            "{:20} {:>16} {:>12.1} {:>9.1} {:>7.1}",
            case.name,
            format!("{}x{}x{}", case.m, case.k, case.n),
            time.as_secs_f64() * 1e6,
            rate,
            rate / peak * 100.0
        );
    }
}

fn measure(criterion: &mut Criterion, cpu: &Cpu) {
    let mut group = criterion.benchmark_group("product");
    group.sample_size(10).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200));
    for case in &CASES {
        group.throughput(Throughput::Elements((case.m * case.k * case.n) as u64));
        let id = BenchmarkId::new(case.name, format!("{}x{}x{}", case.m, case.k, case.n));
        case.run(cpu, |call| {
            group.bench_function(id, |bencher| bencher.iter(&mut *call));
        });
    }
    group.finish();
}

fn main() {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let cpu = Cpu::global().unwrap_or_else(|error| panic!("{error}"));
    if !asked("--test") {
        table(cpu);
    }
    if !asked("--table") {
        let mut criterion = Criterion::default().configure_from_args();
        measure(&mut criterion, cpu);
        criterion.final_summary();
    }
}
