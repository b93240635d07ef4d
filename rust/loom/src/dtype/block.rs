//! Formats that keep the scale of 32 elements beside their codes: one output's inputs, block after block,
//! and one output after the other. The last block of an output is filled up with zeros.

use super::block_coding::{BlockCoding, BlockIntegers, Scale, WithBlocks};
use super::block_layout::{BLOCK, BlockLayout, CodeOrder};
use super::format::{Format, Refusal, Storage, Target};
use super::grouping::Extents;
use super::rule::Rule;
use super::vec4::BlockWords;
use crate::simd::{Cpu, Isa, Kernel, LANES, Real, Vector};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Encodes a block; false where a scale would not be finite.
pub(super) fn encode_block<B: BlockCoding>(values: &[f32; BLOCK], bytes: &mut [u8]) -> bool {
    let mut codes = [0; BLOCK];
    let Some(scale) = B::encode(values, &mut codes) else { return false };
    let (head, bytes) = bytes.split_at_mut(B::Scale::BYTES);
    head.copy_from_slice(&scale.to_le_bytes()[..B::Scale::BYTES]);
    match B::ORDER {
        CodeOrder::Bytes => bytes.copy_from_slice(&codes),
        CodeOrder::Halves => {
            let (low, high) = codes.split_at(BLOCK / 2);
            bytes
                .iter_mut()
                .zip(low.iter().zip(high))
                .for_each(|(byte, (low, high))| *byte = low | high << 4);
        }
        CodeOrder::Pairs => {
            let pairs = codes.chunks_exact(2);
            bytes.iter_mut().zip(pairs).for_each(|(byte, pair)| *byte = pair[0] | pair[1] << 4);
        }
    }
    true
}

/// The scale at the start of a block.
#[inline(always)]
fn scale_of<B: BlockCoding>(bytes: &[u8]) -> f32 {
    B::Scale::read(match B::Scale::BYTES {
        1 => u16::from(bytes[0]),
        _ => u16::from_le_bytes([bytes[0], bytes[1]]),
    })
}

/// Decodes a block; inlined, so that it is compiled for each instruction set.
#[inline(always)]
fn decode_block<B: BlockCoding>(bytes: &[u8], values: &mut [f32; BLOCK]) {
    let scale = scale_of::<B>(bytes);
    let bytes = &bytes[B::Scale::BYTES..B::BYTES];
    match B::ORDER {
        CodeOrder::Bytes => {
            for (value, byte) in values.iter_mut().zip(bytes) {
                *value = B::number(*byte) * scale;
            }
        }
        CodeOrder::Halves => {
            let (low, high) = values.split_at_mut(BLOCK / 2);
            for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
                *low = B::number(byte & 15) * scale;
                *high = B::number(byte >> 4) * scale;
            }
        }
        CodeOrder::Pairs => {
            for (pair, byte) in values.chunks_exact_mut(2).zip(bytes) {
                pair[0] = B::number(byte & 15) * scale;
                pair[1] = B::number(byte >> 4) * scale;
            }
        }
    }
}

/// A block format, as a table row has it.
pub(super) struct Blocks<B>(PhantomData<B>);

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
        !value.is_finite() || !encode_block::<B>(&values, &mut vec![0; B::BYTES])
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
                    decode_block::<B>(bytes, &mut own);
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
                    let mut turned = [V::splat(T::ZERO); SIDE];
                    for (vector, values) in turned.iter_mut().zip(&values) {
                        *vector = V::load(&values[half..]);
                    }
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

impl<B: BlockCoding> Storage for Blocks<B> {
    const BITS: usize = B::ORDER.bits();
    const BLOCK: Option<usize> = Some(BLOCK);
    const INTEGERS: bool = B::WGSL_INTEGER.is_some();
    const FORMAT: &'static dyn Format = &Self(PhantomData);

    fn encode<T: Real>(
        packing: &Extents,
        cpu: Option<&Cpu>,
        _: &Rule<'_>,
        data: &[T],
        Target { bytes, .. }: Target<'_>,
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
                if !(finite && encode_block::<B>(&values, bytes)) {
                    refused.store(true, Ordering::Relaxed);
                }
            }
        };
        match cpu {
            Some(cpu) if channels > 1 => cpu.pool().for_each_chunk(bytes, of_channel, column),
            _ => bytes
                .chunks_exact_mut(of_channel)
                .enumerate()
                .for_each(|(number, bytes)| column(number, bytes)),
        }
        if refused.load(Ordering::Relaxed) { Err(first_refusal::<T, B>(data)) } else { Ok(()) }
    }

    fn decode<T: Real>(
        (packing, isa): (&Extents, Isa),
        (bytes, _): (&[u8], &[f32]),
        (rows, columns): (Range<usize>, Range<usize>),
        out: &mut [T],
        stride: usize,
    ) {
        let blocks = packing.rows.div_ceil(BLOCK);
        T::dispatch_single(
            isa,
            Decode::<T, B> { blocks, bytes, rows, columns, out, stride, coding: PhantomData },
        );
    }

    fn blocks<W: WithBlocks>(to: W) -> Option<W::Output> {
        Some(to.with::<B>())
    }
}

