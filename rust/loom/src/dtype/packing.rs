//! How a parameter is packed: its type, what shares a scale, and its extents.

use super::DType;
use super::block_layout::BlockLayout;
use super::format::{Format, GpuEncoding, Refusal, Target};
use super::grouping::{Extents, Granularity};
use super::rule::Rule;
use super::vec4::BlockWords;
use crate::simd::{Cpu, Isa, Real};
use crate::{Error, Result, extents};
use std::ops::Range;

/// How a parameter is packed: a row-major matrix whose columns are the output channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    /// The numeric type.
    pub dtype: DType,
    /// Which elements share a scale.
    pub granularity: Granularity,
    /// Inputs of each channel.
    pub rows: usize,
    /// Output channels.
    pub channels: usize,
    /// Whether codes and scales are those of the transpose: a row of a table is then what a block is a part of.
    pub turned: bool,
}

impl Packing {
    /// A parameter of these extents in a type with the granularity it has unless asked otherwise.
    pub fn new(dtype: DType, rows: usize, channels: usize) -> Self {
        let granularity = dtype.row().granularity;
        Self { dtype, granularity, rows, channels: channels.max(1), turned: false }
    }

    /// The same with a granularity that was checked.
    pub fn with(self, granularity: Granularity) -> Self {
        // A block longer than any column is one block, whatever its length.
        let longest = self.rows.max(extents::MOST_REACH);
        let granularity = match granularity {
            Granularity::Block(elements) => Granularity::Block(elements.min(longest)),
            other => other,
        };
        Self { granularity, ..self }
    }

    /// How the matrix that codes and scales are of is packed: the transpose, where it is turned.
    pub fn as_stored(&self) -> Self {
        match self.turned {
            true => Self { rows: self.channels, channels: self.rows, turned: false, ..*self },
            false => *self,
        }
    }

    /// Whether there are blocks along the inputs of each channel that hold their own scales.
    pub(crate) fn has_blocks(&self) -> bool {
        self.dtype.is_block_format() && !self.turned
    }

    /// How many elements there are.
    pub fn elements(&self) -> usize {
        self.rows * self.channels
    }

    /// Bytes of its codes, with what a block format keeps among them.
    pub fn bytes(&self) -> usize {
        let Self { rows, channels, .. } = self.as_stored();
        self.format().bytes(rows, channels)
    }

    /// Groups of elements with a scale.
    pub fn groups(&self) -> usize {
        match (self.format().words(), self.granularity) {
            (0, _) | (_, Granularity::Unscaled) => 0,
            (_, Granularity::Tensor) => 1,
            (_, Granularity::Channel) => self.as_stored().channels,
            (_, Granularity::Block(elements)) => {
                let Self { rows, channels, .. } = self.as_stored();
                rows.div_ceil(elements.max(1)) * channels
            }
        }
    }

    /// Words of 32 bits of each group: its scale, then the one or two of its zero point, or its minimum, where it
    /// has one.
    pub fn group_words(&self) -> usize {
        self.format().words()
    }

    /// Whether groups have a minimum, in `f32`, which is added to codes times scales.
    pub fn has_minima(&self) -> bool {
        self.format().has_minima()
    }

    /// Whether a word of the scales is no number, of those that are to be one.
    pub(crate) fn has_odd_scales(&self, words: &[f32]) -> bool {
        // Zero points are integers.
        let step = if self.has_minima() { 1 } else { self.group_words().max(1) };
        words.iter().step_by(step).any(|word| !word.is_finite())
    }

    /// Words of 32 bits beside the codes.
    pub fn scale_words(&self) -> usize {
        self.groups() * self.group_words()
    }

    /// Bytes in all.
    pub fn nbytes(&self) -> usize {
        self.bytes() + self.scale_words() * size_of::<f32>()
    }

    pub(super) fn extents(&self) -> Extents {
        Extents { granularity: self.granularity, rows: self.rows, channels: self.channels }
    }

