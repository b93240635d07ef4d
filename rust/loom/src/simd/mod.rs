//! The processor: its instruction sets and threads, vectors over all of them, and mathematics that gives
//! the same bits on each.
//!
//! ```text
//! isa            which instruction sets there are
//! pool           the threads
//! context        one of each, to hand to kernels
//! float_control  the register that says how numbers are rounded
//! elementwise    arithmetic of a number, or of every lane
//! math           exp, ln, tanh and their kin
//! real           f32 and f64, vectors of 16 lanes, words of 32 bits beside them, kernels over both
//! portable, avx2, avx512   the vectors; double: those of f64; words: the words
//! dispatch       enters the code for an instruction set
//! float16        the floats of 16 bits
//! prefetch       says what will be read
//! ```
//!
//! A kernel is written once, generically over [`Vector`], and handed to
//! [`Real::dispatch`], which enters a function compiled
//! for the instruction set and runs it there. Every operation here gives the
//! same bits on every implementation: they are either single operations that
//! IEEE 754 defines to the bit, or built from such. The one exception is the
//! payload and sign of a NaN that arithmetic produces, which the standard
//! leaves open; that a lane is NaN is the same everywhere.
//!
//! Whatever a kernel calls should be `#[inline(always)]`, closures kept small:
//! code that is not inlined into the entry function is compiled for the
//! baseline machine, which gives the same bits slowly.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod context;
mod dispatch;
#[cfg(target_arch = "x86_64")]
mod double;
mod elementwise;
mod float16;
mod float_control;
mod isa;
pub mod math;
mod pool;
mod portable;
mod prefetch;
mod real;
#[cfg(test)]
mod tests;
mod words;

pub use context::Cpu;
pub(crate) use dispatch::{dispatch_bfloat16_pairs, dispatch_quads, has_bfloat16_pairs, has_quads};
pub use elementwise::Elementwise;
pub use float_control::FloatControl;
pub(crate) use float16::to_bfloat16;
pub use float16::{bfloat16_to_f32, float16_to_f32};
pub use isa::{Isa, Level};
pub use math::Math;
pub use pool::{MAX_THREADS, Pool, THREADS_VARIABLE};
pub use portable::Portable;
pub(crate) use prefetch::{prefetch, prefetch_second_level};
pub(crate) use real::array_of;
pub use real::{Decode, Kernel, LANES, Real, Sixteen, Vector, Words};
// What products ask of their elements, under the name it had.
#[doc(hidden)]
pub use real::Real as Element;
