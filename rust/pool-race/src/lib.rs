//! loom's thread pool by itself, for sanitizers: real threads race through the very files of the pool, where
//! `rust/pool-model` has its protocol alone go through every order.

use std::fmt;

/// What the pool fails with.
#[derive(Debug, PartialEq)]
pub enum Error {
    /// A number of threads that no pool has.
    Value(String),
    /// No more threads are to be had.
    Device(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// As loom's.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[path = "../../loom/src/process.rs"]
pub mod process;

/// The pool, and what it runs tasks with.
#[path = "../../loom/src/simd"]
pub mod simd {
    pub mod float_control;
    pub mod pool;
    pub use pool::Pool;
}
