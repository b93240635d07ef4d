//! Runs programs on the CPU: instruction sets, thread pool, matrix product.

mod float_control;
mod pool;

pub use float_control::FloatControl;
pub use pool::{MAX_THREADS, Pool, THREADS_VARIABLE};
