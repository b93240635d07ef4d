//! Random numbers from a counter-based generator: Philox4x32-10 (Salmon, Moraes,
//! Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//!
//! A draw is a pure function of (seed, step, layer path, use, element), so any
//! thread, any device and any resumed run finds the same number without a state
//! to carry. The same integers come out of any implementation that follows this:
//!
//! - key = (seed mod 2^32, seed / 2^32);
//! - counter = (block, step mod 2^32, path, use + 256 (step / 2^32 mod 2^24));
//! - one block is four words; word `i` of a stream is word `i mod 4` of block `i / 4`;
//! - a uniform `f32` is `(word >> 8) 2^-24`; uniform `f64` `i` is made of words `2 i` (high)
//!   and `2 i + 1` (low): `((high 2^32 + low) >> 11) 2^-53`.
//!
//! A stream so holds 2^34 words, and a run 2^56 steps. Passes of one step beyond its first draw by numbers of
//! their own in the step's place: see [`pass_number`].

/// What a draw is for; part of its key, so that two uses never share numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Use {
    /// Initial weights.
    Initialize = 0,
    /// The order of training samples.
    Shuffle = 1,
    /// Dropout masks.
    Dropout = 2,
    /// Noise of a softmax's logits.
    Gumbel = 3,
    /// Gaussian noise.
    Noise = 4,
    /// Stochastic rounding of weights to codes.
    Rounding = 5,
}

