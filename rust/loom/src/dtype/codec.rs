//! From a parameter to packed codes with scales, and back, for types whose elements are coded one by one.
//!
//! A parameter is a row-major matrix whose columns are the output channels; codes follow each other
//! in its order, the first in the lowest bits. Scales are found in one pass, cut into columns, and
//! codes in a second, cut into runs.

pub(super) use super::groups::Fit;
use super::groups::{Fits, Grid, RUN};
use super::packing::{Format, Granularity, Packing, Refusal, Target};
use crate::cpu::{Cpu, Isa, Kernel, Real, Vector};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements that one task encodes: a multiple of [`RUN`].
const CHUNK: usize = 1 << 14;
/// Columns that one task finds scales for.
const COLUMNS: usize = 128;
/// Lanes that a mean is summed in.
const LANES: usize = 16;
/// A power of two that keeps sums of any numbers of a precision finite.
const SHRINK: f64 = 1.0 / (1u64 << 62) as f64;

/// What of a group of elements its scale is made from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Statistic {
    /// Nothing: there is no scale.
    None,
    /// The largest magnitude.
    Largest,
    /// The least and the greatest, 0 among them.
    Range,
    /// The mean magnitude.
    Mean,
}

/// An unsigned integer that holds a code.
pub(super) trait Code: Copy + Default + Send + Sync + 'static {
    /// From its bytes, the lowest first.
    fn read(bytes: &[u8]) -> Self;
    /// To its bytes, the lowest first.
    fn write(self, bytes: &mut [u8]);
    /// The lowest eight bits.
    fn low(self) -> u8;
    /// From eight bits.
    fn from_low(low: u8) -> Self;
}

macro_rules! code {
    ($($type:ty),*) => {$(
        impl Code for $type {
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }

            #[inline(always)]
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn low(self) -> u8 {
                self as u8
            }

            #[inline(always)]
            fn from_low(low: u8) -> Self {
                Self::from(low)
            }
        }
    )*};
}

code!(u8, u16, u32, u64);

/// How one type turns numbers into codes and back.
pub(super) trait Coding: Send + Sync + 'static {
    /// What holds a code; it may have more bits.
    type Code: Code;
    /// Bits of a code: 1, 2, 4, or as many as [`Code`](Coding::Code) has.
    const BITS: usize;
    /// What scales are made from.
    const STATISTIC: Statistic;
    /// Words of 32 bits a group has: its scale, and the halves of its zero.
    const WORDS: usize;

    /// The scale of a group of this statistic (of which ranges have two numbers); `None` where no code
    /// could hold its numbers.
    fn fit<T: Real>(first: T, second: T) -> Option<Fit> {
        let _ = (first, second);
        None
    }

    /// The code of a number; bits above [`BITS`](Coding::BITS) are anything.
    fn code<T: Real>(value: T, fit: Fit) -> Self::Code;

    /// Whether a code stands for a finite number.
    fn holds(code: Self::Code) -> bool {
        let _ = code;
        true
    }

    /// The number that a code stands for; bits above [`BITS`](Coding::BITS) are zeros.
    fn number<T: Real>(code: Self::Code, fit: Fit) -> T;

    /// What a statistic is divided by for the scale, and WGSL statements that end in a `return` of a
    /// weight's code, as [`GpuEncoding`](super::packing::GpuEncoding) has them; `None` for types that are
    /// encoded on the host.
    #[cfg(feature = "gpu")]
    fn wgsl_code() -> Option<(f64, &'static str)> {
        None
    }

    /// WGSL statements that end in `let number = ..`, an `f32` from `code` and `zero`, both `u32` (and
    /// `high` and `zero_high` above 32 bits), to be multiplied by the scale where there is one.
    fn wgsl() -> &'static str;
}

/// A type whose elements are coded one by one, as a table row has it.
pub(super) struct Flat<C>(PhantomData<C>);

impl<C> Flat<C> {
    pub(super) const NEW: Self = Self(PhantomData);
}

/// Packs the codes of whole bytes, or of the last few elements.
#[inline(always)]
fn pack<C: Coding>(codes: &[C::Code], bytes: &mut [u8]) {
    if C::BITS < 8 {
        let (per, mask) = (8 / C::BITS, (1u32 << C::BITS) - 1);
        for (byte, codes) in bytes.iter_mut().zip(codes.chunks(per)) {
            let packed = codes.iter().enumerate().fold(0, |packed, (place, code)| {
                packed | (u32::from(code.low()) & mask) << (place * C::BITS)
            });
            *byte = packed as u8;
        }
    } else {
        for (bytes, code) in bytes.chunks_exact_mut(C::BITS / 8).zip(codes) {
            code.write(bytes);
        }
    }
}

