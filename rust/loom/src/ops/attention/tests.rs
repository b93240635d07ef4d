use super::reference::{Draws, Saved, Sight};
use super::*;
use crate::ops::testing::{Setting, assert_bits, assert_close, cpus, differences, numbers};
use crate::simd::Real;
use crate::tensor::Precision;
use proptest::prelude::*;

/// Operands of one size, with a padding that hides about a third of the keys but never the first.
#[derive(Clone)]
pub(super) struct Case<T> {
    rows: usize,
    pub(super) q: Vec<T>,
    pub(super) k: Vec<T>,
    v: Vec<T>,
    padding: Vec<T>,
    table: Vec<T>,
    dy: Vec<T>,
}

impl<T: Real> Case<T> {
    pub(super) fn new(op: &Attention, rows: usize) -> Self {
        let own = rows * op.queries * op.heads * op.head_dim;
        let others = rows * op.keys * op.key_value_heads * op.head_dim;
        let real = |x: &T| T::from_usize(usize::from(*x > T::from_f64(-0.3)));
        let padding: Vec<T> = numbers::<T>(4, rows * op.keys).iter().map(real).collect();
        Self {
            rows,
            q: numbers(1, own),
            k: numbers(2, others),
            v: numbers(3, others),
            padding: if op.padding { padding } else { Vec::new() },
            table: match &op.bias {
                Some(PositionBias::Buckets(buckets)) => numbers(6, buckets.count * op.heads),
                _ => Vec::new(),
            },
            dy: numbers(5, own),
        }
    }

    pub(super) fn forward(&self, op: &Attention) -> Setting<T> {
        let mut reads: Vec<&[T]> = vec![&self.q, &self.k, &self.v];
        self.add_sight(op, &mut reads);
        drawing(Setting::new(self.rows, &reads, &[self.q.len(), self.q.len() / op.head_dim]))
    }

    pub(super) fn backward(&self, op: &Attention, y: &[T], logs: &[T]) -> Setting<T> {
        let mut reads: Vec<&[T]> = vec![&self.q, &self.k, &self.v, y, logs, &self.dy];
        self.add_sight(op, &mut reads);
        let mut writes = vec![self.q.len(), self.k.len(), self.v.len()];
        if op.has_table() {
            writes.push(self.rows * self.table.len());
        }
        drawing(Setting::new(self.rows, &reads, &writes))
    }

    fn add_sight<'a>(&'a self, op: &Attention, reads: &mut Vec<&'a [T]>) {
        if op.padding {
            reads.push(&self.padding);
        }
        if op.has_table() {
            reads.push(&self.table);
        }
    }

    fn row<'a>(&self, x: &'a [T], row: usize) -> &'a [T] {
        let len = x.len() / self.rows;
        &x[row * len..][..len]
    }

    fn real(&self, row: usize) -> Vec<bool> {
        self.row(&self.padding, row).iter().map(|x| *x != T::ZERO).collect()
    }
}

/// The same in the middle of some training.
fn drawing<T: Real>(mut setting: Setting<T>) -> Setting<T> {
    setting.path = 0x8BCD_1234;
    setting.values.seed = 0x9234_5678_9ABC_DEF0;
    setting.values.step = 5 + (3 << 32);
    setting.values.row_offset = 7;
    setting
}

pub(super) fn gradient(op: &Attention) -> Attention {
    Attention { direction: Direction::InputGradient, table_gradient: op.has_table(), ..op.clone() }
}

/// Both directions equal the plain loops, to the bit.
fn check<T: Real>(op: &Attention, rows: usize) {
    let case = Case::<T>::new(op, rows);
    let forward = case.forward(op);
    let found = forward.run(op);
    let (y, logs) = (found[0].real(), found[1].real());
    let gradients = case.backward(op, y, logs).run(&gradient(op));
    for row in 0..rows {
        let draws = Draws { values: &forward.values, path: forward.path, row };
        let [q, k, v] = [&case.q, &case.k, &case.v].map(|x| case.row(x, row));
        let sight = Sight { padding: &case.real(row), table: &case.table };
        let (expected, expected_logs) = op.forward_reference(0, q, k, v, &sight, &draws);
        assert_bits(case.row(y, row), &expected);
        assert_bits(case.row(logs, row), &expected_logs);
        let saved = Saved { y: case.row(y, row), logs: case.row(logs, row), dy: case.row(&case.dy, row) };
        let expected = op.backward_reference(q, k, v, &saved, &sight, &draws);
        assert_eq!(gradients.len(), if op.has_table() { 4 } else { 3 });
        for (found, expected) in gradients.iter().zip(&expected) {
            assert_bits(case.row(found.real(), row), expected);
        }
    }
}

