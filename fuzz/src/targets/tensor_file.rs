//! Files of tensors by whatever program: safetensors and GGUF. All that there is to ask of one that is read is asked.

use super::{documented, limits, read};
use loom::io::{TensorFile, Value};

/// What a parser may hold beside multiples of the file: tables, messages.
const BESIDE: usize = 1 << 16;

/// Reads a file and everything in it.
pub fn target(data: &[u8]) {
    let Some(file) = limits::within(BESIDE + 16 * data.len(), || read(TensorFile::from_bytes(data.to_vec())))
    else {
        return;
    };
    limits::within(BESIDE + 16 * data.len(), || look_at(&file));
    documented(file.verify());
}

fn look_at(file: &TensorFile) {
    for tensor in file.tensors() {
        let bytes = file.bytes(&tensor.name).expect("a tensor that is listed is there");
        assert_eq!(Some(bytes.len()), tensor.element.bytes(&tensor.shape), "{}", tensor.name);
        let numbers = documented(file.to_f32(&tensor.name));
        let elements = match tensor.shape.contains(&0) {
            true => 0,
            false => tensor.shape.iter().product::<usize>(),
        };
        assert!(numbers.is_none_or(|numbers| numbers.len() == elements), "{}", tensor.name);
    }
    for (_, value) in file.metadata() {
        if let Value::Array(values) = value {
            assert!(!format!("{values:?}").is_empty());
        }
    }
}
