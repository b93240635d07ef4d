//! Gradients of queries, keys and values.

use super::drops::Drops;
use super::tiles::{Scale, Shared, Sight, TILE, run_parts, take, turn, with_scratch};
use super::weights::{Biases, Means, Slopes};
use crate::matrix::{NoEpilogue, Output, Start, Strided, product_serial};
use crate::ops::Args;
use crate::ops::attention::{Attention, BLOCK};
use crate::simd::{Isa, Real};

pub(super) fn run<T: Real>(op: &Attention, args: &mut Args<'_>) {
    let read = |number: usize| args.read::<T>(number);
    let operands = [0, 1, 2, 3, 4, 5].map(read);
    let padding = if op.padding { args.read::<T>(6) } else { &[] };
    let table = if op.has_table() { args.read::<T>(6 + usize::from(op.padding)) } else { &[] };
    let [dq, dk, dv, dtable] = [0, 1, 2, 3].map(|number| Shared::new(args.write::<T>(number)));
    let args = &*args;
    let work = 5 * op.queries * op.keys * op.head_dim * op.group();
    run_parts(args.cpu, args.rows * op.key_value_heads, work, |task| {
        let (row, head) = (task / op.key_value_heads, task % op.key_value_heads);
        let mine = op.queries * op.heads;
        let theirs = op.keys * op.key_value_heads * op.head_dim;
        let [q, k, v, y, logs, dy] = operands;
        let part = Part {
            op,
            sight: Sight::of(op, args, row, padding),
            drops: Drops::of(op, args, row),
            table,
            place: row,
            head,
            q: &q[row * mine * op.head_dim..][..mine * op.head_dim],
            y: &y[row * mine * op.head_dim..][..mine * op.head_dim],
            dy: &dy[row * mine * op.head_dim..][..mine * op.head_dim],
            logs: &logs[row * mine..][..mine],
            k: &k[row * theirs..][..theirs],
            v: &v[row * theirs..][..theirs],
        };
        // SAFETY: each task is another combination of row and head of keys.
        unsafe {
            let results = [(row * mine * op.head_dim, &dq), (row * theirs, &dk), (row * theirs, &dv)];
            part.compute(args, results, &dtable)
        };
    });
}

/// All queries of one row, with one head of keys and values.
struct Part<'a, T> {
    op: &'a Attention,
    sight: Sight<'a, T>,
    drops: Option<Drops<T>>,
    table: &'a [T],
    /// The number of the row.
    place: usize,
    head: usize,
    q: &'a [T],
    y: &'a [T],
    dy: &'a [T],
    logs: &'a [T],
    k: &'a [T],
    v: &'a [T],
}

