//! The `f32` algorithms, branch-free over scalars and vectors.
//!
//! The structure is that of S. L. Moshier's Cephes library (single precision):
//! reduce the argument, evaluate a minimax polynomial, put the exponent back;
//! with fused multiply-add throughout, and scaling that rounds once so that
//! subnormal results are right too.

use crate::simd::Elementwise;
use std::f64::consts::{LN_2, LOG2_E, TAU};

/// The leading bits of ln 2, few enough that an exponent times them is exact.
const LN_2_HIGH: f64 = 0.693_359_375;
/// The rest of ln 2.
const LN_2_LOW: f64 = LN_2 - LN_2_HIGH;

/// The polynomial with these coefficients, the highest power's first.
#[inline(always)]
fn polynomial<E: Elementwise, const N: usize>(x: E, coefficients: [f64; N]) -> E {
    let mut sum = E::constant(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, E::constant(coefficient));
    }
    sum
}

/// `x` held between two bounds; NaN stays NaN.
#[inline(always)]
fn clamp<E: Elementwise>(x: E, low: f64, high: f64) -> E {
    // `min` and `max` give their second operand where either is NaN.
    E::constant(low).max(E::constant(high).min(x))
}

/// `x = n ln 2 + r` with integral `n` and `|r| <= ln 2 / 2`: n, and exp(r) - 1 - r, and r.
#[inline(always)]
fn reduced_exp<E: Elementwise>(x: E) -> (E, E, E) {
    let n = (x * E::constant(LOG2_E)).round_ties_even();
    let r = n.mul_add(E::constant(-LN_2_HIGH), x);
    let r = n.mul_add(E::constant(-LN_2_LOW), r);
    let tail = polynomial(
        r,
        [
            1.987_569_150_0e-4,
            1.398_199_950_7e-3,
            8.333_451_907_3e-3,
            4.166_579_589_4e-2,
            1.666_666_545_9e-1,
            5.000_000_120_1e-1,
        ],
    );
    (n, tail * (r * r), r)
}

#[inline(always)]
pub fn exp<E: Elementwise>(x: E) -> E {
    // Past the bounds the result is infinite, or below half of the least subnormal number.
    let (n, tail, r) = reduced_exp(clamp(x, -105.0, 89.0));
    ((tail + r) + E::constant(1.0)).scale(n)
}

#[inline(always)]
pub fn exp_m1<E: Elementwise>(x: E) -> E {
    // Below -20 the result is -1. Half the power of two is in range where the power itself is not.
    let (n, tail, r) = reduced_exp(clamp(x, -20.0, 89.0));
    let half = (n - E::constant(1.0)).pow2();
    let result = (tail + r).mul_add(half, half - E::constant(0.5));
    // Where the argument is its own result, the halving would lose subnormal bits and the sign of zero.
    let tiny = x.abs().lt(E::constant(1.0 / (1u32 << 25) as f64));
    E::select(tiny, x, result + result)
}

/// ln(1 + f) + e ln 2 for 1 + f between the square roots of a half and of two.
#[inline(always)]
fn ln_of_parts<E: Elementwise>(f: E, e: E) -> E {
    let square = f * f;
    let tail = polynomial(
        f,
        [
            7.037_683_629_2e-2,
            -1.151_461_031_0e-1,
            1.167_699_874_0e-1,
            -1.242_014_084_6e-1,
            1.424_932_278_7e-1,
            -1.666_805_766_5e-1,
            2.000_071_476_5e-1,
            -2.499_999_399_3e-1,
            3.333_333_117_4e-1,
        ],
    );
    let low = (tail * f).mul_add(square, e * E::constant(LN_2_LOW));
    let low = square.mul_add(E::constant(-0.5), low);
    e.mul_add(E::constant(LN_2_HIGH), f + low)
}

/// Exponent and mantissa of a normal number, the mantissa between the square
/// roots of a half and of two.
#[inline(always)]
fn balanced_parts<E: Elementwise>(x: E) -> (E, E) {
    let (e, m) = (x.exponent(), x.mantissa());
    let large = m.gt(E::constant(std::f64::consts::SQRT_2));
    (E::select(large, e + E::constant(1.0), e), E::select(large, m * E::constant(0.5), m))
}

/// Puts the limits of the logarithm of `x` into `result`.
#[inline(always)]
fn ln_limits<E: Elementwise>(x: E, result: E) -> E {
    let zero = E::constant(0.0);
    let result = E::select(x.eq(zero), E::constant(f64::NEG_INFINITY), result);
    // Infinity and NaN are their own logarithms.
    let result = E::select(x.lt(E::constant(f64::INFINITY)), result, x);
    E::select(x.lt(zero), E::constant(f64::NAN), result)
}

#[inline(always)]
pub fn ln<E: Elementwise>(x: E) -> E {
    let subnormal = x.lt(E::constant(f32::MIN_POSITIVE as f64));
    let lifted = E::select(subnormal, x * E::constant((1u32 << 24) as f64), x);
    let (e, m) = balanced_parts(lifted);
    let e = E::select(subnormal, e - E::constant(24.0), e);
    ln_limits(x, ln_of_parts(m - E::constant(1.0), e))
}

