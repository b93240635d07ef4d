//! WGSL that decodes four codes at a time from whole words, for kernels that read weights as they lie: scales
//! are left to be multiplied in as late as they can be.

use super::block_layout::{BLOCK, BlockLayout, CodeOrder};

/// What adding a code of up to 16 bits to the bits of 2^23 makes of it: 2^23 + code, exactly.
const MAGIC: u32 = 0x4b00_0000;
/// 2^23.
const UNIT: f64 = 8_388_608.0;

/// How one type decodes four codes.
pub(crate) struct Vec4Decoder {
    /// WGSL statements that end in a `return` of the four numbers as `vec4<f32>`, each to be multiplied by
    /// `factor` and its scale, from `word` (of types with zero points, and `zeros`).
    pub(super) body: String,
    /// The WGSL type of `zeros`, and of a component the expression from the group's `zero`; empty without.
    pub(super) zeros: [&'static str; 2],
    /// A power of two.
    pub(super) factor: f32,
}

impl Vec4Decoder {
    pub(super) fn new(body: impl Into<String>) -> Self {
        Self { body: body.into(), zeros: ["", ""], factor: 1.0 }
    }
}

/// The codes of so many bits, apart, as a `vec4<u32>`.
pub(super) fn codes(bits: usize) -> String {
    match bits {
        16 => "vec4<u32>(word.x & 0xffffu, word.x >> 16u, word.y & 0xffffu, word.y >> 16u)".into(),
        _ => format!(
            "(vec4<u32>(word) >> vec4<u32>(0u, {bits}u, {}u, {}u)) & vec4<u32>({}u)",
            2 * bits,
            3 * bits,
            (1u32 << bits) - 1
        ),
    }
}

/// Integers in two's complement, of up to 16 bits.
pub(super) fn signed(bits: usize) -> Vec4Decoder {
    let half = 1u32 << (bits - 1);
    Vec4Decoder::new(format!(
        "    let codes = {};
    return bitcast<vec4<f32>>(codes ^ vec4<u32>({}u)) - vec4<f32>({:?});\n",
        codes(bits),
        MAGIC | half,
        UNIT + f64::from(half)
    ))
}

/// Integers from a zero point, of up to 16 bits.
pub(super) fn unsigned(bits: usize) -> Vec4Decoder {
    let body = format!(
        "    let codes = {};
    return bitcast<vec4<f32>>(codes | vec4<u32>({MAGIC}u)) - zeros;\n",
        codes(bits)
    );
    Vec4Decoder { zeros: ["vec4<f32>", "8388608.0 + f32(zero)"], ..Vec4Decoder::new(body) }
}

/// Integers as they are, of up to 16 bits.
pub(super) fn unsigned_codes(bits: usize) -> Vec4Decoder {
    Vec4Decoder::new(format!(
        "    let codes = {};
    return bitcast<vec4<f32>>(codes | vec4<u32>({MAGIC}u)) - vec4<f32>({UNIT:?});\n",
        codes(bits)
    ))
}

/// 1 where a bit is, -1 where it is not.
pub(super) fn signs() -> Vec4Decoder {
    Vec4Decoder::new(
        "    let signs = (vec4<u32>(word) << vec4<u32>(31u, 30u, 29u, 28u)) & vec4<u32>(0x80000000u);
    return bitcast<vec4<f32>>(signs ^ vec4<u32>(0xbf800000u));\n",
    )
}

/// Floats of up to 8 bits.
///
/// Exponent and fraction are moved to where binary32 has them, under an exponent of which the type's bits are
/// zeros. Subnormals get a leading bit too much that way: of x and 2 x less that bit the lesser is right, for
/// normal numbers and for subnormal ones.
pub(super) fn floats(bits: usize, fraction: u32, bias: u32) -> Vec4Decoder {
    let exponents = bits as u32 - 1 - fraction;
    let base = (127 - bias) >> exponents << exponents;
    let least = f64::from(f32::from_bits((base + 1) << 23));
    let places: Vec<u32> = (0..4).map(|place| place * bits as u32).collect();
    // Where the sign and the magnitude of a code go.
    let moved = |to: u32, bit: u32| {
        let shifts = places.iter().map(|place| place + bit);
        let each: Vec<String> = shifts
            .map(|from| match from <= to {
                true => format!("word << {}u", to - from),
                false => format!("word >> {}u", from - to),
            })
            .collect();
        format!("vec4<u32>({})", each.join(", "))
    };
    let mask = ((1u32 << (bits - 1)) - 1) << (23 - fraction);
    let body = format!(
        "    let signs = {} & vec4<u32>(0x80000000u);
    let x = bitcast<vec4<f32>>({} & vec4<u32>({mask}u) | vec4<u32>({}u));
    let magnitudes = min(x, fma(vec4<f32>(2.0), x, vec4<f32>(-{least:e})));
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitudes) | signs);\n",
        moved(31, bits as u32 - 1),
        moved(23 - fraction, 0),
        base << 23,
    );
    Vec4Decoder { factor: f32::from_bits((127 + 127 - bias - base) << 23), ..Vec4Decoder::new(body) }
}

