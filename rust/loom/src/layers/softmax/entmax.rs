//! Softmaxes that give zeros.

use crate::Result;
use crate::layers::registry::Configured;
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, Sample, Want, shape_error, single};
use crate::ops::{self, Direction};
use crate::program::{Builder, Value};
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

fn op(alpha: f64, shape: &Shape, direction: Direction) -> ops::Entmax {
    let classes = shape.last().copied().unwrap_or(1);
    ops::Entmax { direction, outer: shape.len() / classes, classes, alpha }
}

fn same_shape(name: &str, inputs: &[Shape]) -> Result<Shape> {
    let input = single(name, inputs)?;
    if input.rank() == 0 || input.is_empty() {
        return Err(shape_error(name, "at least one class", input));
    }
    Ok(input.clone())
}

fn forward(alpha: f64, b: &mut Builder, x: Value) -> Forward {
    let shape = b.shape(x).clone();
    let y = b.apply(op(alpha, &shape, Direction::Forward), &[x], "y", shape);
    Forward::saving(y, vec![y])
}

fn backward(alpha: f64, b: &mut Builder, y: Value, gradient: Value, want: Want) -> Vec<Option<Value>> {
    if !want.inputs {
        return vec![None];
    }
    let shape = b.shape(gradient).clone();
    vec![Some(b.apply(op(alpha, &shape, Direction::InputGradient), &[y, gradient], "dx", shape))]
}

macro_rules! layer {
    ($layer:ident, $alpha:expr) => {
        impl Layer for $layer {
            kind_and_config!();

            fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
                same_shape(stringify!($layer), inputs)
            }

            fn is_stepwise(&self) -> bool {
                true
            }

            fn forward(&self, b: &mut Builder, _cx: &Context, inputs: &[Value]) -> Result<Forward> {
                let x = *single(self.kind(), inputs)?;
                Ok(forward($alpha(self), b, x))
            }

            fn backward(
                &self,
                b: &mut Builder,
                _cx: &Context,
                _inputs: &[Value],
                forward: &Forward,
                gradient: Value,
                want: Want,
            ) -> Result<Vec<Option<Value>>> {
                Ok(backward($alpha(self), b, forward.saved[0], gradient, want))
            }
        }
    };
}

layer!(Sparsemax, |_: &Sparsemax| 2.0);
layer!(Entmax, |layer: &Entmax| layer.alpha);
