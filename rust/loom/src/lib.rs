//! A neural-network engine: a 3-D grid of cells that hold layers, weights in one
//! full-precision master and any number of packed low-bit versions, the same bits on every CPU.
//!
#![doc = include_str!("../docs/architecture.svg")]
//!
//! A network compiles to a program, a list of operations over planned memory, and an engine runs it: the
//! processor, or a GPU. Weights stand in a registry beside it, where steps of training move them.
//!
//! ```
//! use loom::layers::Dense;
//! use loom::ops::pointwise::Activation;
//! use loom::train::{Examples, LossConfig, TrainingConfig, train};
//! use loom::{Network, tensor_view};
//!
//! let mut network = Network::sequential([2])?;
//! network.add([0, 0, 0], Dense::new(16).activation(Activation::Tanh))?;
//! network.add([0, 0, 0], Dense::new(2))?;
//!
//! let input = [0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
//! let examples = Examples::classified(tensor_view(&[4, 2], &input)?, &[0, 1, 1, 0]);
//! let config = TrainingConfig {
//!     epochs: 200,
//!     batch_size: 4,
//!     learning_rate: 0.05,
//!     loss: LossConfig::parse("cross_entropy")?,
//!     ..TrainingConfig::default()
//! };
//! let result = train(&mut network, &examples, &config)?;
//! assert!(result.final_loss < 0.1);
//! # Ok::<(), loom::Error>(())
//! ```
//!
//! [`Network::to`] moves a network to a GPU, where it trains and predicts in command frames; see
//! [`Device::open`] for the names of devices, and `loom::gpu` (the feature `gpu`, on by default)
//! for what GPUs there are.

// Its #[test] registers where the library has its tests in it.
#[cfg(feature = "unit-tests")]
#[macro_use(test)]
extern crate loom_nn_tests;

mod device;
mod error;
mod lasting;
mod precision;
mod tensor;

pub mod cpu;
pub mod dtype;
pub mod extents;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod interrupt;
pub mod io;
pub mod layers;
pub mod matrix;
pub mod mesh;
pub mod network;
pub mod ops;
pub mod process;
pub mod program;
pub mod random;
pub mod shader;
pub mod simd;
pub mod state;
pub mod train;
#[cfg(feature = "unit-tests")]
pub mod unit_tests;
pub mod weights;

pub use device::Device;
pub use error::{Error, Result};
pub use network::Network;
pub use precision::Precision;
pub use tensor::{Buffer, Elements, Shape, Tensor, TensorView};

use simd::Real;

/// Sees a slice as an array of this shape, the batch axis first.
///
/// # Errors
/// [`Error::Shape`] unless the shape's product is the number of elements.
pub fn tensor_view<'a, T: Real>(shape: &[usize], elements: &'a [T]) -> Result<TensorView<'a>> {
    TensorView::new(shape, Elements::of(elements))
}