/// The block of a column that row `k` is in.
#[inline(always)]
fn block_of<'a, B: BlockCoding>(packing: &Extents, bytes: &'a [u8], k: usize, column: usize) -> &'a [u8] {
    &bytes[(column * packing.rows.div_ceil(BLOCK) + k / BLOCK) * B::BYTES..][..B::BYTES]
}

impl<B: BlockCoding> BlockIntegers for Blocks<B> {
    fn codes(
        &self,
        packing: &Extents,
        bytes: &[u8],
        depth: Range<usize>,
        columns: Range<usize>,
        (codes, stride): (&mut [i8], usize),
    ) {
        let mask = (u16::MAX >> (16 - B::ORDER.bits())) as u8;
        for (place, column) in columns.enumerate() {
            for (k, row) in depth.clone().zip(codes.chunks_exact_mut(stride)) {
                let (byte, shift) = B::ORDER.of(k % BLOCK);
                let block = block_of::<B>(packing, bytes, k, column);
                row[place] = B::integer(block[B::Scale::BYTES + byte] >> shift & mask);
            }
        }
    }

    fn scales(&self, packing: &Extents, bytes: &[u8], k: usize, columns: Range<usize>, scales: &mut [f32]) {
        for (scale, column) in scales.iter_mut().zip(columns) {
            *scale = scale_of::<B>(block_of::<B>(packing, bytes, k, column)) * B::UNIT;
        }
    }
}

impl<B: BlockCoding> Format for Blocks<B> {
    fn words(&self) -> usize {
        0
    }

    fn bytes(&self, rows: usize, channels: usize) -> usize {
        rows.div_ceil(BLOCK) * channels * B::BYTES
    }

    fn block_layout(&self) -> Option<BlockLayout> {
        Some(BlockLayout { bytes: B::BYTES, head: B::Scale::BYTES, order: B::ORDER, scale: B::Scale::WGSL })
    }

    fn block_integers(&self) -> Option<&dyn BlockIntegers> {
        B::WGSL_INTEGER.map(|_| self as &dyn BlockIntegers)
    }

    fn wgsl_block(&self, name: &str) -> Option<BlockWords> {
        let layout = self.block_layout()?;
        Some(BlockWords::new(name, layout, B::ORDER.runs(), B::wgsl_vec4()))
    }

    fn wgsl_integers(&self, packing: &Extents) -> Option<[String; 2]> {
        let (integer, blocks, bits) = (B::WGSL_INTEGER?, packing.rows.div_ceil(BLOCK), B::ORDER.bits());
        let [byte, shift] = B::ORDER.wgsl(&format!("(k % {BLOCK}u)"));
        let code = format!(
            "let at = (column * {blocks}u + k / {BLOCK}u) * {}u + {}u + {byte};
    let code = extractBits(packed[at / 4u], at % 4u * 8u + {shift}, {bits}u);
    return {integer};",
            B::BYTES,
            B::Scale::BYTES
        );
        let scale = format!(
            "let at = (column * {blocks}u + number) * {}u;
    let head = packed[at / 4u] >> (at % 4u * 8u);
    return {:?} * {};",
            B::BYTES,
            B::UNIT,
            B::Scale::WGSL
        );
        Some([code, scale])
    }

    fn wgsl(&self, packing: &Extents) -> String {
        let (channels, blocks) = (packing.channels.max(1), packing.rows.div_ceil(BLOCK));
        let byte = |index: &str| format!("extractBits(packed[({index}) / 4u], ({index}) % 4u * 8u, 8u)");
        let head = match B::Scale::BYTES {
            1 => byte("start"),
            _ => format!("{} | {} << 8u", byte("start"), byte("start + 1u")),
        };
        let [at, shift] = B::ORDER.wgsl("place");
        let code = byte(&format!("start + {}u + {at}", B::Scale::BYTES));
        format!(
            "    let row = at / {channels}u;
    let place = row % {BLOCK}u;
    let start = (at % {channels}u * {blocks}u + row / {BLOCK}u) * {}u;
    let head = {head};
    let code = extractBits({code}, {shift}, {}u);
    {}
    return {};
",
            B::BYTES,
            B::ORDER.bits(),
            B::wgsl_number(),
            B::Scale::wgsl_times("number")
        )
    }
}
