//! Softmaxes that give zeros.

use super::{Distribution, of_classes};
use crate::Result;
use crate::layers::kind_registry::Configured;
use crate::layers::one_input::one_input;
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Layer, Sample};
use crate::ops::{self, Direction};
use crate::tensor::Shape;

settings! {
    /// The nearest point to x among all distributions, over the last axis (Martins and Astudillo 2016): like a
    /// softmax, but small logits get exactly 0.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Sparsemax "sparsemax" {}
}

settings! {
    /// Between softmax (`alpha` towards 1) and sparsemax (2) and beyond, over the last axis (Peters, Niculae and
    /// Martins 2019): the larger alpha, the more zeros. 1.5 and 2 are exact, others found by 28 halvings of the
    /// interval that holds the threshold (56 in float64).
    #[derive(Clone, Debug, PartialEq)]
    pub struct Entmax "entmax" {} optional {
        /// Above 1.
        alpha: f64 [above 1.0] = 1.5,
    }
}

impl Default for Entmax {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for Sparsemax {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self {}, [1]), Sample::new(Self {}, [3, 7]), Sample::new(Self {}, [33])]
    }
}

impl Configured for Entmax {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self::default(), [1]),
            Sample::new(Self::default(), [3, 7]),
            Sample::new(Self { alpha: 1.25 }, [33]),
            Sample::new(Self { alpha: 2.0 }, [2, 5]),
            Sample::new(Self { alpha: 1.7 }, [4]),
        ]
    }
}

macro_rules! layer {
    ($layer:ident, $alpha:expr) => {
        impl Layer for $layer {
            kind_and_config!();

            fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
                of_classes(stringify!($layer), stringify!($layer), inputs)
            }

            fn is_stepwise(&self) -> bool {
                true
            }

            one_input!();
        }

        impl Distribution for $layer {
            type Op = ops::Entmax;

            fn op(&self, shape: &Shape, direction: Direction) -> ops::Entmax {
                let classes = shape.last().copied().unwrap_or(1);
                ops::Entmax { direction, outer: shape.len() / classes, classes, alpha: $alpha(self) }
            }
        }
    };
}

layer!(Sparsemax, |_: &Sparsemax| 2.0);
layer!(Entmax, |layer: &Entmax| layer.alpha);