/// The number of a layer path with `index` added at its end, from that of the path: several streams of one
/// use in one layer have paths of their own.
pub fn path_within(path: u32, index: u32) -> u32 {
    index.to_le_bytes().iter().fold(path, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// What stands in the step's place in the key of a pass that draws: the step itself for the first pass after
/// that step was committed, another number for each one that is made before the next.
///
/// `forwards` is counted in the 56 bits of a step from the highest down, so that no two passes share a number
/// while the digits of the largest step and of the most passes of one step together fit in 56.
pub fn pass_number(step: u64, forwards: u64) -> u64 {
    step ^ (forwards.reverse_bits() >> 8)
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// 2^-24: the spacing of uniform `f32` draws.
const UNIT_F32: f32 = 1.0 / (1u32 << 24) as f32;
/// 2^-53: the spacing of uniform `f64` draws.
const UNIT_F64: f64 = 1.0 / (1u64 << 53) as f64;

/// The Philox4x32-10 bijection of a counter under a key.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [[a], [b], [c], [d]] = philox_lanes(counter.map(|word| [word]), key);
    [a, b, c, d]
}

/// Philox4x32-10 of `N` counters side by side; word `w` of counter `j` is at `[w][j]`.
#[inline(always)]
fn philox_lanes<const N: usize>(mut counter: [[u32; N]; 4], mut key: [u32; 2]) -> [[u32; N]; 4] {
    for _ in 0..ROUNDS {
        let [c0, c1, c2, c3] = &mut counter;
        for j in 0..N {
            let first = u64::from(MULTIPLIERS[0]) * u64::from(c0[j]);
            let second = u64::from(MULTIPLIERS[1]) * u64::from(c2[j]);
            c0[j] = (second >> 32) as u32 ^ c1[j] ^ key[0];
            c2[j] = (first >> 32) as u32 ^ c3[j] ^ key[1];
            c1[j] = second as u32;
            c3[j] = first as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The random numbers of one (seed, step, layer path, use), by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    counter: [u32; 3],
}

impl Stream {
    /// The stream of this key. `step` counts below 2^56.
    pub fn new(seed: u64, step: u64, path: u32, purpose: Use) -> Self {
        debug_assert!(step < 1 << 56);
        let high = (step >> 32) as u32;
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            counter: [step as u32, path, high << 8 | purpose as u32],
        }
    }

    /// Four words: the block of this index.
    #[inline]
    pub fn block(&self, index: u32) -> [u32; 4] {
        philox4x32([index, self.counter[0], self.counter[1], self.counter[2]], self.key)
    }

    /// `N` consecutive blocks; word `w` of block `first + j` is at `[w][j]`.
    ///
    /// Inlined into a caller compiled for an instruction set, it is vector code of that set.
    #[inline(always)]
    pub fn blocks<const N: usize>(&self, first: u32) -> [[u32; N]; 4] {
        let index: [u32; N] = std::array::from_fn(|j| first.wrapping_add(j as u32));
        philox_lanes([index, [self.counter[0]; N], [self.counter[1]; N], [self.counter[2]; N]], self.key)
    }

    /// Word `index`, below 2^34.
    #[inline]
    pub fn word(&self, index: u64) -> u32 {
        debug_assert!(index < 1 << 34);
        self.block((index >> 2) as u32)[(index & 3) as usize]
    }

    /// Uniform number `index` in [0, 1), a multiple of 2^-24.
    #[inline]
    pub fn uniform_f32(&self, index: u64) -> f32 {
        unit_f32(self.word(index))
    }

    /// Uniform number `index` in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn uniform_f64(&self, index: u64) -> f64 {
        debug_assert!(index < 1 << 33);
        let block = self.block((index >> 1) as u32);
        let at = 2 * (index & 1) as usize;
        unit_f64(block[at], block[at + 1])
    }

    /// Standard normal number `index`, by the method of Box and Muller: an even index
    /// takes the cosine of its block's two uniform numbers, an odd one the sine.
    pub fn normal(&self, index: u64) -> f64 {
        self.normal_pair((index >> 1) as u32)[(index & 1) as usize]
    }

    fn normal_pair(&self, block: u32) -> [f64; 2] {
        let [a, b, c, d] = self.block(block);
        // 1 - u lies in (0, 1], where the logarithm is finite.
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - unit_f64(a, b)));
        let (sine, cosine) = libm::sincos(std::f64::consts::TAU * unit_f64(c, d));
        [radius * cosine, radius * sine]
    }

    /// Words `first`, `first + 1`, ... below 2^34.
    pub fn fill_words(&self, first: u64, out: &mut [u32]) {
        debug_assert!(first + out.len() as u64 <= 1 << 34);
        const WIDE: usize = 8;
        let head = ((4 - first % 4) % 4).min(out.len() as u64) as usize;
        let (head, rest) = out.split_at_mut(head);
        for (i, word) in head.iter_mut().enumerate() {
            *word = self.word(first + i as u64);
        }
        let mut block = first.div_ceil(4) as u32;
        let mut wide = rest.chunks_exact_mut(4 * WIDE);
        for chunk in &mut wide {
            let words = self.blocks::<WIDE>(block);
            for (i, word) in chunk.iter_mut().enumerate() {
                *word = words[i % 4][i / 4];
            }
            block = block.wrapping_add(WIDE as u32);
        }
        for chunk in wide.into_remainder().chunks_mut(4) {
            chunk.copy_from_slice(&self.block(block)[..chunk.len()]);
            block = block.wrapping_add(1);
        }
    }

    /// Uniform numbers `first`, `first + 1`, ... in [0, 1), each equal to [`uniform_f32`](Self::uniform_f32).
    pub fn fill_uniform_f32(&self, first: u64, out: &mut [f32]) {
        let mut words = [0; 256];
        let mut at = first;
        for chunk in out.chunks_mut(words.len()) {
            self.fill_words(at, &mut words[..chunk.len()]);
            for (out, word) in chunk.iter_mut().zip(&words) {
                *out = unit_f32(*word);
            }
            at += chunk.len() as u64;
        }
    }

    /// Uniform numbers `first`, `first + 1`, ... in [0, 1), each equal to [`uniform_f64`](Self::uniform_f64).
    pub fn fill_uniform_f64(&self, first: u64, out: &mut [f64]) {
        let mut words = [0; 256];
        let mut at = 2 * first;
        for chunk in out.chunks_mut(words.len() / 2) {
            self.fill_words(at, &mut words[..2 * chunk.len()]);
            for (out, pair) in chunk.iter_mut().zip(words.chunks_exact(2)) {
                *out = unit_f64(pair[0], pair[1]);
            }
            at += 2 * chunk.len() as u64;
        }
    }

    /// Standard normal numbers `first`, which is even, `first + 1`, ..., each equal to [`normal`](Self::normal).
    pub fn fill_normal(&self, first: u64, out: &mut [f64]) {
        debug_assert!(first.is_multiple_of(2));
        for (pair, block) in out.chunks_mut(2).zip(first / 2..) {
            pair.copy_from_slice(&self.normal_pair(block as u32)[..pair.len()]);
        }
    }

    /// The words from the first on, to be taken one after another.
    pub fn sequence(self) -> Sequence {
        Sequence { stream: self, next_block: 0, block: [0; 4], used: 4 }
    }
}

#[inline]
fn unit_f32(word: u32) -> f32 {
    (word >> 8) as f32 * UNIT_F32
}

