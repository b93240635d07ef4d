//! `loom._native.Network`: the engine's network behind a lock.

use crate::error::{caught, detached, exception, internal};
use crate::forks::{Inside, Lineage};
use loom::Network as Engine;
use loom::dtype::DType;
use loom::network::Settled;
use loom::ops::CacheType;
use pyo3::prelude::*;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// Depth, row, column and place in the cell.
pub type At = [usize; 4];

/// The cell, and the place in it.
pub fn split(at: At) -> ([usize; 3], usize) {
    ([at[0], at[1], at[2]], at[3])
}

/// A network; calls that change it exclude each other, and raise instead of waiting.
#[pyclass(frozen, module = "loom._native")]
pub struct Network {
    engine: RwLock<Engine>,
    /// Those who are building the network or bringing its weights back from a GPU now, and those who ever did.
    settling: AtomicUsize,
    settled: AtomicUsize,
    /// The thread that trains the network, by Python's number of it; 0 where none does.
    trained_by: AtomicU64,
    lineage: Lineage,
    /// Whether a panic has left it in pieces.
    broken: AtomicBool,
}

/// A network that is locked, for reading or for changing, as `G` has it.
pub struct Locked<G> {
    // Unlocked before the call counts as outside, which is why it comes first.
    guard: G,
    _inside: Inside,
}

impl<G: Deref> Deref for Locked<G> {
    type Target = G::Target;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

/// A network that is locked for changing. Whatever a call has left half done, the next one finds weights that can be read.
pub struct Changing<'a>(Locked<RwLockWriteGuard<'a, Engine>>);

impl Deref for Changing<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.0.guard
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.0.guard
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.guard.mend();
        }
    }
}

/// Marks a network as training while it is entered.
///
/// It is taken and released in one piece each: no signal that Python handles can come between its being
/// taken and `with` knowing about it.
#[pyclass(frozen, module = "loom._native")]
pub struct Claim {
    network: Py<Network>,
    thread: u64,
}

#[pymethods]
impl Claim {
    fn __enter__(&self) -> PyResult<()> {
        self.network.get().check_whole()?;
        let mark = &self.network.get().trained_by;
        match mark.compare_exchange(0, self.thread, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Ok(()),
            Err(_) => Err(exception(loom::Error::State("the network is training already".into()))),
        }
    }

    fn __exit__(&self, _kind: Py<PyAny>, _error: Py<PyAny>, _trace: Py<PyAny>) {
        self.network.get().trained_by.store(0, Ordering::SeqCst);
    }
}

impl Claim {
    /// For a thread, by Python's number of it.
    pub fn new(network: Py<Network>, thread: u64) -> Self {
        Self { network, thread }
    }
}

/// Counts one who is building the network or bringing its weights back.
struct Settling<'a>(&'a Network);

impl<'a> Settling<'a> {
    fn begin(network: &'a Network) -> Self {
        network.settling.fetch_add(1, Ordering::SeqCst);
        Self(network)
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.0.settled.fetch_add(1, Ordering::SeqCst);
        self.0.settling.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What is said of a network that an internal error has left in pieces.
const BROKEN: &str =
    "an internal error has left the network unusable: make it anew, or load it from its file";

/// What another thread does is told by who asks: those that only read go side by side.
fn busy(used: &str) -> PyErr {
    let told = format!("the network is in use: another thread {used}; wait for that to end");
    exception(loom::Error::State(told))
}

impl Network {
    /// An engine's network.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine: RwLock::new(engine),
            settling: AtomicUsize::new(0),
            settled: AtomicUsize::new(0),
            trained_by: AtomicU64::new(0),
            lineage: Lineage::new(),
            broken: AtomicBool::new(false),
        }
    }

    /// The thread that trains the network, if any does.
    pub fn trainer(&self) -> Option<u64> {
        // One that a fork has left behind trains no more; what that has torn is told by who reads it.
        let _ = self.check_whole();
        Some(self.trained_by.load(Ordering::SeqCst)).filter(|thread| *thread != 0)
    }

