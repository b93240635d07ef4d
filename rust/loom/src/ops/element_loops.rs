//! Passes over memory, 16 elements at a time, and how they are cut into tasks.

use crate::simd::{LANES, Real, Vector};

/// Elements of one task of an operation that does little more than pass over memory.
///
/// Such a task takes a few microseconds and a fork about one, so less than two of
/// them stay on the calling thread.
pub(crate) const PASS: usize = 16 * 1024;

/// Elements of one task of an operation that takes an exponential of each.
pub(crate) const TRANSCENDENTAL: usize = 4 * 1024;

/// How many rows of `row` elements make a task of about `elements`.
///
/// Depends on the shape alone, never on the number of threads.
pub(crate) fn rows_per_task(row: usize, elements: usize) -> usize {
    (elements / row.max(1)).max(1)
}

/// The first elements of `x`, at most 16; the other lanes are 0.
#[inline(always)]
pub(crate) fn load<V: Vector>(x: &[V::Element]) -> V {
    if x.len() >= LANES { V::load(x) } else { V::load_partial(x) }
}

/// Writes the first elements of `y`, at most 16.
#[inline(always)]
pub(crate) fn store<V: Vector>(x: V, y: &mut [V::Element]) {
    if y.len() >= LANES { x.store(y) } else { x.store_partial(y) }
}

// What is passed to `map` and its like is called at two places. A large closure is then a function of its own, which is
// compiled for no instruction set, so that each of its instructions becomes a call: such bodies go into these.

/// `y = body`, element by element, where `body` is a vector made of one of each operand, all of them as long as y, of which
/// `y` itself may be one; it stands where it is computed, and is no closure that might be called.
macro_rules! map_inline {
    ($y:expr, |$own:ident: $vector:ty| $body:expr) => {{
        for y in $y.chunks_mut($crate::simd::LANES) {
            let $own: $vector = $crate::ops::element_loops::load(y);
            $crate::ops::element_loops::store::<$vector>($body, y);
        }
    }};
    ($x:expr => $y:expr, |$one:ident: $vector:ty| $body:expr) => {{
        let lanes = $crate::simd::LANES;
        for (x, y) in $x.chunks(lanes).zip($y.chunks_mut(lanes)) {
            let $one: $vector = $crate::ops::element_loops::load(x);
            $crate::ops::element_loops::store::<$vector>($body, y);
        }
    }};
    ($a:expr, $b:expr => $y:expr, |$one:ident: $vector:ty, $other:ident| $body:expr) => {{
        let lanes = $crate::simd::LANES;
        for ((a, b), y) in $a.chunks(lanes).zip($b.chunks(lanes)).zip($y.chunks_mut(lanes)) {
            let ($one, $other): ($vector, $vector) =
                ($crate::ops::element_loops::load(a), $crate::ops::element_loops::load(b));
            $crate::ops::element_loops::store::<$vector>($body, y);
        }
    }};
}

/// [`lane_sums`] or [`lane_sums2`] of `body`, which stands where it is computed.
macro_rules! lane_sums_inline {
    ($x:expr, |$one:ident: $vector:ty| $body:expr) => {{
        let mut sums = <$vector>::splat(Real::ZERO);
        for x in $x.chunks($crate::simd::LANES) {
            let $one: $vector = $crate::ops::element_loops::load(x);
            sums = sums + $crate::ops::element_loops::first_of::<$vector>(x.len(), $body);
        }
        sums
    }};
    ($a:expr, $b:expr, |$one:ident: $vector:ty, $other:ident| $body:expr) => {{
        let mut sums = <$vector>::splat(Real::ZERO);
        for (a, b) in $a.chunks($crate::simd::LANES).zip($b.chunks($crate::simd::LANES)) {
            let ($one, $other): ($vector, $vector) =
                ($crate::ops::element_loops::load(a), $crate::ops::element_loops::load(b));
            sums = sums + $crate::ops::element_loops::first_of::<$vector>(a.len(), $body);
        }
        sums
    }};
}

pub(crate) use {lane_sums_inline, map_inline};

/// [`first`] where fewer lanes than all count.
#[inline(always)]
pub(crate) fn first_of<V: Vector>(count: usize, x: V) -> V {
    if count < LANES { first(count, x) } else { x }
}

/// `y = f(x)`, element by element.
#[inline(always)]
pub(crate) fn map<V: Vector>(x: &[V::Element], y: &mut [V::Element], f: impl Fn(V) -> V) {
    let (mut x, mut y) = (x.chunks_exact(LANES), y.chunks_exact_mut(LANES));
    for (x, y) in x.by_ref().zip(y.by_ref()) {
        f(V::load(x)).store(y);
    }
    let (x, y) = (x.remainder(), y.into_remainder());
    if !y.is_empty() {
        f(V::load_partial(x)).store_partial(y);
    }
}

/// `y = f(a, b)`, element by element.
#[inline(always)]
pub(crate) fn map2<V: Vector>(
    a: &[V::Element],
    b: &[V::Element],
    y: &mut [V::Element],
    f: impl Fn(V, V) -> V,
) {
    let (mut a, mut b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let mut y = y.chunks_exact_mut(LANES);
    for ((a, b), y) in a.by_ref().zip(b.by_ref()).zip(y.by_ref()) {
        f(V::load(a), V::load(b)).store(y);
    }
    let (a, b, y) = (a.remainder(), b.remainder(), y.into_remainder());
    if !y.is_empty() {
        f(V::load_partial(a), V::load_partial(b)).store_partial(y);
    }
}

/// `x = f(x)`, element by element.
#[inline(always)]
pub(crate) fn update<V: Vector>(x: &mut [V::Element], f: impl Fn(V) -> V) {
    let mut x = x.chunks_exact_mut(LANES);
    for x in x.by_ref() {
        f(V::load(x)).store(x);
    }
    let x = x.into_remainder();
    if !x.is_empty() {
        f(V::load_partial(x)).store_partial(x);
    }
}

/// The lanes of the sum of `f(x)` over a slice: element `i` is added to lane `i % 16`, in order.
///
/// [`Vector::reduce_sum`] finishes it.
#[inline(always)]
pub(crate) fn lane_sums<V: Vector>(x: &[V::Element], f: impl Fn(V) -> V) -> V {
    let mut sums = V::splat(V::Element::ZERO);
    let mut x = x.chunks_exact(LANES);
    for x in x.by_ref() {
        sums = sums + f(V::load(x));
    }
    let x = x.remainder();
    if !x.is_empty() {
        sums = sums + first::<V>(x.len(), f(V::load_partial(x)));
    }
    sums
}

/// [`lane_sums`] of `f(a, b)`.
#[inline(always)]
pub(crate) fn lane_sums2<V: Vector>(a: &[V::Element], b: &[V::Element], f: impl Fn(V, V) -> V) -> V {
    let mut sums = V::splat(V::Element::ZERO);
    let (mut a, mut b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (a, b) in a.by_ref().zip(b.by_ref()) {
        sums = sums + f(V::load(a), V::load(b));
    }
    let (a, b) = (a.remainder(), b.remainder());
    if !a.is_empty() {
        sums = sums + first::<V>(a.len(), f(V::load_partial(a), V::load_partial(b)));
    }
    sums
}

/// The first `count` lanes of `x`, zero in the others.
#[inline(always)]
pub(crate) fn first<V: Vector>(count: usize, x: V) -> V {
    V::select(V::first_lanes(count), x, V::splat(V::Element::ZERO))
}
