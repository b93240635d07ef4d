//! The axis that a softmax or a loss reduces over, however far apart its elements lie.
//!
//! A block is (classes, inner) elements. Where `inner` is 1 the classes lie side by
//! side and fill the lanes of a vector; elsewhere the lanes are 16 positions, each
//! with its classes `inner` elements apart. Either way class `i` is added to sum
//! `i % 16` and one fixed tree joins the 16, so that both give the same bits for
//! the same numbers.

use super::element_loops::{first, load};
use crate::simd::{LANES, Real, Vector};
use std::ops::Range;

/// One position's classes side by side, or 16 positions' classes apart.
///
/// `block` in the methods is the whole block that the axis is of, and `labels` one
/// class index for each of its `inner` positions.
pub(crate) trait ReducedAxis<V: Vector>: Copy {
    /// Sums that are not yet joined.
    type Sums;

    /// How many vectors the axis has.
    fn steps(self) -> usize;

    /// Where in a block vector `step` lies.
    fn part(self, step: usize) -> Range<usize>;

    /// Sums of nothing.
    fn sums(self) -> Self::Sums;

    /// Adds vector `step`, whose lanes beyond the part are disregarded.
    fn add(self, sums: &mut Self::Sums, step: usize, x: V);

    /// The sum over the classes, in the lanes of the positions it belongs to.
    fn total(self, sums: Self::Sums) -> V;

    /// The largest element over the classes, likewise.
    fn largest(self, block: &[V::Element]) -> V;

    /// 1 for the elements of vector `step` that labels name, 0 for the others.
    fn one_hot(self, step: usize, labels: &[i32]) -> V;

    /// The factors of the classes of vector `step`.
    fn factors(self, step: usize, factors: &[f64]) -> V;

    /// The element of each position that its label names.
    fn chosen(self, block: &[V::Element], labels: &[i32]) -> V;

    /// The factor of each position's label.
    fn chosen_factors(self, factors: &[f64], labels: &[i32]) -> V;

    /// Subtracts from the element of each position that its label names.
    fn subtract_chosen(self, block: &mut [V::Element], labels: &[i32], x: V);
}

/// The classes of one position, side by side.
#[derive(Clone, Copy)]
pub(crate) struct SideBySide {
    pub(crate) classes: usize,
}

/// The classes of up to 16 positions, `inner` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct Apart {
    pub(crate) classes: usize,
    pub(crate) inner: usize,
    /// The first position.
    pub(crate) start: usize,
    /// How many positions.
    pub(crate) count: usize,
}

impl<V: Vector> ReducedAxis<V> for SideBySide {
    type Sums = V;

    #[inline(always)]
    fn steps(self) -> usize {
        self.classes.div_ceil(LANES)
    }

    #[inline(always)]
    fn part(self, step: usize) -> Range<usize> {
        step * LANES..((step + 1) * LANES).min(self.classes)
    }

    #[inline(always)]
    fn sums(self) -> V {
        V::splat(V::Element::ZERO)
    }

    #[inline(always)]
    fn add(self, sums: &mut V, step: usize, x: V) {
        *sums = *sums + first(self.classes - step * LANES, x);
    }

    #[inline(always)]
    fn total(self, sums: V) -> V {
        V::splat(sums.reduce_sum())
    }

    #[inline(always)]
    fn largest(self, block: &[V::Element]) -> V {
        let least = V::splat(-V::Element::INFINITY);
        let mut largest = least;
        for x in block.chunks(LANES) {
            largest = V::select(V::first_lanes(x.len()), load(x), least).max(largest);
        }
        V::splat(largest.reduce_max())
    }

    #[inline(always)]
    fn one_hot(self, step: usize, labels: &[i32]) -> V {
        // Rounded or not, a number beyond the lanes is none of theirs.
        let label = V::constant((labels[0] as i64 - (step * LANES) as i64) as f64);
        let (zero, one) = (V::splat(V::Element::ZERO), V::splat(V::Element::ONE));
        V::select(lane_numbers::<V>().eq(label), one, zero)
    }

