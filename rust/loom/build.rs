//! With the feature `unit-tests` the library has its unit tests in it: what stands under `cfg(test)` is compiled.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_UNIT_TESTS").is_some() {
        println!("cargo:rustc-cfg=test");
    }
}
