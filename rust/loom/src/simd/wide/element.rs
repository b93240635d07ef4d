//! Where code for the vectors of an instruction set is entered.

use super::plain::Plain;
#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{Element, Holding, Kernel, MAX_ROWS, Wide};
use crate::simd::{Isa, Level};

/// Whether tiles of half the rows and more are equally wide: rows are spread
/// evenly over panels, so where there are several none has fewer.
const fn shares_width(rows: usize, vectors: [usize; MAX_ROWS + 1]) -> bool {
    let mut few = rows / 2;
    while few <= rows {
        if vectors[few] != vectors[rows] {
            return false;
        }
        few += 1;
    }
    true
}

macro_rules! element {
    ($element:ty, $avx512:ty, $avx2:ty, |$held:pat_param| $single:expr) => {
        impl Element for $element {
            #[inline(always)]
            #[allow(private_bounds, private_interfaces)]
            fn single<H: Holding>($held: H::Of<Self>) -> Option<H::Of<f32>> {
                $single
            }

            #[allow(private_bounds, private_interfaces)]
            unsafe fn enter<K: Kernel<Self>>(isa: Isa, kernel: K) {
                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                    unsafe fn avx512<K: Kernel<$element>>(kernel: K) {
                        // SAFETY: as `enter`.
                        unsafe { kernel.run::<$avx512>() }
                    }
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2<K: Kernel<$element>>(kernel: K) {
                        // SAFETY: as `enter`.
                        unsafe { kernel.run::<$avx2>() }
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
                unsafe { kernel.run::<Plain<$element>>() }
            }

            fn tile(isa: Isa, rows: usize) -> (usize, usize) {
                fn of<T, W: Wide<T>>(rows: usize) -> (usize, usize) {
                    const { assert!(shares_width(W::ROWS, W::VECTORS)) };
                    (W::ROWS, W::VECTORS[rows.min(W::ROWS)])
                }
                match isa.level() {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => of::<$element, $avx512>(rows),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => of::<$element, $avx2>(rows),
                    _ => of::<$element, Plain<$element>>(rows),
                }
            }
        }
    };
}

element!(f32, x86::F32x16, x86::F32x8x2, |held| Some(held));
element!(f64, x86::F64x8x2, x86::F64x4x4, |_| None);