    /// Refuses a network that a panic or a fork has left in pieces.
    fn check_whole(&self) -> PyResult<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(exception(loom::Error::State(BROKEN.into())));
        }
        let is_free = || !matches!(self.engine.try_write(), Err(TryLockError::WouldBlock));
        if self.lineage.is_whole(is_free, &self.trained_by) {
            return Ok(());
        }
        Err(exception(loom::Error::State(
            "this process was forked off while another thread was using the network, which cannot be used here; \
             fork while no thread does, load the network from a file in the child, or start processes with \
             multiprocessing's \"spawn\" or \"forkserver\""
                .into(),
        )))
    }

    /// The network, shared with other readers.
    pub fn read(&self) -> PyResult<Locked<RwLockReadGuard<'_, Engine>>> {
        self.check_whole()?;
        let _inside = Inside::enter();
        loop {
            let settled = self.settled.load(Ordering::SeqCst);
            match self.engine.try_read() {
                Ok(guard) => return Ok(Locked { guard, _inside }),
                // The engine puts everything back in its place before a panic leaves it.
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Ok(Locked { guard: poisoned.into_inner(), _inside });
                }
                // Another reader is only building the network, or bringing its weights back from a GPU. It may need
                // the GIL to end that.
                Err(TryLockError::WouldBlock)
                    if self.settling.load(Ordering::SeqCst) > 0
                        || self.settled.load(Ordering::SeqCst) != settled =>
                {
                    Python::attach(|py| py.detach(std::thread::yield_now));
                }
                Err(TryLockError::WouldBlock) => return Err(busy("trains or changes it")),
            }
        }
    }

    /// Brings what is newer on a GPU back, where nobody else uses the network: whatever is read
    /// after that need not be fetched each by itself.
    pub fn settle(&self, py: Python<'_>) -> PyResult<()> {
        if self.read()?.is_synchronized() {
            return Ok(());
        }
        detached(py, || {
            // Dropped after the lock, so that nobody takes this for training.
            let _settling = Settling::begin(self);
            match self.engine.try_write() {
                Ok(mut engine) => engine.synchronize(),
                Err(_) => Ok(()),
            }
        })
    }

    /// The network, exclusively.
    pub fn write(&self) -> PyResult<Changing<'_>> {
        self.try_write()?.ok_or_else(|| busy("predicts by it, trains or changes it"))
    }

    /// The network, exclusively; None where somebody else has it.
    fn try_write(&self) -> PyResult<Option<Changing<'_>>> {
        self.check_whole()?;
        let _inside = Inside::enter();
        let guard = match self.engine.try_write() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        Ok(Some(Changing(Locked { guard, _inside })))
    }

    /// Changes the network; nobody else uses it meanwhile.
    pub fn change<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Engine) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        self.change_locked(py, self.write()?, work)
    }

    fn change_locked<T: Send>(
        &self,
        py: Python<'_>,
        mut guard: Changing<'_>,
        work: impl FnOnce(&mut Engine) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        let engine = &mut *guard;
        match caught(py, || work(engine)) {
            Ok(result) => result.map_err(exception),
            Err(report) => {
                let whole = engine.is_whole();
                self.broken.store(!whole, Ordering::SeqCst);
                let state = if whole { "The network can still be used." } else { BROKEN };
                Err(internal(format!("{report}\n{state}")))
            }
        }
    }

    /// Makes the network ready for those who only read, who wait for that. Whoever predicts by it, trains or changes
    /// it is not waited for.
    pub fn prepare(
        &self,
        py: Python<'_>,
        is_ready: impl Fn(&Engine) -> bool,
        work: impl Fn(&mut Engine) -> loom::Result<()> + Send + Sync,
    ) -> PyResult<()> {
        loop {
            let (ready, built) = {
                let engine = self.read()?;
                (is_ready(&engine), engine.is_built())
            };
            if ready {
                return Ok(());
            }
            // Counted before it is locked, so that nobody takes this for training.
            let settling = Settling::begin(self);
            if let Some(guard) = self.try_write()? {
                return self.change_locked(py, guard, &work);
            }
            if built && self.settling.load(Ordering::SeqCst) == 1 {
                return Err(busy("predicts by it, trains or changes it"));
            }
            // Somebody else does this, or looks at a network that nobody can predict by.
            drop(settling);
            py.detach(std::thread::yield_now);
        }
    }

    /// Looks at the network once it is built; only the building excludes others.
    pub fn look_built<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Engine) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        self.prepare(py, Engine::is_built, Engine::build)?;
        self.look(py, work)
    }

    /// Looks at what is stored of the network, once it is built and nothing is newer on a GPU; only making it so
    /// excludes others.
    pub fn look_settled<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(Settled<'_>) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        let settle = |engine: &mut Engine| {
            engine.build()?;
            engine.synchronize()
        };
        self.prepare(py, |engine| engine.settled().is_ok(), settle)?;
        self.look(py, |engine| work(engine.settled()?))
    }

    /// Looks at the network as it is.
    pub fn look<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Engine) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        let guard = self.read()?;
        let engine = &*guard;
        detached(py, move || work(engine))
    }
}

/// Works with what goes on from call to call over a network, outside of the GIL; one call at a time.
pub(crate) fn exclusively<E: Send, T: Send>(
    py: Python<'_>,
    engine: &Mutex<E>,
    network: &Py<Network>,
    work: impl FnOnce(&mut E, &loom::Network) -> loom::Result<T> + Send,
) -> PyResult<T> {
    let _inside = Inside::enter();
    let mut guard = match engine.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            let busy = "the session is in use by another thread; give each thread its own";
            return Err(exception(loom::Error::State(busy.into())));
        }
    };
    let network = network.get().read()?;
    let (engine, network) = (&mut *guard, &*network);
    detached(py, move || work(engine, network))
}

/// What a name of a numeric type, or none, has sessions keep keys and values as.
pub(crate) fn cache_type(name: Option<&str>) -> PyResult<CacheType> {
    let Some(name) = name else { return Ok(CacheType::Full) };
    DType::parse(name).and_then(CacheType::of).map_err(exception)
}
