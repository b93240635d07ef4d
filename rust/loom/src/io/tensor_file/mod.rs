//! Files of tensors by other programs: safetensors, alone or in several parts, and GGUF.
//!
//! A file is mapped into memory and its header read; a tensor's bytes are read when somebody looks at them.
//! Everything that a header says is checked against the file before anything is allocated by it, so that no file,
//! whatever is in it, needs more memory than a small multiple of its header.

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "arrays of lengths that types say"
)]
mod blocks;
mod checksums;
mod contents;
mod decode;
mod element;
mod encode;
mod file;
mod gguf;
mod parts;
mod read;
mod safetensors;
mod storage;
mod value;
mod write;

pub(crate) use blocks::{Grouped, grouped};
pub(super) use checksums::{BYTES as CHECKSUM_BYTES, NAME as CHECKSUMS};
pub(super) use contents::damaged;
pub use contents::{Format, TensorInfo};
pub use decode::decode;
pub use element::ElementType;
pub use encode::encode;
pub use file::TensorFile;
pub(super) use safetensors::{data_end, data_start, read_header};
pub use value::{NumberType, Value, Values};
pub(super) use write::header_of;
pub use write::{TensorSpec, write_gguf, write_safetensors};
