//! The 4-bit NormalFloat of QLoRA (Dettmers et al. 2023), with the sixteen levels of bitsandbytes: the quantiles of
//! a normal distribution, and zero among them.
//!
//! w' = level S with S = (largest magnitude) of 64 inputs of an output, a code the nearest level of w/S. Of two
//! that are as near it is the lower one. The scale lies apart from the codes, in single precision as bitsandbytes
//! keeps it, so that blocks are groups of 64 as any type with scales has them: rows of codes stay whole and are
//! read as they lie, and other groups, a search for scales and stochastic rounding can be had.

use super::coding::{Coding, Fit, Statistic};
use super::decoders::{FourBits, Table, WithDecoder};
use super::symmetric::{quotient, scale_of};
use super::vec4::Vec4Decoder;
use crate::simd::Real;

/// Makes the levels, and WGSL statements of their look-up.
macro_rules! levels {
    ($($level:literal),*) => {
        const LEVELS: [f32; 16] = [$($level),*];
        const WGSL: &str = concat!(
            "var levels = array<f32, 16>(", $(stringify!($level), ", ",)* ");\n    let number = levels[code];"
        );
    };
}

levels!(
    -1.0,
    -0.6961928,
    -0.52507305,
    -0.3949175,
    -0.28444138,
    -0.18477343,
    -0.091050036,
    0.0,
    0.0795803,
    0.1609302,
    0.2461123,
    0.33791524,
    0.44070983,
    0.562617,
    0.72295684,
    1.0
);

/// What lies between two levels, exactly.
const MIDDLES: [f64; 15] = {
    let (mut middles, mut place) = ([0.0; 15], 0);
    while place < 15 {
        middles[place] = (LEVELS[place] as f64 + LEVELS[place + 1] as f64) / 2.0;
        place += 1;
    }
    middles
};

/// nf4.
#[derive(Clone, Copy)]
pub(super) struct Nf4;

impl Table for Nf4 {
    const NUMBERS: [f32; 16] = LEVELS;
}

impl Coding for Nf4 {
    type Code = u8;
    const BITS: usize = 4;
    const STATISTIC: Statistic = Statistic::Largest;
    const WORDS: usize = 1;
    const BLOCK: Option<usize> = Some(64);

    fn fit<T: Real>(first: T, _: T) -> Option<Fit> {
        scale_of(first, 1.0)
    }

    #[inline(always)]
    fn code<T: Real>(value: T, fit: Fit) -> u8 {
        let exact = quotient(value, fit).to_f64();
        MIDDLES.iter().map(|middle| u8::from(exact > *middle)).sum()
    }

    #[inline(always)]
    fn drawn<T: Real>(value: T, fit: Fit, drawn: f32) -> u8 {
        let exact = quotient(value, fit).to_f64().clamp(-1.0, 1.0);
        let below: u8 = LEVELS[1..15].iter().map(|level| u8::from(exact >= f64::from(*level))).sum();
        let [low, high] = [0, 1].map(|next| f64::from(LEVELS[usize::from(below) + next]));
        below + u8::from(f64::from(drawn) < (exact - low) / (high - low))
    }

    #[inline(always)]
    fn number<T: Real>(code: u8, fit: Fit) -> T {
        T::from_f64(f64::from(LEVELS[usize::from(code % 16)])) * T::from_f64(f64::from(fit.scale))
    }

    fn decoder<W: WithDecoder>(to: W) -> Option<W::Output> {
        Some(to.with::<FourBits<Self>>())
    }

    /// The bits of the largest number that the lower level is the nearest of, for each two levels: above zero
    /// and, of magnitudes, below.
    fn wgsl_code() -> Option<(f64, &'static str)> {
        Some((
            1.0,
            "let quotient = vec4<u32>(quotient_of(magnitude, scale));
    let above = vec4<u32>(quotient > vec4<u32>(1025702655u, 1039550562u, 1045456864u, 1049985748u))
        + vec4<u32>(quotient > vec4<u32>(1053250553u, 1056992515u, 1059360175u, 1063029209u));
    let below = vec4<u32>(quotient > vec4<u32>(1062804696u, 1058820720u, 1055622271u, 1051585142u))
        + vec4<u32>(quotient > vec4<u32>(1047543020u, 1041053883u, 1027242096u, 0xffffffffu));
    let steps = select(above, below, negative);
    let count = steps.x + steps.y + steps.z + steps.w;
    return select(7u + count, 7u - count, negative);",
        ))
    }

    fn wgsl() -> &'static str {
        WGSL
    }

    /// Of every two levels whose codes differ in a bit alone one is selected, by bit after bit: an array would
    /// have to be indexed in memory.
    fn wgsl_vec4() -> Option<Vec4Decoder> {
        let mut body = "    let codes = vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u);\n".to_string();
        let mut left: Vec<String> = LEVELS.iter().map(|level| format!("vec4<f32>({level:?})")).collect();
        for bit in 0..4 {
            body += &format!("    let set{bit} = (codes & vec4<u32>({}u)) != vec4<u32>();\n", 1 << bit);
            let mut chosen = Vec::new();
            for (place, pair) in left.chunks(2).enumerate() {
                body += &format!("    let of{bit}_{place} = select({}, set{bit});\n", pair.join(", "));
                chosen.push(format!("of{bit}_{place}"));
            }
            left = chosen;
        }
        Some(Vec4Decoder::new(body + "    return of3_0;\n"))
    }
}
