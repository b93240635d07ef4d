//! Each operation of each instruction set this machine has equals the scalar
//! definition, bit for bit.

use super::*;
use crate::simd::Real;

/// A generator of awkward numbers: random bits, random values of ordinary size, and the special ones.
struct Numbers(u64);

impl Numbers {
    fn bits(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn next<T: Sample>(&mut self) -> T {
        let bits = self.bits();
        match bits % 8 {
            0 | 1 => T::special((bits >> 3) as usize),
            2..=4 => T::from_random_bits(self.bits()),
            _ => T::from_f64((self.bits() as i64 as f64) / 2f64.powi(60)),
        }
    }

    fn lanes<T: Sample>(&mut self) -> [T; LANES] {
        std::array::from_fn(|_| self.next())
    }
}

trait Sample: Real {
    fn from_random_bits(bits: u64) -> Self;

    fn special(index: usize) -> Self {
        let smallest = Self::MIN_POSITIVE * Self::EPSILON;
        let positive = [
            Self::ZERO,
            Self::ONE,
            Self::NAN,
            Self::INFINITY,
            Self::MIN_POSITIVE,
            smallest,
            Self::MIN_POSITIVE - smallest,
            Self::ONE + Self::EPSILON,
            Self::from_f64(0.5),
            Self::from_f64(1.5),
            Self::from_f64(2.5),
            Self::ONE / Self::EPSILON,
        ];
        let value = positive[index / 2 % positive.len()];
        if index.is_multiple_of(2) { value } else { -value }
    }
}

impl Sample for f32 {
    fn from_random_bits(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
}

impl Sample for f64 {
    fn from_random_bits(bits: u64) -> Self {
        f64::from_bits(bits)
    }
}

/// Equal to the bit; of results of arithmetic, any NaN equals any NaN.
#[track_caller]
fn same<T: Real>(what: &str, found: T, expected: T) {
    if !(found.is_nan() && expected.is_nan()) {
        assert_eq!(found.to_bits_u64(), expected.to_bits_u64(), "{what}: {found} for {expected}");
    }
}

#[track_caller]
fn same_lanes<V: Vector>(what: &str, found: V, expected: impl Fn(usize) -> V::Element) {
    for (i, lane) in found.to_array().into_iter().enumerate() {
        same(what, lane, expected(i));
    }
}

/// Equal to the bit, NaN too: for operations that move or edit bits.
#[track_caller]
fn exact_lanes<V: Vector>(what: &str, found: V, expected: impl Fn(usize) -> V::Element) {
    for (i, lane) in found.to_array().into_iter().enumerate() {
        assert_eq!(lane.to_bits_u64(), expected(i).to_bits_u64(), "{what}, lane {i}: {lane}");
    }
}

#[track_caller]
fn same_mask<V: Vector>(what: &str, found: V::Mask, expected: impl Fn(usize) -> bool) {
    let one = V::splat(V::Element::ONE);
    let zero = V::splat(V::Element::ZERO);
    for (i, lane) in V::select(found, one, zero).to_array().into_iter().enumerate() {
        assert_eq!(lane == V::Element::ONE, expected(i), "{what}, lane {i}");
    }
    assert_eq!(V::any(found), (0..LANES).any(&expected), "any {what}");
    assert_eq!(V::all(found), (0..LANES).all(&expected), "all {what}");
}

/// Every operation on many random vectors.
struct Operations(usize);

impl<T: Sample> Kernel<T> for Operations {
    type Output = ();