/// Some attention, its masks such that some queries may see nothing.
pub(super) fn any() -> impl Strategy<Value = Attention> {
    let extents = (1..70usize, 1..300usize, 1..3usize, 1..4usize, 1..40usize);
    let soft_cap = proptest::option::of(0.1..20.0);
    let dropout = prop_oneof![Just(0.0), 0.0..0.9];
    let window = proptest::option::of(1..80usize);
    (extents, any_bool(), window, any_bool(), any_bool(), soft_cap, (dropout, 0..4u8)).prop_map(
        |(extents, causal, window, mask, padding, soft_cap, (dropout, bias))| {
            let (queries, keys, key_value_heads, group, head_dim) = extents;
            // Padding and biases are of steps that are queries and keys alike.
            let keys = if padding || bias < 2 { queries } else { keys };
            let bias = any_bias(bias, queries, group * key_value_heads);
            let fixed = mask.then(|| Arc::new(FixedMask::new(queries, keys, |i, j| (i * 7 + j * 3) % 5 > 0)));
            let heads = (group * key_value_heads, key_value_heads);
            let op = Attention::new((queries, keys), heads, head_dim);
            Attention { causal, window, fixed, padding, soft_cap, dropout, bias, ..op }
        },
    )
}

/// The bias of a number: slopes, buckets or none.
pub(super) fn any_bias(number: u8, places: usize, heads: usize) -> Option<PositionBias> {
    match number {
        0 => Some(PositionBias::Slopes((0..heads).map(|head| 0.3 / (head + 1) as f64).collect())),
        1 => {
            let row = |distance: isize| (distance.unsigned_abs() * 2 + usize::from(distance > 0)).min(8);
            Some(PositionBias::Buckets(Arc::new(Buckets::new(9, places, row).expect("memory"))))
        }
        _ => None,
    }
}

fn any_bool() -> proptest::bool::Any {
    proptest::bool::ANY
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn both_directions_are_the_plain_loops(op in any(), rows in 1..3usize) {
        check::<f32>(&op, rows);
        check::<f64>(&op, 1);
    }

    #[test]
    fn gradients_are_those_of_the_values(
        (queries, keys, head_dim) in (1..4usize, 1..6usize, 1..4usize),
        causal in any_bool(),
        window in proptest::option::of(1..4usize),
        padding in any_bool(),
        soft_cap in proptest::option::of(0.2..3.0),
        dropout in prop_oneof![Just(0.0), 0.2..0.8],
        bias in 0..3u8,
    ) {
        let keys = if padding || bias < 2 { queries } else { keys };
        let bias = any_bias(bias, queries, 2);
        let op = Attention { causal, window, padding, soft_cap, dropout, bias, ..Attention::new((queries, keys), (2, 1), head_dim) };
        let case = Case::<f64>::new(&op, 1);
        let found = case.forward(&op).run(&op);
        let gradients = case.backward(&op, found[0].real(), found[1].real()).run(&gradient(&op));
        for (number, gradient) in gradients.iter().enumerate() {
            let mut at = case.forward(&op);
            // The table is the last of what is read.
            let number = if number < 3 { number } else { at.reads.len() - 1 };
            let x = at.reads[number].real().to_vec();
            let expected = differences(&x, |x| {
                at.reads[number] = crate::ops::testing::Data::Real(x.to_vec());
                let y = at.run_on(&op, &cpus()[0]).unwrap();
                y[0].real().iter().zip(&case.dy).map(|(y, dy)| y * dy).sum()
            });
            assert_close(gradient.real(), &expected, 1e-6);
        }
    }
}

#[test]
fn blocks_and_tiles_and_chunks() {
    let op = Attention { causal: true, ..Attention::new((300, 300), (2, 2), 16) };
    check::<f32>(&op, 1);
    check::<f32>(&Attention { window: Some(140), ..op.clone() }, 1);
    check::<f32>(&Attention { causal: false, window: Some(20), ..op }, 1);
}

#[test]
fn biases_of_tiles_and_chunks() {
    for number in 0..2 {
        let bias = any_bias(number, 300, 4);
        let op = Attention { causal: true, bias, ..Attention::new((300, 300), (4, 2), 16) };
        check::<f32>(&op, 2);
        check::<f32>(&Attention { window: Some(140), soft_cap: Some(3.0), ..op.clone() }, 1);
        check::<f32>(&Attention { causal: false, dropout: 0.5, ..op }, 1);
        check::<f64>(&Attention { bias: any_bias(number, 1, 1), ..Attention::new((1, 1), (1, 1), 1) }, 1);
    }
}

#[test]
fn weights_are_left_out_of_tiles_and_chunks() {
    let op = Attention { causal: true, dropout: 0.3, ..Attention::new((300, 300), (2, 1), 16) };
    check::<f32>(&op, 2);
    check::<f32>(&Attention { causal: false, dropout: 1.0 - 1e-12, ..op }, 1);
    check::<f64>(&Attention { dropout: 0.5, ..Attention::new((2, 200), (6, 2), 5) }, 2);
}

