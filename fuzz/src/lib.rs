//! The fuzz targets of loom. What they do is in `targets`, which the tests of loom-nn include, too.

pub mod targets;

#[global_allocator]
static ALLOCATOR: targets::limits::Limited = targets::limits::Limited;
