//! The functions against `f64` ones over the whole range of `f32`, and each
//! instruction set against the scalar code.

use super::*;
use crate::simd::{Isa, Kernel, LANES, Real, Vector};
use proptest::prelude::*;

/// Every how many-th bit pattern is tried: a prime, so that all low bits occur.
const STRIDE: usize = 1543;

/// The error of `found` in units in the last place of `exact`.
fn error_in_ulp(found: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if rounded.is_nan() || found.is_nan() {
        return if rounded.is_nan() && found.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if rounded == found {
        return if rounded.is_infinite() { 0.0 } else { (f64::from(found) - exact).abs() / unit(exact) };
    }
    if found.is_infinite() {
        // As if the exponent had no end.
        return (2f64.powi(128).copysign(f64::from(found)) - exact).abs() / unit(exact);
    }
    (f64::from(found) - exact).abs() / unit(exact)
}

/// The distance between `f32` numbers near `exact`.
fn unit(exact: f64) -> f64 {
    let exponent = if exact == 0.0 { -126 } else { libm::ilogb(exact).clamp(-126, 127) };
    2f64.powi(exponent - 23)
}

/// Tries every `STRIDE`-th `f32`, and those around `extra`.
#[track_caller]
fn check(bound: f64, found: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, extra: &[f32]) {
    let near = extra.iter().flat_map(|x| (-2000i32..2000).map(|d| x.to_bits().wrapping_add_signed(d)));
    let (mut worst, mut at) = (0.0, 0.0);
    for bits in (0..=u32::MAX).step_by(STRIDE).chain(near) {
        let x = f32::from_bits(bits);
        let error = error_in_ulp(found(x), exact(f64::from(x)));
        if error > worst {
            (worst, at) = (error, x);
        }
    }
    assert!(worst <= bound, "{worst} ulp at {at:e}: {:e} for {:e}", found(at), exact(f64::from(at)));
    // A bound that is never approached says too little.
    assert!(worst > bound * 0.5, "the bound {bound} is far above the worst error, {worst}");
}

fn sigmoid_f64(x: f64) -> f64 {
    if x < 0.0 { libm::exp(x) / (1.0 + libm::exp(x)) } else { 1.0 / (1.0 + libm::exp(-x)) }
}

/// `turns` between a quarter turn back and forth, without loss.
fn sin_of_turns(turns: f64) -> f64 {
    let part = turns - turns.round();
    let folded = if part > 0.25 {
        0.5 - part
    } else if part < -0.25 {
        -0.5 - part
    } else {
        part
    };
    libm::sin(std::f64::consts::TAU * folded)
}

#[test]
fn exp_keeps_its_bound() {
    check(ulp::EXP, Math::exp, libm::exp, &[0.0, 88.72, -87.33, -103.9, 0.34657]);
}

#[test]
fn exp_m1_keeps_its_bound() {
    check(ulp::EXP_M1, Math::exp_m1, libm::expm1, &[0.0, -0.0, 88.72, 0.34657, -0.34657, 3e-8]);
}

#[test]
fn ln_keeps_its_bound() {
    check(
        ulp::LN,
        Math::ln,
        libm::log,
        &[1.0, 0.0, f32::MIN_POSITIVE, std::f32::consts::SQRT_2, std::f32::consts::FRAC_1_SQRT_2],
    );
}

#[test]
fn ln_1p_keeps_its_bound() {
    check(ulp::LN_1P, Math::ln_1p, libm::log1p, &[-1.0, 1.0, 0.41421, -0.29289, f32::MAX]);
}

#[test]
fn tanh_keeps_its_bound() {
    check(ulp::TANH, Math::tanh, libm::tanh, &[0.17328, 9.01, 10.0, -0.0]);
}

#[test]
fn sigmoid_keeps_its_bound() {
    check(ulp::SIGMOID, Math::sigmoid, sigmoid_f64, &[0.0, -88.0, -103.9, 17.0]);
}

#[test]
fn erf_keeps_its_bound() {
    check(ulp::ERF, Math::erf, libm::erf, &[0.0, 475.0 / 512.0, 3.92, 4.0]);
}

#[test]
fn sine_and_cosine_keep_their_bound() {
    let extra = [0.125, 0.25, 0.375, 0.5, 0.75, 1.0, -0.125];
    check(ulp::SIN_COS_TURNS, |x| x.sin_cos_turns().0, sin_of_turns, &extra);
    let cos = |turns: f64| {
        let part = (turns - turns.round()).abs();
        sin_of_turns(0.25 - part)
    };
    check(ulp::SIN_COS_TURNS, |x| x.sin_cos_turns().1, cos, &extra);
}

#[test]
fn limits_are_taken_and_signs_of_zero_kept() {
    fn limits<T: Real>() {
        let (zero, one, infinity) = (T::ZERO, T::ONE, T::INFINITY);
        let same = |what: &str, found: T, expected: T| {
            assert_eq!(found.to_bits_u64(), expected.to_bits_u64(), "{what}: {found} for {expected}");
        };
        same("exp", infinity.exp(), infinity);
        same("exp", (-infinity).exp(), zero);
        same("exp", zero.exp(), one);
        same("exp_m1", infinity.exp_m1(), infinity);
        same("exp_m1", (-infinity).exp_m1(), -one);
        same("exp_m1", (-zero).exp_m1(), -zero);
        same("ln", zero.ln(), -infinity);
        same("ln", (-zero).ln(), -infinity);
        same("ln", infinity.ln(), infinity);
        same("ln", one.ln(), zero);
        same("ln_1p", (-one).ln_1p(), -infinity);
        same("ln_1p", infinity.ln_1p(), infinity);
        same("ln_1p", (-zero).ln_1p(), -zero);
        same("tanh", infinity.tanh(), one);
        same("tanh", (-infinity).tanh(), -one);
        same("tanh", (-zero).tanh(), -zero);
        same("sigmoid", infinity.sigmoid(), one);
        same("sigmoid", (-infinity).sigmoid(), zero);
        same("erf", infinity.erf(), one);
        same("erf", (-infinity).erf(), -one);
        same("erf", (-zero).erf(), -zero);
        for n in -8i32..=8 {
            let (sin, cos) = T::from_f64(f64::from(n) * 0.25).sin_cos_turns();
            assert_eq!(sin.to_f64(), [0.0, 1.0, 0.0, -1.0][n.rem_euclid(4) as usize]);
            assert_eq!(cos.to_f64(), [1.0, 0.0, -1.0, 0.0][n.rem_euclid(4) as usize]);
        }
        for nan in [T::NAN, -T::NAN] {
            assert!(nan.exp().is_nan() && nan.exp_m1().is_nan() && nan.ln().is_nan() && nan.ln_1p().is_nan());
            assert!(nan.tanh().is_nan() && nan.sigmoid().is_nan() && nan.erf().is_nan());
            assert!(nan.sin_cos_turns().0.is_nan() && nan.sin_cos_turns().1.is_nan());
        }
        assert!((-one).ln().is_nan() && (-infinity).ln().is_nan() && (-one - one).ln_1p().is_nan());
        assert!(infinity.sin_cos_turns().0.is_nan());
    }
    limits::<f32>();
    limits::<f64>();
}

/// All functions of 16 numbers.
struct Functions<'a, T>(&'a [T; LANES]);

