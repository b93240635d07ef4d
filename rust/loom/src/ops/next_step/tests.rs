use super::*;
use crate::ops::testing::{Data, Setting};

/// A call over these rows of scores.
fn setting(op: &Choose, y: &[f32], position: usize) -> Setting<f32> {
    let rows = y.len() / op.classes;
    let mut setting = Setting::new(rows, &[y], &[rows * (op.capacity + 1)]);
    setting.values.position = position as u64;
    setting
}

#[test]
fn the_first_of_the_largest_is_kept_behind_the_call() {
    let op = Choose { time: 2, classes: 4, capacity: 5 };
    let y = [[1.0, 3.0, 3.0, -5.0], [f32::NEG_INFINITY, 2.0, 1.0, -1.0], [f32::MIN, f32::MIN, 0.0, 1.0]];
    let y = y.as_flattened();
    for (position, place) in [(0, 2), (3, 5), (9, 5)] {
        let found = setting(&op, y, position).run(&op);
        let chosen: Vec<f32> = found[0].real().chunks(6).map(|row| row[place]).collect();
        assert_eq!(chosen, [1.0, -1.0, 3.0]);
    }
    let nothing = setting(&op, &[f32::NAN; 4], 0).run(&op);
    assert_eq!(nothing[0].real()[2], -1.0);
}

#[test]
fn what_was_chosen_is_recalled() {
    let op = Recall { capacity: 3 };
    let mut setting = Setting::<f32>::new(2, &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]], &[2]);
    setting.values.position = 1;
    assert_eq!(setting.run(&op)[0].real(), [2.0, 6.0]);
}

#[cfg(feature = "gpu")]
#[test]
fn gpus_choose_as_the_cpu_does() {
    use crate::gpu::testing::check;
    use crate::ops::testing::numbers;
    for (rows, classes) in [(1, 1), (3, 31), (2, 5000)] {
        let op = Choose { time: 3, classes, capacity: 20 };
        let mut y: Vec<f32> = numbers(1, rows * classes);
        y.iter_mut().step_by(7).for_each(|y| *y = 2.0);
        check(op.clone(), &setting(&op, &y, 4));
        y[classes - 1] = f32::NAN;
        check(op.clone(), &setting(&op, &y, 4));
        let recall = Recall { capacity: 20 };
        let mut kept = Setting::new(rows, &[&numbers(2, rows * 21)], &[rows]);
        kept.values.position = 6;
        check(recall, &kept);
    }
}

/// A draw over these rows of scores.
fn draw_setting(
    op: &Draw,
    y: &[f32],
    draws: &[f32],
    sampling: &[Sampling],
    changes: &[Vec<Change>],
) -> Setting<f32> {
    let rows = y.len() / op.classes;
    let places = op.capacity + 1;
    let mut by_place = vec![0.0; rows * places];
    for (row, draw) in draws.iter().enumerate() {
        by_place[row * places + op.time] = *draw;
    }
    let numbers: Vec<f32> = sampling.iter().flat_map(Sampling::numbers).map(|number| number as f32).collect();
    let mut setting = Setting::new(rows, &[y, &by_place, &numbers], &[]);
    let mut lists: Vec<f32> = Draw::lists(rows, changes).unwrap();
    lists.resize(rows * Draw::changes(op.classes), 0.0);
    setting.writes = vec![Data::Real(vec![0.0; rows * places]), Data::Real(lists)];
    setting
}

/// How often a class came, without a bias.
const fn came(class: usize, count: f64) -> Change {
    Change { class, count, bias: 0.0 }
}

const PLAIN: Sampling = Sampling {
    temperature: 1.0,
    top_k: 0,
    top_p: 1.0,
    min_p: 0.0,
    typical: 1.0,
    repetition_penalty: 1.0,
    frequency_penalty: 0.0,
    presence_penalty: 0.0,
};

