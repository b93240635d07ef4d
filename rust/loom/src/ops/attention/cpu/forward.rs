//! Queries gather values.

use super::drops::Drops;
use super::tiles::{Scale, Shared, Sight, TILE, run_parts, take, turn, with_scratch};
use super::weights::{Biases, Finish, Gather, Score, Weigh};
use crate::matrix::{NoEpilogue, Output, Start, Strided, product_serial};
use crate::ops::Args;
use crate::ops::attention::{Attention, BLOCK, CacheType, Unpack};
use crate::simd::Real;

/// Queries of one task, for which a block of keys is turned once.
const CHUNK: usize = 5 * TILE;

pub(super) fn run<T: Real>(op: &Attention, args: &mut Args<'_>) {
    let (q, k, v) = (args.read::<T>(0), args.read::<T>(1), args.read::<T>(2));
    let padding = if op.padding { args.read::<T>(3) } else { &[] };
    let table = if op.has_table() { args.read::<T>(3 + usize::from(op.padding)) } else { &[] };
    let (y, logs) = (args.write::<T>(0), args.write::<T>(1));
    let (y, logs) = (Shared::new(y), Shared::new(logs));
    let chunks = op.queries.div_ceil(CHUNK);
    let args = &*args;
    let parts = args.rows * op.key_value_heads * chunks;
    let work = 2 * op.queries.min(CHUNK) * op.keys * op.head_dim * op.group();
    run_parts(args.cpu, parts, work, |task| {
        let (row, rest) = (task / (op.key_value_heads * chunks), task % (op.key_value_heads * chunks));
        let (head, chunk) = (rest / chunks, rest % chunks);
        let sight = Sight::of(op, args, row, padding);
        let length = op.queries * op.heads * op.head_dim;
        let other = op.keys * op.key_value_heads * op.kept(T::PRECISION);
        let sequence = if op.cached { args.values.sequence_of(row) } else { row };
        let part = Part {
            op,
            sight,
            drops: Drops::of(op, args, row),
            table,
            head,
            queries: (chunk * CHUNK, op.queries.min((chunk + 1) * CHUNK)),
            q: &q[row * length..][..length],
            k: &k[sequence * other..][..other],
            v: &v[sequence * other..][..other],
        };
        // SAFETY: each task is another combination of row, head of keys, and queries.
        unsafe { part.compute(args, row, &y, &logs) };
    });
}

/// Queries for which keys are not worth turning.
const FEW: usize = 2;

/// Some queries of one row, with one head of keys and values.
struct Part<'a, T> {
    op: &'a Attention,
    sight: Sight<'a, T>,
    drops: Option<Drops<T>>,
    table: &'a [T],
    head: usize,
    queries: (usize, usize),
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
}

