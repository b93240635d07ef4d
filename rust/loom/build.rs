//! What the library is compiled with.
//!
//! With the feature `unit-tests` it has its unit tests in it: what stands under `cfg(test)` is compiled.
//!
//! Kernels are compiled once for each instruction set, which is most of the build. `LOOM_KERNELS=host` leaves out
//! those that the machine that builds would not choose: what is built so runs on machines that have the same.

use std::env;

/// The environment variable that says which instruction sets kernels are compiled for: `all`, or `host`.
const VARIABLE: &str = "LOOM_KERNELS";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    println!("cargo:rustc-check-cfg=cfg(kernels, values(\"portable\", \"avx2\", \"avx512\"))");
    if env::var_os("CARGO_FEATURE_UNIT_TESTS").is_some() {
        println!("cargo:rustc-cfg=test");
    }
    for level in kernels() {
        println!("cargo:rustc-cfg=kernels=\"{level}\"");
    }
}

/// The instruction sets that kernels are compiled for, from least to most.
fn kernels() -> Vec<&'static str> {
    let all = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => vec!["portable", "avx2", "avx512"],
        _ => vec!["portable"],
    };
    match env::var(VARIABLE).as_deref() {
        Err(env::VarError::NotPresent) | Ok("" | "all") => all,
        Ok("host") => {
            assert!(
                env::var("HOST") == env::var("TARGET"),
                "{VARIABLE}=host compiles kernels for the machine that builds, which the target is not: unset it"
            );
            all.into_iter().rev().find(|level| has(level)).into_iter().collect()
        }
        other => panic!("{VARIABLE} is to be \"all\" or \"host\", not {other:?}"),
    }
}

/// Whether this machine can run it, as `Level::is_supported` asks.
#[cfg(target_arch = "x86_64")]
fn has(level: &str) -> bool {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    match level {
        "portable" => true,
        "avx2" => avx2,
        _ => {
            avx2 && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn has(level: &str) -> bool {
    level == "portable"
}
