//! What holds of the protocol, whoever is how fast.
//!
//! A wake-up that is lost is a deadlock, which the checker finds; so is a job that one thread reads while another one
//! writes it.

use crate::protocol::Shared;
use checker::cell::UnsafeCell;
use checker::model::Builder;
use checker::sync::{Arc, Condvar, Mutex};
use checker::thread::{JoinHandle, spawn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tries every order in which threads are interrupted at most so often where they need not be.
fn every_order(interruptions: usize, work: impl Fn() + Sync + Send + 'static) {
    let tried = std::sync::Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    let mut builder = Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        work();
    });
    println!("{} orders", tried.load(Ordering::Relaxed));
}

/// A pool of so many threads, the caller's among them.
struct Crew {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Crew {
    fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::new(threads, false));
        let serve = |participant| {
            let shared = shared.clone();
            spawn(move || shared.serve(participant))
        };
        let workers = (1..threads).map(serve).collect();
        Self { shared, workers }
    }

    /// Ends it, which ends only once every worker has.
    fn stop(self) {
        self.shared.stop();
        self.workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
}

/// How often each task has run, counted without any synchronisation of its own: the pool is to bring that.
struct Counts(Vec<UnsafeCell<u32>>);

// SAFETY: the checker fails where two threads use a count at once.
unsafe impl Sync for Counts {}

impl Counts {
    fn new(tasks: usize) -> Self {
        Self((0..tasks).map(|_| UnsafeCell::new(0)).collect())
    }

    fn count(&self, task: usize) {
        // SAFETY: as above.
        self.0[task].with_mut(|count| unsafe { *count += 1 });
    }

    /// What the caller of a run sees once that has ended.
    #[track_caller]
    fn assert_all(&self, expected: u32) {
        for count in &self.0 {
            // SAFETY: as above.
            assert_eq!(count.with(|count| unsafe { *count }), expected);
        }
    }
}

fn run(shared: &Shared, tasks: usize) {
    let counts = Counts::new(tasks);
    assert!(shared.run(tasks, &|task| counts.count(task)));
    counts.assert_all(1);
}

#[test]
fn every_task_runs_once_and_its_caller_sees_what_it_did() {
    every_order(3, || {
        let crew = Crew::new(2);
        run(&crew.shared, 3);
        crew.stop();
    });
}

#[test]
fn two_workers_share_a_run() {
    every_order(2, || {
        let crew = Crew::new(3);
        run(&crew.shared, 3);
        crew.stop();
    });
}

#[test]
fn runs_follow_each_other_and_wake_who_sleeps() {
    every_order(3, || {
        let crew = Crew::new(2);
        run(&crew.shared, 2);
        run(&crew.shared, 2);
        crew.stop();
    });
}

/// Tasks that wait for each other: the caller alone, or one whose worker sleeps on, would never end.
#[test]
fn no_worker_sleeps_through_a_run() {
    every_order(3, || {
        let crew = Crew::new(2);
        let (begun, all) = (Mutex::new(0), Condvar::new());
        assert!(crew.shared.run(2, &|_| {
            let mut begun = begun.lock().unwrap();
            *begun += 1;
            all.notify_all();
            while *begun < 2 {
                begun = all.wait(begun).unwrap();
            }
        }));
        crew.stop();
    });
}

#[test]
fn a_pool_ends_whose_workers_sleep_or_have_not_begun() {
    every_order(4, || Crew::new(3).stop());
}

#[test]
fn a_panic_is_handed_on_after_all_tasks_and_the_pool_goes_on() {
    every_order(2, || {
        let crew = Crew::new(2);
        let counts = Counts::new(2);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            crew.shared.run(2, &|task| {
                counts.count(task);
                resume_unwind(Box::new(task));
            })
        }));
        assert!(caught.is_err_and(|payload| payload.is::<usize>()));
        counts.assert_all(1);
        run(&crew.shared, 2);
        crew.stop();
    });
}

#[test]
fn a_run_inside_a_task_is_left_to_the_task() {
    every_order(3, || {
        let crew = Crew::new(2);
        let counts = Counts::new(2);
        let shared = &*crew.shared;
        assert!(shared.run(2, &|task| {
            assert!(!shared.run(2, &|_| unreachable!()));
            counts.count(task);
        }));
        counts.assert_all(1);
        crew.stop();
    });
}

#[test]
fn of_two_callers_at_once_one_runs_at_a_time() {
    every_order(2, || {
        let crew = Crew::new(2);
        let call = |shared: &Shared| {
            let counts = Counts::new(2);
            let ran = shared.run(2, &|task| counts.count(task));
            counts.assert_all(u32::from(ran));
            ran
        };
        let shared = crew.shared.clone();
        let other = spawn(move || call(&shared));
        let mine = call(&crew.shared);
        assert!(other.join().unwrap() || mine, "somebody runs");
        crew.stop();
    });
}
