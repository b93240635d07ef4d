//! A weight whose codes are put into panels once and then met by many small left operands.

use super::codes::{Codes, IntegerWeight};
use super::dots::{self, Panel};
use super::limits::{COLUMNS, DEPTH};
use super::route::Route;
use super::rows::QuantizedRows;
use super::scratch::{Scale, Scratch};
use crate::simd::{Cpu, Real};
use std::ops::Range;

/// The codes of B[k, n] in the panels that the kernels read, for products of a few quantised rows that follow one
/// another: the steps of a recurrence.
///
/// Its products have the bits of [`integer_product`](super::integer_product).
#[derive(Clone, Copy)]
pub struct IntegerRight<'a> {
    route: Route,
    weight: IntegerWeight<'a>,
    panels: &'a [i32],
}

/// Ranges of k, each of inputs that share their scales, as panels are made of them.
fn segments(weight: IntegerWeight<'_>) -> impl Iterator<Item = Range<usize>> {
    let (depth, _) = weight.extents();
    let mut done = 0;
    std::iter::from_fn(move || {
        let first = done;
        done = weight.group_end(first).min(first + DEPTH);
        (first < depth).then_some(first..done)
    })
}

/// Words of the panels of 64 columns.
fn strip(route: Route, weight: IntegerWeight<'_>) -> usize {
    segments(weight).map(|depth| depth.len().div_ceil(route.per()) * COLUMNS).sum()
}

impl<'a> IntegerRight<'a> {
    /// The memory that packing a weight needs.
    pub fn words(route: Route, weight: &IntegerWeight<'_>) -> usize {
        strip(route, *weight) * weight.extents().1.div_ceil(COLUMNS)
    }

    /// Packs a weight into memory of [`words`](IntegerRight::words), spread over the pool.
    ///
    /// # Panics
    /// If the memory has another extent.
    pub fn pack(cpu: &Cpu, route: Route, weight: IntegerWeight<'a>, memory: &'a mut [i32]) -> Self {
        assert_eq!(memory.len(), Self::words(route, &weight), "memory for another weight");
        let (_, n) = weight.extents();
        cpu.pool().for_each_chunk(memory, strip(route, weight).max(1), |number, mut memory| {
            let columns = number * COLUMNS..n.min((number + 1) * COLUMNS);
            let mut codes = Codes::ZERO;
            for depth in segments(weight) {
                let words = depth.len().div_ceil(route.per()) * COLUMNS;
                let (panel, rest) = memory.split_at_mut(words);
                weight.pack(route, depth, columns.clone(), &mut codes, panel);
                memory = rest;
            }
        });
        Self { route, weight, panels: memory }
    }

    /// C += A B on the calling thread; rows of C begin `stride` elements apart.
    ///
    /// # Panics
    /// If the extents do not fit each other, or rows were quantised for another route.
    pub fn multiply(&self, rows: &QuantizedRows<'_>, (c, stride): (&mut [f32], usize)) {
        let (depth, n) = self.weight.extents();
        assert!(rows.depth() == depth && rows.route() == self.route, "rows quantised for another product");
        let mut scratch = Scratch::take();
        let each = strip(self.route, self.weight).max(1);
        for (number, mut panels) in self.panels.chunks_exact(each).enumerate() {
            let columns = number * COLUMNS..n.min((number + 1) * COLUMNS);
            let (_, sums, results) = scratch.room(self.route, rows.len());
            let mut scales = [0.0; COLUMNS];
            for depth in segments(self.weight) {
                let words = depth.len().div_ceil(self.route.per()) * COLUMNS;
                let (panel, rest) = panels.split_at(words);
                panels = rest;
                dots::add(self.route, Panel { words: panel }, rows, 0..rows.len(), depth.start, sums);
                if self.weight.group_end(depth.start) == depth.end {
                    self.weight.scales(depth.start, columns.clone(), &mut scales);
                    f32::dispatch(self.route.isa(), Scale { scales: &scales, sums, results });
                }
            }
            for (row, results) in results.chunks_exact(COLUMNS).enumerate() {
                let scale = rows.scale(row);
                let out = &mut c[row * stride..][columns.clone()];
                out.iter_mut().zip(results).for_each(|(c, result)| *c += result * scale);
            }
        }
        scratch.give_back();
    }
}
