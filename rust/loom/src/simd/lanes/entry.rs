//! Enters the code for an instruction set.

use super::Lanes;
use super::plain::Plain;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::simd::Isa;
#[cfg(target_arch = "x86_64")]
use crate::simd::Level;

/// What is compiled for the lanes of each instruction set.
pub(crate) trait LanesKernel {
    /// To be inlined, with all that it calls.
    ///
    /// # Safety
    /// As [`Lanes`], and what the kernel asks for.
    unsafe fn run<L: Lanes>(self);
}

/// Runs a kernel in the instruction set's own lanes.
///
/// # Safety
/// As [`LanesKernel::run`], but that the machine has `isa` needs no promise.
pub(crate) unsafe fn enter<K: LanesKernel>(isa: Isa, kernel: K) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        unsafe fn avx512<K: LanesKernel>(kernel: K) {
            // SAFETY: as `enter`.
            unsafe { kernel.run::<x86::Avx512>() }
        }
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2<K: LanesKernel>(kernel: K) {
            // SAFETY: as `enter`.
            unsafe { kernel.run::<x86::Avx2>() }
        }
        match isa.level() {
            // SAFETY: `isa` proves that the machine has it; the rest as `enter`.
            Level::Avx512 => return unsafe { avx512(kernel) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { avx2(kernel) },
            Level::Portable => {}
        }
    }
    let _ = isa;
    // SAFETY: as `enter`.
    unsafe { kernel.run::<Plain>() }
}