#[test]
fn draws_fall_on_what_is_left() {
    let op = Draw { time: 1, classes: 4, capacity: 2 };
    // Probabilities 0.1, 0.4, 0.2 and 0.3.
    let y: Vec<f32> = [0.1f32, 0.4, 0.2, 0.3].iter().map(|share| share.ln()).collect();
    let drawn = |sampling: Sampling, draw: f32, changes: &[Change]| {
        let found = draw_setting(&op, &y, &[draw], &[sampling], &[changes.to_vec()]).run(&op);
        let lists = found[1].real().to_vec();
        (found[0].real()[1], lists[..1 + 3 * lists[0] as usize].to_vec())
    };
    let plain = |sampling, draw| drawn(sampling, draw, &[]).0;
    for (draw, class) in
        [(0.0, 0.0), (0.09, 0.0), (0.11, 1.0), (0.49, 1.0), (0.51, 2.0), (0.71, 3.0), (0.99, 3.0)]
    {
        assert_eq!(plain(PLAIN, draw), class);
    }
    assert_eq!(plain(Sampling { temperature: 0.0, ..PLAIN }, 0.99), 1.0);
    // Two are left, with 4 and 3 parts of 7.
    for sampling in [
        Sampling { top_k: 2, ..PLAIN },
        Sampling { top_p: 0.41, ..PLAIN },
        Sampling { top_p: 0.69, ..PLAIN },
        Sampling { min_p: 0.7, ..PLAIN },
    ] {
        for (draw, class) in [(0.0, 1.0), (0.56, 1.0), (0.58, 3.0), (0.99, 3.0)] {
            assert_eq!(plain(sampling, draw), class, "{sampling:?} {draw}");
        }
    }
    assert_eq!(plain(Sampling { top_p: 0.4, ..PLAIN }, 0.99), 1.0);
    // The expected surprise is nearest to that of the class with 0.3.
    assert_eq!(plain(Sampling { typical: 0.2, ..PLAIN }, 0.01), 3.0);
    // Class 1 was had twice, class 3 came before.
    let penalised = Sampling { presence_penalty: 100.0, repetition_penalty: 1.5, ..PLAIN };
    let found = drawn(penalised, 0.99, &[came(1, 2.0), came(3, 0.5)]);
    assert_eq!(found, (3.0, vec![2.0, 1.0, 2.0, 0.0, 3.0, 1.0, 0.0]));
    // Class 2, which is new, comes to the list.
    let found = drawn(penalised, 0.99, &[came(1, 2.0), came(3, 1.0)]);
    assert_eq!(found, (2.0, vec![3.0, 1.0, 2.0, 0.0, 3.0, 1.0, 0.0, 2.0, 1.0, 0.0]));
    // Without penalties nobody counts.
    let biased = [Change { bias: 100.0, ..came(0, 0.0) }];
    assert_eq!(drawn(PLAIN, 0.9, &biased), (0.0, vec![1.0, 0.0, 0.0, 100.0]));
    let nothing = draw_setting(&op, &[f32::INFINITY; 4], &[0.5], &[PLAIN], &[Vec::new()]).run(&op);
    assert_eq!(nothing[0].real()[1], -1.0);
}

#[cfg(feature = "gpu")]
mod on_gpus {
    use super::*;
    use crate::gpu::testing::{cases, check};
    use crate::ops::testing::numbers;
    use proptest::prelude::*;

    fn settings() -> impl Strategy<Value = Sampling> {
        let one_of = |values: &'static [f64]| proptest::sample::select(values);
        (
            one_of(&[0.0, 1e-30, 0.5, 1.0, 1.7]),
            proptest::sample::select(&[0usize, 1, 5, 40][..]),
            one_of(&[1.0, 1.0, 0.9, 0.3]),
            one_of(&[0.0, 0.0, 0.1, 1.0]),
            one_of(&[1.0, 1.0, 0.8, 0.2]),
            one_of(&[1.0, 1.0, 1.3]),
            one_of(&[0.0, 0.0, 0.7]),
            one_of(&[0.0, 0.0, -0.4]),
        )
            .prop_map(
                |(temperature, top_k, top_p, min_p, typical, repetition, frequency, presence)| Sampling {
                    temperature,
                    top_k,
                    top_p,
                    min_p,
                    typical,
                    repetition_penalty: repetition,
                    frequency_penalty: frequency,
                    presence_penalty: presence,
                },
            )
    }

    proptest! {
        #![proptest_config(cases(24))]

        /// Draws are away from where one class ends and the next begins, so that rounding decides nothing.
        #[test]
        fn they_draw_as_the_cpu_does(sampling in proptest::collection::vec(settings(), 1..4),
                                     classes in prop_oneof![1..70usize, 2000..2100usize], seed in 0..1000u64) {
            let op = Draw { time: 2, classes, capacity: 5 };
            let rows = sampling.len();
            let mut y: Vec<f32> = numbers(seed, rows * classes);
            // Whole quarters, so that many are equal, or none are.
            let steps = if seed % 2 == 0 { 4.0 } else { 4096.0 };
            y.iter_mut().for_each(|y| *y = (*y * 3.0 * steps).round() / steps);
            let biases: Vec<f32> = numbers(seed + 1, rows * classes);
            let change = |row: usize, class: usize| {
                let place = row * classes + class;
                let count = if place.is_multiple_of(7) { 2.0 } else if place.is_multiple_of(3) { 0.5 } else { 0.0 };
                Change { class, count, bias: f64::from(biases[place]) }
            };
            // Rows differ in how many they have, and one in two has none.
            let share = [1, 40, 3][seed as usize / 2 % 3];
            let own = |row: usize| (0..classes).filter(move |class| (class * 7 + row).is_multiple_of(share) && (row as u64 + seed).is_multiple_of(2));
            let changes: Vec<Vec<Change>> =
                (0..rows).map(|row| own(row).map(|class| change(row, class)).collect()).collect();
            let draws: Vec<f32> = numbers::<f32>(seed + 2, rows).iter().map(|x| x.abs() % 1.0).collect();
            let with = |draws: &[f32]| draw_setting(&op, &y, draws, &sampling, &changes);
            let near = |by: f32| draws.iter().map(|draw| (draw + by).clamp(0.0, 0.999_999)).collect::<Vec<_>>();
            let on_cpu = |draws: &[f32]| with(draws).run(&op)[0].real().to_vec();
            if on_cpu(&near(-1e-4)) == on_cpu(&near(1e-4)) {
                check(op.clone(), &with(&draws));
            }
            y[classes - 1] = f32::NAN;
            check(op.clone(), &draw_setting(&op, &y, &draws, &sampling, &changes));
        }
    }
}
