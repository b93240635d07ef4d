//! What is done to a product's elements while they are still in the cache.

use crate::simd::{Isa, Real};

/// Finishes the elements of a product after their last term has been added.
pub trait Epilogue<T>: Sync {
    /// Whether there is nothing to do, so that rows need not be handed over.
    fn is_none(&self) -> bool {
        false
    }

    /// Changes, in place, the elements of row `row` from column `column` on.
    ///
    /// Every element is handed over exactly once, in pieces cut anywhere: what
    /// becomes of an element may depend only on its value and its place.
    fn apply(&self, isa: Isa, row: usize, column: usize, piece: &mut [T]);
}

/// Leaves the product as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEpilogue;

impl<T> Epilogue<T> for NoEpilogue {
    fn is_none(&self) -> bool {
        true
    }

    fn apply(&self, _: Isa, _: usize, _: usize, _: &mut [T]) {}
}

/// Adds a bias after the sum: z = acc + bias.
#[derive(Clone, Copy, Debug)]
pub enum Bias<'a, T> {
    /// One for each column, as a dense layer has.
    Columns(&'a [T]),
    /// One for each row, as a convolution has whose rows are channels.
    Rows(&'a [T]),
}

impl<T: Real> Epilogue<T> for Bias<'_, T> {
    fn apply(&self, _: Isa, row: usize, column: usize, piece: &mut [T]) {
        match self {
            Bias::Columns(bias) => {
                for (z, &bias) in piece.iter_mut().zip(&bias[column..]) {
                    *z += bias;
                }
            }
            Bias::Rows(bias) => {
                let bias = bias[row];
                for z in piece {
                    *z += bias;
                }
            }
        }
    }
}

/// One epilogue after another: a bias, then an activation.
impl<T, First: Epilogue<T>, Second: Epilogue<T>> Epilogue<T> for (First, Second) {
    fn is_none(&self) -> bool {
        self.0.is_none() && self.1.is_none()
    }

    fn apply(&self, isa: Isa, row: usize, column: usize, piece: &mut [T]) {
        self.0.apply(isa, row, column, piece);
        self.1.apply(isa, row, column, piece);
    }
}
