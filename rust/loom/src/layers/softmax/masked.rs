//! Softmax over what masks leave.

use super::of_classes;
use crate::layers::kind_registry::Configured;
use crate::layers::one_input::{Backward, OneInput, one_input};
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, Sample, mask_of, shape_error};
use crate::ops::masked_softmax::TimeMask;
use crate::ops::{self, Direction};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result};

settings! {
    /// Softmax over the last axis, or the first, of the places that masks leave; masked places get exactly 0, and
    /// where all are masked all are 0.
    ///
    /// There are two masks, and either may be missing: a fixed one over the classes, and, inside a masked
    /// sequence (time, ...), that over time: with `axis` 0, or a sequence of (time,) alone, padded steps are
    /// masked classes; otherwise the distributions of padded steps are zeros.
    #[derive(Clone, Debug, PartialEq)]
    pub struct MaskedSoftmax "masked_softmax" {} optional {
        /// Which classes may have a probability; all unless given.
        mask: Option<Vec<bool>> = None,
        /// The axis that sums to one: -1, the last, or 0, the first.
        axis: i64 [least -1, most 0] = -1,
    }
}

impl Default for MaskedSoftmax {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for MaskedSoftmax {
    fn validate(&self) -> Result<()> {
        if self.mask.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::Value("mask must have at least one entry".into()));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        let mask = |bits: &[u8]| Some(bits.iter().map(|bit| *bit != 0).collect());
        vec![
            Sample::new(Self { mask: mask(&[0]), axis: -1 }, [1]),
            Sample::new(Self { mask: mask(&[1, 0, 1, 1, 0]), axis: -1 }, [3, 5]),
            Sample::new(Self { mask: mask(&[0, 1, 1]), axis: 0 }, [3, 7]),
            Sample::new(Self { mask: None, axis: 0 }, [19, 2]),
        ]
    }
}

/// (repetitions, classes, elements between two classes).
type Extents = (usize, usize, usize);

impl MaskedSoftmax {
    fn extents(&self, shape: &Shape) -> Extents {
        let axis = if self.axis == 0 { 0 } else { shape.rank().saturating_sub(1) };
        let classes = shape.get(axis).copied().unwrap_or(1);
        let inner: usize = shape.iter().skip(axis + 1).product();
        (shape.len() / (classes * inner).max(1), classes, inner)
    }
}

impl Layer for MaskedSoftmax {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = of_classes(self.kind(), "MaskedSoftmax", inputs)?;
        let (_, classes, _) = self.extents(&input);
        match &self.mask {
            Some(mask) if mask.len() != classes => {
                let axis = if self.axis == 0 { "first" } else { "last" };
                let expected = format!("{} places on the {axis} axis, as its mask has", mask.len());
                Err(shape_error("MaskedSoftmax", &expected, &input))
            }
            _ => Ok(input),
        }
    }

    fn is_stepwise(&self) -> bool {
        self.axis == -1
    }

    one_input!();
}

impl OneInput for MaskedSoftmax {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = b.shape(x).clone();
        let (outer, classes, inner) = self.extents(&shape);
        let (mut reads, mut time) = (vec![x], TimeMask::None);
        if let Some(mask) = mask_of(cx, b, "MaskedSoftmax", &shape)? {
            let steps = shape[0];
            reads.push(mask);
            let over_time = self.axis == 0 || shape.rank() == 1;
            time = if over_time { TimeMask::Classes } else { TimeMask::Repetitions { steps } };
        }
        let kept = self.mask.clone().unwrap_or_default().into();
        let op = ops::MaskedSoftmax { outer, classes, inner, kept, time };
        let y = b.apply(op, &reads, "y", shape);
        Ok(Forward::saving(y, vec![y]))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let shape = b.shape(back.gradient).clone();
        let (outer, classes, inner) = self.extents(&shape);
        // Where y is 0 so is the gradient, masked or not.
        let direction = Direction::InputGradient;
        let op = ops::Softmax { direction, outer, classes, inner, temperature: 1.0 };
        Ok(Some(b.apply(op, &[back.forward.saved[0], back.gradient], "dx", shape)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Kind;
    use crate::tensor::Precision;

    /// What the layer lowers to for a sequence of this shape with a mask of so many steps around it.
    fn lowered(layer: &MaskedSoftmax, shape: &[usize], steps: usize) -> Result<TimeMask> {
        let mut b = Builder::new(Precision::Float32);
        let x = b.input("x", Shape::from(shape), Kind::Real);
        let mask = b.input("mask", Shape::from(steps), Kind::Real);
        let cx = Context { mask: Some(mask), ..Context::default() };
        layer.forward(&mut b, &cx, &[x])?;
        let program = b.finish(1, &Default::default()).unwrap();
        match &program.steps()[0].op {
            ops::Op::MaskedSoftmax(op) => Ok(op.time),
            op => panic!("{op}"),
        }
    }

    #[test]
    fn a_mask_around_the_layer_masks_steps() {
        let (last, first) = (MaskedSoftmax::default(), MaskedSoftmax { axis: 0, ..Default::default() });
        assert_eq!(lowered(&last, &[4, 3], 4).unwrap(), TimeMask::Repetitions { steps: 4 });
        assert_eq!(lowered(&last, &[4], 4).unwrap(), TimeMask::Classes);
        assert_eq!(lowered(&first, &[4, 3], 4).unwrap(), TimeMask::Classes);
        let error = lowered(&last, &[3, 4], 4).unwrap_err();
        assert!(error.to_string().contains("a sequence of 4 steps"), "{error}");
    }
}
