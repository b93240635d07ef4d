//! Sixteen elements side by side, as the kernels of products hold them in registers.
//!
//! The kernels work on raw pointers and keep whole tiles in registers, so they
//! have a narrower vector type than the rest of the CPU code: load, store,
//! broadcast, fused multiply-add, and the 16x16 transpose that packing needs.

mod element;
mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::Isa;
use half::bf16;

/// The number of elements in a [`Wide`].
pub(crate) const LANES: usize = 16;
/// The most rows that a tile has on any instruction set.
pub(crate) const MAX_ROWS: usize = 12;

/// Sixteen elements in registers.
///
/// # Safety
/// All methods may be called only where the instruction set that the type
/// stands for has been found at run time; pointers must be good for 16 elements
/// (or the number given).
pub(crate) trait Wide<T>: Copy {
    /// The most rows a tile has: what fits the registers beside one vector of B.
    const ROWS: usize;
    /// How many vectors wide a tile is, by its number of rows: 8, 4, 2 or 1; the
    /// same for `ROWS / 2` and more, as panels of one block share their width.
    const VECTORS: [usize; MAX_ROWS + 1];
    unsafe fn zero() -> Self;
    unsafe fn load(from: *const T) -> Self;
    /// The first `count` elements, less than 16; the rest are zero.
    unsafe fn load_few(from: *const T, count: usize) -> Self;
    unsafe fn store(self, to: *mut T);
    /// Says that the memory there will be read soon; any address will do.
    #[inline(always)]
    unsafe fn prefetch(_: *const T) {}
    unsafe fn broadcast(from: *const T) -> Self;
    /// `a * b + self`, rounded once.
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
    /// `self * b`, rounded once.
    unsafe fn multiply(self, b: Self) -> Self;
    /// Sixteen bfloat16 numbers, converted.
    unsafe fn load_bfloat16(from: *const bf16) -> Self;
    /// Sixteen integers, converted.
    unsafe fn load_int8(from: *const i8) -> Self;
    /// Vector j of the result holds element j of each vector given.
    unsafe fn transpose(block: &mut [Self; LANES]);
}

/// Code that is generic over the instruction set.
pub(crate) trait Kernel<T> {
    /// Runs with the instruction set that `W` stands for enabled.
    ///
    /// # Safety
    /// The instruction set has been found at run time, and whatever else the kernel asks for.
    unsafe fn run<W: Wide<T>>(self);
}

/// Something made of elements of one type.
pub(crate) trait Holding {
    /// That of this type.
    type Of<T: Element>;
}

/// The element types that products have kernels for.
pub trait Element: bytemuck::Pod + Default + Send + Sync {
    /// Runs `kernel` with `isa` enabled.
    ///
    /// # Safety
    /// What the kernel asks for. That the machine has `isa` needs no promise:
    /// an [`Isa`] exists only for what was found.
    #[doc(hidden)]
    #[allow(private_bounds, private_interfaces)] // callable from this crate only
    unsafe fn enter<K: Kernel<Self>>(isa: Isa, kernel: K);

    /// What holds elements of this type as what holds `f32`, where this is that type: for kernels that
    /// exist in single precision alone.
    #[doc(hidden)]
    #[allow(private_bounds, private_interfaces)] // as above
    fn single<H: Holding>(held: H::Of<Self>) -> Option<H::Of<f32>>;

    /// The most rows of a tile, and the vectors in a tile of `rows` rows.
    #[doc(hidden)]
    fn tile(isa: Isa, rows: usize) -> (usize, usize);
}

/// The same number in f32, exactly (and a NaN with the same payload).
#[inline(always)]
fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// The first `count` elements after `from`, then zeros.
///
/// # Safety
/// `from` is good for `count` elements, at most 16.
#[inline(always)]
pub(crate) unsafe fn padded<Q: Copy + Default>(from: *const Q, count: usize) -> [Q; LANES] {
    let mut copy = [Q::default(); LANES];
    // SAFETY: the caller's promise.
    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(from, count) };
    copy
}