/// The code of one element.
#[inline(always)]
fn unpack<C: Coding>(bytes: &[u8], element: usize) -> C::Code {
    if C::BITS < 8 {
        let per = 8 / C::BITS;
        let byte = u32::from(bytes[element / per]);
        let code = byte >> (element % per * C::BITS) & ((1u32 << C::BITS) - 1);
        C::Code::from_low(code as u8)
    } else {
        let width = C::BITS / 8;
        C::Code::read(&bytes[element * width..][..width])
    }
}

/// The WGSL expression of the group of the element with this number.
fn wgsl_group(packing: &Packing, at: &str) -> String {
    let channels = packing.channels.max(1);
    match packing.granularity {
        Granularity::Tensor => "0u".to_string(),
        Granularity::Block(block) if block < packing.rows => {
            format!("{at} / {}u * {channels}u + {at} % {channels}u", channels * block.max(1))
        }
        _ => format!("{at} % {channels}u"),
    }
}

/// The WGSL statements that return the number of a `code` (and `high`) in its `group`.
fn wgsl_number<C: Coding>() -> String {
    let zero = match C::WORDS {
        0 | 1 => "",
        2 => "let zero = scales[2u * group + 1u];",
        _ => "let zero = scales[3u * group + 1u];\n    let zero_high = scales[3u * group + 2u];",
    };
    let result = match C::WORDS {
        0 => "number".to_string(),
        words => format!("number * bitcast<f32>(scales[{words}u * group])"),
    };
    format!("    {zero}\n    {}\n    return {result};\n", C::wgsl())
}

fn for_each_chunk<A: Send>(
    cpu: Option<&Cpu>,
    data: &mut [A],
    chunk: usize,
    body: &(dyn Fn(usize, &mut [A]) + Sync),
) {
    match cpu {
        Some(cpu) if data.len() > chunk => cpu.pool().for_each_chunk(data, chunk, body),
        _ => data.chunks_mut(chunk).enumerate().for_each(|(task, piece)| body(task, piece)),
    }
}

fn encode<T: Real, C: Coding>(
    packing: &Packing,
    cpu: Option<&Cpu>,
    data: &[T],
    target: Target<'_>,
) -> Result<(), Refusal> {
    let Target { bytes, scales } = target;
    let isa = cpu.map_or(Isa::portable(), Cpu::isa);
    let grid = Grid::of(packing);
    let refused = AtomicBool::new(false);
    let refuse = |fine: bool| {
        if !fine {
            refused.store(true, Ordering::Relaxed);
        }
    };
    if C::WORDS > 0 && !data.is_empty() {
        let blocks = data.chunks(grid.block * grid.columns).zip(scales.chunks_mut(grid.columns * C::WORDS));
        for (data, scales) in blocks {
            for_each_chunk(cpu, scales, COLUMNS * C::WORDS, &|task, scales| {
                let first = task * COLUMNS;
                refuse(T::dispatch(
                    isa,
                    Find::<T, C> { data, columns: grid.columns, first, scales, coding: PhantomData },
                ));
            });
        }
    }
    let scales = &*scales;
    for_each_chunk(cpu, bytes, CHUNK * C::BITS / 8, &|task, bytes| {
        let first = task * CHUNK;
        let data = &data[first..data.len().min(first + CHUNK)];
        refuse(T::dispatch(isa, Encode::<T, C> { grid, data, scales, first, bytes, coding: PhantomData }));
    });
    if refused.load(Ordering::Relaxed) { Err(first_refusal::<T, C>(data)) } else { Ok(()) }
}

/// Looks for the first element that was refused, once it is known that there is one.
#[cold]
fn first_refusal<T: Real, C: Coding>(data: &[T]) -> Refusal {
    if let Some(index) = data.iter().position(|value| !value.is_finite()) {
        return Refusal::NonFinite { index };
    }
    let overflows = |value: &T| match C::STATISTIC {
        Statistic::None => !C::holds(C::code(*value, Fit::default())),
        Statistic::Range => C::fit(value.min(T::ZERO), value.max(T::ZERO)).is_none(),
        Statistic::Largest | Statistic::Mean => C::fit(value.abs(), T::ZERO).is_none(),
    };
    Refusal::Overflow { index: data.iter().position(overflows).unwrap_or(0) }
}

/// The scales of some columns of the rows of one group; false where an element is not finite or no
/// scale will do.
struct Find<'a, T, C> {
    data: &'a [T],
    columns: usize,
    /// The column of the first scale.
    first: usize,
    scales: &'a mut [f32],
    coding: PhantomData<C>,
}

