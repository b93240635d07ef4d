//! Every error of the engine becomes one Python exception.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::forks::Inside;
use loom::Error;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

/// The classes of `python/loom/errors.py`.
mod classes {
    use pyo3::import_exception;

    import_exception!(loom.errors, CellIndexError);
    import_exception!(loom.errors, DTypeError);
    import_exception!(loom.errors, DeviceError);
    import_exception!(loom.errors, FileError);
    import_exception!(loom.errors, InternalError);
    import_exception!(loom.errors, InvalidValueError);
    import_exception!(loom.errors, NonFiniteError);
    import_exception!(loom.errors, OutOfMemoryError);
    import_exception!(loom.errors, SerializationError);
    import_exception!(loom.errors, ShapeError);
    import_exception!(loom.errors, StateError);
}

/// The exception that an engine error is raised as.
pub fn exception(error: Error) -> PyErr {
    match error {
        Error::Shape(message) => classes::ShapeError::new_err(message),
        Error::DType(message) => classes::DTypeError::new_err(message),
        Error::Value(message) => classes::InvalidValueError::new_err(message),
        Error::Index(message) => classes::CellIndexError::new_err(message),
        Error::Device(message) => classes::DeviceError::new_err(message),
        Error::Serialization(message) => classes::SerializationError::new_err(message),
        Error::State(message) => classes::StateError::new_err(message),
        Error::NonFinite(message) => classes::NonFiniteError::new_err(message),
        Error::Memory(message) => classes::OutOfMemoryError::new_err(message),
        Error::Io { context, source } => {
            classes::FileError::new_err((source.raw_os_error(), format!("{context}: {source}")))
        }
        // An exception raised in a Python callback comes back as it was.
        Error::Callback(source) => match source.downcast::<PyErr>() {
            Ok(raised) => *raised,
            Err(other) => classes::InternalError::new_err(format!("callback failed: {other}")),
        },
        other => classes::InternalError::new_err(other.to_string()),
    }
}

/// Reads settings from JSON.
///
/// # Errors
/// `InvalidValueError` for settings that are unknown, missing or of another type.
pub fn from_json<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| exception(Error::Value(error.to_string())))
}

/// Runs engine work without the GIL; a panic inside becomes `loom.InternalError`. Where the engine asks whether to
/// go on, signals are handled: Ctrl-C ends the work with `KeyboardInterrupt`.
///
/// # Errors
/// The engine's own error, as its Python exception, or `InternalError` after a panic.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> loom::Result<T> + Send) -> PyResult<T> {
    let _inside = Inside::enter();
    match caught(py, work) {
        Ok(result) => result.map_err(exception),
        Err(report) => Err(internal(report)),
    }
}

/// The exception after a panic.
pub fn internal(report: String) -> PyErr {
    classes::InternalError::new_err(report)
}

/// [`detached`], with the report of a panic for whoever has more to say of it.
pub fn caught<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> loom::Result<T> + Send,
) -> Result<loom::Result<T>, String> {
    let ask = || Python::attach(|py| py.check_signals()).map_err(|raised| Error::Callback(Box::new(raised)));
    let work = AssertUnwindSafe(|| loom::interrupt::asking(ask, work));
    WORKING.fetch_add(1, Ordering::SeqCst);
    let outcome = py.detach(|| catch_unwind(work));
    WORKING.fetch_sub(1, Ordering::SeqCst);
    // Where nothing can be returned, memory that is not there unwinds.
    outcome.or_else(|panic| match panic.downcast::<Error>() {
        Ok(error) => Ok(Err(*error)),
        Err(_) => Err(report()),
    })
}

/// Calls that are at work in the engine, whose panics become exceptions.
static WORKING: AtomicUsize = AtomicUsize::new(0);

/// The first panic since the last report, and how many have followed it.
static PANICS: Mutex<Option<(String, usize)>> = Mutex::new(None);

/// Lets panics of the engine be noted, for [`report`], instead of printed: every task of a loop may have one.
pub fn note_panics() {
    let usual = take_hook();
    set_hook(Box::new(move |panic| {
        if WORKING.load(Ordering::SeqCst) == 0 {
            return usual(panic);
        }
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *panics {
            Some((_, more)) => *more += 1,
            None => {
                let trace = Backtrace::capture();
                let trace = match trace.status() {
                    BacktraceStatus::Captured => format!("\n{trace}"),
                    _ => "; RUST_BACKTRACE=1 in the environment adds where from".into(),
                };
                let place = panic.location().map(|at| format!(" at {at}")).unwrap_or_default();
                *panics = Some((format!("{}{place}{trace}", panic_text(panic.payload())), 0));
            }
        }
    }));
}

/// What to report of the panics since the last time.
fn report() -> String {
    let noted = PANICS.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (first, more) = noted.unwrap_or(("a panic that nobody has noted".into(), 0));
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    let machine = match loom::simd::Cpu::global() {
        Ok(cpu) => format!("{}, {} threads", cpu.isa().level(), cpu.pool().threads()),
        Err(error) => error.to_string(),
    };
    format!(
        "internal error, please report it with this text: loom {} on {} {} ({machine}){more}: {first}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}

/// The words a panic was raised with.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