#[inline(always)]
pub fn ln_1p<E: Elementwise>(x: E) -> E {
    let one = E::constant(1.0);
    let sum = one + x;
    // What rounding took from the sum, exactly.
    let lost = E::select(x.gt(one), one - (sum - x), x - (sum - one));
    let (e, m) = balanced_parts(sum);
    // Where the exponent is 128, or -127 of an infinity, nothing was lost that counts.
    let f = lost.mul_add(E::constant(-127.0).max(-e).pow2(), m - one);
    let f = E::select(e.eq(E::constant(0.0)), x, f);
    let result = ln_limits(sum, ln_of_parts(f, e));
    E::select(x.eq(E::constant(0.0)), x, result)
}

#[inline(always)]
pub fn tanh<E: Elementwise>(x: E) -> E {
    // (exp(2x) - 1) / (exp(2x) + 1), which is 1 from 9.1 on.
    let twice = E::constant(20.0).min(x.abs() + x.abs());
    let e = exp_m1(twice);
    (e / (e + E::constant(2.0))).copysign(x)
}

#[inline(always)]
pub fn sigmoid<E: Elementwise>(x: E) -> E {
    // Of exp(x) and exp(-x), the one that cannot overflow.
    let e = exp(-x.abs());
    let one = E::constant(1.0);
    E::select(x.lt(E::constant(0.0)), e, one) / (one + e)
}

/// N. Juffa's polynomials for the error function: directly up to 475/512, then
/// by the logarithm of its complement.
#[inline(always)]
pub fn erf<E: Elementwise>(x: E) -> E {
    let t = E::constant(4.0).min(x.abs()); // from 3.92 on the result is 1
    let square = t * t;
    let near = polynomial(
        square,
        [
            -5.967_617_03e-4,
            4.991_194_23e-3,
            -2.676_813_49e-2,
            1.128_199_25e-1,
            -3.761_253_36e-1,
            1.283_791_66e-1,
        ],
    );
    let near = near.mul_add(t, t);
    let far = polynomial(
        t,
        [
            -1.728_534_70e-5,
            3.831_971_26e-4,
            -3.883_964_38e-3,
            2.425_462_19e-2,
            -1.067_778_77e-1,
            -6.348_466_87e-1,
            -1.287_175_12e-1,
        ],
    );
    let far = E::constant(1.0) - exp(far.mul_add(t, -t));
    E::select(t.gt(E::constant(475.0 / 512.0)), far, near).copysign(x)
}

/// `turns` as whole turns, quarter turns from -2 to 2, and a rest of at most an
/// eighth of a turn: the quarters and the rest, both exact.
#[inline(always)]
pub fn quarter_turns<E: Elementwise>(turns: E) -> (E, E) {
    let part = turns - turns.round_ties_even();
    let quarters = (part * E::constant(4.0)).round_ties_even();
    (quarters, quarters.mul_add(E::constant(-0.25), part))
}

/// Sine and cosine of an angle from those of the angle less some quarter turns.
#[inline(always)]
pub fn turn_by_quarters<E: Elementwise>(quarters: E, sin: E, cos: E) -> (E, E) {
    let one = E::constant(1.0);
    let odd = quarters.abs().eq(one);
    let half = quarters.abs().gt(one);
    let s = E::select(odd, cos, sin);
    let c = E::select(odd, sin, cos);
    (E::select(E::or(half, quarters.eq(-one)), -s, s), E::select(E::or(half, quarters.eq(one)), -c, c))
}

#[inline(always)]
pub fn sin_cos_turns<E: Elementwise>(turns: E) -> (E, E) {
    /// 2 pi as an `f32`, and what that leaves out.
    const TAU_HIGH: f64 = TAU as f32 as f64;
    const TAU_LOW: f64 = TAU - TAU_HIGH;
    const TAU_2: f64 = TAU * TAU;

    let (quarters, rest) = quarter_turns(turns);
    let square = rest * rest;
    // Cephes's polynomials of the angle, with the powers of 2 pi multiplied into the coefficients.
    let sin = polynomial(
        square,
        [
            -1.951_529_589_1e-4 * TAU_2 * TAU_2 * TAU_2 * TAU,
            8.332_160_873_6e-3 * TAU_2 * TAU_2 * TAU,
            -1.666_665_461_1e-1 * TAU_2 * TAU,
            TAU_LOW,
        ],
    );
    let sin = rest.mul_add(E::constant(TAU_HIGH), sin * rest);
    let cos = polynomial(
        square,
        [
            2.443_315_711_809_948e-5 * TAU_2 * TAU_2 * TAU_2 * TAU_2,
            -1.388_731_625_493_765e-3 * TAU_2 * TAU_2 * TAU_2,
            4.166_664_568_298_827e-2 * TAU_2 * TAU_2,
            -0.5 * TAU_2,
            1.0,
        ],
    );
    turn_by_quarters(quarters, sin, cos)
}
