//! The table against definitions written apart from it.

mod data;
mod kernels;
mod op;
mod values;
mod wgsl;

use super::*;

/// Every activation, and those with parameters also with others than the defaults.
fn all() -> Vec<Activation> {
    let mut all = Activation::ALL.to_vec();
    all.extend([
        Activation::LeakyRelu { slope: 0.2 },
        Activation::LeakyRelu { slope: 0.0 },
        Activation::LeakyRelu { slope: -0.3 },
        Activation::Elu { alpha: 0.5 },
        Activation::Elu { alpha: 2.5 },
        Activation::Elu { alpha: 0.0 },
        Activation::Elu { alpha: -1.5 },
    ]);
    all
}

/// What the derivative at `x` is computed from.
fn saved_at<T: crate::simd::Real>(activation: Activation, x: T) -> T {
    match activation.saved() {
        Saved::Input => x,
        Saved::Output => activation.value(x),
    }
}
