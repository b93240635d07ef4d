//! A fork-join pool of threads that stay.
//!
//! A training step forks dozens of times a millisecond, so a fork must cost
//! about a microsecond and allocate nothing. Workers watch one atomic word for
//! a while before they sleep. Nobody waits for a worker that has not come: the
//! caller starts at once, finishes everything alone if it must, and waits only
//! for workers that are inside a task. That keeps the pool fast when there are
//! more threads than cores.
//!
//! Each participant has a share of the tasks of its own, the same share every
//! time, so that data stays in the caches of the core that wrote it; who is
//! done with its share helps with the others'.
//!
//! A process that is forked off has none of the threads: a pool starts others there when it is first used.

mod pieces;
mod primitives;
mod protocol;

use super::float_control::FloatControl;
use crate::process::generation;
use crate::{Error, Result};
use pieces::Pieces;
use protocol::Shared;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// The environment variable that sets the number of threads of [`Pool::global`].
pub const THREADS_VARIABLE: &str = "LOOM_NUM_THREADS";
/// More threads than this are refused: the count of workers inside a run has 16 bits.
pub const MAX_THREADS: usize = 4096;

/// Threads that run the tasks of a parallel loop.
///
/// ```
/// use loom::simd::Pool;
///
/// let pool = Pool::new(2)?;
/// let mut squares = vec![0; 1000];
/// pool.for_each_chunk(&mut squares, 100, |chunk, piece| {
///     for (i, square) in piece.iter_mut().enumerate() {
///         *square = (chunk * 100 + i).pow(2);
///     }
/// });
/// assert_eq!(squares[999], 998_001);
/// # Ok::<(), loom::Error>(())
/// ```
pub struct Pool {
    threads: usize,
    first: Crew,
}

/// The threads of a pool in one process.
struct Crew {
    generation: usize,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Those in a process that was forked off this one.
    next: OnceLock<Box<Crew>>,
}

impl Crew {
    /// A crew without threads yet.
    fn new(threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Shared::new(threads, threads > cores);
        let workers = Vec::with_capacity(threads - 1);
        Self { generation: generation(), shared: Arc::new(shared), workers, next: OnceLock::new() }
    }

    /// Starts the threads beside the caller's.
    fn start(&mut self, threads: usize) -> Result<()> {
        for participant in 1..threads {
            let shared = Arc::clone(&self.shared);
            let worker = std::thread::Builder::new()
                .name(format!("loom-{participant}"))
                .spawn(move || shared.serve(participant))
                .map_err(|error| {
                    Error::Device(format!(
                        "cannot start thread {participant} of {threads}: {error}; set {THREADS_VARIABLE} lower"
                    ))
                })?;
            self.workers.push(worker);
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if self.generation != generation() {
            // They run in the process that started them, if at all.
            self.workers.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.stop();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of tasks and has none of its own.
            let _ = worker.join();
        }
    }
}

impl Pool {
    /// A pool of `threads` threads, the one that calls [`Pool::run`] among them.
    ///
    /// # Errors
    /// [`Error::Value`] when `threads` is 0 or more than [`MAX_THREADS`];
    /// [`Error::Device`] when the system has no more threads to give.
    pub fn new(threads: usize) -> Result<Self> {
        if threads == 0 || threads > MAX_THREADS {
            return Err(Error::Value(format!(
                "the number of threads must be between 1 and {MAX_THREADS}, not {threads}"
            )));
        }
        let mut first = Crew::new(threads);
        first.start(threads)?;
        Ok(Self { threads, first })
    }

    /// The pool that everything uses unless told otherwise: `LOOM_NUM_THREADS`
    /// threads, or as many as the process may run at once.
    ///
    /// # Errors
    /// [`Error::Value`] when `LOOM_NUM_THREADS` is not a number from 1 to [`MAX_THREADS`].
    pub fn global() -> Result<Arc<Self>> {
        static GLOBAL: OnceLock<Result<Arc<Pool>, String>> = OnceLock::new();
        GLOBAL
            .get_or_init(|| {
                let set = std::env::var_os(THREADS_VARIABLE);
                let threads = threads_from(set.as_ref().map(|value| value.to_string_lossy()).as_deref())?;
                Pool::new(threads).map(Arc::new).map_err(|error| error.to_string())
            })
            .clone()
            .map_err(Error::Value)
    }

    /// How many threads take part in a run, the caller among them.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The threads that this process has of the pool.
    fn crew(&self) -> &Crew {
        let mut crew = &self.first;
        while crew.generation != generation() {
            crew = crew.next.get_or_init(|| {
                let mut crew = Box::new(Crew::new(self.threads));
                // With fewer threads the same is computed, only slower.
                let _ = crew.start(self.threads);
                crew
            });
        }
        crew
    }