impl<T: Real, C: Coding> Find<'_, T, C> {
    /// The sums of magnitudes times `factor`: 16 lanes by row, then one tree.
    #[inline(always)]
    fn sums(&self, factor: T, sums: &mut [T]) {
        let mut lanes = [[T::ZERO; COLUMNS]; LANES];
        for (row, values) in self.data.chunks_exact(self.columns).enumerate() {
            for (sum, value) in lanes[row % LANES][..sums.len()].iter_mut().zip(&values[self.first..]) {
                *sum += value.abs() * factor;
            }
        }
        for half in [8, 4, 2, 1] {
            let (low, high) = lanes.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
            }
        }
        sums.copy_from_slice(&lanes[0][..sums.len()]);
    }
}

impl<T: Real, C: Coding> Kernel<T> for Find<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> bool {
        let count = self.scales.len() / C::WORDS;
        let (mut first, mut second) = ([T::ZERO; COLUMNS], [T::ZERO; COLUMNS]);
        let (first, second) = (&mut first[..count], &mut second[..count]);
        let mut fine = true;
        for row in self.data.chunks_exact(self.columns) {
            let row = &row[self.first..][..count];
            if C::STATISTIC == Statistic::Range {
                for ((low, high), value) in first.iter_mut().zip(second.iter_mut()).zip(row) {
                    fine &= value.abs() < T::INFINITY;
                    *low = value.min(*low);
                    *high = value.max(*high);
                }
            } else {
                for (largest, value) in first.iter_mut().zip(row) {
                    let magnitude = value.abs();
                    fine &= magnitude < T::INFINITY;
                    *largest = magnitude.max(*largest);
                }
            }
        }
        if C::STATISTIC == Statistic::Mean && fine {
            let elements = T::from_usize(self.data.len() / self.columns);
            self.sums(T::ONE, first);
            if first.iter().all(|sum| sum.is_finite()) {
                first.iter_mut().for_each(|sum| *sum /= elements);
            } else {
                self.sums(T::constant(SHRINK), first);
                first.iter_mut().for_each(|sum| *sum = *sum / elements / T::constant(SHRINK));
            }
        }
        let numbers = first.iter().zip(second.iter());
        for (words, (first, second)) in self.scales.chunks_exact_mut(C::WORDS).zip(numbers) {
            let found = C::fit(*first, *second);
            // Where there is no scale, any number will do: the result is refused.
            fine &= found.is_some();
            let fit = found.unwrap_or(Fit { scale: 1.0, zero: 0 });
            words[0] = fit.scale;
            if C::WORDS > 1 {
                words[1] = f32::from_bits(fit.zero as u32);
            }
            if C::WORDS > 2 {
                words[2] = f32::from_bits((fit.zero >> 32) as u32);
            }
        }
        fine
    }
}

struct Encode<'a, T, C> {
    grid: Grid,
    data: &'a [T],
    scales: &'a [f32],
    /// The number of the first element.
    first: usize,
    bytes: &'a mut [u8],
    coding: PhantomData<C>,
}

impl<T: Real, C: Coding> Kernel<T> for Encode<'_, T, C> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) -> bool {
        let mut fits = Fits::NEW;
        let mut codes = [C::Code::default(); RUN];
        let mut fine = true;
        let runs = self.data.chunks(RUN).zip(self.bytes.chunks_mut(RUN * C::BITS / 8));
        for (number, (data, bytes)) in runs.enumerate() {
            let codes = &mut codes[..data.len()];
            fits.fill(C::WORDS, self.grid, self.scales, self.first + number * RUN, data.len());
            for ((code, value), fit) in codes.iter_mut().zip(data).zip(fits.iter()) {
                *code = C::code(*value, fit);
                if C::STATISTIC == Statistic::None {
                    // NaN is caught on the value: its bits may have been carried past the exponent.
                    fine &= C::holds(*code) & value.is_finite();
                }
            }
            pack::<C>(codes, bytes);
        }
        fine
    }
}

/// Elements of a row that follow each other, decoded.
struct Decode<'a, T, C> {
    grid: Grid,
    bytes: &'a [u8],
    scales: &'a [f32],
    first: usize,
    out: &'a mut [T],
    coding: PhantomData<C>,
}

impl<T: Real, C: Coding> Kernel<T> for Decode<'_, T, C> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let mut fits = Fits::NEW;
        for (number, out) in self.out.chunks_mut(RUN).enumerate() {
            let first = self.first + number * RUN;
            fits.fill(C::WORDS, self.grid, self.scales, first, out.len());
            for (place, (out, fit)) in out.iter_mut().zip(fits.iter()).enumerate() {
                *out = C::number(unpack::<C>(self.bytes, first + place), fit);
            }
        }
    }
}

