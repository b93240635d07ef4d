//! What layers with a sliding window share: extents of one, two or three axes, and padding.

use super::shape_error;
use crate::ops::Geometry;
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Zeros around a signal, an image or a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, bound(serialize = "[usize; N]: Serialize", deserialize = "[usize; N]: Deserialize<'de>"))]
pub enum Padding<const N: usize = 2> {
    /// So many at either end of each axis.
    Explicit([usize; N]),
    /// By name: as many as keep extent / stride, or none.
    Named(NamedPadding),
}

/// Padding by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedPadding {
    /// An axis of the output has ceil(extent / stride) elements, or extent x stride where the
    /// convolution is transposed; an odd border is larger at the end.
    Same,
    /// No padding.
    Valid,
}

impl<const N: usize> Default for Padding<N> {
    fn default() -> Self {
        Padding::Explicit([0; N])
    }
}

pub(super) fn ones<const N: usize>() -> [usize; N] {
    [1; N]
}

pub(super) fn zeros<const N: usize>() -> [usize; N] {
    [0; N]
}

/// Refuses windows without extent.
pub(super) fn positive<const N: usize>(what: &str, extents: [usize; N]) -> Result<()> {
    if extents.contains(&0) {
        return Err(Error::Value(format!("{what} must be at least 1, got {extents:?}")));
    }
    Ok(())
}

/// Extents of an operation, which has three axes: the first ones are filled up.
pub(super) fn lift<const N: usize>(extents: [usize; N], filling: usize) -> [usize; 3] {
    let mut lifted = [filling; 3];
    lifted[3 - N..].copy_from_slice(&extents);
    lifted
}

/// Channels and extents of an input.
pub(super) fn split<const N: usize>(name: &str, input: &Shape) -> Result<(usize, [usize; N])> {
    match input.split_first() {
        Some((&channels, extents)) if extents.len() == N && !input.is_empty() => {
            let mut array = [0; N];
            array.copy_from_slice(extents);
            Ok((channels, array))
        }
        _ => {
            let axes = ["length", "height, width", "depth, height, width"][N - 1];
            Err(shape_error(name, &format!("(channels, {axes}), none of them 0"), input))
        }
    }
}

/// Channels and the last `N` of three extents.
pub(super) fn join<const N: usize>(channels: usize, extents: [usize; 3]) -> Shape {
    Shape::new([&[channels], &extents[3 - N..]].concat())
}

/// The last `N` of three extents.
pub(super) fn last<const N: usize>(extents: [usize; 3]) -> [usize; N] {
    std::array::from_fn(|axis| extents[3 - N + axis])
}

/// Refuses channels that groups do not divide.
pub(super) fn grouped(name: &str, groups: usize, channels: usize, input: &Shape) -> Result<()> {
    if !channels.is_multiple_of(groups) {
        return Err(shape_error(name, &format!("channels that {groups} groups divide"), input));
    }
    Ok(())
}

/// The name of an axis of `N`.
fn axis_name<const N: usize>(axis: usize) -> &'static str {
    if N == 1 { "length" } else { ["depth", "height", "width"][3 - N + axis] }
}

/// How a transposed convolution undoes the extents of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undone<const N: usize> {
    pub padding: Padding<N>,
    pub output_padding: [usize; N],
    /// Whether the windows lie where the convolution's do.
    pub aligned: bool,
}

/// A window as a layer describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window<const N: usize> {
    pub kernel: [usize; N],
    pub stride: [usize; N],
    pub padding: Padding<N>,
    pub dilation: [usize; N],
}

impl<const N: usize> Window<N> {
    /// Elements from the first that the window covers to the last.
    fn reach(&self, axis: usize) -> usize {
        self.dilation[axis] * (self.kernel[axis] - 1) + 1
    }

    fn geometry(&self, input: [usize; N], output: [usize; N], before: [usize; N]) -> Geometry {
        Geometry {
            input: lift(input, 1),
            output: lift(output, 1),
            kernel: lift(self.kernel, 1),
            stride: lift(self.stride, 1),
            padding: lift(before, 0),
            dilation: lift(self.dilation, 1),
        }
    }

