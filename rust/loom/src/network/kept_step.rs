//! What the layers of a [`TweenState`](crate::train::tween::TweenState) made in its newest step, in a file.

use crate::tensor::Tensor;

/// Tensors by layer, the batch axis first; none where nothing was called yet that makes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptStep {
    pub(crate) activations: Vec<Tensor>,
    pub(crate) targets: Vec<Tensor>,
    pub(crate) chain_gradients: Vec<Tensor>,
}

impl KeptStep {
    /// Whether layers whose outputs have these shapes, without the batch axis, have made it.
    pub(crate) fn is_of<'a>(&self, shapes: impl Iterator<Item = &'a [usize]>) -> bool {
        self.activations.iter().map(|made| &made.shape()[1..]).eq(shapes)
    }

    /// The lists, with the word that names their tensors in a file.
    pub(crate) fn lists(&self) -> [(&'static str, &Vec<Tensor>); 3] {
        [
            ("activation", &self.activations),
            ("target", &self.targets),
            ("chain_gradient", &self.chain_gradients),
        ]
    }

    /// The same, to be filled.
    pub(crate) fn lists_mut(&mut self) -> [(&'static str, &mut Vec<Tensor>); 3] {
        [
            ("activation", &mut self.activations),
            ("target", &mut self.targets),
            ("chain_gradient", &mut self.chain_gradients),
        ]
    }
}
