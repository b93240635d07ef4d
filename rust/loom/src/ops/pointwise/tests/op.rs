//! The operation, cut into tasks over threads, has the bits of the scalar code.

use super::*;
use crate::ops::{Args, Operation, StepValues};
use crate::simd::{Cpu, Isa, Real};

/// Lengths around one and several tasks, so that the last one is ragged.
const LENGTHS: [usize; 5] = [0, 1, 8191, 8193, 30_011];

fn check<T: Real>() {
    let values = StepValues::default();
    for activation in
        [Activation::Linear, Activation::LeakyRelu { slope: 0.2 }, Activation::Tanh, Activation::Silu]
    {
        for len in LENGTHS {
            let x: Vec<T> = (0..len).map(|i| T::from_f64((i % 977) as f64 / 100.0 - 4.0)).collect();
            let dy: Vec<T> = (0..len).map(|i| T::from_f64((i % 31) as f64 / 8.0 - 2.0)).collect();
            let saved: Vec<T> = x.iter().map(|x| saved_at(activation, *x)).collect();
            for isa in Isa::available() {
                for threads in 1..=3 {
                    let cpu = Cpu::with_threads(isa, threads).unwrap();
                    let mut y = vec![T::NAN; len];
                    let mut args = Args::new(&cpu, 1, &values);
                    args.set_read(0, &x);
                    args.set_write(0, &mut y);
                    Pointwise::forward(activation).run::<T>(&mut args).unwrap();
                    assert!((0..len).all(|i| y[i] == activation.value(x[i])), "{activation}, {len}, {isa}");

                    let mut dx = vec![T::NAN; len];
                    let mut args = Args::new(&cpu, 1, &values);
                    args.set_read(0, &saved);
                    args.set_read(1, &dy);
                    args.set_write(0, &mut dx);
                    Pointwise::backward(activation).run::<T>(&mut args).unwrap();
                    let expected = |i: usize| dy[i] * activation.derivative(saved[i]);
                    assert!((0..len).all(|i| dx[i] == expected(i)), "{activation}, {len}, {isa}");
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    check::<f32>();
    check::<f64>();
}
