//! The pool runs every task once, whatever its threads do.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

fn counts(pool: &Pool, tasks: usize) -> Vec<u32> {
    let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
    pool.run(tasks, &|i| {
        counts[i].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicU32::into_inner).collect()
}

#[test]
fn every_task_runs_once_whatever_the_number_of_threads() {
    for threads in [1, 2, 3, 8, 33] {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads);
        for tasks in (0..70).chain([1000]) {
            assert!(counts(&pool, tasks).iter().all(|&count| count == 1), "{threads} threads, {tasks} tasks");
        }
    }
}

#[test]
fn many_small_runs_and_runs_after_sleep() {
    let pool = Pool::new(3).unwrap();
    let sum = AtomicUsize::new(0);
    for round in 0..20_000 {
        pool.run(4, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        if round % 4000 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    assert_eq!(sum.into_inner(), 6 * 20_000);
}

#[test]
fn workers_do_take_part() {
    // Both tasks wait for each other: one thread alone would never end.
    let pool = Pool::new(2).unwrap();
    let barrier = std::sync::Barrier::new(2);
    pool.run(2, &|_| {
        barrier.wait();
    });
}

#[test]
fn the_caller_sleeps_through_a_long_task_of_a_worker() {
    let pool = Pool::new(2).unwrap();
    let barrier = std::sync::Barrier::new(2);
    let caller = std::thread::current().id();
    let ended = AtomicBool::new(false);
    pool.run(2, &|_| {
        barrier.wait();
        if std::thread::current().id() != caller {
            std::thread::sleep(Duration::from_millis(20));
            ended.store(true, Ordering::Relaxed);
        }
    });
    assert!(ended.into_inner());
}

#[test]
fn concurrent_and_nested_runs_are_done_by_their_callers() {
    let pool = Pool::new(3).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for tasks in 0..300 {
                    assert!(counts(&pool, tasks).iter().all(|&count| count == 1));
                }
            });
        }
    });
    pool.run(5, &|_| assert_eq!(counts(&pool, 7), [1; 7]));
}

#[test]
fn a_panic_reaches_the_caller_after_the_other_tasks_and_the_pool_goes_on() {
    let pool = Pool::new(2).unwrap();
    for _ in 0..50 {
        let done = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(20, &|i| {
                if i == 7 {
                    std::panic::resume_unwind(Box::new("task seven"));
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"task seven"));
        assert_eq!(done.into_inner(), 19);
        assert_eq!(counts(&pool, 9), [1; 9]);
    }
}

#[test]
fn chunks_cover_the_slices_in_step() {
    let pool = Pool::new(3).unwrap();
    let (mut a, mut b, mut c) = (vec![0_u32; 103], vec![0_u64; 11], [0_u8; 21]);
    pool.for_each_chunk3((&mut a, 10), (&mut b, 1), (&mut c, 2), |index, a, b, c| {
        a.fill(index as u32 + 1);
        b.fill(a.len() as u64);
        c.fill(index as u8);
    });
    assert!(a.iter().enumerate().all(|(i, &x)| x as usize == i / 10 + 1));
    assert_eq!(b, [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 3]);
    assert!(c.iter().enumerate().all(|(i, &x)| x as usize == i / 2));
    pool.for_each_chunk2((&mut a, 50), (&mut b, 5), |_, a, b| a[0] = b[0] as u32);
    assert_eq!((a[0], a[50], a[100]), (10, 10, 3));
    pool.for_each_chunk(&mut a, usize::MAX, |index, a| a.fill(index as u32));
    assert_eq!(a, [0; 103]);
    pool.for_each_chunk(&mut a[..0], 0, |_, _| unreachable!());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn tasks_keep_denormals_though_the_caller_flushes_them() {
    for threads in [1, 2] {
        let mut halves = [1.0_f32; 64];
        // The workers inherit the disturbed register from the thread that makes them.
        crate::simd::float_control::disturbed(|| {
            let pool = Pool::new(threads).unwrap();
            pool.for_each_chunk(&mut halves, 1, |_, x| x[0] = std::hint::black_box(f32::MIN_POSITIVE) * 0.5);
        });
        assert!(halves.iter().all(|x| x.to_bits() == 0x0040_0000));
    }
}

#[test]
fn the_environment_variable_is_checked() {
    assert_eq!(threads_from(Some(" 3 ")), Ok(3));
    assert!(threads_from(None).unwrap() >= 1);
    for bad in ["0", "-1", "two", "", "4097", "1.5"] {
        let message = threads_from(Some(bad)).unwrap_err();
        assert!(message.contains(THREADS_VARIABLE) && message.contains(bad), "{message}");
    }
    assert!(matches!(Pool::new(0), Err(Error::Value(_))));
}
