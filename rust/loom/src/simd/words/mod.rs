//! Sixteen words of 32 bits, for each instruction set, and how its vectors of `f32` decode them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod dots;
mod portable;
