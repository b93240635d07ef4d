//! The CPU kernel of losses of single elements.

use super::LossFunction;
use super::rows::Rows;
use super::table::{ElementFunction, ElementVisitor};
use crate::ops::element_loops::{first_of, lane_sums_inline, load, map_inline, store};
use crate::simd::{Kernel, LANES, Real, Vector};
use std::marker::PhantomData;

/// Some rows of a loss of single elements.
pub(super) struct ElementRows<'a, T> {
    pub(super) function: LossFunction,
    pub(super) rows: Rows<'a, T>,
    pub(super) target: &'a [T],
    /// Elements of a row.
    pub(super) row: usize,
}

impl<T: Real> Kernel<T> for ElementRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        self.function.visit(Loop::<V> { rows: self, vector: PhantomData });
    }
}

struct Loop<'a, V: Vector> {
    rows: ElementRows<'a, V::Element>,
    vector: PhantomData<V>,
}

impl<V: Vector<Element: Real>> ElementVisitor for Loop<'_, V> {
    type Output = ();

    #[inline(always)]
    fn visit<F: ElementFunction>(self, function: F) {
        let ElementRows { rows, target, row, .. } = self.rows;
        for index in 0..rows.losses.len() {
            let part = index * row..(index + 1) * row;
            let (o, t) = (&rows.output[part.clone()], &target[part.clone()]);
            let (weight, scale) = rows.scale(index);
            let loss = lane_sums_inline!(o, t, |o: V, t| function.value(o, t)).reduce_sum();
            rows.losses[index] = loss * weight;
            if !rows.gradient.is_empty() {
                let scale = V::splat(scale);
                map_inline!(o, t => rows.gradient[part], |o: V, t| function.slope(o, t) * scale);
            }
        }
    }
}

/// Some rows of a loss of single elements whose places count by weights of their own: those of a place lie as many
/// elements apart as there are places, which are the channels of a pixel.
pub(super) struct PlaceRows<'a, T> {
    pub(super) function: LossFunction,
    pub(super) rows: Rows<'a, T>,
    pub(super) target: &'a [T],
    /// Elements of a row.
    pub(super) row: usize,
}

impl<T: Real> Kernel<T> for PlaceRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        self.function.visit(PlaceLoop::<V> { rows: self, vector: PhantomData });
    }
}

struct PlaceLoop<'a, V: Vector> {
    rows: PlaceRows<'a, V::Element>,
    vector: PhantomData<V>,
}

impl<V: Vector<Element: Real>> ElementVisitor for PlaceLoop<'_, V> {
    type Output = ();

    #[inline(always)]
    fn visit<F: ElementFunction>(self, function: F) {
        let PlaceRows { rows, target, row, .. } = self.rows;
        for index in 0..rows.losses.len() {
            let (weights, (_, scale)) = (rows.of_places(index), rows.scale(index));
            let scale = V::splat(scale);
            let mut loss = V::Element::ZERO;
            for start in (index * row..(index + 1) * row).step_by(rows.places) {
                let mut sums = V::splat(V::Element::ZERO);
                for first in (0..rows.places).step_by(LANES) {
                    let places = first..rows.places.min(first + LANES);
                    let part = start + places.start..start + places.end;
                    let (o, t): (V, V) = (load(&rows.output[part.clone()]), load(&target[part.clone()]));
                    let weight: V = load(&weights[places]);
                    sums = sums + first_of(part.len(), function.value(o, t) * weight);
                    if !rows.gradient.is_empty() {
                        store(function.slope(o, t) * (scale * weight), &mut rows.gradient[part]);
                    }
                }
                loss += sums.reduce_sum();
            }
            rows.losses[index] = loss;
        }
    }
}
