//! Matrices with orthonormal columns, drawn uniformly: by Householder's reflections, a tile of columns at a time.
//!
//! What a reflection does to a column is a sum over the column's rows, in their order, and an update of each.
//! Columns do not see each other, so tiles that stay in a core's cache, and threads that take tiles of their
//! own, change no bit of the result.

use crate::simd::{Cpu, Kernel, Real, Vector};
use crate::{Result, extents, interrupt};

/// The columns of a tile.
const TILE: usize = 32;

/// A reflection, 1 - v v^T scale, of the rows from `first` on.
#[derive(Clone, Copy)]
struct Reflection<'a> {
    first: usize,
    /// From row `first` on.
    v: &'a [f64],
    scale: f64,
}

/// Applies reflections to a tile, one after another.
struct Reflecting<'a, I> {
    tile: &'a mut [[f64; TILE]],
    reflections: I,
}

impl<'a, I: Iterator<Item = Reflection<'a>>> Kernel<f64> for Reflecting<'_, I> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f64>>(self) {
        for Reflection { first, v, scale } in self.reflections {
            let rows = &mut self.tile[first..];
            let mut sums = [0.0; TILE];
            for (row, v) in rows.iter().zip(v) {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum += v * value;
                }
            }
            for (row, v) in rows.iter_mut().zip(v) {
                let v = v * scale;
                for (value, sum) in row.iter_mut().zip(&sums) {
                    *value -= v * sum;
                }
            }
        }
    }
}

