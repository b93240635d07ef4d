//! The floating-point control register, held at its default while kernels run.
//!
//! A library loaded beside loom may have turned denormals off or changed the
//! rounding for a whole thread, and threads inherit that from the thread that
//! makes them. Kernels promise the same bits everywhere, so each thread that
//! takes part in one holds a [`FloatControl`] meanwhile.

use std::marker::PhantomData;

/// While it lives, this thread rounds to nearest even, keeps denormals and masks
/// exceptions; when dropped, what was set before is set again.
#[must_use]
pub struct FloatControl {
    restore: Option<u64>,
    // The register belongs to the thread: the guard must be dropped on it.
    _thread: PhantomData<*mut ()>,
}

impl FloatControl {
    /// Sets the default, where it is not set already.
    pub fn standard() -> Self {
        let found = register::read();
        let standard = (found & !register::CONTROL) | register::STANDARD;
        let restore = (found != standard).then(|| {
            register::write(standard);
            found
        });
        Self { restore, _thread: PhantomData }
    }
}

impl Drop for FloatControl {
    fn drop(&mut self) {
        if let Some(found) = self.restore {
            register::write(found);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;

    /// All but the sticky exception flags.
    pub const CONTROL: u64 = 0xFFC0;
    /// Every exception masked, round to nearest, no flush to zero.
    pub const STANDARD: u64 = 0x1F80;

    pub fn read() -> u64 {
        let mut value = 0_u32;
        // SAFETY: stores MXCSR, 4 bytes, to a live local.
        unsafe { asm!("stmxcsr [{}]", in(reg) &mut value, options(nostack, preserves_flags)) };
        u64::from(value)
    }

    pub fn write(value: u64) {
        let value = value as u32;
        // SAFETY: loads MXCSR from a live local; the value is either the
        // architecture's default control word or one that was read from MXCSR.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &value, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    /// Rounding, flush-to-zero, default-NaN and trap enables; reserved bits stay.
    pub const CONTROL: u64 = 0x07F7_9F07;
    /// All of them clear: IEEE's defaults.
    pub const STANDARD: u64 = 0;

    pub fn read() -> u64 {
        let value: u64;
        // SAFETY: reads FPCR, which every thread may.
        unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nostack, preserves_flags)) };
        value
    }

    pub fn write(value: u64) {
        // SAFETY: the value is either IEEE's default or one that was read from FPCR.
        unsafe { asm!("msr fpcr, {}", in(reg) value, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    pub const CONTROL: u64 = 0;
    pub const STANDARD: u64 = 0;

    pub fn read() -> u64 {
        0
    }

    pub fn write(_: u64) {}
}

/// Sets the register to flush denormals and round down, for tests of what must not depend on it.
#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) fn disturbed<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            register::write(self.0);
        }
    }
    let _restore = Restore(register::read());
    register::write(0xBFC0);
    body()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn holds_the_default_and_puts_back_what_was_there() {
        let half_of_smallest = || black_box(f32::MIN_POSITIVE) * black_box(0.5);
        disturbed(|| {
            assert_eq!(half_of_smallest(), 0.0);
            let guard = FloatControl::standard();
            assert_eq!(half_of_smallest().to_bits(), 0x0040_0000);
            drop(guard);
            assert_eq!(half_of_smallest(), 0.0);
        });
        assert_ne!(half_of_smallest(), 0.0);
    }
}