fn decode<T: Real, C: Coding>(
    (packing, isa): (&Packing, Isa),
    (bytes, scales): (&[u8], &[f32]),
    (rows, columns): (Range<usize>, Range<usize>),
    out: &mut [T],
    stride: usize,
) {
    let grid = Grid::of(packing);
    let run = |first: usize, out: &mut [T]| {
        T::dispatch(isa, Decode::<T, C> { grid, bytes, scales, first, out, coding: PhantomData });
    };
    if columns.len() == packing.channels && stride == packing.channels {
        run(rows.start * packing.channels, &mut out[..rows.len() * stride]);
        return;
    }
    for (out, row) in out.chunks_mut(stride.max(1)).zip(rows) {
        run(row * packing.channels + columns.start, &mut out[..columns.len()]);
    }
}

macro_rules! precision {
    ($encode:ident, $decode:ident, $type:ty) => {
        fn $encode(
            &self,
            packing: &Packing,
            cpu: Option<&Cpu>,
            data: &[$type],
            target: Target<'_>,
        ) -> Result<(), Refusal> {
            encode::<$type, C>(packing, cpu, data, target)
        }

        fn $decode(
            &self,
            with: (&Packing, Isa),
            from: (&[u8], &[f32]),
            tile: (Range<usize>, Range<usize>),
            out: &mut [$type],
            stride: usize,
        ) {
            decode::<$type, C>(with, from, tile, out, stride);
        }
    };
}

impl<C: Coding> Format for Flat<C> {
    fn words(&self) -> usize {
        C::WORDS
    }

    fn bytes(&self, rows: usize, channels: usize) -> usize {
        let elements = rows * channels;
        // In two parts, so that the product with the bits cannot overflow.
        elements / 8 * C::BITS + (elements % 8 * C::BITS).div_ceil(8)
    }

    precision!(encode_f32, decode_f32, f32);
    precision!(encode_f64, decode_f64, f64);

    #[cfg(feature = "gpu")]
    fn gpu_encoding(&self) -> Option<super::packing::GpuEncoding> {
        use super::packing::{GpuEncoding, GpuStatistic};
        let (limit, code) = C::wgsl_code()?;
        let statistic = match C::STATISTIC {
            Statistic::None => return None,
            Statistic::Largest => GpuStatistic::Largest,
            Statistic::Range => GpuStatistic::Range,
            Statistic::Mean => GpuStatistic::Mean,
        };
        Some(GpuEncoding { statistic, limit, code })
    }

    #[cfg(test)]
    fn encode_held_f32(&self, packing: &Packing, data: &[f32], bytes: &mut [u8], scales: &[f32]) {
        let (grid, coding) = (Grid::of(packing), PhantomData::<C>);
        f32::dispatch(Isa::portable(), Encode { grid, data, scales, first: 0, bytes, coding });
    }

    #[cfg(test)]
    fn encode_held_f64(&self, packing: &Packing, data: &[f64], bytes: &mut [u8], scales: &[f32]) {
        let (grid, coding) = (Grid::of(packing), PhantomData::<C>);
        f64::dispatch(Isa::portable(), Encode { grid, data, scales, first: 0, bytes, coding });
    }

    fn wgsl(&self, packing: &Packing) -> String {
        let (bits, per) = (C::BITS, 32 / C::BITS.min(32));
        let code = match bits {
            64 => "let code = packed[2u * at];\n    let high = packed[2u * at + 1u];".to_string(),
            32 => "let code = packed[at];".to_string(),
            _ => format!("let code = extractBits(packed[at / {per}u], at % {per}u * {bits}u, {bits}u);"),
        };
        let group = match C::WORDS {
            0 => String::new(),
            _ => format!("let group = {};", wgsl_group(packing, "at")),
        };
        format!("    {code}\n    {group}\n{}", wgsl_number::<C>())
    }

    fn wgsl_four(&self, packing: &Packing, name: &str) -> Option<String> {
        let (bits, per) = (C::BITS, 32 / C::BITS.min(32));
        if bits > 8 {
            return None;
        }
        // Where rows are whole fours, the groups of four elements lie side by side, too.
        let beside = packing.channels.is_multiple_of(4);
        let group = |element: usize| match packing.granularity {
            Granularity::Tensor => "0u".to_string(),
            _ if beside => format!("group + {element}u"),
            _ => wgsl_group(packing, &format!("(at + {element}u)")),
        };
        let numbers: Vec<String> = (0..4)
            .map(|element| {
                let code = format!("extractBits(word, {}u, {bits}u)", element * bits);
                format!("{name}_number({code}, {})", group(element))
            })
            .collect();
        Some(format!(
            "fn {name}_number(code: u32, group: u32) -> f32 {{\n{}}}\n\
             fn {name}(at: u32) -> vec4<f32> {{\n    \
             let word = packed[at / {per}u] >> (at % {per}u * {bits}u);\n    \
             let group = {};\n    \
             return vec4<f32>({});\n}}\n",
            wgsl_number::<C>(),
            wgsl_group(packing, "at"),
            numbers.join(", ")
        ))
    }
}