    /// Calls `body` with each of `0..tasks` once, spread over the threads, and
    /// returns when all calls have ended.
    ///
    /// Allocates nothing. When the pool is busy (another thread runs on it, or
    /// this call comes from inside a task) the caller does everything itself.
    ///
    /// # Panics
    /// A panic of `body` goes on in the caller once no task is running any more.
    pub fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let _control = FloatControl::standard();
        let crew = self.crew();
        if tasks <= 1 || crew.workers.is_empty() || !crew.shared.run(tasks, body) {
            (0..tasks).for_each(body);
        }
    }

    /// Cuts `data` into pieces of `chunk` elements (the last may be shorter) and
    /// calls `body(piece's number, piece)` for each, spread over the threads.
    ///
    /// Choose `chunk` by the shape of the work, never by the number of threads,
    /// where results could depend on it.
    pub fn for_each_chunk<A: Send>(
        &self,
        data: &mut [A],
        chunk: usize,
        body: impl Fn(usize, &mut [A]) + Sync,
    ) {
        let pieces = Pieces::new(data, chunk);
        self.run(pieces.count(), &|index| {
            // SAFETY: the pool calls this once for each index below the count.
            body(index, unsafe { pieces.piece(index) });
        });
    }

    /// [`Pool::for_each_chunk`] over two slices in step, each with its own chunk length.
    ///
    /// # Panics
    /// If the slices are not cut into equally many pieces.
    pub fn for_each_chunk2<A: Send, B: Send>(
        &self,
        (a, chunk_a): (&mut [A], usize),
        (b, chunk_b): (&mut [B], usize),
        body: impl Fn(usize, &mut [A], &mut [B]) + Sync,
    ) {
        let (a, b) = (Pieces::new(a, chunk_a), Pieces::new(b, chunk_b));
        assert_eq!(a.count(), b.count(), "the slices are cut into different numbers of pieces");
        self.run(a.count(), &|index| {
            // SAFETY: the pool calls this once for each index below both counts.
            unsafe { body(index, a.piece(index), b.piece(index)) };
        });
    }

    /// [`Pool::for_each_chunk`] over three slices in step, each with its own chunk length.
    ///
    /// # Panics
    /// If the slices are not cut into equally many pieces.
    pub fn for_each_chunk3<A: Send, B: Send, C: Send>(
        &self,
        (a, chunk_a): (&mut [A], usize),
        (b, chunk_b): (&mut [B], usize),
        (c, chunk_c): (&mut [C], usize),
        body: impl Fn(usize, &mut [A], &mut [B], &mut [C]) + Sync,
    ) {
        let (a, b, c) = (Pieces::new(a, chunk_a), Pieces::new(b, chunk_b), Pieces::new(c, chunk_c));
        assert_eq!(a.count(), b.count(), "the slices are cut into different numbers of pieces");
        assert_eq!(a.count(), c.count(), "the slices are cut into different numbers of pieces");
        self.run(a.count(), &|index| {
            // SAFETY: the pool calls this once for each index below all counts.
            unsafe { body(index, a.piece(index), b.piece(index), c.piece(index)) };
        });
    }
}

impl Pool {
    /// [`Pool::for_each_chunk`] over several slices in step; the first decides how many pieces
    /// there are, and a shorter one gives empty pieces past its end.
    pub fn for_each_chunks<A: Send, const N: usize>(
        &self,
        data: [&mut [A]; N],
        chunk: usize,
        body: impl Fn(usize, [&mut [A]; N]) + Sync,
    ) {
        let pieces = data.map(|slice| Pieces::new(slice, chunk));
        let count = pieces.first().map_or(0, Pieces::count);
        self.run(count, &|index| {
            // SAFETY: the pool calls this once for each index.
            body(index, pieces.each_ref().map(|pieces| unsafe { pieces.piece(index) }));
        });
    }
}

impl Pool {
    /// Calls `body(task, pieces)` for each of `0..tasks`, spread over the threads, with the task's piece
    /// of every slice: each comes with the elements of a piece. Pieces past a slice's end are empty.
    ///
    /// Choose the pieces by the shape of the work, as in [`Pool::for_each_chunk`].
    pub fn for_each_piece<A: Send, const N: usize>(
        &self,
        tasks: usize,
        data: [(&mut [A], usize); N],
        body: impl Fn(usize, [&mut [A]; N]) + Sync,
    ) {
        let pieces = data.map(|(slice, chunk)| Pieces::new(slice, chunk));
        self.run(tasks, &|index| {
            // SAFETY: the pool calls this once for each index.
            body(index, pieces.each_ref().map(|pieces| unsafe { pieces.piece(index) }));
        });
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

/// The number of threads asked for by the environment variable's value.
fn threads_from(set: Option<&str>) -> Result<usize, String> {
    match set {
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)),
        Some(text) => match text.trim().parse() {
            Ok(threads) if (1..=MAX_THREADS).contains(&threads) => Ok(threads),
            _ => Err(format!(
                "{THREADS_VARIABLE}={text:?} is not a number of threads: set it to a whole number from 1 to \
                 {MAX_THREADS}, or unset it to use every core"
            )),
        },
    }
}

#[cfg(test)]
mod tests;
