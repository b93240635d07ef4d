//! The three directions of convolutions of a small network, in multiplications and additions a second.
//!
//! `cargo bench --bench convolution`; the figures in elements per second are floating-point
//! operations per second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use loom::ops::{Args, Convolution, Direction, Geometry, Operation, StepValues};
use loom::simd::Cpu;
use std::hint::black_box;

/// A window of `kernel` by `kernel` that keeps the image's size.
struct Layer {
    name: &'static str,
    inputs: usize,
    outputs: usize,
    groups: usize,
    size: usize,
    kernel: usize,
    rows: usize,
}

const LAYERS: [Layer; 6] = [
    Layer { name: "first, 64 images", inputs: 1, outputs: 32, groups: 1, size: 28, kernel: 3, rows: 64 },
    Layer { name: "second, 64 images", inputs: 32, outputs: 64, groups: 1, size: 14, kernel: 3, rows: 64 },
    Layer { name: "second, 1 image", inputs: 32, outputs: 64, groups: 1, size: 14, kernel: 3, rows: 1 },
    Layer { name: "small images", inputs: 256, outputs: 256, groups: 1, size: 4, kernel: 3, rows: 16 },
    Layer { name: "large images", inputs: 64, outputs: 64, groups: 1, size: 112, kernel: 3, rows: 1 },
    Layer { name: "depthwise", inputs: 64, outputs: 64, groups: 64, size: 28, kernel: 3, rows: 16 },
];

fn convolutions(criterion: &mut Criterion) {
    let cpu = Cpu::global().expect("the variables LOOM_ISA and LOOM_NUM_THREADS name what there is");
    let values = StepValues::default();
    for layer in &LAYERS {
        let &Layer { inputs, outputs, groups, size, kernel, rows, .. } = layer;
        let geometry = Geometry {
            input: [1, size, size],
            output: [1, size, size],
            kernel: [1, kernel, kernel],
            padding: [0, kernel / 2, kernel / 2],
            ..Geometry::POINT
        };
        let numbers = |len: usize| (0..len).map(|i| (i * 7 % 13) as f32 * 0.1 - 0.6).collect::<Vec<_>>();
        let mut x = numbers(rows * inputs * size * size);
        let mut y = numbers(rows * outputs * size * size);
        let mut w = numbers(inputs / groups * kernel * kernel * outputs);
        let mut group = criterion.benchmark_group(layer.name);
        group.throughput(Throughput::Elements((2 * w.len() * rows * size * size) as u64));
        for direction in [Direction::Forward, Direction::InputGradient, Direction::WeightGradient] {
            let op = Convolution {
                direction,
                geometry,
                inputs,
                outputs,
                groups,
                bias: false,
                activation: None,
                mixed: false,
                quantized: false,
            };
            group.bench_function(direction.to_string(), |bencher| {
                bencher.iter(|| {
                    let mut args = Args::new(cpu, rows, &values);
                    let (reads, write) = match direction {
                        Direction::Forward => ([&x[..], &w], &mut y),
                        Direction::InputGradient => ([&y[..], &w], &mut x),
                        Direction::WeightGradient => ([&x[..], &y], &mut w),
                    };
                    args.set_read(0, reads[0]);
                    args.set_read(1, reads[1]);
                    args.set_write(0, black_box(write));
                    op.run::<f32>(&mut args)
                })
            });
        }
        group.finish();
    }
}

criterion_group!(benches, convolutions);
criterion_main!(benches);
