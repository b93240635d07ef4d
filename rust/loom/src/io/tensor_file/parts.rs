//! Files of tensors on disk: one, several with an index, or a folder.

use super::contents::{Contents, Format, TensorInfo, damaged};
use super::read::read;
use super::storage::Storage;
use super::value::Value;
use crate::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// The longest index there may be: 100 MB, as a header.
const LONGEST_INDEX: usize = 100_000_000;

/// The end of an index's name.
const INDEX: &str = ".safetensors.index.json";

/// What is known of tensors, and where their bytes are.
type Opened = (Contents, Vec<Storage>);

/// Opens what [`TensorFile::open`](super::TensorFile::open) does.
pub(super) fn open(path: &Path) -> Result<Opened> {
    if path.is_dir() {
        return open_folder(path);
    }
    let storage = Storage::open(path)?;
    let is_index = Format::of(storage.bytes()).is_none()
        && storage.bytes().iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    match is_index {
        true => open_index(path, storage.bytes()),
        false => read(storage.bytes()).and_then(|contents| match split_count(&contents) {
            0 | 1 => Ok((contents, vec![storage])),
            count => open_split(path, count),
        }),
    }
    .map_err(|error| in_file(path, error))
}

/// A damaged file's error, led by its name.
fn in_file(path: &Path, error: Error) -> Error {
    match error {
        Error::Serialization(message) => Error::Serialization(format!("{}: {message}", path.display())),
        other => other,
    }
}

/// Opens a folder: by its index, or all its safetensors files, or its only GGUF file.
fn open_folder(folder: &Path) -> Result<Opened> {
    let failed = |source| Error::Io { context: format!("could not read {}", folder.display()), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        names.push(entry.map_err(failed)?.path());
    }
    names.sort();
    let ending = |end: &str| -> Vec<&PathBuf> {
        let ends = |path: &&PathBuf| {
            path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.ends_with(end))
        };
        names.iter().filter(ends).collect()
    };
    if let [index] = ending(INDEX)[..] {
        return open(index);
    }
    match (&ending(".safetensors")[..], &ending(".gguf")[..]) {
        ([], [file]) => open(file),
        ([], _) => Err(Error::Serialization(format!(
            "{} holds no safetensors files, nor one GGUF file; open one of its files",
            folder.display()
        ))),
        ([file], _) => open(file),
        (files, _) => {
            let mut parts = Parts::default();
            for file in files {
                parts.add(file, None)?;
            }
            Ok(parts.joined())
        }
    }
}

/// How many files a GGUF file says that it is one of.
fn split_count(contents: &Contents) -> usize {
    match contents.metadata.iter().find(|(key, _)| key == "split.count") {
        Some((_, Value::U16(count))) => usize::from(*count),
        _ => 1,
    }
}

/// Opens a GGUF file of which llama.cpp has made several: "model-00001-of-00003.gguf" and so on.
fn open_split(path: &Path, count: usize) -> Result<Opened> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let named = |place: usize| format!("-{place:05}-of-{count:05}.gguf");
    let Some(stem) = (1..=count).find_map(|place| name.strip_suffix(&named(place))) else {
        return Err(damaged(format_args!(
            "this is one of {count} files, which must be called {} and so on",
            named(1)
        )));
    };
    let mut parts = Parts { format: Format::Gguf, ..Parts::default() };
    for place in 1..=count {
        parts.add(&path.with_file_name(format!("{stem}{}", named(place))), None)?;
    }
    Ok(parts.joined())
}

/// What an index says: which file holds which tensor.
#[derive(serde::Deserialize)]
struct Index {
    #[serde(default)]
    metadata: serde_json::Map<String, serde_json::Value>,
    weight_map: BTreeMap<String, String>,
}

fn open_index(path: &Path, bytes: &[u8]) -> Result<Opened> {
    if bytes.len() > LONGEST_INDEX {
        return Err(damaged("the index is longer than 100 MB"));
    }
    let index: Index = serde_json::from_slice(bytes)
        .map_err(|error| damaged(format_args!("this is no index of safetensors files: {error}")))?;
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, file) in &index.weight_map {
        files.entry(file).or_default().push(name);
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut parts = Parts::default();
    for (file, names) in files {
        // Nothing outside the folder is opened, whatever an index says.
        let mut components = Path::new(file).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            return Err(damaged(format_args!("the index names \"{file}\", which is not a file beside it")));
        }
        parts.add(&folder.join(file), Some(&names))?;
    }
    let stated = index.metadata.into_iter().map(|(key, value)| match value {
        serde_json::Value::String(text) => (key, text),
        other => (key, other.to_string()),
    });
    parts.metadata.extend(stated.map(|(key, text)| (key, Value::String(text))));
    Ok(parts.joined())
}

/// Files on their way to be one; of what several say, the first holds.
struct Parts {
    format: Format,
    metadata: BTreeMap<String, Value>,
    tensors: Vec<TensorInfo>,
    storages: Vec<Storage>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            format: Format::Safetensors,
            metadata: BTreeMap::new(),
            tensors: Vec::new(),
            storages: Vec::new(),
        }
    }
}

impl Parts {
    /// Adds the tensors of a file, or those of them that are named, all of which must be there.
    fn add(&mut self, path: &Path, names: Option<&[&str]>) -> Result<()> {
        let storage = Storage::open(path)?;
        let contents = read(storage.bytes()).map_err(|error| in_file(path, error))?;
        if contents.format != self.format {
            return Err(damaged(format_args!("{} is not a {} file", path.display(), self.format.name())));
        }
        for (key, value) in contents.metadata {
            self.metadata.entry(key).or_insert(value);
        }
        let place = self.storages.len();
        let tensors = contents.tensors.into_iter().map(|tensor| TensorInfo { storage: place, ..tensor });
        match names {
            None => self.tensors.extend(tensors),
            Some(names) => {
                let mut found: HashMap<String, TensorInfo> =
                    tensors.map(|tensor| (tensor.name.clone(), tensor)).collect();
                for name in names {
                    let tensor = found.remove(*name).ok_or_else(|| {
                        damaged(format_args!(
                            "{} lacks \"{name}\", which the index says it holds",
                            path.display()
                        ))
                    })?;
                    self.tensors.push(tensor);
                }
            }
        }
        self.storages.push(storage);
        Ok(())
    }

    fn joined(self) -> Opened {
        let metadata = self.metadata.into_iter().collect();
        let contents = Contents { format: self.format, metadata, tensors: self.tensors };
        (contents, self.storages)
    }
}
