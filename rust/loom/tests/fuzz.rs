//! What the fuzz targets prove, of their corpus and of a few mutants: `make fuzz` goes on from there.

#[path = "../../../fuzz/src/targets/mod.rs"]
mod targets;

use std::path::Path;
use targets::Target;
use targets::mutants::Seeds;

#[global_allocator]
static ALLOCATOR: targets::limits::Limited = targets::limits::Limited;

/// How many mutants are tried, of which networks are built and run for fewer; more with `LOOM_MUTANTS`, and those of
/// numbers from `LOOM_MUTANTS_FROM` on.
const MUTANTS: u64 = 2000;
const NETWORKS: u64 = 100;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Does what a target does with its corpus and with mutants of it.
fn try_out(name: &str, target: Target) {
    let seeds = Seeds::of(name, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    seeds.iter().for_each(target);
    let usual = match name {
        "edited_checkpoint" | "layers" | "mesh" | "morphing" | "programs" => NETWORKS,
        _ => MUTANTS,
    };
    let first = setting("LOOM_MUTANTS_FROM").unwrap_or(0);
    let count = setting("LOOM_MUTANTS").unwrap_or(usual);
    for number in first..first + count {
        let input = seeds.mutant(number);
        if std::env::var_os("LOOM_FUZZ_SHOW").is_some() {
            eprintln!("{number}: {}", input.escape_ascii());
        }
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