#[inline]
fn unit_f64(high: u32, low: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * UNIT_F64
}

/// The words of a stream in order, for draws that take a varying number of them.
#[derive(Clone, Debug)]
pub struct Sequence {
    stream: Stream,
    next_block: u32,
    block: [u32; 4],
    used: usize,
}

impl Sequence {
    /// The next word.
    #[inline]
    pub fn next_word(&mut self) -> u32 {
        if self.used == self.block.len() {
            self.block = self.stream.block(self.next_block);
            self.next_block = self.next_block.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// An integer below `bound`, each equally likely; 0 for a bound of 0.
    ///
    /// Lemire's multiplication with rejection ("Fast random integer generation in an
    /// interval", 2019): the high half of word x bound, words whose low half falls
    /// below 2^32 mod bound thrown away.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        let mut product = u64::from(self.next_word()) * u64::from(bound);
        if (product as u32) < bound {
            let reject_below = bound.wrapping_neg() % bound;
            while (product as u32) < reject_below {
                product = u64::from(self.next_word()) * u64::from(bound);
            }
        }
        (product >> 32) as u32
    }
}

/// Fills `out` with a random order of 0 .. `out.len()` (fewer than 2^32), every order equally likely.
///
/// Fisher and Yates's exchange, from the last place down: place `i` is exchanged with
/// `below(i + 1)` of the sequence keyed by (seed, epoch, 0, [`Use::Shuffle`]).
pub fn permutation(seed: u64, epoch: u64, out: &mut [u32]) {
    for (i, place) in out.iter_mut().enumerate() {
        *place = i as u32;
    }
    let mut draws = Stream::new(seed, epoch, 0, Use::Shuffle).sequence();
    for i in (1..out.len()).rev() {
        let j = draws.below((i + 1) as u32);
        out.swap(i, j as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The known-answer vectors of the authors' library, Random123 (kat_vectors).
    #[test]
    fn known_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn the_documented_counter_layout() {
        let stream = Stream::new(0x0123_4567_89ab_cdef, 0x0000_000a_0000_000b, 0xdead_beef, Use::Dropout);
        let expected = philox4x32([7, 0xb, 0xdead_beef, 0xa << 8 | 2], [0x89ab_cdef, 0x0123_4567]);
        assert_eq!(stream.block(7), expected);
        assert_eq!(stream.word(30), expected[2]);
        assert_eq!(stream.uniform_f32(30), (expected[2] >> 8) as f32 / 16_777_216.0);
        let wide = (u64::from(expected[2]) << 32 | u64::from(expected[3])) >> 11;
        assert_eq!(stream.uniform_f64(15), wide as f64 / 9_007_199_254_740_992.0);
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let base = Stream::new(1, 1, 1, Use::Dropout).block(0);
        for other in [
            Stream::new(2, 1, 1, Use::Dropout),
            Stream::new(1 + (1 << 32), 1, 1, Use::Dropout),
            Stream::new(1, 2, 1, Use::Dropout),
            Stream::new(1, 1 + (1 << 32), 1, Use::Dropout),
            Stream::new(1, 1, 2, Use::Dropout),
            Stream::new(1, 1, 1, Use::Shuffle),
        ] {
            assert_ne!(other.block(0), base);
        }
    }

    #[test]
    fn passes_of_a_step_have_numbers_of_their_own() {
        let mut seen = std::collections::HashSet::new();
        for step in (0..300).chain([1 << 20, 1 << 32, (1 << 40) - 1]) {
            assert_eq!(pass_number(step, 0), step);
            for forwards in (0..300).chain([(1 << 16) - 1]) {
                let number = pass_number(step, forwards);
                assert!(number < 1 << 56 && seen.insert(number), "step {step}, pass {forwards}");
            }
        }
    }

    proptest! {
        #[test]
        fn bulk_equals_single(first in 0u64..1000, len in 0usize..700, seed: u64) {
            let stream = Stream::new(seed, 3, 4, Use::Dropout);
            let mut words = vec![0; len];
            stream.fill_words(first, &mut words);
            let mut singles = vec![0.0; len];
            stream.fill_uniform_f32(first, &mut singles);
            let mut doubles = vec![0.0; len];
            stream.fill_uniform_f64(first, &mut doubles);
            let mut normals = vec![0.0; len];
            stream.fill_normal(0, &mut normals);
            for i in 0..len {
                prop_assert_eq!(words[i], stream.word(first + i as u64));
                prop_assert_eq!(singles[i], stream.uniform_f32(first + i as u64));
                prop_assert_eq!(doubles[i], stream.uniform_f64(first + i as u64));
                prop_assert_eq!(normals[i], stream.normal(i as u64));
                prop_assert!((0.0..1.0).contains(&singles[i]) && (0.0..1.0).contains(&doubles[i]));
            }
            let mut sequence = stream.sequence();
            for i in 0..len.min(20) {
                prop_assert_eq!(sequence.next_word(), stream.word(i as u64));
            }
        }

        #[test]
        fn permutations_hold_each_number_once(n in 0usize..500, seed: u64, epoch in 0u64..100) {
            let mut order = vec![0; n];
            permutation(seed, epoch, &mut order);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.iter().enumerate().all(|(i, value)| i as u32 == *value));
            let mut again = vec![7; n];
            permutation(seed, epoch, &mut again);
            prop_assert_eq!(order, again);
        }
    }

    #[test]
    fn moments_of_uniform_and_normal_draws() {
        let stream = Stream::new(11, 0, 0, Use::Initialize);
        let n = 200_000;
        let mut uniform = vec![0.0; n];
        stream.fill_uniform_f64(0, &mut uniform);
        let mut normal = vec![0.0; n];
        stream.fill_normal(0, &mut normal);
        let moment =
            |values: &[f64], power: i32| values.iter().map(|x| x.powi(power)).sum::<f64>() / n as f64;
        // Five standard errors of each estimate.
        let close = |got: f64, expected: f64, variance: f64| {
            (got - expected).abs() < 5.0 * (variance / n as f64).sqrt()
        };
        assert!(close(moment(&uniform, 1), 0.5, 1.0 / 12.0));
        assert!(close(moment(&uniform, 2), 1.0 / 3.0, 4.0 / 45.0));
        assert!(close(moment(&normal, 1), 0.0, 1.0));
        assert!(close(moment(&normal, 2), 1.0, 2.0));
        assert!(close(moment(&normal, 3), 0.0, 15.0));
        assert!(close(moment(&normal, 4), 3.0, 96.0));
        let below_one = normal.iter().filter(|x| x.abs() < 1.0).count() as f64 / n as f64;
        assert!(close(below_one, 0.682_689_492_137, 0.217));
    }

    #[test]
    fn paths_within_a_layer_are_those_of_layers_inside_it() {
        let path = crate::program::LayerPath::new(3, 0, 300, 2);
        for index in [0, 1, 255, 256, 70_000] {
            assert_eq!(path_within(path.hash32(), index), path.inner(index as usize).hash32());
        }
    }

    /// All 24 orders of four, and where each of ten comes to stand, against chi squared.
    #[test]
    fn permutations_are_unbiased() {
        let trials = 24_000;
        let mut orders = std::collections::HashMap::new();
        for epoch in 0..trials {
            let mut order = [0; 4];
            permutation(5, epoch, &mut order);
            *orders.entry(order).or_insert(0u32) += 1;
        }
        assert_eq!(orders.len(), 24);
        let chi: f64 = orders.values().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
        // The 99.9th percentile for 23 degrees of freedom.
        assert!(chi < 49.7, "{chi}");
        let mut table = [[0u32; 10]; 10];
        for epoch in 0..10_000 {
            let mut order = [0; 10];
            permutation(6, epoch, &mut order);
            for (place, value) in order.iter().enumerate() {
                table[place][*value as usize] += 1;
            }
        }
        let chi: f64 =
            table.iter().flatten().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
        // The 99.9th percentile for 81 degrees of freedom.
        assert!(chi < 124.8, "{chi}");
    }

    #[test]
    fn integers_below_a_bound_reject_what_would_bias() {
        // 2^32 mod 3 x 2^30 is 2^30: a quarter of all words is rejected, and
        // without rejection the lower third would be drawn half of the time.
        let bound = 3 << 30;
        let mut draws = Stream::new(1, 0, 0, Use::Shuffle).sequence();
        let mut thirds = [0u32; 3];
        for _ in 0..30_000 {
            let value = draws.below(bound);
            assert!(value < bound);
            thirds[(value >> 30) as usize] += 1;
        }
        let chi: f64 = thirds.iter().map(|count| (f64::from(*count) - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi < 13.8, "{thirds:?}");
        assert!((0..100).all(|_| draws.below(1) == 0));
        assert_eq!(draws.below(0), 0);
    }
}