    #[inline(always)]
    fn factors(self, step: usize, factors: &[f64]) -> V {
        let mut lanes = [V::Element::ZERO; LANES];
        for (lane, factor) in lanes.iter_mut().zip(&factors[step * LANES..]) {
            *lane = V::Element::from_f64(*factor);
        }
        V::load(&lanes)
    }

    #[inline(always)]
    fn chosen(self, block: &[V::Element], labels: &[i32]) -> V {
        V::splat(block[labels[0] as usize])
    }

    #[inline(always)]
    fn chosen_factors(self, factors: &[f64], labels: &[i32]) -> V {
        V::constant(factors[labels[0] as usize])
    }

    #[inline(always)]
    fn subtract_chosen(self, block: &mut [V::Element], labels: &[i32], x: V) {
        block[labels[0] as usize] -= x.to_array()[0];
    }
}

/// 0, 1, 2, ... 15.
#[inline(always)]
fn lane_numbers<V: Vector>() -> V {
    let mut lanes = [V::Element::ZERO; LANES];
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = V::Element::from_usize(i);
    }
    V::load(&lanes)
}

/// The fixed tree over 16 sums, in each lane.
#[inline(always)]
pub(crate) fn tree<V: Vector>(mut sums: [V; LANES]) -> V {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] = sums[i] + sums[i + half];
        }
    }
    sums[0]
}

impl Apart {
    /// What `f` says of each position's label; 0 in the lanes of no position.
    #[inline(always)]
    fn by_label<V: Vector>(self, labels: &[i32], f: impl Fn(usize, usize) -> V::Element) -> V {
        let mut lanes = [V::Element::ZERO; LANES];
        for (i, (lane, label)) in lanes[..self.count].iter_mut().zip(&labels[self.start..]).enumerate() {
            *lane = f(*label as usize, self.start + i);
        }
        V::load(&lanes)
    }
}

impl<V: Vector> ReducedAxis<V> for Apart {
    type Sums = [V; LANES];

    #[inline(always)]
    fn steps(self) -> usize {
        self.classes
    }

    #[inline(always)]
    fn part(self, step: usize) -> Range<usize> {
        let start = step * self.inner + self.start;
        start..start + self.count
    }

    #[inline(always)]
    fn sums(self) -> [V; LANES] {
        [V::splat(V::Element::ZERO); LANES]
    }

    #[inline(always)]
    fn add(self, sums: &mut [V; LANES], step: usize, x: V) {
        let sum = &mut sums[step % LANES];
        *sum = *sum + x;
    }

    #[inline(always)]
    fn total(self, sums: [V; LANES]) -> V {
        tree(sums)
    }

    #[inline(always)]
    fn largest(self, block: &[V::Element]) -> V {
        let mut largest = V::splat(-V::Element::INFINITY);
        for step in 0..self.classes {
            largest = load::<V>(&block[ReducedAxis::<V>::part(self, step)]).max(largest);
        }
        largest
    }

    #[inline(always)]
    fn one_hot(self, step: usize, labels: &[i32]) -> V {
        self.by_label(labels, |label, _| if label == step { V::Element::ONE } else { V::Element::ZERO })
    }

    #[inline(always)]
    fn factors(self, step: usize, factors: &[f64]) -> V {
        V::constant(factors[step])
    }

    #[inline(always)]
    fn chosen(self, block: &[V::Element], labels: &[i32]) -> V {
        self.by_label(labels, |label, position| block[label * self.inner + position])
    }

    #[inline(always)]
    fn chosen_factors(self, factors: &[f64], labels: &[i32]) -> V {
        self.by_label(labels, |label, _| V::Element::from_f64(factors[label]))
    }

    #[inline(always)]
    fn subtract_chosen(self, block: &mut [V::Element], labels: &[i32], x: V) {
        let x = x.to_array();
        for (i, label) in labels[self.start..][..self.count].iter().enumerate() {
            block[*label as usize * self.inner + self.start + i] -= x[i];
        }
    }
}
