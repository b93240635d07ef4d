//! Every error of the engine becomes one Python exception.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// Runs engine work without the GIL; a panic inside becomes `loom.InternalError`.
///
/// # Errors
/// The engine's own error, as its Python exception, or `InternalError` after a panic.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> loom::Result<T> + Send) -> PyResult<T> {
    let _inside = Inside::enter();
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    match outcome {
        Ok(result) => result.map_err(exception),
        // Where nothing can be returned, memory that is not there unwinds.
        Err(panic) => Err(match panic.downcast::<Error>() {
            Ok(error) => exception(*error),
            Err(panic) => classes::InternalError::new_err(format!(
                "internal error, please report it: {}",
                panic_text(panic.as_ref())
            )),
        }),
    }
}

/// The words a panic was raised with.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}
