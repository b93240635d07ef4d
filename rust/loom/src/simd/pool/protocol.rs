//! How the threads of a pool meet: one word says what there is to do, and who is at it.
//!
//! `rust/pool-model` includes this file, with a model checker's primitives in the place of the system's.

use super::primitives::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, FloatControl, Mutex, MutexGuard, Slot, Watch, yield_now,
};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a worker watches for work before it sleeps.
const WATCH: Duration = Duration::from_micros(50);
/// How long the caller watches for the last worker before it lets others run.
const FINISH_WATCH: Duration = Duration::from_micros(100);
/// ... and before it sleeps.
const FINISH_YIELD: Duration = Duration::from_millis(1);

// The state word: how many workers are inside the run, whether more may enter,
// whether the caller sleeps until the last has left, and the run's number.
const INSIDE: u64 = 0xFFFF;
const OPEN: u64 = 1 << 16;
const CALLER_SLEEPS: u64 = 1 << 17;
const NUMBER: u32 = 18;

/// One value on a cache line of its own (two, as lines are fetched in pairs).
#[repr(align(128))]
struct Padded<T>(T);

type Task = dyn Fn(usize) + Sync;

/// What a run does; written by the caller while no worker is inside.
#[derive(Clone, Copy)]
struct Job {
    body: *const Task,
    tasks: usize,
    shares: usize,
}

/// What the threads of a pool share.
pub(super) struct Shared {
    state: Padded<AtomicU64>,
    sleepers: Padded<AtomicUsize>,
    busy: AtomicBool,
    stop: AtomicBool,
    oversubscribed: bool,
    job: Slot<Option<Job>>,
    /// How much of each participant's share has been taken.
    taken: Box<[Padded<AtomicUsize>]>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleep: Mutex<()>,
    wake: Condvar,
    finish: Condvar,
}

// SAFETY: `job` is the only part that is not Sync by itself. The caller writes
// it while `state` is closed and nobody is inside, then opens with release
// order; workers read it only after entering with acquire order.
unsafe impl Sync for Shared {}
// SAFETY: the pointer inside `job` is used by workers only while they are
// inside a run, which the caller that owns the pointee waits for.
unsafe impl Send for Shared {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// For so many participants, the one that runs among them.
    pub(super) fn new(threads: usize, oversubscribed: bool) -> Self {
        Self {
            state: Padded(AtomicU64::new(0)),
            sleepers: Padded(AtomicUsize::new(0)),
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            oversubscribed,
            job: Slot::new(None),
            taken: (0..threads).map(|_| Padded(AtomicUsize::new(0))).collect(),
            panic: Mutex::new(None),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            finish: Condvar::new(),
        }
    }

    /// Calls `body` with each of `0..tasks` once, spread over who serves, and returns when all calls have ended;
    /// at once, and false, where somebody else runs.
    ///
    /// # Panics
    /// A panic of `body` goes on in the caller once no task is running any more.
    pub(super) fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) -> bool {
        if self.busy.swap(true, Ordering::Acquire) {
            return false;
        }
        let shares = tasks.min(self.taken.len());
        // SAFETY: only the lifetime of the trait object is changed. Workers use
        // it only while inside the run, and `finish` below waits for them
        // before this call returns; nothing between here and there unwinds,
        // as `work` catches the panics of `body`.
        let body_pointer =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static Task>(body) } as *const Task;
        let job = Job { body: body_pointer, tasks, shares };
        for taken in &self.taken[..shares] {
            taken.0.store(0, Ordering::Relaxed);
        }
        // SAFETY: `busy` makes this the only caller, and the last run is closed
        // and empty, so no worker reads the job now.
        unsafe { self.job.put(Some(job)) };
        let number = (self.state.0.load(Ordering::Relaxed) >> NUMBER) + 1;
        self.state.0.store(number << NUMBER | OPEN, Ordering::SeqCst);
        if self.sleepers.0.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
        self.work(job, 0, body);
        self.finish();
        let panic = lock(&self.panic).take();
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        true
    }

    /// Ends whoever serves.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.sleep));
        self.wake.notify_all();
    }

    /// Takes tasks, `participant`'s own share first, until none is left.
    fn work(&self, job: Job, participant: usize, body: &(dyn Fn(usize) + Sync)) {
        let Job { tasks, shares, .. } = job;
        for step in 0..shares {
            let share = (participant + step) % shares;
            let start = share * tasks / shares;
            let len = (share + 1) * tasks / shares - start;
            let taken = &self.taken[share].0;
            while taken.load(Ordering::Relaxed) < len {
                let index = taken.fetch_add(1, Ordering::Relaxed);
                if index >= len {
                    break;
                }
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(start + index))) {
                    lock(&self.panic).get_or_insert(payload);
                }
            }
        }
    }

    /// A worker's life.
    pub(super) fn serve(&self, participant: usize) {
        let mut seen = 0;
        loop {
            let state = self.await_run(seen);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            seen = state >> NUMBER;
            if state & OPEN == 0 || !self.enter(seen) {
                continue;
            }
            let _control = FloatControl::standard();
            // SAFETY: this worker is inside the run (see `Sync` above), so the
            // job is written, and its body lives until this worker leaves.
            let (job, body) = unsafe {
                match self.job.get() {
                    Some(job) => (job, &*job.body),
                    None => return,
                }
            };
            self.work(job, participant, body);
            let before = self.state.0.fetch_sub(1, Ordering::AcqRel);
            if before & INSIDE == 1 && before & CALLER_SLEEPS != 0 {
                drop(lock(&self.sleep));
                self.finish.notify_all();
            }
        }
    }

    /// Enters run `number`, unless it is over.
    fn enter(&self, number: u64) -> bool {
        let mut state = self.state.0.load(Ordering::Relaxed);
        while state >> NUMBER == number && state & OPEN != 0 {
            match self.state.0.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Waits until the run's number differs from `seen`, or until told to stop.
    fn await_run(&self, seen: u64) -> u64 {
        let news = |state: u64| state >> NUMBER != seen || self.stop.load(Ordering::Acquire);
        let mut watch = Watch::new(self.oversubscribed);
        loop {
            let state = self.state.0.load(Ordering::Acquire);
            if news(state) {
                return state;
            }
            if watch.turn() >= WATCH {
                break;
            }
        }
        let mut guard = lock(&self.sleep);
        // Sequentially consistent with the caller's opening of the run: either
        // it sees a sleeper, or the sleeper sees the run.
        self.sleepers.0.fetch_add(1, Ordering::SeqCst);
        let state = loop {
            let state = self.state.0.load(Ordering::SeqCst);
            if news(state) {
                break state;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.0.fetch_sub(1, Ordering::SeqCst);
        state
    }

    /// Closes the run and waits until no worker is inside.
    fn finish(&self) {
        let state = self.state.0.fetch_and(!OPEN, Ordering::AcqRel);
        if state & INSIDE == 0 {
            return;
        }
        let mut watch = Watch::new(self.oversubscribed);
        while self.state.0.load(Ordering::Acquire) & INSIDE != 0 {
            let waited = watch.turn();
            if waited >= FINISH_YIELD {
                let mut guard = lock(&self.sleep);
                let mut state = self.state.0.fetch_or(CALLER_SLEEPS, Ordering::AcqRel);
                while state & INSIDE != 0 {
                    guard = self.finish.wait(guard).unwrap_or_else(PoisonError::into_inner);
                    state = self.state.0.load(Ordering::Acquire);
                }
                return;
            }
            if waited >= FINISH_WATCH {
                yield_now();
            }
        }
    }
}
