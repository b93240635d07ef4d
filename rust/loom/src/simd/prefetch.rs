//! Saying ahead of time which memory will be read; any address will do.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// Fetches a line into the first-level cache.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    // SAFETY: every machine of this architecture has the instruction, which never faults.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    let _ = address;
}

/// Fetches a line into the second-level cache: the first has too few ways for rows whose distance is a power
/// of two, and too few misses under way at once.
#[inline(always)]
pub(crate) fn prefetch_second_level<T>(address: *const T) {
    // SAFETY: as `prefetch`.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    let _ = address;
}