impl<T: Real> Part<'_, T> {
    /// # Safety
    /// Nobody else writes these queries' results.
    unsafe fn compute(&self, args: &Args<'_>, row: usize, y: &Shared<'_, T>, logs: &Shared<'_, T>) {
        let (op, isa) = (self.op, args.cpu.isa());
        let (d, group) = (op.head_dim, op.group());
        let (start, end) = self.queries;
        let count = end - start;
        // Of a few queries all scores are kept, of more those of a tile.
        let scored = if count > FEW { TILE } else { group * count };
        let seen = self.sight.range(start..end);
        let first_block = seen.start / BLOCK * BLOCK;
        // Of a head there is a bias for each distance that there may be.
        let distances = if op.bias.is_some() { seen.end - first_block + count - 1 } else { 0 };
        let unpacked = if op.cache == CacheType::Full { 0 } else { d * BLOCK };
        let len = group * (count * (2 * d + 2) + distances) + (d + scored) * BLOCK + 2 * unpacked;
        with_scratch::<T>(len, |mut rest| {
            // Row (head in the group, query).
            let q = take(&mut rest, group * count * d);
            let gathered = take(&mut rest, group * count * d);
            let largest = take(&mut rest, group * count);
            let totals = take(&mut rest, group * count);
            let turned = take(&mut rest, d * BLOCK);
            let scores = take(&mut rest, scored * BLOCK);
            let biases = take(&mut rest, group * distances);
            let (keys_of_block, values_of_block) = (take(&mut rest, unpacked), take(&mut rest, unpacked));
            let distance = first_block as isize - (self.sight.position + end - 1) as isize;
            for (member, biases) in biases.chunks_exact_mut(distances.max(1)).enumerate() {
                op.fill_biases(self.table, self.head * group + member, distance, biases);
            }
            let factor = T::from_f64(op.scale);
            let places = || {
                (0..group).flat_map(|member| {
                    (start..end).map(move |query| query * op.heads + self.head * group + member)
                })
            };
            for (q, place) in q.chunks_exact_mut(d).zip(places()) {
                T::dispatch(isa, Scale { x: &self.q[place * d..][..d], y: q, factor });
            }
            gathered.fill(T::ZERO);
            largest.fill(-T::INFINITY);
            totals.fill(T::ZERO);
            let kept = op.kept(T::PRECISION);
            for block in (first_block..seen.end).step_by(BLOCK) {
                let end_of_block = seen.end.min(block + BLOCK);
                let (step, keys) = (op.key_value_heads * kept, end_of_block - block);
                let at = block * step + self.head * kept;
                let (k, v, stride) = match op.cache {
                    CacheType::Full => (&self.k[at..], &self.v[at..], step),
                    cache => {
                        for (packed, numbers) in
                            [(self.k, &mut *keys_of_block), (self.v, &mut *values_of_block)]
                        {
                            let (packed, numbers) = (&packed[at..], &mut numbers[..keys * d]);
                            T::dispatch(isa, Unpack { cache, packed, stride: step, extent: d, numbers });
                        }
                        (&*keys_of_block, &*values_of_block, d)
                    }
                };
                if count > FEW {
                    turn(isa, k, stride, d, keys, turned);
                } else {
                    // All that look at these keys, once they are turned in registers.
                    T::dispatch(isa, Score { q, head_dim: d, k, stride, keys, v, scores });
                }
                for member in 0..group {
                    let drops = self.drops.map(|drops| drops.of_head(self.head * group + member));
                    for first in (start..end).step_by(TILE) {
                        let queries = first..end.min(first + TILE);
                        let seen = self.sight.range(queries.clone());
                        let keys = end_of_block.min(seen.end).saturating_sub(block);
                        if keys == 0 || seen.start >= end_of_block {
                            continue;
                        }
                        let rows = member * count + first - start;
                        let rows = rows..rows + queries.len();
                        let tile = rows.start * d..rows.end * d;
                        let place = if count > FEW { 0 } else { rows.start };
                        let scores = &mut scores[place * BLOCK..][..queries.len() * BLOCK];
                        if count > FEW {
                            product_serial(
                                isa,
                                &Strided::left(&q[tile.clone()], queries.len(), d),
                                &Strided::new(turned, d, keys, BLOCK, 1),
                                Start::Zero,
                                &NoEpilogue,
                                Output::strided(scores, queries.len(), keys, BLOCK),
                            );
                        }
                        T::dispatch(
                            isa,
                            Weigh {
                                sight: &self.sight,
                                queries: queries.clone(),
                                keys: (block, keys),
                                scores,
                                largest: &mut largest[rows.clone()],
                                totals: &mut totals[rows],
                                gathered: &mut gathered[tile.clone()],
                                drops,
                                biases: Biases {
                                    all: &biases[member * distances..][..distances],
                                    from: (first_block, end - 1),
                                },
                            },
                        );
                        if count > FEW {
                            product_serial(
                                isa,
                                &Strided::new(scores, keys, queries.len(), 1, BLOCK),
                                &Strided::new(v, keys, d, stride, 1),
                                Start::Continue,
                                &NoEpilogue,
                                Output::new(&mut gathered[tile], queries.len(), d),
                            );
                        }
                    }
                }
                if count <= FEW {
                    let next = match op.cache {
                        CacheType::Full => {
                            let after = self.k.get(at + BLOCK * step..).unwrap_or(&[]);
                            (after, seen.end.saturating_sub(block + BLOCK).min(BLOCK))
                        }
                        // Those are asked for while they are unpacked.
                        _ => (&[][..], 0),
                    };
                    T::dispatch(
                        isa,
                        Gather { weights: scores, gathered, head_dim: d, v, stride, keys, next },
                    );
                }
            }
            T::dispatch(isa, Finish { head_dim: d, largest, totals, gathered });
            let before = row * op.queries * op.heads;
            for (i, place) in places().enumerate() {
                // SAFETY: these places belong to this task, as the caller promises.
                unsafe {
                    y.write((before + place) * d, &gathered[i * d..(i + 1) * d]);
                    logs.write(before + place, &largest[i..=i]);
                }
            }
        });
    }
}
