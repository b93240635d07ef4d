//! Formats that keep the scale of 32 elements beside their codes: one output's inputs, block after block,
//! and one output after the other. The last block of an output is filled up with zeros.

use super::fours::BlockWords;
use super::packing::{Format, Packing, Refusal, Target};
use super::recipe::Rule;
use crate::simd::{Cpu, Isa, Kernel, LANES, Real, Vector};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements of a block.
pub(super) const BLOCK: usize = 32;

/// How one format packs a block.
pub(super) trait BlockCoding: Send + Sync + 'static {
    /// Bytes of a block.
    const BYTES: usize;

    /// Encodes a block of finite numbers; false where a scale would not be finite.
    fn encode(values: &[f32; BLOCK], bytes: &mut [u8]) -> bool;

    /// Decodes a block; to be inlined, so that it is compiled for each instruction set.
    fn decode(bytes: &[u8], values: &mut [f32; BLOCK]);

    /// WGSL statements that end in a `return` of the number of element `place` of the block that starts at
    /// byte `start`, of which each byte is written `byte[index]` here.
    fn wgsl() -> String;

    /// How words of a block's codes are decoded, by functions of these names.
    fn wgsl_words(name: &str) -> BlockWords;
}

/// A block format, as a table row has it.
pub(super) struct Blocks<B>(PhantomData<B>);

impl<B> Blocks<B> {
    pub(super) const NEW: Self = Self(PhantomData);
}

fn encode<T: Real, B: BlockCoding>(
    packing: &Packing,
    cpu: Option<&Cpu>,
    data: &[T],
    bytes: &mut [u8],
) -> Result<(), Refusal> {
    let channels = packing.channels;
    let of_channel = packing.rows.div_ceil(BLOCK) * B::BYTES;
    if of_channel == 0 {
        return Ok(());
    }
    let refused = AtomicBool::new(false);
    let column = |column: usize, bytes: &mut [u8]| {
        for (number, bytes) in bytes.chunks_exact_mut(B::BYTES).enumerate() {
            let mut values = [0.0; BLOCK];
            let rows = data.chunks_exact(channels).skip(number * BLOCK);
            for (value, row) in values.iter_mut().zip(rows) {
                *value = row[column].to_f32();
            }
            let finite = values.iter().all(|value| value.is_finite());
            if !(finite && B::encode(&values, bytes)) {
                refused.store(true, Ordering::Relaxed);
            }
        }
    };
    match cpu {
        Some(cpu) if channels > 1 => cpu.pool().for_each_chunk(bytes, of_channel, column),
        _ => bytes.chunks_exact_mut(of_channel).enumerate().for_each(|(number, bytes)| column(number, bytes)),
    }
    if refused.load(Ordering::Relaxed) { Err(first_refusal::<T, B>(data)) } else { Ok(()) }
}

/// Looks for the first element that was refused, once it is known that there is one.
#[cold]
fn first_refusal<T: Real, B: BlockCoding>(data: &[T]) -> Refusal {
    if let Some(index) = data.iter().position(|value| !value.is_finite()) {
        return Refusal::NonFinite { index };
    }
    let overflows = |value: &T| {
        let value = value.to_f32();
        let mut values = [0.0; BLOCK];
        values[0] = value;
        !value.is_finite() || !B::encode(&values, &mut vec![0; B::BYTES])
    };
    Refusal::Overflow { index: data.iter().position(overflows).unwrap_or(0) }
}

/// Columns that are decoded side by side.
const SIDE: usize = LANES;

/// Decodes a tile: blocks of as many columns as a vector has lanes, then turned round in registers.
struct Decode<'a, T, B> {
    /// Blocks of each column.
    blocks: usize,
    bytes: &'a [u8],
    rows: Range<usize>,
    columns: Range<usize>,
    out: &'a mut [T],
    stride: usize,
    coding: PhantomData<B>,
}

