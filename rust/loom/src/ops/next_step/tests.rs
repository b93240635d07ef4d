use super::*;
use crate::ops::testing::Setting;

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