    fn run<V: Vector<Element = T>>(self) {
        let mut numbers = Numbers(7);
        for _ in 0..self.0 {
            check_one::<V>(numbers.lanes(), numbers.lanes(), numbers.lanes());
        }
    }
}

fn check_one<V: Vector>(a: [V::Element; LANES], b: [V::Element; LANES], c: [V::Element; LANES]) {
    let (x, y, z) = (V::load(&a), V::load(&b), V::load(&c));
    same_lanes("add", x + y, |i| a[i] + b[i]);
    same_lanes("sub", x - y, |i| a[i] - b[i]);
    same_lanes("mul", x * y, |i| a[i] * b[i]);
    same_lanes("div", x / y, |i| a[i] / b[i]);
    same_lanes("mul_add", x.mul_add(y, z), |i| a[i].mul_add(b[i], c[i]));
    same_lanes("sqrt", x.sqrt(), |i| a[i].sqrt());
    same_lanes("round", x.round_ties_even(), |i| a[i].round_ties_even());
    exact_lanes("neg", -x, |i| -a[i]);
    exact_lanes("abs", x.abs(), |i| a[i].abs());
    exact_lanes("copysign", x.copysign(y), |i| a[i].copysign(b[i]));
    exact_lanes("max", x.max(y), |i| if a[i] > b[i] { a[i] } else { b[i] });
    exact_lanes("min", x.min(y), |i| if a[i] < b[i] { a[i] } else { b[i] });
    exact_lanes("exponent", x.exponent(), |i| a[i].exponent());
    exact_lanes("mantissa", x.mantissa(), |i| a[i].mantissa());
    exact_lanes("select", V::select(x.lt(y), y, z), |i| if a[i] < b[i] { b[i] } else { c[i] });
    let both: Vec<V::Element> = a.into_iter().chain(b).collect();
    exact_lanes("unzip, even", x.unzip(y).0, |i| both[2 * i]);
    exact_lanes("unzip, odd", x.unzip(y).1, |i| both[2 * i + 1]);
    let lanes = x.to_array();
    exact_lanes("shift_up", x.shift_up(), |i| if i > 0 { lanes[i - 1] } else { V::Element::ZERO });
    exact_lanes("shift_down", x.shift_down(), |i| lanes.get(i + 1).copied().unwrap_or(V::Element::ZERO));
    same_mask::<V>("lt", x.lt(y), |i| a[i] < b[i]);
    same_mask::<V>("le", x.le(y), |i| a[i] <= b[i]);
    same_mask::<V>("gt", x.gt(y), |i| a[i] > b[i]);
    same_mask::<V>("ge", x.ge(y), |i| a[i] >= b[i]);
    same_mask::<V>("eq", x.eq(y), |i| a[i] == b[i]);
    same_mask::<V>("eq itself", x.eq(x), |i| !a[i].is_nan());
    same_mask::<V>("and", V::and(x.lt(y), x.lt(z)), |i| a[i] < b[i] && a[i] < c[i]);
    // Not of one number below two others: LLVM makes one comparison with the larger of them, which ARM machines find
    // otherwise where one is a signaling NaN.
    same_mask::<V>("or", V::or(x.lt(y), z.lt(x)), |i| a[i] < b[i] || c[i] < a[i]);
    same_mask::<V>("not", V::not(x.lt(y)), |i| {
        !matches!(a[i].partial_cmp(&b[i]), Some(std::cmp::Ordering::Less))
    });

    let tree = |f: fn(V::Element, V::Element) -> V::Element| {
        let mut lanes = a.to_vec();
        while lanes.len() > 1 {
            let half = lanes.len() / 2;
            lanes = (0..half).map(|i| f(lanes[i], lanes[i + half])).collect();
        }
        lanes[0]
    };
    same("reduce_sum", x.reduce_sum(), tree(|a, b| a + b));
    same("reduce_max", x.reduce_max(), tree(|a, b| if a > b { a } else { b }));
    same("reduce_min", x.reduce_min(), tree(|a, b| if a < b { a } else { b }));
}

/// Loads and stores of every length, within guards.
struct Memory;

impl<T: Sample> Kernel<T> for Memory {
    type Output = ();

    fn run<V: Vector<Element = T>>(self) {
        let mut numbers = Numbers(11);
        let source: Vec<T> = (0..3 * LANES).map(|_| numbers.next()).collect();
        for offset in 0..LANES {
            for count in 0..=LANES + 3 {
                let from = &source[offset..offset + count];
                let v = V::load_partial(from);
                exact_lanes("load_partial", v, |i| if i < count { from[i] } else { T::ZERO });
                same_mask::<V>("first_lanes", V::first_lanes(count), |i| i < count);

                let guard = T::from_f64(99.0);
                let mut target = [guard; 3 * LANES];
                V::load(&source).store_partial(&mut target[offset..offset + count]);
                for (i, value) in target.iter().enumerate() {
                    let inside = i >= offset && i < offset + count.min(LANES);
                    let expected = if inside { source[i - offset] } else { guard };
                    assert_eq!(value.to_bits_u64(), expected.to_bits_u64());
                }
            }
            let v = V::load(&source[offset..]);
            exact_lanes("load", v, |i| source[offset + i]);
            // SAFETY: 16 elements follow `offset` in both.
            unsafe {
                let mut target = vec![T::ZERO; 2 * LANES];
                V::load_unchecked(source.as_ptr().add(offset))
                    .store_unchecked(target.as_mut_ptr().add(offset));
                exact_lanes("unchecked", v, |i| target[offset + i]);
            }
        }
        exact_lanes("splat", V::splat(source[0]), |_| source[0]);
        exact_lanes("constant", V::constant(0.1), |_| T::from_f64(0.1));
    }
}

/// Powers of two over the whole range they are defined for.
struct Powers;

impl<T: Sample> Kernel<T> for Powers {
    type Output = ();

