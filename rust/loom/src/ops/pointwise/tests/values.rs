//! Values against textbook definitions, derivatives against central differences.

use super::*;
use proptest::prelude::*;

/// The definition of each activation as the literature writes it, on `libm`'s functions.
fn definition(activation: Activation, x: f64) -> f64 {
    let softplus = |x: f64| if x > 30.0 { x } else { libm::log1p(libm::exp(x)) };
    match activation {
        Activation::Linear => x,
        Activation::Relu => x.max(0.0),
        Activation::LeakyRelu { slope } => {
            if x > 0.0 {
                x
            } else {
                slope * x
            }
        }
        Activation::ReluSquared => x.max(0.0).powi(2),
        Activation::ScaledRelu => 1.1 * x.max(0.0),
        Activation::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
        Activation::Tanh => libm::tanh(x),
        Activation::Gelu => 0.5 * x * libm::erfc(-x / 2f64.sqrt()),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + libm::tanh(u))
        }
        Activation::Silu => x / (1.0 + libm::exp(-x)),
        Activation::Softplus => softplus(x),
        Activation::Mish => x * libm::tanh(softplus(x)),
        Activation::Elu { alpha } => {
            if x > 0.0 {
                x
            } else {
                alpha * libm::expm1(x)
            }
        }
        Activation::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Activation::HardSigmoid => (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Activation::Selu => {
            let (lambda, alpha) = (1.050_700_987_355_480_5, 1.673_263_242_354_377_2);
            lambda * if x > 0.0 { x } else { alpha * libm::expm1(x) }
        }
    }
}

/// Where the two one-sided derivatives differ.
fn kinks(activation: Activation) -> &'static [f64] {
    use Activation::*;
    match activation {
        Relu | LeakyRelu { .. } | ReluSquared | ScaledRelu | Elu { .. } | Selu => &[0.0],
        HardSwish | HardSigmoid => &[-3.0, 3.0],
        _ => &[],
    }
}

/// The derivative by central differences of the fourth order.
fn difference(activation: Activation, x: f64) -> f64 {
    let h = 1e-3;
    let f = |x: f64| definition(activation, x);
    (8.0 * (f(x + h) - f(x - h)) - (f(x + 2.0 * h) - f(x - 2.0 * h))) / (12.0 * h)
}

fn check_value(activation: Activation, x: f64) -> Result<(), TestCaseError> {
    let expected = definition(activation, x);
    let found = activation.value(x);
    // gelu's lower tails are differences of numbers near 1, so the error is relative to x.
    let scale = expected.abs().max(x.abs() * 1e-2);
    prop_assert!((found - expected).abs() <= 1e-12 * scale, "{activation} of {x}: {found} for {expected}");

    let x = x as f32;
    let expected = definition(activation, f64::from(x));
    let found = f64::from(activation.value(x));
    let scale = expected.abs().max(f64::from(x.abs()));
    prop_assert!(
        (found - expected).abs() <= 5e-7 * scale,
        "{activation} of {x} in f32: {found} for {expected}"
    );
    Ok(())
}

fn check_derivative(activation: Activation, x: f64) -> Result<(), TestCaseError> {
    if kinks(activation).iter().any(|kink| (x - kink).abs() < 3e-3) {
        return Ok(());
    }
    let expected = difference(activation, x);
    let found = activation.derivative(saved_at(activation, x));
    let scale = expected.abs().max(found.abs()).max(1e-5);
    prop_assert!((found - expected).abs() < 1e-6 * scale, "{activation} at {x}: {found} for {expected}");

    let found = f64::from(activation.derivative(saved_at(activation, x as f32)));
    prop_assert!(
        (found - expected).abs() < 1e-5 * (1.0 + expected.abs()),
        "{activation} at {x} in f32: {found}"
    );
    Ok(())
}

proptest! {
    #[test]
    fn values_and_derivatives_are_those_of_the_definitions(x in -12.0f64..12.0) {
        for activation in all() {
            check_value(activation, x)?;
            check_derivative(activation, x)?;
        }
    }

    #[test]
    fn any_parameter_works(x in -12.0f64..12.0, parameter in -3.0f64..3.0) {
        for activation in [Activation::LeakyRelu { slope: parameter }, Activation::Elu { alpha: parameter }] {
            check_value(activation, x)?;
            check_derivative(activation, x)?;
        }
    }
}

#[test]
fn derivatives_at_zero_are_the_left_ones() {
    for activation in all() {
        let derivative = activation.derivative(saved_at(activation, 0.0f64));
        let expected = match activation {
            Activation::Relu | Activation::ReluSquared | Activation::ScaledRelu => 0.0,
            Activation::LeakyRelu { slope } => slope,
            Activation::Elu { alpha } => alpha,
            Activation::Selu => 1.758_099_340_847_376_6,
            _ => difference(activation, 0.0),
        };
        assert!((derivative - expected).abs() < 1e-9, "{activation}: {derivative} for {expected}");
    }
}

#[test]
fn numbers_far_out_give_limits_and_not_nan() {
    fn check<T: crate::simd::Real>(magnitudes: &[f64]) {
        for activation in all() {
            for &magnitude in magnitudes {
                let (up, down) = (T::from_f64(magnitude), T::from_f64(-magnitude));
                let slope_up = activation.derivative(saved_at(activation, up));
                let slope_down = activation.derivative(saved_at(activation, down));
                let (expected_up, expected_down) = match activation {
                    Activation::Linear => (1.0, 1.0),
                    Activation::Sigmoid | Activation::Tanh | Activation::HardSigmoid => (0.0, 0.0),
                    Activation::ScaledRelu => (1.1, 0.0),
                    Activation::Selu => (1.050_700_987_355_480_5, 0.0),
                    Activation::LeakyRelu { slope } => (1.0, slope),
                    Activation::ReluSquared => (2.0 * magnitude, 0.0),
                    _ => (1.0, 0.0),
                };
                if activation != Activation::ReluSquared || magnitude < 1e18 {
                    assert!(activation.value(up).is_finite(), "{activation} of {up}");
                    let expected = T::from_f64(expected_up).to_f64();
                    assert_eq!(slope_up.to_f64(), expected, "{activation} at {up}");
                }
                assert!(activation.value(down).is_finite(), "{activation} of {down}");
                let expected = T::from_f64(expected_down).to_f64();
                assert_eq!(slope_down.to_f64(), expected, "{activation} at {down}");
            }
        }
    }
    check::<f32>(&[2e2, 1e4, 1e10, 1e20, 3e38]);
    check::<f64>(&[1e3, 1e10, 1e38, 1e200]);
}

#[test]
fn nan_is_passed_on() {
    for activation in all() {
        assert!(activation.value(f32::NAN).is_nan(), "{activation}");
        assert!(activation.value(f64::NAN).is_nan(), "{activation}");
    }
}
