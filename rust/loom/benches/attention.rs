//! Attention forward and backward, in multiplications and additions a second.
//!
//! `cargo bench --bench attention`; the figures in elements per second are floating-point operations per
//! second, of which causal attention counts those of the keys that are seen.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use loom::ops::{Args, Attention, Direction, Operation, StepValues};
use loom::simd::Cpu;
use std::hint::black_box;

/// Causal attention of a sequence to itself.
struct Sequence {
    name: &'static str,
    rows: usize,
    time: usize,
    heads: usize,
    key_value_heads: usize,
    head_dim: usize,
}

const SEQUENCES: [Sequence; 4] = [
    Sequence { name: "8 x 128", rows: 8, time: 128, heads: 8, key_value_heads: 8, head_dim: 32 },
    Sequence { name: "1 x 1024", rows: 1, time: 1024, heads: 8, key_value_heads: 8, head_dim: 64 },
    Sequence { name: "1 x 1024, grouped", rows: 1, time: 1024, heads: 8, key_value_heads: 2, head_dim: 64 },
    Sequence { name: "1 x 4096", rows: 1, time: 4096, heads: 4, key_value_heads: 4, head_dim: 64 },
];

fn attention(criterion: &mut Criterion) {
    let cpu = Cpu::global().expect("the variables LOOM_ISA and LOOM_NUM_THREADS name what there is");
    let values = StepValues::default();
    for sequence in &SEQUENCES {
        let &Sequence { rows, time, heads, key_value_heads, head_dim, .. } = sequence;
        let numbers = |len: usize| (0..len).map(|i| (i * 7 % 13) as f32 * 0.1 - 0.6).collect::<Vec<_>>();
        let own = rows * time * heads * head_dim;
        let others = rows * time * key_value_heads * head_dim;
        let (q, k, v, dy) = (numbers(own), numbers(others), numbers(others), numbers(own));
        let (mut y, mut logs) = (numbers(own), numbers(own / head_dim));
        let (mut dq, mut dk, mut dv) = (numbers(own), numbers(others), numbers(others));
        let op =
            Attention { causal: true, ..Attention::new((time, time), (heads, key_value_heads), head_dim) };
        let gradient = Attention { direction: Direction::InputGradient, ..op.clone() };
        let seen = rows * heads * time * (time + 1) / 2;
        let mut group = criterion.benchmark_group(sequence.name);
        group.throughput(Throughput::Elements((2 * 2 * seen * head_dim) as u64));
        group.bench_function("forward", |bencher| {
            bencher.iter(|| {
                let mut args = Args::new(cpu, rows, &values);
                for (i, operand) in [&q, &k, &v].into_iter().enumerate() {
                    args.set_read(i, operand);
                }
                args.set_write(0, black_box(&mut y));
                args.set_write(1, &mut logs);
                op.run::<f32>(&mut args)
            });
        });
        group.throughput(Throughput::Elements((5 * 2 * seen * head_dim) as u64));
        group.bench_function("backward", |bencher| {
            bencher.iter(|| {
                let mut args = Args::new(cpu, rows, &values);
                for (i, operand) in [&q, &k, &v, &y, &logs, &dy].into_iter().enumerate() {
                    args.set_read(i, operand);
                }
                args.set_write(0, black_box(&mut dq));
                args.set_write(1, &mut dk);
                args.set_write(2, &mut dv);
                gradient.run::<f32>(&mut args)
            });
        });
        group.finish();
    }
}

criterion_group!(benches, attention);
criterion_main!(benches);