    fn run<V: Vector<Element = T>>(self) {
        let bias = if size_of::<T>() == 4 { 127 } else { 1023 };
        for n in -bias..=bias + 1 {
            let expected = match n {
                n if n == -bias => 0.0,
                n if n > bias => f64::INFINITY,
                n => 2f64.powi(n),
            };
            exact_lanes("pow2", V::constant(f64::from(n)).pow2(), |_| T::from_f64(expected));
            assert_eq!(T::from_f64(f64::from(n)).pow2(), T::from_f64(expected));
        }
        // The reference of scaling by a power is libm's, which rounds once.
        let reach = if size_of::<T>() == 4 { 240 } else { 2000 };
        let mut numbers = Numbers(13);
        for n in -reach..=reach {
            let fraction = 1.0 + (numbers.bits() >> 12) as f64 / 2f64.powi(52);
            let sign = if numbers.bits().is_multiple_of(2) { 1.0 } else { -1.0 };
            let x = T::from_f64(sign * fraction);
            let expected = T::from_f64(libm::scalbn(x.to_f64(), n));
            exact_lanes("scale", V::splat(x).scale(V::constant(f64::from(n))), |_| expected);
        }
        same_lanes("scale", V::splat(T::NAN).scale(V::constant(3.0)), |_| T::NAN);
    }
}

#[test]
fn operations_equal_the_scalar_ones() {
    for isa in Isa::available() {
        f32::dispatch(isa, Operations(2000));
        f64::dispatch(isa, Operations(500));
    }
}

#[test]
fn loads_and_stores_touch_what_they_should() {
    for isa in Isa::available() {
        f32::dispatch(isa, Memory);
        f64::dispatch(isa, Memory);
    }
}

#[test]
fn powers_of_two_are_exact() {
    for isa in Isa::available() {
        f32::dispatch(isa, Powers);
        f64::dispatch(isa, Powers);
    }
}

/// Which implementation runs.
struct WhichLevel;

impl Kernel<f32> for WhichLevel {
    type Output = Level;

    fn run<V: Vector<Element = f32>>(self) -> Level {
        V::LEVEL
    }
}

#[test]
fn dispatch_enters_the_instruction_set_asked_for() {
    for isa in Isa::available() {
        assert_eq!(f32::dispatch(isa, WhichLevel), isa.level());
    }
}

/// Rows become columns.
struct Transposed;

impl<T: Sample> Kernel<T> for Transposed {
    type Output = ();

    fn run<V: Vector<Element = T>>(self) {
        let number = |row: usize, column: usize| T::from_usize(row * LANES + column);
        let mut block = std::array::from_fn(|row| {
            V::load(&(0..LANES).map(|column| number(row, column)).collect::<Vec<_>>())
        });
        V::transpose(&mut block);
        for (column, vector) in block.into_iter().enumerate() {
            exact_lanes("transpose", vector, |row| number(row, column));
        }
    }
}

#[test]
fn a_transposed_block_has_its_rows_as_columns() {
    for isa in Isa::available() {
        f32::dispatch(isa, Transposed);
        f64::dispatch(isa, Transposed);
    }
}

/// What every operation on words makes of random bytes, as bits; NaN is like NaN.
struct Decoded<const QUADS: bool>;

impl<const QUADS: bool> Kernel<f32> for Decoded<QUADS> {
    type Output = Vec<i32>;