/// Replaces a row-major matrix of `rows` x `columns`, rows >= columns, by the Q of its QR
/// factorisation (Householder), R's diagonal positive.
///
/// # Errors
/// [`Error::Memory`](crate::Error::Memory) where there is no room to work in; whatever interrupts the work.
pub(super) fn orthonormalize(cpu: &Cpu, rows: usize, columns: usize, a: &mut [f64]) -> Result<()> {
    if a.is_empty() {
        return Ok(());
    }
    let (pool, isa) = (cpu.pool(), cpu.isa());
    let mut tiles: Vec<[f64; TILE]> = extents::zeros(rows * columns.div_ceil(TILE))?;
    for (number, tile) in tiles.chunks_exact_mut(rows).enumerate() {
        for (row, from) in tile.iter_mut().zip(a.chunks_exact(columns)) {
            let from = &from[number * TILE..columns.min((number + 1) * TILE)];
            row[..from.len()].copy_from_slice(from);
        }
    }
    // From here on `a` holds the reflections, each in one piece, from its column's row on.
    let mut scales = extents::zeros::<f64>(columns)?;
    let mut signs = extents::zeros::<f64>(columns)?;
    signs.fill(1.0);
    for panel in 0..columns.div_ceil(TILE) {
        interrupt::check()?;
        let (first, end) = (panel * TILE, columns.min((panel + 1) * TILE));
        let (done, later) = tiles.split_at_mut((panel + 1) * rows);
        let tile = &mut done[panel * rows..];
        for k in first..end {
            let v = &mut a[k * rows + k..(k + 1) * rows];
            for (to, row) in v.iter_mut().zip(&tile[k..]) {
                *to = row[k - first];
            }
            let norm = v.iter().map(|value| value * value).sum::<f64>().sqrt();
            if norm == 0.0 {
                continue;
            }
            let pivot = v[0];
            let diagonal = if pivot > 0.0 { -norm } else { norm };
            signs[k] = diagonal.signum();
            v[0] = pivot - diagonal;
            // |v|^2 / 2 = norm (norm + |pivot|).
            scales[k] = 1.0 / (norm * (norm + pivot.abs()));
            // What it makes of the columns before it is read by nobody.
            let reflections = std::iter::once(Reflection { first: k, v, scale: scales[k] });
            f64::dispatch(isa, Reflecting { tile, reflections });
        }
        let (a, scales) = (&*a, &scales);
        pool.for_each_chunk(later, rows, |_, tile| {
            let of =
                |k: usize| Reflection { first: k, v: &a[k * rows + k..(k + 1) * rows], scale: scales[k] };
            f64::dispatch(isa, Reflecting { tile, reflections: (first..end).map(of) });
        });
    }
    interrupt::check()?;
    // Q is the product of the reflections applied to the first columns of the identity, from the last on.
    let reflections = &*a;
    pool.for_each_chunk(&mut tiles, rows, |number, tile| {
        let of = |k: usize| Reflection {
            first: k,
            v: &reflections[k * rows + k..(k + 1) * rows],
            scale: scales[k],
        };
        let (first, end) = (number * TILE, columns.min((number + 1) * TILE));
        tile.fill([0.0; TILE]);
        for k in (first..end).rev() {
            let it = of(k);
            f64::dispatch(isa, Reflecting { tile, reflections: std::iter::once(it) });
            let pivot = it.v[0] * it.scale;
            for (i, row) in tile.iter_mut().enumerate() {
                row[k - first] = match i.checked_sub(k) {
                    None => 0.0,
                    Some(below) => (if below == 0 { 1.0 } else { 0.0 }) - pivot * it.v[below],
                };
            }
        }
        f64::dispatch(isa, Reflecting { tile, reflections: (0..first).rev().map(of) });
    });
    for (number, tile) in tiles.chunks_exact(rows).enumerate() {
        for (to, row) in a.chunks_exact_mut(columns).zip(tile) {
            let signs = &signs[number * TILE..columns.min((number + 1) * TILE)];
            let to = &mut to[number * TILE..][..signs.len()];
            for ((to, value), sign) in to.iter_mut().zip(row).zip(signs) {
                *to = value * sign;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, Use};
    use crate::simd::Isa;

    /// Q R must be the matrix that was factored, R upper triangular with a positive diagonal.
    #[test]
    fn the_orthogonal_factor_belongs_to_its_matrix() {
        let (rows, columns) = (7, 5);
        let mut matrix = vec![0.0; rows * columns];
        Stream::new(9, 0, 1, Use::Initialize).fill_normal(0, &mut matrix);
        let mut q = matrix.clone();
        orthonormalize(Cpu::global().unwrap(), rows, columns, &mut q).unwrap();
        for i in 0..columns {
            for j in 0..columns {
                let r: f64 = (0..rows).map(|k| q[k * columns + i] * matrix[k * columns + j]).sum();
                match i.cmp(&j) {
                    std::cmp::Ordering::Greater => assert!(r.abs() < 1e-13, "R[{i},{j}] = {r}"),
                    std::cmp::Ordering::Equal => assert!(r > 0.0, "R[{i},{i}] = {r}"),
                    std::cmp::Ordering::Less => {}
                }
            }
        }
    }

    /// Reflection by reflection over the whole matrix, as the method is written down.
    fn plain(rows: usize, columns: usize, a: &mut [f64]) {
        let reflect = |a: &mut [f64], k: usize, scale: f64| {
            for j in k + 1..columns {
                let mut sum = 0.0;
                (k..rows).for_each(|i| sum += a[i * columns + k] * a[i * columns + j]);
                (k..rows).for_each(|i| a[i * columns + j] -= a[i * columns + k] * scale * sum);
            }
        };
        let (mut scales, mut signs) = (vec![0.0; columns], vec![1.0; columns]);
        for k in 0..columns {
            let norm = (k..rows).map(|i| a[i * columns + k] * a[i * columns + k]).sum::<f64>().sqrt();
            if norm == 0.0 {
                continue;
            }
            let pivot = a[k * columns + k];
            let diagonal = if pivot > 0.0 { -norm } else { norm };
            signs[k] = diagonal.signum();
            a[k * columns + k] = pivot - diagonal;
            scales[k] = 1.0 / (norm * (norm + pivot.abs()));
            reflect(a, k, scales[k]);
        }
        for k in (0..columns).rev() {
            reflect(a, k, scales[k]);
            let pivot = a[k * columns + k] * scales[k];
            for i in 0..rows {
                let unit = if i == k { 1.0 } else { 0.0 };
                a[i * columns + k] = if i < k { 0.0 } else { unit - pivot * a[i * columns + k] };
            }
        }
        a.iter_mut().enumerate().for_each(|(at, value)| *value *= signs[at % columns]);
    }

    #[test]
    fn tiles_threads_and_instruction_sets_change_no_bit() {
        for (rows, columns) in [(1, 1), (5, 3), (32, 32), (33, 33), (70, 64), (101, 97)] {
            let mut expected = vec![0.0; rows * columns];
            Stream::new(4, 0, 1, Use::Initialize).fill_normal(0, &mut expected);
            // One column that is zero already.
            (0..rows).for_each(|row| expected[row * columns + columns / 2] = 0.0);
            let drawn = expected.clone();
            plain(rows, columns, &mut expected);
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let mut made = drawn.clone();
                    orthonormalize(&Cpu::with_threads(isa, threads).unwrap(), rows, columns, &mut made)
                        .unwrap();
                    let bits = |all: &[f64]| all.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                    assert_eq!(
                        bits(&made),
                        bits(&expected),
                        "{rows} x {columns}, {isa:?}, {threads} threads"
                    );
                }
            }
        }
    }
}
