use super::*;
use crate::ops::testing::{Setting, assert_bits, numbers};
use crate::simd::Real;
use proptest::prelude::*;

fn check<T: Real>(rows: usize, outer: usize, extents: &[usize], gap: usize) {
    let mut parts = Vec::new();
    let mut total = gap;
    for length in extents {
        parts.push((total, *length));
        total += length + gap;
    }
    let op = Concat { outer, total, parts };
    let x: Vec<Vec<T>> =
        extents.iter().enumerate().map(|(i, n)| numbers(i as u64, rows * outer * n)).collect();
    let reads: Vec<&[T]> = x.iter().map(Vec::as_slice).collect();
    let mut expected = vec![T::ZERO; rows * outer * total];
    for (repetition, y) in expected.chunks_mut(total).enumerate() {
        for (x, (start, length)) in x.iter().zip(&op.parts) {
            y[*start..start + length].copy_from_slice(&x[repetition * length..][..*length]);
        }
    }
    let joined = Setting::new(rows, &reads, &[expected.len()]).result(&op);
    assert_bits(&joined, &expected);
    for (number, x) in x.iter().enumerate() {
        let slice = Slice::of(&op, number);
        assert_bits(&Setting::new(rows, &[&expected], &[x.len()]).result(&slice), x);
    }
}

proptest! {
    #[test]
    fn parts_lie_where_they_should_and_come_back(
        rows in 1..5usize,
        outer in 1..4usize,
        extents in prop::collection::vec(1..40usize, 1..=8),
        gap in 0..3usize,
    ) {
        check::<f32>(rows, outer, &extents, gap);
        check::<f64>(rows, outer, &extents, gap);
    }
}

#[test]
fn images_join_their_channels_and_others_the_last_axis() {
    let (op, shape) = Concat::along(&[&Shape::from([2, 3, 3]), &Shape::from([1, 3, 3])], None).unwrap();
    assert_eq!((op.outer, op.total, shape), (1, 27, Shape::from([3, 3, 3])));
    let (op, shape) = Concat::along(&[&Shape::from([5, 2]), &Shape::from([5, 4])], None).unwrap();
    assert_eq!((op.outer, op.parts, shape), (5, vec![(0, 2), (2, 4)], Shape::from([5, 6])));
    assert!(Concat::along(&[&Shape::from([5, 2]), &Shape::from([4, 2])], None).is_err());
    assert!(Concat::along(&[&Shape::from(5)], Some(1)).is_err());
}