/// Each weight of a head by itself is left out, about as often as is said.
#[test]
fn weights_of_heads_and_rows_are_drawn_apart() {
    let (queries, heads, rate) = (60, 3, 0.3);
    let op = Attention { dropout: rate, ..Attention::new((queries, queries), (heads, heads), queries) };
    let one = |i: usize, j: usize| f64::from(u8::from(i == j));
    let values: Vec<f64> =
        (0..2 * queries * heads * queries).map(|i| one(i / queries / heads % queries, i % queries)).collect();
    // With values that tell keys apart, and scores of zero, what is gathered are the weights themselves.
    let mut case = Case::<f64>::new(&op, 2);
    (case.q, case.v) = (vec![0.0; values.len()], values);
    let y = case.forward(&op).result(&op);
    let kept: Vec<bool> = y.iter().map(|y| *y > 0.0).collect();
    for (y, kept) in y.iter().zip(&kept) {
        assert_close(&[*y], &[if *kept { 1.0 / queries as f64 / (1.0 - rate) } else { 0.0 }], 1e-12);
    }
    let dropped = kept.iter().filter(|kept| !**kept).count() as f64 / kept.len() as f64;
    // Six standard deviations of a binomial count.
    assert!((dropped - rate).abs() < 6.0 * (rate * (1.0 - rate) / kept.len() as f64).sqrt(), "{dropped}");
    let of = |row: usize, head: usize| -> Vec<bool> {
        (0..queries * queries)
            .map(|i| kept[((row * queries + i / queries) * heads + head) * queries + i % queries])
            .collect()
    };
    for (one, other) in [((0, 0), (0, 1)), ((0, 1), (0, 2)), ((0, 0), (1, 0))] {
        let differing = of(one.0, one.1).iter().zip(of(other.0, other.1)).filter(|(a, b)| **a != *b).count();
        assert!(differing > 1000, "{differing} of {one:?} and {other:?}");
    }
}

/// However a batch is cut, and whichever rows come first.
#[test]
fn a_batch_in_parts_leaves_out_what_the_whole_does() {
    let op = Attention { dropout: 0.4, ..Attention::new((5, 9), (2, 1), 3) };
    let case = Case::<f32>::new(&op, 4);
    let whole = case.forward(&op).result(&op);
    let mut parts = Vec::new();
    for rows in [0..1, 1..4] {
        let mut setting = case.forward(&op);
        setting.values.row_offset += rows.start as u64;
        setting.rows = rows.len();
        for operand in &mut setting.reads {
            let each = operand.real().len() / 4;
            *operand =
                crate::ops::testing::Data::Real(operand.real()[rows.start * each..rows.end * each].to_vec());
        }
        for result in &mut setting.writes {
            let each = result.real().len() / 4;
            *result = crate::ops::testing::Data::Real(vec![0.0; rows.len() * each]);
        }
        parts.extend(setting.result(&op));
    }
    assert_bits(&parts, &whole);
}

#[test]
fn one_of_everything() {
    check::<f32>(&Attention::new((1, 1), (1, 1), 1), 1);
}

#[test]
fn attention_in_full_is_a_softmax_of_products() {
    let op = Attention { causal: true, ..Attention::new((9, 9), (1, 1), 4) };
    let case = Case::<f64>::new(&op, 1);
    let y = case.forward(&op).result(&op);
    for query in 0..9 {
        let scores: Vec<f64> = (0..=query)
            .map(|key| {
                let products = (0..4).map(|i| case.q[query * 4 + i] * case.k[key * 4 + i]);
                (products.sum::<f64>() / 2.0).exp()
            })
            .collect();
        let total: f64 = scores.iter().sum();
        let expected: Vec<f64> = (0..4)
            .map(|i| scores.iter().enumerate().map(|(key, s)| s * case.v[key * 4 + i]).sum::<f64>() / total)
            .collect();
        assert_close(&y[query * 4..][..4], &expected, 1e-14);
    }
}

#[test]
fn queries_that_see_nothing_get_zeros() {
    let none = Arc::new(FixedMask::new(3, 3, |_, key| key > 5));
    let op = Attention { fixed: Some(none), ..Attention::new((3, 3), (1, 1), 2) };
    let case = Case::<f32>::new(&op, 1);
    let found = case.forward(&op).run(&op);
    assert_bits(found[0].real(), &[0.0; 6]);
    for gradient in case.backward(&op, found[0].real(), found[1].real()).run(&gradient(&op)) {
        assert!(gradient.real().iter().all(|x| *x == 0.0));
    }
}

