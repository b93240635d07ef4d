//! A thread's memory for panels, sums and results, and what is done in it.

use super::codes::{Codes, IntegerWeight};
use super::dots::{self, Panel};
use super::limits::{COLUMNS, DEPTH};
use super::route::Route;
use super::rows::QuantizedRows;
use crate::Buffer;
use crate::simd::{Kernel, Real, Vector};
use std::cell::Cell;
use std::ops::Range;

thread_local! {
    /// Where this thread keeps panels and sums; it only grows.
    static SCRATCH: Cell<Buffer> = Cell::new(Buffer::default());
}

/// This thread's memory for one piece.
pub struct Scratch(Buffer);

impl Scratch {
    pub fn take() -> Self {
        Self(SCRATCH.take())
    }

    pub fn give_back(self) {
        SCRATCH.set(self.0);
    }

    /// A panel, and zeroed sums and results of so many rows.
    pub fn room(&mut self, route: Route, rows: usize) -> (&mut [i32], &mut [i32], &mut [f32]) {
        let (panel, sums) = (DEPTH.div_ceil(route.per()) * COLUMNS, rows * COLUMNS);
        let words = panel + 2 * sums;
        if self.0.len_bytes() < words * size_of::<i32>() {
            self.0 = Buffer::working::<i32>(words);
        }
        let (panel, rest) = self.0.as_mut_slice::<i32>()[..words].split_at_mut(panel);
        let (sums, results) = rest.split_at_mut(sums);
        sums.fill(0);
        results.fill(0);
        (panel, sums, bytemuck::cast_slice_mut(results))
    }

    /// The products of some rows and at most 64 columns, 64 numbers a row, without the rows' scales.
    pub fn results(
        &mut self,
        quantized: &QuantizedRows<'_>,
        rows: Range<usize>,
        weight: &IntegerWeight<'_>,
        columns: Range<usize>,
    ) -> &mut [f32] {
        let (route, (depth, _)) = (quantized.route(), weight.extents());
        let (panel, sums, results) = self.room(route, rows.len());
        let mut scales = [0.0; COLUMNS];
        let mut done = 0;
        while done < depth {
            let end = weight.group_end(done);
            add_sums(route, quantized, rows.clone(), weight, done..end, columns.clone(), panel, sums);
            weight.scales(done, columns.clone(), &mut scales);
            f32::dispatch(route.isa(), Scale { scales: &scales, sums, results });
            done = end;
        }
        results
    }
}

/// Adds to `sums` (so many rows of 64) the products of codes over a range of k.
#[allow(clippy::too_many_arguments, reason = "the operands' ranges and the memory for them")]
pub fn add_sums(
    route: Route,
    quantized: &QuantizedRows<'_>,
    rows: Range<usize>,
    weight: &IntegerWeight<'_>,
    depth: Range<usize>,
    columns: Range<usize>,
    panel: &mut [i32],
    sums: &mut [i32],
) {
    let mut codes = Codes::ZERO;
    for first in depth.clone().step_by(DEPTH) {
        let depth = first..depth.end.min(first + DEPTH);
        let words = depth.len().div_ceil(route.per());
        weight.pack(route, depth.clone(), columns.clone(), &mut codes, &mut panel[..words * COLUMNS]);
        dots::add(
            route,
            Panel { words: &panel[..words * COLUMNS] },
            quantized,
            rows.clone(),
            depth.start,
            sums,
        );
    }
}

/// Adds a group's sums times their scales to the results, and clears the sums.
pub struct Scale<'a> {
    pub scales: &'a [f32; COLUMNS],
    pub sums: &'a mut [i32],
    pub results: &'a mut [f32],
}

impl Kernel<f32> for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let rows = self.results.chunks_exact_mut(COLUMNS).zip(self.sums.chunks_exact_mut(COLUMNS));
        for (results, sums) in rows {
            for ((result, sum), scale) in results.iter_mut().zip(sums).zip(self.scales) {
                *result = (*sum as f32).mul_add(*scale, *result);
                *sum = 0;
            }
        }
    }
}
