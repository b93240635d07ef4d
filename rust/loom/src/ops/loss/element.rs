//! The CPU kernel of losses of single elements.

use super::LossFunction;
use super::rows::Rows;
use super::table::{ElementFunction, ElementVisitor};
use crate::ops::element_loops::{lane_sums_inline, map_inline};
use crate::simd::{Kernel, Real, Vector};
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