#[test]
fn the_future_does_not_reach_the_past() {
    let op = Attention { causal: true, ..Attention::new((6, 6), (1, 1), 3) };
    let mut case = Case::<f32>::new(&op, 1);
    let before = case.forward(&op).result(&op);
    case.k[5 * 3..].fill(9.0);
    case.v[5 * 3..].fill(-7.0);
    assert_bits(&case.forward(&op).result(&op)[..5 * 3], &before[..5 * 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever the chunks a sequence comes in, however much room its cache has, and whatever it keeps keys and values as:
    /// those are then rounded ones.
    #[test]
    fn cached_attention_has_the_bits_of_the_whole(
        (time, head_dim, group, others) in (1..300usize, 1..40usize, 1..3usize, 1..3usize),
        room in 0..40usize,
        window in proptest::option::of(1..150usize),
        chunk in prop_oneof![Just(1usize), 1..100usize],
        bias in 0..3u8,
        cache in prop_oneof![Just(CacheType::Full), Just(CacheType::Float16), Just(CacheType::Q8_0)],
    ) {
        let heads = group * others;
        let of_places = |places| any_bias(bias, places, heads);
        let op = Attention {
            causal: true,
            window,
            bias: of_places(time),
            ..Attention::new((time, time), (heads, others), head_dim)
        };
        let case = Case::<f32>::new(&op, 1);
        let rounded = |vectors: &[f32]| vectors.chunks(head_dim).flat_map(|x| kept_as(cache, x)).collect::<Vec<f32>>();
        let kept = Case { k: rounded(&case.k), v: rounded(&case.v), ..case.clone() };
        let whole = kept.forward(&op).result(&op);
        let (width, features) = (heads * head_dim, others * head_dim);
        let step = others * cache.elements(Precision::Float32, head_dim);
        let mut caches = [&case.k, &case.v].map(|_| vec![f32::NAN; (time + room) * step]);
        let mut found = Vec::new();
        for start in (0..time).step_by(chunk) {
            let chunk = chunk.min(time - start);
            let mut setting = Setting::new(1, &[], &[caches[0].len()]);
            setting.values.position = start as u64;
            for (held, new) in caches.iter_mut().zip([&case.k, &case.v]) {
                setting.reads = vec![crate::ops::testing::Data::Real(new[start * features..][..chunk * features].to_vec())];
                setting.writes = vec![crate::ops::testing::Data::Real(held.clone())];
                let append = CacheAppend::new(chunk, time + room, features);
                *held = setting.result(&CacheAppend { cache, head_dim, ..append });
            }
            let bias = of_places(time + room);
            let op = Attention { queries: chunk, keys: time + room, cached: true, cache, bias, ..op.clone() };
            let q = &case.q[start * width..][..chunk * width];
            let mut reads: Vec<&[f32]> = vec![q, &caches[0], &caches[1]];
            case.add_sight(&op, &mut reads);
            let mut setting = Setting::new(1, &reads, &[q.len(), chunk * heads]);
            setting.values.position = start as u64;
            found.extend(setting.result(&op));
        }
        assert_bits(&found, &whole);
    }
}

/// What is left of a vector that is kept in fewer bits, number by number.
fn kept_as(cache: CacheType, vector: &[f32]) -> Vec<f32> {
    let of_block = |block: &[f32]| -> Vec<f32> {
        let d = block.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        let scale = half::f16::from_f32(d).to_f32();
        block.iter().map(|x| f32::from((x * inverse).round() as i8) * scale).collect()
    };
    match cache {
        CacheType::Full => vector.to_vec(),
        CacheType::Float16 => vector.iter().map(|x| half::f16::from_f32(*x).to_f32()).collect(),
        CacheType::Q8_0 => vector.chunks(32).flat_map(of_block).collect(),
    }
}

#[test]
fn a_cache_refuses_what_it_cannot_hold() {
    let append = CacheAppend::new(1, 1, 3);
    for (cache, bad) in [
        (CacheType::Float16, [0.0, 65_520.0, 1.0]),
        (CacheType::Float16, [0.0, f32::NAN, 1.0]),
        (CacheType::Q8_0, [0.0, 1e7, 1.0]),
        (CacheType::Q8_0, [0.0, f32::INFINITY, 1.0]),
        (CacheType::Q8_0, [f32::NAN, 1.0, 1.0]),
    ] {
        let room = cache.elements(Precision::Float32, 3);
        let error = Setting::new(1, &[&bad[..]], &[room])
            .run_on(&CacheAppend { cache, ..append.clone() }, &cpus()[0]);
        let error = error.expect_err("it cannot hold that").to_string();
        assert!(error.contains(&cache.to_string()), "{error}");
    }
    assert!(CacheType::of(crate::dtype::DType::Int4).is_err());
}
