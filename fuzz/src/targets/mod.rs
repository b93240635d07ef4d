//! What is proved of loom on whatever input: no panic, no abort, only documented errors, memory in proportion to
//! what was brought, and an end within two seconds.

pub mod blocks;
pub mod checkpoint;
pub mod config;
pub mod draw;
pub mod edited_checkpoint;
pub mod layers;
pub mod limits;
pub mod mesh;
pub mod morphing;
pub mod mutants;
pub mod programs;
pub mod tensor_file;

use loom::Error;

/// What is done with an input.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const ALL: &[(&str, Target)] = &[
    ("blocks", blocks::target),
    ("checkpoint", checkpoint::target),
    ("config", config::target),
    ("edited_checkpoint", edited_checkpoint::target),
    ("layers", layers::target),
    ("mesh", mesh::target),
    ("morphing", morphing::target),
    ("programs", programs::target),
    ("tensor_file", tensor_file::target),
];

/// Fails where an error is loom's own fault.
#[track_caller]
pub fn documented<T>(result: loom::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error @ Error::Internal(_)) => panic!("{error}"),
        Err(_) => None,
    }
}

/// Fails where an error of a file is anything but the file's fault.
#[track_caller]
pub fn read<T>(result: loom::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::Serialization(_) | Error::Memory(_)) => None,
        Err(error) => panic!("a file is refused with {error:?}"),
    }
}
