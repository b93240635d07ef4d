//! The weights of one layer: a full-precision master and packed versions of it.
//!
//! The master is the only truth and the only thing optimizers touch. Versions are made
//! from it by `encode`; each remembers the master's epoch it was made at, and an older
//! one is never handed out.

mod dropping;
mod initializer;
mod layout;
mod lending;
mod lent;
mod orthogonal;
mod parameter;
mod store;
#[cfg(test)]
mod tests;
mod version;
mod versions;

pub use initializer::Initializer;
pub use layout::Layout;
pub use lending::LentParameter;
pub use lent::{Lent, LentRows, SharedBytes};
pub use parameter::ParameterInfo;
pub use store::WeightStore;
pub(crate) use version::Staged;
pub use version::{Choice, VersionInfo};
