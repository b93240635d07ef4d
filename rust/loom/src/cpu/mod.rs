//! Runs programs on the CPU: the step loop.

mod execute;

pub(crate) use execute::resolve;
pub use execute::{Access, Part, PartOwner, execute};