impl<T: Real> Part<'_, T> {
    /// # Safety
    /// Nobody else writes this head's part of the three results, which start where it is said, and of the table's
    /// gradient.
    unsafe fn compute(&self, args: &Args<'_>, results: [(usize, &Shared<'_, T>); 3], dtable: &Shared<'_, T>) {
        let (op, isa) = (self.op, args.cpu.isa());
        let (d, group, count) = (op.head_dim, op.group(), op.queries);
        // Of a head there is a bias for each distance that there may be.
        let distances = if op.bias.is_some() { op.keys + count - 1 } else { 0 };
        let summed = if op.table_gradient { distances } else { 0 };
        let len = group * (count * (4 * d + 2) + distances + summed) + (4 * d + 2 * TILE) * BLOCK;
        with_scratch::<T>(len, |mut rest| {
            // Row (head in the group, query).
            let [q, y, dy, dq] = [(); 4].map(|()| take(&mut rest, group * count * d));
            let [logs, means] = [(); 2].map(|()| take(&mut rest, group * count));
            let [turned_k, turned_v, dk, dv] = [(); 4].map(|()| take(&mut rest, d * BLOCK));
            let [scores, slopes] = [(); 2].map(|()| take(&mut rest, TILE * BLOCK));
            let biases = take(&mut rest, group * distances);
            let sums = take(&mut rest, group * summed);
            for (member, biases) in biases.chunks_exact_mut(distances.max(1)).enumerate() {
                op.fill_biases(self.table, self.head * group + member, 1 - count as isize, biases);
            }
            sums.fill(T::ZERO);
            let factor = T::from_f64(op.scale);
            let places = || {
                (0..group).flat_map(|member| {
                    (0..count).map(move |query| query * op.heads + self.head * group + member)
                })
            };
            for (i, place) in places().enumerate() {
                let (from, to) = (place * d..(place + 1) * d, i * d..(i + 1) * d);
                T::dispatch(isa, Scale { x: &self.q[from.clone()], y: &mut q[to.clone()], factor });
                y[to.clone()].copy_from_slice(&self.y[from.clone()]);
                dy[to].copy_from_slice(&self.dy[from]);
                logs[i] = self.logs[place];
            }
            T::dispatch(isa, Means { head_dim: d, dy, y, means });
            dq.fill(T::ZERO);
            let stride = op.key_value_heads * d;
            for block in (0..op.keys).step_by(BLOCK) {
                let present = op.keys.min(block + BLOCK) - block;
                let at = block * stride + self.head * d;
                turn(isa, &self.k[at..], stride, d, present, turned_k);
                turn(isa, &self.v[at..], stride, d, present, turned_v);
                dk.fill(T::ZERO);
                dv.fill(T::ZERO);
                for member in 0..group {
                    let drops = self.drops.map(|drops| drops.of_head(self.head * group + member));
                    for first in (0..count).step_by(TILE) {
                        let queries = first..count.min(first + TILE);
                        let seen = self.sight.range(queries.clone());
                        let keys = (block + present).min(seen.end).saturating_sub(block);
                        if keys == 0 || seen.start >= block + present {
                            continue;
                        }
                        let rows = member * count + first;
                        let rows = rows..rows + queries.len();
                        let tile = rows.start * d..rows.end * d;
                        let many = queries.len();
                        let (q, dy) = (&q[tile.clone()], &dy[tile.clone()]);
                        for (left, turned, to) in
                            [(q, &*turned_k, &mut *scores), (dy, &*turned_v, &mut *slopes)]
                        {
                            let c = Output::strided(to, many, keys, BLOCK);
                            let turned = Strided::new(turned, d, keys, BLOCK, 1);
                            multiply(isa, &Strided::left(left, many, d), &turned, Start::Zero, c);
                        }
                        T::dispatch(
                            isa,
                            Slopes {
                                sight: &self.sight,
                                queries,
                                keys: (block, keys),
                                scores,
                                slopes,
                                logs: &logs[rows.clone()],
                                means: &means[rows],
                                drops,
                                biases: Biases {
                                    all: &biases[member * distances..][..distances],
                                    from: (0, count - 1),
                                },
                                sums: &mut sums[member * summed..][..summed],
                            },
                        );
                        for (left, right, to) in [(&*scores, dy, &mut *dv), (&*slopes, q, &mut *dk)] {
                            let c = Output::new(&mut to[..keys * d], keys, d);
                            let left = Strided::new(left, many, keys, BLOCK, 1);
                            multiply(isa, &left, &Strided::right(right, many, d), Start::Continue, c);
                        }
                        let k = Strided::new(&self.k[at..], keys, d, stride, 1);
                        let c = Output::new(&mut dq[tile], many, d);
                        multiply(isa, &Strided::new(slopes, keys, many, 1, BLOCK), &k, Start::Continue, c);
                    }
                }
                for ((start, result), block_of) in results[1..].iter().zip([&*dk, &*dv]) {
                    for (i, row) in block_of.chunks_exact(d).take(present).enumerate() {
                        // SAFETY: this head's part, as the caller promises.
                        unsafe { result.write(start + at + i * stride, row) };
                    }
                }
            }
            for (member, sums) in sums.chunks_exact(summed.max(1)).enumerate() {
                // SAFETY: a column of this head, as the caller promises.
                unsafe { op.write_table_gradient(sums, (self.place, self.head * group + member), dtable) };
            }
            let (start, result) = results[0];
            for (i, place) in places().enumerate() {
                let row = &mut q[..d];
                T::dispatch(isa, Scale { x: &dq[i * d..(i + 1) * d], y: row, factor });
                // SAFETY: as above.
                unsafe { result.write(start + place * d, row) };
            }
        });
    }
}

/// C = A B, or C += A B.
fn multiply<T: Real>(isa: Isa, a: &Strided<'_, T>, b: &Strided<'_, T>, start: Start, c: Output<'_, T>) {
    product_serial(isa, a, b, start, &NoEpilogue, c);
}
