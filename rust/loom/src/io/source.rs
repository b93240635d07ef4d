//! A file of loom's own as it is read: its header at once, and each tensor when it is asked for, straight to where it
//! belongs, so that a network is never in memory twice.
//!
//! Nothing is allocated by what the file says before the file is known to be that long, and every byte that is read is
//! compared with its checksum, where the file brings checksums.

use super::tensor_file::{ElementType, TensorInfo, Value, damaged, data_end, data_start, read_header};
use super::tensors::real_element;
use crate::precision::in_precision;
use crate::tensor::{Buffer, Precision, Shape, Tensor};
use crate::{Error, Result, extents};
use bytemuck::Pod;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

/// How much is read and summed up at once: what stays in a processor's cache.
const PIECE: usize = 1 << 18;

/// The longest beginning of a file that tells how long its header is.
const BEGINNING: usize = size_of::<u64>() + 1;

/// A file, or its bytes.
enum Body<'a> {
    /// Open, with its name for errors.
    File(File, String),
    Bytes(&'a [u8]),
    Owned(Vec<u8>),
}

/// A tensor, and whether it was compared with its checksum.
struct Place {
    info: TensorInfo,
    checked: Cell<bool>,
}

/// A file of loom's own, open to be read.
pub(crate) struct Source<'a> {
    body: Body<'a>,
    metadata: BTreeMap<String, String>,
    tensors: HashMap<String, Place>,
    verify: bool,
}

impl Source<'static> {
    /// Opens a file. What is none, such as a pipe, is read whole: as far as its header says that it goes.
    ///
    /// # Errors
    /// [`Error::Io`] for what cannot be read; [`Error::Serialization`] for what is no safetensors file, or a damaged
    /// one.
    pub(crate) fn open(path: &Path, verify: bool) -> Result<Self> {
        let failed = |source| Error::Io { context: format!("could not read {}", path.display()), source };
        let mut file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let len = usize::try_from(about.len()).unwrap_or(usize::MAX);
        let mut header = Vec::new();
        read_up_to(&mut file, BEGINNING, &mut header).map_err(failed)?;
        let start = data_start(&header).filter(|start| !about.is_file() || *start <= len);
        let start = start.ok_or_else(no_safetensors)?;
        read_up_to(&mut file, start, &mut header).map_err(failed)?;
        if header.len() < start {
            return Err(no_safetensors());
        }
        if about.is_file() {
            return Self::new(Body::File(file, path.display().to_string()), &header, len, verify);
        }
        // A header that says how long the file is comes first, and bounds what is read of an endless one.
        let end = data_end(&header).map_err(unreadable)?;
        let mut bytes = header.clone();
        read_up_to(&mut file, end.saturating_add(1), &mut bytes).map_err(failed)?;
        let len = bytes.len();
        Self::new(Body::Owned(bytes), &header, len, verify)
    }
}

impl<'a> Source<'a> {
    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// [`Error::Serialization`] for bytes that are no safetensors file, or a damaged one.
    pub(crate) fn of_bytes(bytes: &'a [u8], verify: bool) -> Result<Self> {
        let header = data_start(bytes).and_then(|start| bytes.get(..start)).ok_or_else(no_safetensors)?;
        Self::new(Body::Bytes(bytes), header, bytes.len(), verify)
    }

    fn new(body: Body<'a>, header: &[u8], len: usize, verify: bool) -> Result<Self> {
        let fetch = |range: Range<usize>| {
            let mut bytes = extents::zeros(range.len())?;
            body.read(range.start, &mut bytes)?;
            Ok(bytes)
        };
        let contents = read_header(header, len, verify, fetch).map_err(unreadable)?;
        let text = |(key, value)| match value {
            Value::String(text) => Some((key, text)),
            _ => None,
        };
        let metadata = contents.metadata.into_iter().filter_map(text).collect();
        let place = |info: TensorInfo| (info.name.clone(), Place { info, checked: Cell::new(false) });
        let tensors = contents.tensors.into_iter().map(place).collect();
        Ok(Self { body, metadata, tensors, verify })
    }

