//! Shazeer and Stern 2018: second moments as the product of what rows and columns have on average.

use super::memory::{Memory, squares};
use super::part::Part;
use crate::ops::element_loops::PASS;
use crate::ops::pointwise::Arithmetic;
use crate::simd::{Cpu, Real};

/// Columns that one task sums.
const COLUMNS: usize = 256;

/// The rule at one step.
pub(super) struct Rule {
    /// How much of the new squares goes into their mean.
    pub(super) news: f64,
    /// The largest root mean square of a direction before it is scaled; 0 for any.
    pub(super) clip_threshold: f64,
    /// Added to every square.
    pub(super) epsilon: f64,
    /// The least that directions are scaled by, where they are scaled by the root mean square of their weights.
    pub(super) least_scale: Option<f64>,
}

impl Rule {
    pub(super) fn run<T: Real>(&self, cpu: &Cpu, part: &Part, memory: &mut Memory<'_, T>) {
        let range = part.start..part.start + part.len();
        let (g, w) = (&memory.gradient[range.clone()], &memory.master[range.clone()]);
        let before = &memory.moments[0][range.clone()];
        let d = &mut memory.direction[range.clone()];
        let after = &mut memory.next[0][range];
        let mean = match part.matrix {
            true => self.of_matrix(cpu, part, g, before, d, after, memory.scratch),
            false => {
                let (kept, news, epsilon) =
                    (T::from_f64(1.0 - self.news), T::from_f64(self.news), T::from_f64(self.epsilon));
                cpu.pool().for_each_chunk2((d, PASS), (after, PASS), |task, d, after| {
                    let first = task * PASS;
                    for (place, (d, after)) in d.iter_mut().zip(after).enumerate() {
                        let g = g[first + place];
                        *after = (before[first + place] * kept + (g * g + epsilon) * news).flush();
                        *d = g / after.sqrt();
                    }
                });
                1.0
            }
        };
        let d = &mut memory.direction[part.start..part.start + part.len()];
        let count = part.len() as f64;
        let length = (mean * squares(cpu, d, 0.0) / count).sqrt();
        let clip = if self.clip_threshold > 0.0 { (length / self.clip_threshold).max(1.0) } else { 1.0 };
        let scale = self.least_scale.map_or(1.0, |least| (squares(cpu, w, 0.0) / count).sqrt().max(least));
        // A NaN is in the directions, too; the largest of numbers would leave it out.
        let factor = T::from_f64(mean.sqrt() * scale / if length.is_nan() { length } else { clip });
        cpu.pool().for_each_chunk(d, PASS, |_, d| d.iter_mut().for_each(|d| *d *= factor));
    }

    /// The means of rows, then those of columns, stand at the beginning of the moment; returns their mean, by whose
    /// root directions are too short.
    #[expect(clippy::too_many_arguments, reason = "parts of one memory")]
    fn of_matrix<T: Real>(
        &self,
        cpu: &Cpu,
        part: &Part,
        g: &[T],
        before: &[T],
        d: &mut [T],
        after: &mut [T],
        scratch: &mut [T],
    ) -> f64 {
        let (rows, columns) = (part.rows, part.columns);
        let (kept, news, epsilon) =
            (T::from_f64(1.0 - self.news), T::from_f64(self.news), T::from_f64(self.epsilon));
        let averaged =
            |before: T, sum: T, count: usize| (before * kept + sum / T::from_usize(count) * news).flush();
        let (of_rows, of_columns) = after[..rows + columns].split_at_mut(rows);
        for (row, mean) in of_rows.iter_mut().enumerate() {
            let sum = squares(cpu, &g[row * columns..(row + 1) * columns], self.epsilon);
            *mean = averaged(before[row], T::from_f64(sum), columns);
        }
        cpu.pool().for_each_chunk(of_columns, COLUMNS, |task, means| {
            let first = task * COLUMNS;
            means.fill(T::ZERO);
            for row in g.chunks_exact(columns) {
                for (mean, g) in means.iter_mut().zip(&row[first..]) {
                    *mean += *g * *g + epsilon;
                }
            }
            for (mean, before) in means.iter_mut().zip(&before[rows + first..]) {
                *mean = averaged(*before, *mean, rows);
            }
        });
        for (root, mean) in scratch.iter_mut().zip(&after[..rows + columns]) {
            *root = T::ONE / mean.sqrt();
        }
        let (row_roots, column_roots) = scratch[..rows + columns].split_at(rows);
        let rows_a_task = (PASS / columns).max(1);
        cpu.pool().for_each_chunk(d, rows_a_task * columns, |task, d| {
            for (number, d) in d.chunks_exact_mut(columns).enumerate() {
                let row = task * rows_a_task + number;
                let g = &g[row * columns..(row + 1) * columns];
                for ((d, g), root) in d.iter_mut().zip(g).zip(column_roots) {
                    *d = *g * row_roots[row] * *root;
                }
            }
        });
        after[..rows].iter().map(|mean| mean.to_f64()).sum::<f64>() / rows as f64
    }
}