    fn run<V: Vector<Element = f32>>(self) -> Vec<i32> {
        decoded::<V::Float32, QUADS>()
    }
}

fn decoded<V: Decode, const QUADS: bool>() -> Vec<i32> {
    let mut numbers = Numbers(11);
    let mut found = Vec::new();
    let mut words = |words: V::Words| {
        let mut lanes = [0; LANES];
        // SAFETY: an array of 16 words.
        unsafe { words.store(lanes.as_mut_ptr()) };
        found.extend(lanes);
    };
    let bits = |vector: V| {
        let bits = vector.to_array().map(|x| if x.is_nan() { -1 } else { x.to_bits() as i32 });
        // SAFETY: an array of 16 words.
        unsafe { V::Words::load(bits.as_ptr().cast()) }
    };
    for _ in 0..200 {
        let bytes: [u64; 16] = std::array::from_fn(|_| numbers.bits());
        let at = bytes.as_ptr().cast::<u8>();
        let table = V::load(&numbers.lanes());
        // SAFETY: 128 bytes, of which not more than 65 are read at once; quads are entered as they ask for.
        unsafe {
            let (a, b, c) = (V::Words::load(at), V::Words::load(at.add(1)), V::Words::load(at.add(64)));
            for result in [
                a.and(b),
                a.or(b),
                a.sub(b),
                a.shift_left(5),
                a.shift_right(5),
                a.shift_right_signed(5),
                a.add_pairs(b, c),
                if QUADS { a.add_quads(b, c) } else { a },
                V::Words::splat(numbers.bits() as i32),
                V::Words::bytes(at.add(3)),
                V::Words::signed_bytes(at.add(3)),
                V::Words::halves(at.add(3)),
                V::Words::signed_halves(at.add(3)),
                bits(V::from_bits(a)),
                bits(V::from_integers(a)),
                bits(table.look_up(a)),
                bits(table.negate_where(numbers.bits() as u16)),
                bits(V::small_float(a, 0, 4)),
                bits(V::small_float(a, 3, 3)),
                bits(V::bfloat16(at.add(5))),
                bits(V::float16(at.add(5))),
            ] {
                words(result);
            }
        }
    }
    found
}

#[test]
fn words_and_what_they_decode_to_are_the_same_everywhere() {
    for isa in Isa::available() {
        assert!(f32::dispatch(isa, Decoded::<false>) == decoded::<Portable<f32>, false>(), "{isa}");
        if has_quads(isa) {
            assert!(dispatch_quads(isa, Decoded::<true>) == decoded::<Portable<f32>, true>(), "{isa}");
        }
    }
}

/// What operations on pairs of bfloat16 make of random numbers, as bits.
struct OnPairs;

impl Kernel<f32> for OnPairs {
    type Output = Vec<i32>;

    fn run<V: Vector<Element = f32>>(self) -> Vec<i32> {
        on_pairs::<V::Float32>()
    }
}

fn on_pairs<V: Decode>() -> Vec<i32> {
    let mut numbers = Numbers(12);
    let mut found = Vec::new();
    for round in 0..200 {
        let [a, b, c] = [0; 3].map(|_| {
            let lanes = numbers.lanes::<f32>();
            // Now and then something that is zero, subnormal or not finite.
            let odd = [0.0, -0.0, 1e-40, -1e-45, f32::INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE];
            V::load(&std::array::from_fn::<_, LANES, _>(|i| match (round + 5 * i) % 31 {
                at if at < 8 => odd[at],
                _ => lanes[i],
            }))
        });
        // SAFETY: entered as they ask for.
        let made = unsafe { [V::to_bfloat16_pairs(a, b), V::to_bfloat16_neighbours(b, c)] };
        let mut bits = [0; LANES];
        for words in made {
            // SAFETY: an array of 16 words.
            unsafe { words.store(bits.as_mut_ptr()) };
            found.extend(bits);
        }
        // SAFETY: as above.
        let sum = unsafe { V::splat(0.0).add_bfloat16_pairs(made[0], made[1]) };
        // Not where zero may stand for a product.
        let known = |x: &f32| x.is_finite() && x.abs() >= 1e-30;
        found.extend(sum.to_array().iter().map(|x| if known(x) { x.to_bits() as i32 } else { 0 }));
    }
    found
}

#[test]
fn pairs_of_bfloat16_are_the_same_everywhere() {
    for isa in Isa::available().into_iter().filter(|isa| has_bfloat16_pairs(*isa)) {
        assert!(dispatch_bfloat16_pairs(isa, OnPairs) == on_pairs::<Portable<f32>>(), "{isa}");
    }
}

/// Rows of bytes become columns, between bytes that stay as they are.
struct Turned;

impl Kernel<f32> for Turned {
    type Output = ();

    fn run<V: Vector<Element = f32>>(self) {
        let from: [[u8; 20]; 32] = std::array::from_fn(|row| std::array::from_fn(|i| (row * 7 + i) as u8));
        let mut to = [[255; 40]; 16];
        let rows = std::array::from_fn(|row| from[row].as_ptr());
        // SAFETY: 20 bytes a row of which 16 are read from the third on, and 16 columns of 40.
        unsafe { V::Float32::transpose_bytes(&rows, 3, to.as_mut_ptr().cast(), 40) };
        for (column, to) in to.iter().enumerate() {
            assert!((0..32).all(|row| to[row] == from[row][column + 3]) && to[32..] == [255; 8]);
        }
    }
}

#[test]
fn transposed_bytes_have_their_rows_as_columns() {
    Isa::available().into_iter().for_each(|isa| f32::dispatch(isa, Turned));
}
