//! Networks as files whose parts were changed, with checksums and lengths that are right.

use super::checkpoint::check;
use super::draw::Draws;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// A tensor of a file.
#[derive(Clone)]
struct Part {
    name: String,
    dtype: String,
    shape: Value,
    bytes: Vec<u8>,
}

/// A file in parts.
#[derive(Clone)]
struct Parts {
    metadata: Map<String, Value>,
    tensors: Vec<Part>,
}

static FILES: LazyLock<Vec<Parts>> = LazyLock::new(|| {
    let files: [&[u8]; 6] = [
        include_bytes!("../../../tests/golden/networks/sequence.loom"),
        include_bytes!("../../../tests/golden/networks/dense.loom"),
        include_bytes!("../../../tests/golden/networks/checked.loom"),
        include_bytes!("../../../tests/golden/networks/deployed.loom"),
        include_bytes!("../../../tests/golden/networks/packed.loom"),
        include_bytes!("../../../tests/golden/networks/steps.loom"),
    ];
    files.iter().filter_map(|file| Parts::of(file)).collect()
});

/// What numbers become.
const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "64",
    "255",
    "2147483647",
    "4294967296",
    "1000000000000",
    "9007199254740993",
    "18446744073709551615",
    "18446744073709551616",
    "0.5",
    "-0.0",
    "1e308",
    "1e-308",
];

/// What values become.
const VALUES: [&str; 14] = [
    "null",
    "true",
    "false",
    "\"\"",
    "\"x\"",
    "\"int4\"",
    "\"float64\"",
    "\"adam\"",
    "[]",
    "[1]",
    "[[1]]",
    "{}",
    "{\"type\":\"dense\"}",
    "\"softmax\"",
];

const TYPES: [&str; 12] =
    ["F32", "F64", "F16", "BF16", "I64", "I8", "U8", "U64", "BOOL", "F8_E4M3", "C64", "X"];

impl Parts {
    fn of(file: &[u8]) -> Option<Self> {
        let (length, rest) = file.split_first_chunk::<8>()?;
        let (header, data) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        let mut header: Map<String, Value> = serde_json::from_slice(header).ok()?;
        let Some(Value::Object(metadata)) = header.remove("__metadata__") else { return None };
        header.remove("loom.checksums");
        let mut tensors = Vec::new();
        for (name, entry) in header {
            let offset = |place: usize| entry["data_offsets"][place].as_u64().map(|offset| offset as usize);
            let bytes = data.get(offset(0)?..offset(1)?)?.to_vec();
            let dtype = entry["dtype"].as_str()?.to_string();
            tensors.push(Part { name, dtype, shape: entry["shape"].clone(), bytes });
        }
        Some(Self { metadata, tensors })
    }

    fn to_file(&self) -> Vec<u8> {
        let (mut data, mut sums) = (Vec::new(), Vec::new());
        let mut header = Map::from_iter([("__metadata__".to_string(), Value::Object(self.metadata.clone()))]);
        for Part { name, dtype, shape, bytes } in &self.tensors {
            let offsets = [data.len(), data.len() + bytes.len()];
            header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
            data.extend(bytes);
            sums.extend(crc32fast::hash(bytes).to_le_bytes());
        }
        let offsets = [data.len(), data.len() + sums.len() + 4];
        let shape = [self.tensors.len() + 1, 4];
        header
            .insert("loom.checksums".into(), json!({"dtype": "U8", "shape": shape, "data_offsets": offsets}));
        let header = Value::Object(header).to_string().into_bytes();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        let of_header = crc32fast::hash(&file).to_le_bytes();
        [file, data, of_header.to_vec(), sums].concat()
    }
}

/// Changes a value somewhere in JSON, now and then in JSON that a text in it holds.
pub(super) fn change(draws: &mut Draws<'_>, value: &mut Value) {
    let count = match value {
        Value::Array(items) => items.len(),
        Value::Object(items) => items.len(),
        _ => 0,
    };
    let deeper = count > 0 && draws.below(6) != 5;
    match value {
        Value::Array(items) if deeper => {
            let place = draws.below(count);
            change(draws, &mut items[place]);
        }
        Value::Object(items) if deeper => {
            let place = draws.below(count);
            if let Some(item) = items.values_mut().nth(place) {
                change(draws, item);
            }
        }
        Value::Array(items) if count > 0 && draws.once_in(2) => {
            let place = draws.below(count);
            match draws.once_in(2) {
                true => drop(items.remove(place)),
                false => items.insert(place, items[place].clone()),
            }
        }
        Value::Object(items) if count > 0 && draws.once_in(2) => {
            let name = items.keys().nth(draws.below(count)).cloned().unwrap_or_default();
            items.remove(&name);
        }
        Value::String(text) if text.starts_with(['{', '[']) && !draws.once_in(4) => {
            let mut inner = parsed(text);
            change(draws, &mut inner);
            *text = inner.to_string();
        }
        Value::Number(_) if !draws.once_in(4) => *value = parsed(draws.name(&NUMBERS)),
        Value::String(text) if draws.once_in(4) => text.push('x'),
        _ => *value = parsed(draws.name(&VALUES)),
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Changes a tensor.
fn change_tensor(draws: &mut Draws<'_>, tensors: &mut Vec<Part>) {
    let place = draws.below(tensors.len());
    let other = draws.below(tensors.len());
    let name = tensors.get(other).map(|other| other.name.clone());
    let Some(tensor) = tensors.get_mut(place) else { return };
    match draws.below(8) {
        0 => change(draws, &mut tensor.shape),
        1 => tensor.dtype = draws.name(&TYPES).into(),
        2 => tensor.name.push_str("@int4"),
        3 => tensor.name = name.unwrap_or_default() + ".scale",
        4 => tensors.swap(place, other),
        5 => drop(tensors.remove(place)),
        6 => {
            let number = draws.real() as f32;
            let at = 4 * draws.below(tensor.bytes.len() / 4);
            if let Some(bytes) = tensor.bytes.get_mut(at..at + 4) {
                let number = if draws.once_in(2) { number } else { f32::NAN };
                bytes.copy_from_slice(&number.to_le_bytes());
            }
        }
        _ => {
            let at = draws.below(tensor.bytes.len());
            if let Some(byte) = tensor.bytes.get_mut(at) {
                *byte = draws.below(256) as u8;
            }
        }
    }
}

/// Changes a file in a few places, and reads it.
pub fn target(data: &[u8]) {
    let mut draws = Draws::new(data);
    let mut file = draws.one_of(&FILES).clone();
    for _ in 0..=draws.below(4) {
        if draws.once_in(2) {
            change_tensor(&mut draws, &mut file.tensors);
            continue;
        }
        let place = draws.below(file.metadata.len());
        let Some(Value::String(text)) = file.metadata.values_mut().nth(place) else { continue };
        let Ok(mut value) = serde_json::from_str::<Value>(text) else { continue };
        change(&mut draws, &mut value);
        *text = value.to_string();
    }
    check(&file.to_file());
}