    pub(super) fn format(&self) -> &'static dyn Format {
        self.dtype.row().format
    }

    /// Encodes into [`bytes`](Packing::bytes) bytes and [`scale_words`](Packing::scale_words) words,
    /// on the threads of `cpu` or on this one, with the same result.
    ///
    /// # Errors
    /// The first element that is not finite or would not be; `bytes` and `scales` then hold nothing
    /// of use.
    pub fn encode<T: Real>(
        &self,
        cpu: Option<&Cpu>,
        data: &[T],
        bytes: &mut [u8],
        scales: &mut [f32],
    ) -> Result<(), Refusal> {
        self.encode_by_rule(&Rule::default(), cpu, data, bytes, scales)
    }

    /// [`encode`](Packing::encode) by a rule that the type can have.
    ///
    /// # Errors
    /// As `encode`.
    pub fn encode_by_rule<T: Real>(
        &self,
        rule: &Rule<'_>,
        cpu: Option<&Cpu>,
        data: &[T],
        bytes: &mut [u8],
        scales: &mut [f32],
    ) -> Result<(), Refusal> {
        debug_assert!(rule.importance.is_empty() || rule.importance.len() == self.rows);
        debug_assert!(!self.turned, "what is turned is encoded as it is stored");
        debug_assert_eq!((data.len(), scales.len()), (self.elements(), self.scale_words()));
        debug_assert_eq!(bytes.len(), self.bytes());
        self.dtype.encode(&self.extents(), cpu, rule, data, Target { bytes, scales })
    }

    /// [`encode_by_rule`](Packing::encode_by_rule) of the parameter `name`, which errors tell of.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for a parameter that holds NaN or infinity, [`Error::Value`] for one with a weight
    /// that the type cannot hold.
    pub fn encode_parameter<T: Real>(
        &self,
        name: &str,
        rule: &Rule<'_>,
        cpu: Option<&Cpu>,
        data: &[T],
        bytes: &mut [u8],
        scales: &mut [f32],
    ) -> Result<()> {
        if self.turned {
            let at = |place: usize| data[place % self.rows * self.channels + place / self.rows];
            let mut turned = extents::room(data.len())?;
            turned.extend((0..data.len()).map(at));
            return self.as_stored().encode_parameter(name, rule, cpu, &turned, bytes, scales);
        }
        let dtype = self.dtype;
        self.encode_by_rule(rule, cpu, data, bytes, scales).map_err(|refusal| match refusal {
            Refusal::NonFinite { index } => Error::NonFinite(format!(
                "parameter \"{name}\" holds {} at element {index}, so it cannot be packed as {dtype}; \
                 set it to finite values first",
                data[index]
            )),
            Refusal::Overflow { index } => Error::Value(format!(
                "parameter \"{name}\" holds {:e} at element {index}, which would become infinite in {dtype}; \
                 use a type of wider range, or shrink the weights",
                data[index].to_f64()
            )),
        })
    }

    /// Encodes with the scales that are there.
    #[cfg(test)]
    pub(super) fn encode_held<T: Real>(&self, data: &[T], bytes: &mut [u8], scales: &[f32]) {
        self.dtype.encode_held(&self.extents(), data, bytes, scales);
    }

    /// Decodes what [`encode`](Packing::encode) made.
    pub fn decode<T: Real>(&self, isa: Isa, bytes: &[u8], scales: &[f32], out: &mut [T]) {
        self.decode_tile(isa, (bytes, scales), 0..self.rows, 0..self.channels, out, self.channels);
    }

    /// Decodes a tile of rows and columns, row after row, `stride` elements from one to the next.
    pub fn decode_tile<T: Real>(
        &self,
        isa: Isa,
        from: (&[u8], &[f32]),
        rows: Range<usize>,
        columns: Range<usize>,
        out: &mut [T],
        stride: usize,
    ) {
        if rows.is_empty() || columns.is_empty() {
            return;
        }
        if self.turned {
            return self.decode_turned(isa, from, rows, columns, out, stride);
        }
        self.dtype.decode((&self.extents(), isa), from, (rows, columns), out, stride);
    }

    /// [`decode_tile`](Packing::decode_tile) of the transpose, some rows of the tile at a time.
    fn decode_turned<T: Real>(
        &self,
        isa: Isa,
        from: (&[u8], &[f32]),
        rows: Range<usize>,
        columns: Range<usize>,
        out: &mut [T],
        stride: usize,
    ) {
        const TOGETHER: usize = 16;
        const ACROSS: usize = 128;
        let stored = self.as_stored();
        if rows.len() == 1 {
            return stored.decode_tile(isa, from, columns, rows, out, 1);
        }
        let mut tile = [T::ZERO; TOGETHER * ACROSS];
        for first in rows.clone().step_by(TOGETHER) {
            let some = first..rows.end.min(first + TOGETHER);
            for column in columns.clone().step_by(ACROSS) {
                let across = column..columns.end.min(column + ACROSS);
                stored.decode_tile(isa, from, across.clone(), some.clone(), &mut tile, some.len());
                for (row, place) in some.clone().enumerate().map(|(row, at)| (row, at - rows.start)) {
                    let to = &mut out[place * stride + column - columns.start..][..across.len()];
                    for (to, numbers) in to.iter_mut().zip(tile.chunks_exact(some.len())) {
                        *to = numbers[row];
                    }
                }
            }
        }
    }

    /// Whether a GPU encodes it; otherwise the host does, from the master that it reads back.
    pub(crate) fn encodes_on_gpu(&self) -> bool {
        let halves = matches!(self.dtype, DType::Float16 | DType::BFloat16);
        !self.turned && (halves || self.gpu_encoding().is_some())
    }

    /// How a GPU encodes it, where it has scales and a GPU can.
    pub(crate) fn gpu_encoding(&self) -> Option<GpuEncoding> {
        self.format().gpu_encoding()
    }

    /// Rows and columns of the matrix that groups of so many rows of a column cut.
    pub(crate) fn groups_grid(&self) -> (usize, usize, usize) {
        self.extents().groups_grid()
    }

    /// WGSL of `fn NAME(at: u32) -> f32`, an element by its number, and of
    /// `fn NAME_four(at: u32) -> vec4<f32>`, the four from a multiple of four on, from the arrays of words
    /// `packed` and, where there are scales, `scales`.
    pub fn wgsl(&self, name: &str, packed: &str, scales: &str) -> String {
        if self.turned {
            let (rows, channels, stored) = (self.rows, self.channels, format!("{name}_stored"));
            let at = format!("return {stored}(at % {channels}u * {rows}u + at / {channels}u);");
            let each = ["at", "at + 1u", "at + 2u", "at + 3u"].map(|at| format!("{name}({at})")).join(", ");
            return self.as_stored().wgsl(&stored, packed, scales)
                + &format!("fn {name}(at: u32) -> f32 {{\n    {at}\n}}\n")
                + &format!("fn {name}_four(at: u32) -> vec4<f32> {{\n    return vec4<f32>({each});\n}}\n");
        }
        let one = format!("fn {name}(at: u32) -> f32 {{\n{}}}\n", self.format().wgsl(&self.extents()));
        let each = ["at", "at + 1u", "at + 2u", "at + 3u"].map(|at| format!("{name}({at})")).join(", ");
        let four =
            self.format().wgsl_vec4_at(&self.extents(), &format!("{name}_four")).unwrap_or_else(|| {
                format!("fn {name}_four(at: u32) -> vec4<f32> {{\n    return vec4<f32>({each});\n}}\n")
            });
        (one + &four).replace("packed[", &format!("{packed}[")).replace("scales[", &format!("{scales}["))
    }

    /// WGSL that decodes four elements side by side from whole words and leaves scales out, of types that keep
    /// those apart:
    ///
    /// - `fn NAME(word: W, zeros: Z) -> vec4<f32>`: W is `u32` for codes of up to 8 bits, the first in the
    ///   lowest bits, whatever is above them; `vec2<u32>`, `vec4<u32>` above, and of 64 bits a `vec4<u32>` of
    ///   the lower words and one of the higher. Without zero points there is no `zeros`.
    /// - `fn NAME_scales(group: vec4<u32>) -> vec4<f32>`, where there are scales, of groups.
    /// - `fn NAME_zeros(group: vec4<u32>) -> Z`, where there are zero points.
    /// - `fn NAME_minima(group: vec4<u32>) -> vec4<f32>`, where there are minima, to be added to numbers times scales.
    ///
    /// The last three read the array of words `scales`. With it comes a power of two that numbers are to be
    /// multiplied by beside their scales.
    pub(crate) fn wgsl_vec4(&self, name: &str) -> Option<(String, f32)> {
        self.format().wgsl_vec4(name).filter(|_| !self.turned)
    }

    /// WGSL statements that return the code of the element (`k`, `column`) as an integer, and such that return
    /// the scale of group `number` of a column, from the arrays `packed` and `scales`.
    ///
    /// # Errors
    /// [`Error::DType`] for a type whose codes are not symmetric integers of at most eight bits.
    pub(crate) fn wgsl_integers(&self) -> Result<[String; 2]> {
        let dtype = self.dtype;
        self.format()
            .wgsl_integers(&self.extents())
            .filter(|_| !self.turned)
            .ok_or_else(|| Error::DType(format!("codes of {dtype} are no symmetric integers")))
    }

    /// The layout of blocks, of formats that have them.
    pub(crate) fn block_layout(&self) -> Option<BlockLayout> {
        self.format().block_layout().filter(|_| !self.turned)
    }

    /// How words of the codes of a block are decoded, of formats that have blocks.
    pub(crate) fn wgsl_block(&self, name: &str) -> Option<BlockWords> {
        self.format().wgsl_block(name).filter(|_| !self.turned)
    }
}

impl DType {
    /// The largest magnitude that can be packed.
    pub(crate) fn most_held(self) -> f32 {
        const ELEMENTS: usize = 32;
        let packing = Packing::new(self, ELEMENTS, 1);
        let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
        let mut holds = |bits: u32| {
            let most = f32::from_bits(bits);
            // Both signs, for types that are packed by their range.
            let data: Vec<f32> = (0..ELEMENTS).map(|i| if i % 2 == 0 { most } else { -most }).collect();
            packing.encode(None, &data, &mut bytes, &mut scales).is_ok()
        };
        let (mut held, mut refused) = (0, f32::INFINITY.to_bits());
        while refused - held > 1 {
            let middle = held + (refused - held) / 2;
            if holds(middle) { held = middle } else { refused = middle }
        }
        f32::from_bits(held)
    }
}
