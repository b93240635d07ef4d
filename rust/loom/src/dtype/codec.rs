//! From a parameter to packed codes with scales, and back, for types whose elements are coded one by one.
//!
//! A parameter is a row-major matrix whose columns are the output channels; codes follow each other
//! in its order, the first in the lowest bits.

use super::coding::{Coding, Statistic};
use super::decode::decode;
use super::decoders::WithDecoder;
#[cfg(test)]
use super::encode::Encode;
use super::encode::encode;
use super::format::{Format, Refusal, Storage, Target};
use super::grouping::Extents;
#[cfg(test)]
use super::groups::Grid;
use super::rule::Rule;
use super::wgsl::{self, WgslRule};
use crate::simd::{Cpu, Isa, Real};
use std::marker::PhantomData;
use std::ops::Range;

/// A type whose elements are coded one by one, as a table row has it.
pub(super) struct Flat<C>(PhantomData<C>);

impl<C: Coding> Storage for Flat<C> {
    const BITS: usize = C::BITS;
    const BLOCK: Option<usize> = C::BLOCK;
    const INTEGERS: bool = C::INTEGERS;
    const FORMAT: &'static dyn Format = &Self(PhantomData);

    fn encode<T: Real>(
        packing: &Extents,
        cpu: Option<&Cpu>,
        rule: &Rule<'_>,
        data: &[T],
        target: Target<'_>,
    ) -> Result<(), Refusal> {
        encode::<T, C>(packing, cpu, rule, data, target)
    }

    #[cfg(test)]
    fn encode_held<T: Real>(packing: &Extents, data: &[T], bytes: &mut [u8], scales: &[f32]) {
        let (grid, coding) = (Grid::of(packing), PhantomData::<C>);
        T::dispatch_single(
            Isa::portable(),
            Encode { grid, data, scales, first: 0, draws: None, bytes, coding },
        );
    }

    fn decode<T: Real>(
        with: (&Extents, Isa),
        from: (&[u8], &[f32]),
        tile: (Range<usize>, Range<usize>),
        out: &mut [T],
        stride: usize,
    ) {
        decode::<T, C>(with, from, tile, out, stride);
    }

    fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
        C::decoder(to)
    }
}

impl<C: Coding> Format for Flat<C> {
    fn words(&self) -> usize {
        C::WORDS
    }

    fn has_minima(&self) -> bool {
        C::MINIMA
    }

    fn bytes(&self, rows: usize, channels: usize) -> usize {
        let elements = rows * channels;
        // In two parts, so that the product with the bits cannot overflow.
        elements / 8 * C::BITS + (elements % 8 * C::BITS).div_ceil(8)
    }

    fn gpu_encoding(&self) -> Option<super::format::GpuEncoding> {
        use super::format::{GpuEncoding, GpuStatistic};
        let (limit, code) = C::wgsl_code()?;
        let statistic = match C::STATISTIC {
            Statistic::None | Statistic::Extent => return None,
            Statistic::Largest => GpuStatistic::Largest,
            Statistic::Range => GpuStatistic::Range,
            Statistic::Mean => GpuStatistic::Mean,
        };
        Some(GpuEncoding { statistic, limit, code })
    }

    fn wgsl(&self, packing: &Extents) -> String {
        WgslRule::of::<C>().statements(packing)
    }

    fn wgsl_vec4(&self, name: &str) -> Option<(String, f32)> {
        Some(WgslRule::of::<C>().vec4(name))
    }

    fn wgsl_integers(&self, packing: &Extents) -> Option<[String; 2]> {
        C::INTEGERS.then(|| wgsl::integers(packing, C::BITS))
    }

    fn wgsl_vec4_at(&self, packing: &Extents, name: &str) -> Option<String> {
        WgslRule::of::<C>().vec4_at(packing, name)
    }
}