impl<T: Real, B: BlockCoding> Kernel<T> for Decode<'_, T, B> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { blocks, bytes, rows, columns, out, stride, .. } = self;
        let mut values = [[T::ZERO; BLOCK]; SIDE];
        for first in columns.clone().step_by(SIDE) {
            let present = SIDE.min(columns.end - first);
            let place = first - columns.start;
            for block in rows.start / BLOCK..rows.end.div_ceil(BLOCK) {
                for (column, values) in values[..present].iter_mut().enumerate() {
                    let bytes = &bytes[((first + column) * blocks + block) * B::BYTES..][..B::BYTES];
                    let mut own = [0.0; BLOCK];
                    B::decode(bytes, &mut own);
                    for (value, own) in values.iter_mut().zip(own) {
                        *value = T::from_f64(f64::from(own));
                    }
                }
                for half in (0..BLOCK).step_by(SIDE) {
                    let start = block * BLOCK + half;
                    let (from, to) = (rows.start.max(start), rows.end.min(start + SIDE));
                    if from >= to {
                        continue;
                    }
                    let mut turned: [V; SIDE] =
                        std::array::from_fn(|column| V::load(&values[column][half..]));
                    V::transpose(&mut turned);
                    for (row, vector) in turned.into_iter().enumerate().take(to - start).skip(from - start) {
                        let to = &mut out[(start + row - rows.start) * stride + place..][..present];
                        if present == SIDE { vector.store(to) } else { vector.store_partial(to) }
                    }
                }
            }
        }
    }
}

fn decode<T: Real, B: BlockCoding>(
    (packing, isa): (&Packing, Isa),
    bytes: &[u8],
    (rows, columns): (Range<usize>, Range<usize>),
    out: &mut [T],
    stride: usize,
) {
    let blocks = packing.rows.div_ceil(BLOCK);
    T::dispatch(isa, Decode::<T, B> { blocks, bytes, rows, columns, out, stride, coding: PhantomData });
}

macro_rules! precision {
    ($encode:ident, $decode:ident, $type:ty) => {
        fn $encode(
            &self,
            packing: &Packing,
            cpu: Option<&Cpu>,
            _: &Rule<'_>,
            data: &[$type],
            target: Target<'_>,
        ) -> Result<(), Refusal> {
            encode::<$type, B>(packing, cpu, data, target.bytes)
        }

        fn $decode(
            &self,
            with: (&Packing, Isa),
            (bytes, _): (&[u8], &[f32]),
            tile: (Range<usize>, Range<usize>),
            out: &mut [$type],
            stride: usize,
        ) {
            decode::<$type, B>(with, bytes, tile, out, stride);
        }
    };
}

impl<B: BlockCoding> Format for Blocks<B> {
    fn words(&self) -> usize {
        0
    }

    fn bytes(&self, rows: usize, channels: usize) -> usize {
        rows.div_ceil(BLOCK) * channels * B::BYTES
    }

    precision!(encode_f32, decode_f32, f32);
    precision!(encode_f64, decode_f64, f64);

    fn wgsl_block(&self, name: &str) -> Option<BlockWords> {
        Some(B::wgsl_words(name))
    }

    fn wgsl(&self, packing: &Packing) -> String {
        let (channels, blocks) = (packing.channels.max(1), packing.rows.div_ceil(BLOCK));
        let mut text = B::wgsl();
        while let Some(start) = text.find("byte[") {
            let end = text[start..].find(']').map_or(text.len(), |end| start + end);
            let index = &text[start + 5..end];
            let read = format!("extractBits(packed[({index}) / 4u], ({index}) % 4u * 8u, 8u)");
            text = [&text[..start], &read, text.get(end + 1..).unwrap_or_default()].concat();
        }
        format!(
            "    let row = at / {channels}u;
    let place = row % {BLOCK}u;
    let start = (at % {channels}u * {blocks}u + row / {BLOCK}u) * {}u;
    {text}
",
            B::BYTES
        )
    }
}