    /// Sliding over an input of these extents.
    pub fn over(&self, name: &str, input: [usize; N]) -> Result<Geometry> {
        let (mut output, mut before) = ([0; N], [0; N]);
        for axis in 0..N {
            let (reach, stride) = (self.reach(axis), self.stride[axis]);
            (before[axis], output[axis]) = match self.padding {
                Padding::Named(NamedPadding::Same) => {
                    let output = input[axis].div_ceil(stride);
                    let total = ((output.max(1) - 1) * stride + reach).saturating_sub(input[axis]);
                    (total / 2, output)
                }
                Padding::Named(NamedPadding::Valid) | Padding::Explicit(_) => {
                    let pad = self.explicit(axis);
                    let padded = input[axis] + 2 * pad;
                    (pad, if padded < reach { 0 } else { (padded - reach) / stride + 1 })
                }
            };
            if output[axis] == 0 {
                return Err(Error::Shape(format!(
                    "{name}: a window that reaches over {reach} does not fit a {} of {} with this padding; \
                     use a smaller kernel or dilation, or more padding",
                    axis_name::<N>(axis),
                    input[axis]
                )));
            }
        }
        Ok(self.geometry(input, output, before))
    }

    /// Sliding over what a transposed convolution makes of an input of these extents, which is the
    /// geometry's output.
    pub fn back_from(&self, name: &str, input: [usize; N], output_padding: [usize; N]) -> Result<Geometry> {
        let (mut output, mut before) = ([0; N], [0; N]);
        for axis in 0..N {
            let (reach, stride) = (self.reach(axis), self.stride[axis]);
            (before[axis], output[axis]) = match self.padding {
                Padding::Named(NamedPadding::Same) => {
                    (reach.saturating_sub(stride) / 2, input[axis] * stride)
                }
                Padding::Named(NamedPadding::Valid) | Padding::Explicit(_) => {
                    let pad = self.explicit(axis);
                    let whole = (input[axis] - 1) * stride + reach + output_padding[axis];
                    (pad, whole.saturating_sub(2 * pad))
                }
            };
            if output[axis] == 0 {
                return Err(Error::Shape(format!(
                    "{name}: padding takes away all that a {} of {} is made into; use less",
                    axis_name::<N>(axis),
                    input[axis]
                )));
            }
        }
        Ok(self.geometry(output, input, before))
    }

    /// What a transposed convolution with this window needs to make `input` of `output` again, where this
    /// one slid over `input`; `None` where no padding does.
    pub fn undone(&self, input: [usize; N], output: [usize; N]) -> Option<Undone<N>> {
        let same = self.padding == Padding::Named(NamedPadding::Same);
        if same && (0..N).all(|axis| input[axis].is_multiple_of(self.stride[axis])) {
            return Some(Undone { padding: self.padding, output_padding: [0; N], aligned: true });
        }
        let (mut pads, mut output_padding, mut aligned) = ([0; N], [0; N], true);
        for axis in 0..N {
            let whole = (output[axis] - 1) * self.stride[axis] + self.reach(axis);
            let total = if same { whole.saturating_sub(input[axis]) } else { 2 * self.explicit(axis) };
            // As much is taken away at either end, so an odd total is an element too much at the start.
            pads[axis] = total.div_ceil(2);
            aligned &= total.is_multiple_of(2);
            output_padding[axis] = (input[axis] + 2 * pads[axis]).checked_sub(whole)?;
            if output_padding[axis] >= self.stride[axis].max(self.dilation[axis]) {
                return None;
            }
        }
        Some(Undone { padding: Padding::Explicit(pads), output_padding, aligned })
    }

    fn explicit(&self, axis: usize) -> usize {
        match self.padding {
            Padding::Explicit(pad) => pad[axis],
            Padding::Named(_) => 0,
        }
    }
}
