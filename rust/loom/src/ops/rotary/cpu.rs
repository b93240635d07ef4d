//! Kernel of the rotary embedding.

use super::{PairLayout, Rotary};
use crate::Result;
use crate::ops::element_loops::{PASS, rows_per_task};
use crate::ops::{Args, Direction, Operation, StepValues};
use crate::simd::{Kernel, Real, Vector};

impl Operation for Rotary {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (x, y) = (args.read::<T>(0), args.write::<T>(0));
        let isa = args.cpu.isa();
        let values = args.values;
        let width = self.heads * self.head_dim;
        let steps = rows_per_task(width, PASS);
        args.cpu.pool().for_each_chunk(y, steps * width, |task, y| {
            let first = task * steps;
            let x = &x[first * width..][..y.len()];
            T::dispatch(isa, Turn { op: self, x, y, first, values });
        });
        Ok(())
    }
}

/// Some steps of all rows, the first of them step `first`.
struct Turn<'a, T> {
    op: &'a Rotary,
    x: &'a [T],
    y: &'a mut [T],
    first: usize,
    values: &'a StepValues,
}

impl<T: Real> Kernel<T> for Turn<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { op, x, y, first, values } = self;
        let (width, pairs) = (op.heads * op.head_dim, op.pairs);
        let back = op.direction != Direction::Forward;
        let table = op.table.of::<T>();
        for (step, (x, y)) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).enumerate() {
            // The session's owner sees to it that there is a place; the last one is as wrong as any.
            let (row, within) = ((first + step) / op.time, (first + step) % op.time);
            let start = if op.positioned { values.position_of(row) } else { 0 };
            let place = (start + within).min(op.places - 1);
            let (cos, sin) = table[2 * place * pairs..][..2 * pairs].split_at(pairs);
            for (x, y) in x.chunks_exact(op.head_dim).zip(y.chunks_exact_mut(op.head_dim)) {
                let ((x, still), (y, kept)) = (x.split_at(2 * pairs), y.split_at_mut(2 * pairs));
                kept.copy_from_slice(still);
                match op.layout {
                    PairLayout::Interleaved => {
                        let both = x.as_chunks::<2>().0.iter().zip(y.as_chunks_mut::<2>().0);
                        for (([a, b], y), (cos, sin)) in both.zip(cos.iter().zip(sin)) {
                            *y = turn(*a, *b, *cos, *sin, back);
                        }
                    }
                    PairLayout::HalfSplit => {
                        let ((a, b), (c, d)) = (x.split_at(pairs), y.split_at_mut(pairs));
                        for i in 0..pairs {
                            [c[i], d[i]] = turn(a[i], b[i], cos[i], sin[i], back);
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn turn<T: Real>(a: T, b: T, cos: T, sin: T, back: bool) -> [T; 2] {
    let sin = if back { -sin } else { sin };
    [a * cos - b * sin, b * cos + a * sin]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Setting, assert_bits, assert_close, numbers};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn pairs_turn_by_their_angles_and_back(
            (rows, time, heads, pairs) in (1..3usize, 1..9usize, 1..4usize, 1..20usize),
            base in prop_oneof![Just(10_000.0), 2.0..1e6],
            scaling in prop_oneof![Just(1.0), 0.5..8.0],
            half in proptest::bool::ANY,
            position in 0..30u64,
        ) {
            let head_dim = 2 * pairs;
            let layout = if half { PairLayout::HalfSplit } else { PairLayout::Interleaved };
            let mut op = Rotary::new((time, heads, head_dim), base, scaling, layout, 40).unwrap();
            op.positioned = position > 0;
            let x = numbers::<f64>(1, rows * time * heads * head_dim);
            let mut setting = Setting::new(rows, &[&x], &[x.len()]);
            setting.values.position = position;
            let y = setting.result(&op);
            for (at, (x, y)) in x.chunks(head_dim).zip(y.chunks(head_dim)).enumerate() {
                let place = (at / heads % time) as f64 + position as f64;
                for pair in 0..pairs {
                    let (i, j) = if half { (pair, pair + pairs) } else { (2 * pair, 2 * pair + 1) };
                    let angle = place / scaling * base.powf(-(pair as f64) / pairs as f64);
                    let (sin, cos) = angle.sin_cos();
                    assert_close(&[y[i], y[j]], &[x[i] * cos - x[j] * sin, x[j] * cos + x[i] * sin], 1e-12);
                }
            }
            let mut back = Setting::new(rows, &[&y], &[x.len()]);
            back.values.position = position;
            assert_close(&back.result(&op.inverse()), &x, 1e-12);
        }
    }

    #[test]
    fn elements_behind_the_pairs_stay() {
        let (rates, head_dim) = ([0.7, 0.1], 7);
        for layout in [PairLayout::Interleaved, PairLayout::HalfSplit] {
            let op = Rotary::by_rates((5, 2, head_dim), &rates, 1.5, layout, 5).unwrap();
            let part = Rotary::by_rates((5, 2, 4), &rates, 1.5, layout, 5).unwrap();
            let x = numbers::<f64>(4, 5 * 2 * head_dim);
            let turning: Vec<f64> = x.chunks(head_dim).flat_map(|head| head[..4].to_vec()).collect();
            for (op, part) in [(op.clone(), part.clone()), (op.inverse(), part.inverse())] {
                let y = Setting::new(1, &[&x], &[x.len()]).result(&op);
                let turned = Setting::new(1, &[&turning], &[turning.len()]).result(&part);
                for ((y, x), turned) in y.chunks(head_dim).zip(x.chunks(head_dim)).zip(turned.chunks(4)) {
                    assert_bits(&y[..4], turned);
                    assert_bits(&y[4..], &x[4..]);
                }
            }
            let turn = Setting::new(1, &[&turning], &[turning.len()]).result(&part);
            let back = Setting::new(1, &[&turn], &[turn.len()]).result(&part.inverse());
            let expected: Vec<f64> = turning.iter().map(|x| 2.25 * x).collect();
            assert_close(&back, &expected, 1e-12);
        }
    }

    #[test]
    fn the_first_place_is_left_as_it_is() {
        let x = numbers::<f32>(2, 12);
        let op = Rotary::new((1, 2, 6), 10_000.0, 1.0, PairLayout::Interleaved, 1).unwrap();
        assert_bits(
            &Setting::new(1, &[&x], &[12]).result(&op),
            &x.iter().map(|x| x + 0.0).collect::<Vec<_>>(),
        );
    }

    #[test]
    fn long_sequences_are_cut_into_tasks() {
        let x = numbers::<f32>(3, 2 * 700 * 32);
        let op = Rotary::new((700, 1, 32), 10_000.0, 1.0, PairLayout::HalfSplit, 700).unwrap();
        let y = Setting::new(2, &[&x], &[x.len()]).result(&op);
        let alone = Setting::new(1, &[&x[700 * 32..]], &[x.len() / 2]).result(&op);
        assert_bits(&y[700 * 32..], &alone);
    }
}
