//! What the fuzz targets prove, of their corpus and of a few mutants: `make fuzz` goes on from there.

#[path = "../../../fuzz/src/targets/mod.rs"]
mod targets;

use std::path::{Path, PathBuf};
use targets::Target;

#[global_allocator]
static ALLOCATOR: targets::limits::Limited = targets::limits::Limited;

/// How many mutants there are of a file; more with `LOOM_MUTANTS`. Networks are built and run for fewer.
const MUTANTS: u64 = 2000;
const NETWORKS: u64 = 100;

/// Numbers that follow from a seed (SplitMix64).
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }
}

/// A seed with a few bytes changed, put in or taken out; now and then bytes of no seed.
fn mutant(choices: &mut Choices, seeds: &[Vec<u8>]) -> Vec<u8> {
    if seeds.is_empty() || choices.below(4) == 0 {
        let len = 8 << choices.below(6);
        return (0..len).map(|_| choices.next() as u8).collect();
    }
    let mut bytes = seeds[choices.below(seeds.len())].clone();
    for _ in 0..=choices.below(3) {
        let reach = if choices.below(2) == 0 { bytes.len() } else { bytes.len().min(300) };
        let place = choices.below(reach);
        match choices.below(4) {
            0 => bytes.truncate(place),
            1 => bytes.insert(place, choices.next() as u8),
            2 => drop(bytes.drain(place..bytes.len().min(place + 1 + choices.below(8)))),
            _ => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = [0, 1, 0x7f, 0xff, b'0', b'9', b'"', *byte ^ 1][choices.below(8)];
                }
            }
        }
    }
    bytes
}

/// All files of a folder, in order of their names.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Does what a target does with its corpus and with mutants of it.
fn try_out(name: &str, target: Target) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seeds = files(&root.join("fuzz/corpus").join(name));
    match name {
        "checkpoint" => seeds.extend(files(&root.join("tests/golden/networks"))),
        "tensor_file" => seeds.extend(files(&root.join("tests/golden/tensors"))),
        _ => {}
    }
    seeds.iter().for_each(|seed| target(seed));
    let usual = match name {
        "edited_checkpoint" | "layers" | "mesh" | "morphing" | "programs" => NETWORKS,
        _ => MUTANTS,
    };
    let count = std::env::var("LOOM_MUTANTS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual);
    for number in 0..count {
        let input = mutant(&mut Choices(number), &seeds);
        let failed = std::panic::catch_unwind(|| target(&input)).is_err();
        assert!(!failed, "{name}: mutant {number}, {} bytes: {}", input.len(), input.escape_ascii());
    }
}

macro_rules! targets {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                try_out(stringify!($name), targets::$name::target);
            }
        )*

        #[test]
        fn no_target_is_left_out() {
            let all: Vec<&str> = targets::ALL.iter().map(|(name, _)| *name).collect();
            assert_eq!(all, [$(stringify!($name)),*]);
        }
    };
}

targets!(blocks, checkpoint, config, edited_checkpoint, layers, mesh, morphing, programs, tensor_file);