    /// An entry of the metadata.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// What tensors there are.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.values().map(|place| &place.info)
    }

    /// What is known of a tensor, if it is there.
    pub(super) fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name).map(|place| &place.info)
    }

    /// How many rows a tensor has, if it is there.
    pub(crate) fn rows(&self, name: &str) -> Option<usize> {
        self.find(name).and_then(|info| info.shape.first().copied())
    }

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Refuses a tensor that is not there, or not such a one.
    ///
    /// # Errors
    /// [`Error::Serialization`] then.
    pub(crate) fn expect(&self, name: &str, element: ElementType, shape: &[usize]) -> Result<()> {
        let info = self.find(name).ok_or_else(|| lacks(name))?;
        if info.element == element && info.shape == shape {
            return Ok(());
        }
        Err(Error::Serialization(format!(
            "\"{name}\" is {} of shape {}, and {} of shape {} in the network that the file describes",
            info.element.name(),
            Shape::from(&info.shape[..]),
            element.name(),
            Shape::from(shape)
        )))
    }

    /// [`expect`](Self::expect) for a tensor of a network's precision.
    ///
    /// # Errors
    /// As [`expect`](Self::expect).
    pub(crate) fn expect_real(&self, name: &str, precision: Precision, shape: &[usize]) -> Result<()> {
        self.expect(name, real_element(precision), shape)
    }

    /// Reads a tensor's bytes to where they belong.
    ///
    /// # Errors
    /// [`Error::Serialization`] where it is not there, not as long, or not as it was saved; [`Error::Io`] where the
    /// system refuses.
    pub(crate) fn read_into(&self, name: &str, out: &mut [u8]) -> Result<()> {
        let place = self.tensors.get(name).ok_or_else(|| lacks(name))?;
        if place.info.bytes() != out.len() {
            let (found, wanted) = (place.info.bytes(), out.len());
            return Err(Error::Serialization(format!("\"{name}\" has {found} bytes, expected {wanted}")));
        }
        let found = self.body.read(place.info.range.start, out)?;
        self.check(place, found)
    }

    /// A list of elements of a type.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into); [`Error::Memory`] where there is no memory for them.
    pub(super) fn list<T: Pod>(&self, name: &str, element: ElementType) -> Result<Vec<T>> {
        let info = self.find(name).ok_or_else(|| lacks(name))?;
        if info.element != element || info.bytes().checked_rem(size_of::<T>()) != Some(0) {
            return Err(Error::Serialization(format!("\"{name}\" is {}", info.element.name())));
        }
        let mut list = extents::zeros::<T>(info.bytes().checked_div(size_of::<T>()).unwrap_or(0))?;
        self.read_into(name, bytemuck::cast_slice_mut(&mut list))?;
        Ok(list)
    }

    /// A tensor of a network's precision.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub(super) fn real(&self, name: &str, precision: Precision) -> Result<Tensor> {
        let info = self.find(name).ok_or_else(|| lacks(name))?;
        if info.element != real_element(precision) {
            let found = info.element.name();
            return Err(Error::Serialization(format!("\"{name}\" is {found} in a {precision} network")));
        }
        in_precision!(precision, T => Tensor::new(&info.shape[..], self.list::<T>(name, info.element)?))
    }

    /// Compares with their checksums what nobody has read.
    ///
    /// # Errors
    /// [`Error::Serialization`] naming what is not as it was saved.
    pub(crate) fn finish(&self) -> Result<()> {
        if !self.verify {
            return Ok(());
        }
        let unread = |place: &&Place| place.info.checksum.is_some() && !place.checked.get();
        let most = self.tensors.values().filter(unread).map(|place| place.info.bytes()).max();
        let mut piece = Buffer::zeroed(most.unwrap_or(0).min(PIECE))?;
        for place in self.tensors.values().filter(unread) {
            let mut found = crc32fast::Hasher::new();
            let mut range = place.info.range.clone();
            while !range.is_empty() {
                let len = range.len().min(PIECE);
                let part = piece.bytes_mut().get_mut(..len).unwrap_or_default();
                self.body.read(range.start, part)?;
                found.update(part);
                range.start = range.start.saturating_add(len);
            }
            self.check(place, found.finalize())?;
        }
        Ok(())
    }

    fn check(&self, place: &Place, found: u32) -> Result<()> {
        if self.verify && place.info.checksum.is_some_and(|expected| expected != found) {
            return Err(place.info.changed());
        }
        place.checked.set(true);
        Ok(())
    }
}

impl Body<'_> {
    /// Fills `out` with what begins at a place, and returns its checksum.
    fn read(&self, start: usize, out: &mut [u8]) -> Result<u32> {
        let mut found = crc32fast::Hasher::new();
        let bytes = match self {
            Body::File(file, path) => {
                let mut file = file;
                let failed = |source: std::io::Error| match source.kind() {
                    std::io::ErrorKind::UnexpectedEof => cut_short(),
                    _ => Error::Io { context: format!("could not read {path}"), source },
                };
                file.seek(SeekFrom::Start(start as u64)).map_err(failed)?;
                for piece in out.chunks_mut(PIECE) {
                    file.read_exact(piece).map_err(failed)?;
                    found.update(piece);
                }
                return Ok(found.finalize());
            }
            Body::Bytes(bytes) => bytes,
            Body::Owned(bytes) => &bytes[..],
        };
        let end = start.checked_add(out.len()).ok_or_else(cut_short)?;
        out.copy_from_slice(bytes.get(start..end).ok_or_else(cut_short)?);
        found.update(out);
        Ok(found.finalize())
    }
}

/// Reads until there are so many bytes, or no more.
fn read_up_to(file: &mut File, len: usize, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let more = len.saturating_sub(bytes.len());
    file.take(more as u64).read_to_end(bytes).map(|_| ())
}

/// The error of a file without a tensor.
pub(super) fn lacks(name: &str) -> Error {
    Error::Serialization(format!("the file lacks \"{name}\""))
}

fn cut_short() -> Error {
    damaged("the file is cut short")
}

fn no_safetensors() -> Error {
    damaged("the file is damaged, cut short, or no safetensors file")
}

/// The same of a header.
fn unreadable(error: Error) -> Error {
    match error {
        Error::Serialization(message) if !message.starts_with("the file is ") => {
            Error::Serialization(format!("the file is damaged, cut short, or no safetensors file: {message}"))
        }
        other => other,
    }
}
