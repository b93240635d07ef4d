//! Reading a header of either format.

use super::contents::{Contents, Format, damaged};
use super::{gguf, safetensors};
use crate::Result;

impl Format {
    /// The format of a file that begins with these bytes, if it is one of these.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(gguf::MAGIC) {
            return Some(Format::Gguf);
        }
        let fits = |start: &usize| *start <= bytes.len();
        safetensors::data_start(bytes).filter(fits).map(|_| Format::Safetensors)
    }
}

/// Reads a header, of whatever format.
pub(super) fn read(bytes: &[u8]) -> Result<Contents> {
    match Format::of(bytes) {
        Some(Format::Gguf) => gguf::read(bytes),
        Some(Format::Safetensors) => safetensors::read(bytes),
        None => Err(damaged("this is neither a safetensors nor a GGUF file, or it is cut short")),
    }
}
