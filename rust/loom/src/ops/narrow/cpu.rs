//! Kernels of 16-bit activations.

use super::{Narrow, ShortFloat, Widen};
use crate::Result;
use crate::dtype::{bfloat16_to_f32, f32_to_bfloat16, f32_to_float16, float16_to_f32, to_f32_odd};
use crate::ops::element_loops::PASS;
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, Real, Vector};

/// The nearest code of 16 bits; NaN has `nan`.
#[inline(always)]
fn code<T: Real>(value: T, nan: u16, finite: impl Fn(f32) -> u16) -> u16 {
    let single = to_f32_odd(value);
    let bits = single.to_bits();
    // On the bits, for a comparison would be a branch.
    let is_nan = bits & 0x7FFF_FFFF > 0x7F80_0000;
    let found = finite(single);
    if is_nan { (bits >> 16 & 0x8000) as u16 | nan } else { found }
}

struct ToCodes<'a, T> {
    format: ShortFloat,
    x: &'a [T],
    codes: &'a mut [u16],
}

impl<T: Real> Kernel<T> for ToCodes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        match self.format {
            ShortFloat::Float16 => {
                for (code_of, x) in self.codes.iter_mut().zip(self.x) {
                    *code_of = code(*x, 0x7E00, f32_to_float16);
                }
            }
            ShortFloat::BFloat16 => {
                for (code_of, x) in self.codes.iter_mut().zip(self.x) {
                    *code_of = code(*x, 0x7FC0, f32_to_bfloat16);
                }
            }
        }
    }
}

struct FromCodes<'a, T> {
    format: ShortFloat,
    codes: &'a [u16],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for FromCodes<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        match self.format {
            ShortFloat::Float16 => {
                for (y, code) in self.y.iter_mut().zip(self.codes) {
                    *y = T::from_f64(f64::from(float16_to_f32(*code)));
                }
            }
            ShortFloat::BFloat16 => {
                for (y, code) in self.y.iter_mut().zip(self.codes) {
                    *y = T::from_f64(f64::from(bfloat16_to_f32(*code)));
                }
            }
        }
    }
}

impl Operation for Narrow {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let codes = args.write::<u16>(0);
        let (format, isa) = (self.format, args.cpu.isa());
        // Of an odd number the last word's upper half is nobody's.
        codes[x.len()..].fill(0);
        args.cpu.pool().for_each_chunk(&mut codes[..x.len()], PASS, |task, codes| {
            let x = &x[task * PASS..][..codes.len()];
            T::dispatch(isa, ToCodes { format, x, codes });
        });
        Ok(())
    }
}

impl Operation for Widen {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let codes = args.read::<u16>(0);
        let y = args.write::<T>(0);
        let (format, isa) = (self.format, args.cpu.isa());
        args.cpu.pool().for_each_chunk(y, PASS, |task, y| {
            let codes = &codes[task * PASS..][..y.len()];
            T::dispatch(isa, FromCodes { format, codes, y });
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Data, Setting, numbers};
    use half::{bf16, f16};

    /// What a number is after both: of the `half` crate's number and those beside it the nearest, since some of its
    /// conversions round twice.
    fn expected(format: ShortFloat, x: f64) -> f64 {
        let (near, number): (u16, fn(u16) -> f64) = match format {
            ShortFloat::Float16 => (f16::from_f64(x).to_bits(), |code| f16::from_bits(code).to_f64()),
            ShortFloat::BFloat16 => (bf16::from_f64(x).to_bits(), |code| bf16::from_bits(code).to_f64()),
        };
        if !number(near).is_finite() {
            return number(near);
        }
        let beside = [near, near.wrapping_sub(1), near.wrapping_add(1)].into_iter();
        let finite = beside.filter(|code| number(*code).is_finite());
        let found = finite.min_by(|one, other| {
            let far = |code: &u16| (number(*code) - x).abs();
            far(one).total_cmp(&far(other)).then((one & 1).cmp(&(other & 1)))
        });
        found.map_or(f64::NAN, number)
    }

    fn there_and_back<T: Real>(format: ShortFloat, x: &[T]) -> Vec<T> {
        let mut setting = Setting::<T>::new(1, &[x], &[0]);
        setting.writes = vec![Data::Index(vec![-1; x.len().div_ceil(2)])];
        let words = setting.run(&Narrow { format }).remove(0);
        let mut setting = Setting::<T>::new(1, &[], &[x.len()]);
        setting.reads = vec![words];
        setting.result(&Widen { format })
    }

    /// Numbers of all magnitudes, infinities, zeros and NaN, of odd and even counts, in both precisions.
    #[test]
    fn each_is_the_nearest() {
        for format in [ShortFloat::Float16, ShortFloat::BFloat16] {
            for len in [1, 2, 7, 40_001] {
                let mut x: Vec<f64> = numbers(len as u64, len);
                for (place, x) in x.iter_mut().enumerate() {
                    *x *= 10f64.powi(place as i32 % 60 - 40);
                }
                for (x, odd) in
                    x.iter_mut().skip(1).zip([f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::NAN, 65519.9])
                {
                    *x = odd;
                }
                for (found, x) in there_and_back(format, &x).into_iter().zip(&x) {
                    let expected = expected(format, *x);
                    assert!(
                        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                        "{format}: {x:e} became {found:e}, not {expected:e}"
                    );
                }
                let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
                for (found, x) in there_and_back(format, &x).into_iter().zip(&x) {
                    let expected = expected(format, f64::from(*x)) as f32;
                    assert!(
                        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                        "{x:e}"
                    );
                }
            }
        }
    }
}
