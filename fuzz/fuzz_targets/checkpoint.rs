#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| loom_fuzz::targets::checkpoint::target(data));