/// How a block format is decoded from words of its codes.
#[derive(Clone, Debug)]
pub(crate) struct BlockWords {
    /// Bytes of a block.
    pub(crate) bytes: usize,
    /// Bytes before its codes.
    pub(crate) head: usize,
    /// Where in the block the first of each four numbers of the word at byte `n` of the codes is: the first
    /// times `n`, and the second.
    pub(crate) runs: Vec<(usize, usize)>,
    /// Of place `place` in the block, a multiple of 4: the byte of the codes where four codes start, and by how
    /// many bits its word is to be shifted for the first run; WGSL expressions.
    pub(crate) place: [String; 2],
    /// What numbers are multiplied by beside the block's scale.
    pub(crate) factor: f32,
    /// WGSL of `fn NAME_RUN(word: u32) -> vec4<f32>` for each run, and of `fn NAME_scale(head: u32) -> f32`,
    /// from the word at the start of the block.
    pub(crate) text: String,
}

impl BlockWords {
    pub(super) fn new(
        name: &str,
        BlockLayout { bytes, head, order, scale }: BlockLayout,
        runs: &[((usize, usize), &str)],
        decoder: Vec4Decoder,
    ) -> Self {
        let mut text = format!("fn {name}_scale(head: u32) -> f32 {{\n    return {scale};\n}}\n");
        text += &format!("fn {name}_four(word: u32) -> vec4<f32> {{\n{}}}\n", decoder.body);
        for (run, (_, word)) in runs.iter().enumerate() {
            text +=
                &format!("fn {name}_{run}(word: u32) -> vec4<f32> {{\n    return {name}_four({word});\n}}\n");
        }
        // Four codes that follow each other lie in whole bytes, or in halves of four.
        let [byte, mut shift] = order.wgsl("place");
        if order != CodeOrder::Halves {
            shift = "0u".to_string();
        }
        let runs = runs.iter().map(|(run, _)| *run).collect();
        Self { bytes, head, runs, place: [byte, shift], factor: decoder.factor, text }
    }

    /// The WGSL of `fn NAME_inputs(row: u32, column: u32) -> vec4<f32>`, the elements of a parameter of these extents from `row`,
    /// a multiple of four, on to the third beyond it, from the array of words `packed`. `NAME` is the one that
    /// this was made for.
    pub(crate) fn inputs(&self, name: &str, (rows, channels): (usize, usize), packed: &str) -> String {
        let Self { bytes, head, place: [byte, shift], factor, text, .. } = self;
        let blocks = rows.div_ceil(BLOCK);
        let len = blocks * channels * bytes;
        let last = (len / 4).max(1) - usize::from(len.is_multiple_of(4));
        let factor = if *factor == 1.0 { String::new() } else { format!(" * {factor:?}") };
        format!(
            "{text}fn {name}_inputs(row: u32, column: u32) -> vec4<f32> {{
    let start = (column * {blocks}u + row / {BLOCK}u) * {bytes}u;
    let head = {packed}[start / 4u] >> (start % 4u * 8u);
    let place = row % {BLOCK}u;
    let at = start + {head}u + {byte};
    let bits = at % 4u * 8u;
    let word = {packed}[at / 4u] >> bits | ({packed}[min(at / 4u + 1u, {last}u)] << 1u) << (31u - bits);
    return {name}_0(word >> ({shift})){factor} * {name}_scale(head);\n}}\n"
        )
    }
}

/// Unsigned codes less `zero`, in the lowest bits of each byte.
pub(super) fn bytes_less(zero: u32, mask: u32) -> Vec4Decoder {
    Vec4Decoder::new(format!(
        "    let codes = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>({mask}u);
    return bitcast<vec4<f32>>(codes | vec4<u32>({MAGIC}u)) - vec4<f32>({:?});\n",
        UNIT + f64::from(zero)
    ))
}
