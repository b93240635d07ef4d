//! What layers with a sliding window share: extents of one, two or three axes, and padding.

use super::settings::{Form, SettingValue};
use super::shape_error;
use crate::ops::Geometry;
use crate::tensor::Shape;
use crate::{Error, Result, extents};
use serde::de::DeserializeOwned;
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

impl<const N: usize> SettingValue for Padding<N>
where
    Self: Serialize + DeserializeOwned,
{
    fn form() -> Form {
        Form::Padding { axes: N }
    }
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

/// Refuses windows without extent, and those that reach further than places are counted.
pub(super) fn positive<const N: usize>(what: &str, extents: [usize; N]) -> Result<()> {
    if extents.contains(&0) {
        return Err(Error::Value(format!("{what} must be at least 1, got {extents:?}")));
    }
    extents::check_reach(what, &extents)
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
    /// Refuses numbers that no input could make right; the others can be added and multiplied by one another.
    pub fn validate(&self) -> Result<()> {
        positive("kernel_size", self.kernel)?;
        positive("stride", self.stride)?;
        positive("dilation", self.dilation)?;
        match self.padding {
            Padding::Explicit(pads) => extents::check_reach("padding", &pads),
            Padding::Named(_) => Ok(()),
        }
    }

    /// Elements from the first that the window covers to the last.
    fn reach(&self, axis: usize) -> usize {
        self.dilation[axis] * (self.kernel[axis] - 1) + 1
    }

    /// The geometry of windows over an input of so many channels, once every axis with its border and all of
    /// them together are short enough for kernels, which copy inputs with their borders.
    fn geometry(
        &self,
        name: &str,
        (channels, input): (usize, [usize; N]),
        output: [usize; N],
        before: [usize; N],
    ) -> Result<Geometry> {
        let mut geometry = Geometry {
            input: lift(input, 1),
            output: lift(output, 1),
            kernel: lift(self.kernel, 1),
            stride: lift(self.stride, 1),
            padding: lift(before, 0),
            dilation: lift(self.dilation, 1),
        };
        let Some(bordered @ [depth, height, width]) = geometry.bordered() else {
            return Err(Error::Shape(format!(
                "{name}: extents of {input:?} with the border that windows need and of {output:?} must be at most \
                 {} each; use less padding or smaller windows",
                extents::MOST_REACH
            )));
        };
        extents::check(format_args!("{name}: an input with its border"), &[channels, depth, height, width])?;
        // A window alone goes nowhere, however long its steps are.
        for (stride, bordered) in geometry.stride.iter_mut().zip(bordered) {
            *stride = (*stride).min(bordered);
        }
        Ok(geometry)
    }

    /// Refuses extents that arithmetic with a window's numbers could wrap for.
    fn check(&self, name: &str, input: [usize; N]) -> Result<()> {
        self.validate()?;
        match input.iter().position(|extent| *extent > extents::MOST_REACH) {
            None => Ok(()),
            Some(axis) => Err(Error::Shape(format!(
                "{name}: a {} of {} is too long for a window; {} is the most",
                axis_name::<N>(axis),
                input[axis],
                extents::MOST_REACH
            ))),
        }
    }

    /// Sliding over an input of so many channels and these extents.
    pub fn over(&self, name: &str, channels: usize, input: [usize; N]) -> Result<Geometry> {
        self.check(name, input)?;
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
                // What looks like (height, width, colours).
                let turned = N > 1 && axis + 1 == N && input[axis] <= 4 && channels > 4;
                return Err(Error::Shape(format!(
                    "{name}: a window that reaches over {reach} does not fit a {} of {} with this padding; {}",
                    axis_name::<N>(axis),
                    input[axis],
                    if turned {
                        format!(
                            "channels come first: if they are the last extent, {}, put it first in input_shape, \
                             and give np.moveaxis(x, -1, 1)",
                            input[axis]
                        )
                    } else if N == 1 && channels > input[axis] {
                        format!(
                            "signals are (channels, length): of {channels} steps the input_shape is ({}, {channels}), \
                             and np.swapaxes(x, 1, 2) what is given",
                            input[axis]
                        )
                    } else {
                        "use a smaller kernel or dilation, or more padding".into()
                    }
                )));
            }
        }
        self.geometry(name, (channels, input), output, before)
    }

    /// The same with the number of windows rounded up: the last of an axis may end beyond the padding, but begins
    /// before it.
    pub fn over_rounded_up(&self, name: &str, channels: usize, input: [usize; N]) -> Result<Geometry> {
        self.check(name, input)?;
        let (mut output, mut before) = ([0; N], [0; N]);
        for axis in 0..N {
            let (reach, stride, pad) = (self.reach(axis), self.stride[axis], self.explicit(axis));
            let further = (input[axis] + 2 * pad).saturating_sub(reach).div_ceil(stride);
            // Where the step is longer than the window it may begin behind all there is.
            let beyond = further * stride >= input[axis] + pad;
            (before[axis], output[axis]) = (pad, further + usize::from(!beyond || further == 0));
        }
        self.geometry(name, (channels, input), output, before)
    }

    /// Sliding over what a transposed convolution makes of an input of these extents, which is the
    /// geometry's output; `channels` are those of what it makes.
    pub fn back_from(
        &self,
        name: &str,
        channels: usize,
        input: [usize; N],
        output_padding: [usize; N],
    ) -> Result<Geometry> {
        self.check(name, input)?;
        extents::check_reach("output_padding", &output_padding)?;
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
        self.geometry(name, (channels, output), input, before)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers near those where something wraps or is limited, and everyday ones.
    fn number() -> impl Strategy<Value = usize> {
        let near = (0u32..=63, -2i128..=2).prop_map(|(power, off)| ((1i128 << power) + off).max(0) as usize);
        prop_oneof![3 => 0usize..9, 1 => near]
    }

    fn pads() -> impl Strategy<Value = Padding<1>> {
        prop_oneof![
            number().prop_map(|pad| Padding::Explicit([pad])),
            Just(Padding::Named(NamedPadding::Same)),
            Just(Padding::Named(NamedPadding::Valid)),
        ]
    }

    fn windows() -> impl Strategy<Value = Window<1>> {
        (number(), number(), pads(), number()).prop_map(|(kernel, stride, padding, dilation)| Window {
            kernel: [kernel],
            stride: [stride],
            padding,
            dilation: [dilation],
        })
    }

    /// Output extent and first border, in arithmetic that holds them; `None` where there is no output.
    fn wide(window: &Window<1>, input: usize, added: Option<usize>) -> Option<(i128, i128)> {
        let of = |number: usize| number as i128;
        let ([kernel], [stride], [dilation], input) =
            (window.kernel.map(of), window.stride.map(of), window.dilation.map(of), of(input));
        if kernel < 1 || stride < 1 || dilation < 1 {
            return None;
        }
        let reach = dilation * (kernel - 1) + 1;
        let same = window.padding == Padding::Named(NamedPadding::Same);
        let pad = of(window.explicit(0));
        let (output, before) = match (added, same) {
            (Some(_), true) => (input * stride, (reach - stride).max(0) / 2),
            (Some(added), false) => ((input - 1) * stride + reach + of(added) - 2 * pad, pad),
            (None, true) => {
                let output = (input + stride - 1) / stride;
                (output, ((output - 1) * stride + reach - input).max(0) / 2)
            }
            (None, false) if input + 2 * pad < reach => return None,
            (None, false) => ((input + 2 * pad - reach) / stride + 1, pad),
        };
        (output > 0).then_some((output, before))
    }

    proptest! {
        #[test]
        fn a_window_is_as_wide_arithmetic_has_it_or_refused(window in windows(), input in number(), channels in 1usize..9) {
            prop_assume!(input > 0);
            let found = window.over("it", channels, [input]);
            match (&found, wide(&window, input, None)) {
                (Ok(found), Some((output, before))) => {
                    prop_assert_eq!((found.output[2] as i128, found.padding[2] as i128), (output, before));
                    prop_assert!(found.bordered().is_some());
                }
                (Ok(found), None) => prop_assert!(false, "{:?} has an output", found),
                (Err(_), expected) => {
                    let most = i128::from(i32::MAX) / 8;
                    let numbers = [window.kernel[0] as i128 * window.dilation[0] as i128, window.explicit(0) as i128,
                        input as i128, window.stride[0] as i128];
                    let large = numbers.iter().any(|number| *number > most);
                    prop_assert!(large || expected.is_none(), "{:?} is refused", window);
                }
            }
        }

        #[test]
        fn a_window_backwards_is_as_wide_arithmetic_has_it_or_refused(
            window in windows(), input in number(), added in number(), channels in 1usize..9,
        ) {
            prop_assume!(input > 0);
            let found = window.back_from("it", channels, [input], [added]);
            match (&found, wide(&window, input, Some(added))) {
                (Ok(found), Some((output, before))) => {
                    prop_assert_eq!((found.input[2] as i128, found.padding[2] as i128), (output, before));
                    prop_assert!(found.bordered().is_some());
                }
                (Ok(found), None) => prop_assert!(false, "{:?} has an output", found),
                (Err(_), expected) => {
                    let most = i128::from(i32::MAX) / 8;
                    let numbers = [window.kernel[0] as i128 * window.dilation[0] as i128, window.explicit(0) as i128,
                        input as i128 * window.stride[0] as i128, added as i128];
                    let large = numbers.iter().any(|number| *number > most);
                    prop_assert!(large || expected.is_none(), "{:?} is refused", window);
                }
            }
        }
    }
}
