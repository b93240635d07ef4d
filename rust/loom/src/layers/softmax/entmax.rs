//! Softmaxes that give zeros.

use super::{Distribution, of_classes};
use crate::layers::one_input::one_input;
use crate::layers::registry::{Configured, config_of};
use crate::layers::{Layer, Sample};
use crate::ops::{self, Direction};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The nearest point to x among all distributions, over the last axis (Martins and Astudillo 2016): like a
/// softmax, but small logits get exactly 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sparsemax {}

/// Between softmax (`alpha` towards 1) and sparsemax (2) and beyond, over the last axis (Peters, Niculae and
/// Martins 2019): the larger alpha, the more zeros. 1.5 and 2 are exact, others found by 28 halvings of the
/// interval that holds the threshold (56 in float64).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entmax {
    /// Above 1.
    #[serde(default = "middle")]
    pub alpha: f64,
}

fn middle() -> f64 {
    1.5
}

impl Default for Entmax {
    fn default() -> Self {
        Self { alpha: middle() }
    }
}

impl Configured for Sparsemax {
    fn samples() -> Vec<Sample> {
        vec![Sample::new(Self {}, [1]), Sample::new(Self {}, [3, 7]), Sample::new(Self {}, [33])]
    }
}

impl Configured for Entmax {
    fn validate(&self) -> Result<()> {
        if !(self.alpha.is_finite() && self.alpha > 1.0) {
            return Err(Error::Value(format!("alpha must be above 1, got {}", self.alpha)));
        }
        Ok(())
    }

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
    ($layer:ident, $kind:literal, $alpha:expr) => {
        impl Layer for $layer {
            fn kind(&self) -> &'static str {
                $kind
            }

            fn config(&self) -> serde_json::Value {
                config_of(self.kind(), self)
            }

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

layer!(Sparsemax, "sparsemax", |_: &Sparsemax| 2.0);
layer!(Entmax, "entmax", |layer: &Entmax| layer.alpha);
