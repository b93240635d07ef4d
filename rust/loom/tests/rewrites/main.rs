//! Every rewrite of the table leaves every bit as it was, and layers that share parameters learn as
//! one, whatever is fused.

mod fused;
mod random;
mod shared;
mod sharing;

/// Whether there is a GPU to test on. Without one tests are skipped, unless `LOOM_REQUIRE_GPU=1` says
/// that there must be one.
#[cfg(feature = "gpu")]
fn has_gpu() -> bool {
    match loom::Device::open("gpu", loom::Precision::Float32) {
        Ok(_) => true,
        Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
            panic!("LOOM_REQUIRE_GPU is set, and {error}")
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}
