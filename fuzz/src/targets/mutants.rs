//! Inputs that are the same every time: the files of a target's corpus with a few things changed, by bytes, by numbers
//! and by what a header says.

use super::draw::Draws;
use super::edited_checkpoint::change;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Lengths, counts and offsets that parsers stumble over.
const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    3,
    7,
    8,
    32,
    255,
    256,
    65_535,
    65_536,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

/// Bytes that mean something in JSON, and ends of what bytes can be.
const BYTES: [u8; 16] = *b"\x00\x01\x7f\x80\xff09-\"\\[]{},:";

/// Numbers that follow from a seed (SplitMix64).
pub struct Choices(u64);

impl Choices {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(count).collect()
    }
}

/// What the inputs of a target are made of, each with the JSON in it, where it has any.
pub struct Seeds(Vec<(Vec<u8>, Option<Header>)>);

/// A header of JSON: what is before it, and where it ends.
struct Header {
    start: usize,
    end: usize,
    value: Value,
}

impl Header {
    /// The header of a whole file of JSON, or of one that says its header's length first.
    fn of(file: &[u8]) -> Option<Self> {
        if let Ok(value) = serde_json::from_slice(file) {
            return Some(Self { start: 0, end: file.len(), value });
        }
        let (length, rest) = file.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let value = serde_json::from_slice(rest.get(..length)?).ok()?;
        Some(Self { start: 8, end: 8 + length, value })
    }
}

impl Seeds {
    /// The corpus of a target, beside golden files that it can read.
    pub fn of(target: &str, repository: &Path) -> Self {
        let mut seeds = files(&repository.join("fuzz/corpus").join(target), &[]);
        match target {
            "checkpoint" => seeds.extend(files(&repository.join("tests/golden/networks"), &["loom"])),
            "tensor_file" => {
                seeds.extend(files(&repository.join("tests/golden/tensors"), &["gguf", "safetensors"]));
            }
            _ => {}
        }
        let with_header = |file: Vec<u8>| {
            let header = Header::of(&file);
            (file, header)
        };
        Self(seeds.into_iter().map(with_header).collect())
    }

    /// The files as they are.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|(file, _)| file.as_slice())
    }

    /// The input of a number: one of the files with a few things changed, now and then bytes of none.
    pub fn mutant(&self, number: u64) -> Vec<u8> {
        let mut choices = Choices::new(number);
        if self.0.is_empty() || choices.below(8) == 0 {
            let len = 8 << choices.below(6);
            return choices.bytes(len);
        }
        let (file, header) = &self.0[choices.below(self.0.len())];
        let mut bytes = match header {
            Some(header) if choices.below(2) == 0 => with_other_header(&mut choices, file, header),
            _ => file.clone(),
        };
        if header.is_none() || bytes == *file || choices.below(4) == 0 {
            for _ in 0..=choices.below(3) {
                self.change(&mut choices, &mut bytes);
            }
        }
        bytes
    }

    /// Changes something near the start, where files say most of themselves, or anywhere.
    fn change(&self, choices: &mut Choices, bytes: &mut Vec<u8>) {
        let reach = bytes.len().min([64, 300, 4096, usize::MAX][choices.below(4)]);
        let place = choices.below(reach);
        let until = |length: usize| bytes.len().min(place + length);
        match choices.below(10) {
            0 => bytes.truncate(place),
            1 => bytes.insert(place, choices.next() as u8),
            2 => drop(bytes.drain(place..until(1 + choices.below(8)))),
            3 => {
                let (other, _) = &self.0[choices.below(self.0.len())];
                let from = choices.below(other.len().min(4096));
                let piece = &other[from..other.len().min(from + 1 + choices.below(64))];
                drop(bytes.splice(place..place, piece.iter().copied()));
            }
            4 => {
                let piece = bytes[place..until(1 + choices.below(32))].to_vec();
                drop(bytes.splice(place..place, piece));
            }
            5 => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << choices.below(8)),
            6 => put(bytes, place, &[BYTES[choices.below(BYTES.len())]]),
            // Lengths are words, mostly at multiples of their widths.
            _ => {
                let width = 1 << choices.below(4);
                let place = if choices.below(2) == 0 { place } else { place - place % width };
                let number = NUMBERS[choices.below(NUMBERS.len())].to_le_bytes();
                put(bytes, place, &number[..width]);
            }
        }
    }
}

/// Writes over what is there.
fn put(bytes: &mut [u8], place: usize, new: &[u8]) {
    bytes.iter_mut().skip(place).zip(new).for_each(|(byte, new)| *byte = *new);
}

/// The file with other values in its header, and the length that this then has.
fn with_other_header(choices: &mut Choices, file: &[u8], header: &Header) -> Vec<u8> {
    let bytes = choices.bytes(128);
    let mut draws = Draws::new(&bytes);
    let mut value = header.value.clone();
    for _ in 0..=choices.below(3) {
        change(&mut draws, &mut value);
    }
    let text = value.to_string();
    if header.start == 0 {
        return text.into_bytes();
    }
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &file[header.end..]].concat()
}

/// All files of a folder, in order of their names; those with such endings where some are named.
fn files(folder: &Path, endings: &[&str]) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        endings.is_empty() || endings.iter().any(|it| path.extension().is_some_and(|end| end == *it))
    });
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}
