//! Matrix products in WGSL: generators of text, and the choice among them.
//!
//! [`Tiled`] is the general kernel; it takes its operands through three hooks, so that a
//! convolution can hand it windows of an image. [`Problem::record`] goes from extents and layouts
//! of plain matrices to dispatches.
//!
//! The order of every sum depends on the extents and the device's limits and speeds alone.

mod choose;
mod column_sums;
mod cut;
mod few_columns;
mod few_rows;
mod half;
mod left_form;
mod loads;
mod matrix;
mod plan;
mod record;
pub mod reduce;
mod stores;
mod stream;
mod streamed;
mod streamed_depth;
mod streamed_sums;
mod sums;
mod tile;
mod tiled;
mod together;
pub mod units;

pub use choose::{
    BROAD, DEEP, EVEN, HUGE, LARGE, MEDIUM, SLIM, SMALL, SQUARE, TALL, TINY, UNITS_BROAD, UNITS_EVEN,
    UNITS_FLAT, UNITS_FLAT_SINGLE, UNITS_LARGE, UNITS_LOW, UNITS_NARROW, UNITS_NARROW_SINGLE, UNITS_SLIM,
    UNITS_SMALL, tiles,
};
pub use column_sums::ColumnSums;
pub use cut::{Cut, Limits};
pub use few_columns::{FewColumns, MAX_COLUMNS};
pub use few_rows::{FewRows, MAX_ROWS};
pub use half::Rounding;
pub use left_form::LeftForm;
pub use matrix::{Finish, Matrix, Storage};
pub use plan::Problem;
pub use record::{Joined, Operands};
pub use stream::{MAX_ROWS as MOST_STREAMED_ROWS, MOST_GROUPED_ROWS, Stream, Weight};
pub use tile::{Along, Edges, Loader, Tile};
pub use tiled::{Hooks, Tiled};
pub use together::Together;