impl<T: Real> Kernel<T> for Functions<'_, T> {
    type Output = [[T; LANES]; 9];

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> Self::Output {
        let x = V::load(self.0);
        let (sin, cos) = x.sin_cos_turns();
        [x.exp(), x.exp_m1(), x.ln(), x.ln_1p(), x.tanh(), x.sigmoid(), x.erf(), sin, cos].map(V::to_array)
    }
}

fn agree<T: Real>(x: [T; LANES]) -> Result<(), TestCaseError> {
    for isa in Isa::available() {
        let found = T::dispatch(isa, Functions(&x));
        for (lane, &x) in x.iter().enumerate() {
            let (sin, cos) = x.sin_cos_turns();
            let expected = [x.exp(), x.exp_m1(), x.ln(), x.ln_1p(), x.tanh(), x.sigmoid(), x.erf(), sin, cos];
            for (function, expected) in expected.into_iter().enumerate() {
                let found = found[function][lane];
                let same =
                    found.to_bits_u64() == expected.to_bits_u64() || found.is_nan() && expected.is_nan();
                prop_assert!(same, "{isa}, function {function} of {x:?}: {found:?} for {expected:?}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_instruction_set_agrees_on_any_bits(bits in any::<[u32; LANES]>()) {
        agree(bits.map(f32::from_bits))?;
    }

    #[test]
    fn every_instruction_set_agrees_on_ordinary_numbers(x in prop::array::uniform16(-120.0f32..120.0)) {
        agree(x)?;
        agree(x.map(|x| x / 64.0))?;
    }

    #[test]
    fn every_instruction_set_agrees_in_double_precision(x in prop::array::uniform16(-30.0f64..30.0)) {
        agree(x)?;
    }
}
