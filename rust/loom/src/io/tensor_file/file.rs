//! Files of tensors as they are used.

use super::contents::{Contents, Format, TensorInfo, damaged};
use super::decode::decode;
use super::parts;
use super::read::read;
use super::storage::Storage;
use super::value::Value;
use crate::weights::SharedBytes;
use crate::{Error, Result};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A file of tensors, or several that belong together.
///
/// It is mapped into memory, and so must not be shortened by anybody while this is held.
///
/// ```no_run
/// use loom::io::TensorFile;
///
/// let file = TensorFile::open("model.safetensors")?;
/// for tensor in file.tensors() {
///     println!("{} {:?} {}", tensor.name, tensor.shape, tensor.element.name());
/// }
/// let weight: Vec<f32> = file.to_f32("lm_head.weight")?;
/// # Ok::<(), loom::Error>(())
/// ```
pub struct TensorFile {
    contents: Contents,
    places: HashMap<String, usize>,
    storages: Vec<Storage>,
}

/// One tensor of a file that stays open.
struct Part {
    file: Arc<TensorFile>,
    name: String,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self.file.bytes(&self.name).unwrap_or_default()
    }
}

impl fmt::Debug for TensorFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (format, tensors) = (self.contents.format, self.contents.tensors.len());
        f.debug_struct("TensorFile")
            .field("format", &format)
            .field("tensors", &tensors)
            .finish_non_exhaustive()
    }
}

impl TensorFile {
    /// Opens a safetensors or GGUF file, the index of several safetensors files, or a folder that holds them.
    ///
    /// # Errors
    /// [`Error::Io`] for what cannot be read; [`Error::Serialization`] for what is no such file, or a damaged one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (contents, storages) = parts::open(path.as_ref())?;
        Self::new(contents, storages)
    }

    /// Reads a file that is in memory already.
    ///
    /// # Errors
    /// [`Error::Serialization`] for bytes that are no such file, or a damaged one.
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        let storage = Storage::Bytes(Box::new(bytes));
        Self::new(read(storage.bytes())?, vec![storage])
    }

    fn new(contents: Contents, storages: Vec<Storage>) -> Result<Self> {
        let mut places = HashMap::new();
        for (place, TensorInfo { name, .. }) in contents.tensors.iter().enumerate() {
            if places.insert(name.clone(), place).is_some() {
                return Err(damaged(format_args!("\"{name}\" is there twice")));
            }
        }
        Ok(Self { contents, places, storages })
    }

    /// What the file is.
    pub fn format(&self) -> Format {
        self.contents.format
    }

    /// What the file says beside its tensors, in its order.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.contents.metadata
    }

    /// All tensors, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.contents.tensors
    }

    /// What is known of a tensor.
    ///
    /// # Errors
    /// [`Error::Index`] where there is none of this name.
    pub fn info(&self, name: &str) -> Result<&TensorInfo> {
        let place = self.places.get(name).and_then(|place| self.contents.tensors.get(*place));
        place.ok_or_else(|| Error::Index(format!("the file has no tensor \"{name}\"")))
    }

    /// A tensor's bytes as the file has them, without a copy: the lowest byte of each number first.
    ///
    /// # Errors
    /// [`Error::Index`] where there is none of this name.
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        let TensorInfo { storage, range, .. } = self.info(name)?;
        let bytes = self.storages.get(*storage).and_then(|storage| storage.bytes().get(range.clone()));
        bytes.ok_or_else(|| Error::Internal(format!("the bytes of \"{name}\" are beyond the file")))
    }

    /// Reads everything and compares it with the checksums that the file brings; files of [`Network::save`] do.
    /// Returns whether there are any. The header's was looked at when the file was opened.
    ///
    /// [`Network::save`]: crate::Network::save
    ///
    /// # Errors
    /// [`Error::Serialization`] naming a tensor that is not as it was saved.
    pub fn verify(&self) -> Result<bool> {
        for tensor in &self.contents.tensors {
            let Some(checksum) = tensor.checksum else { return Ok(false) };
            if crc32fast::hash(self.bytes(&tensor.name)?) != checksum {
                return Err(tensor.changed());
            }
        }
        Ok(!self.contents.tensors.is_empty())
    }

    /// A tensor's bytes as the file has them, which stay there as long as what is returned is held.
    ///
    /// # Errors
    /// [`Error::Index`] where there is none of this name.
    pub fn shared(self: &Arc<Self>, name: &str) -> Result<SharedBytes> {
        self.bytes(name)?;
        Ok(Arc::new(Part { file: self.clone(), name: name.to_string() }))
    }

    /// A tensor's elements as numbers, whatever they are in the file: decoded, and rounded to the nearest where
    /// they have more digits.
    ///
    /// # Errors
    /// [`Error::Index`] where there is none of this name, [`Error::DType`] where it is of a type that is not
    /// decoded, [`Error::Memory`] where there is no memory for the numbers.
    pub fn to_f32(&self, name: &str) -> Result<Vec<f32>> {
        let element = self.info(name)?.element;
        decode(element, self.bytes(name)?).map_err(|error| crate::error::in_context(name, error))
    }
}
