//! Products by themselves, for the benchmarks.

mod cooperative;
mod packed_product;
mod product;

pub use cooperative::Cooperative;
pub use packed_product::{How, Rotation};
pub use product::{mixed_product, single_product};
