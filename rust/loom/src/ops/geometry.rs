//! The extents of a window that slides over signals, images and volumes.

use crate::extents::MOST_REACH;

/// Extents along depth, height and width. Images have a depth of 1, signals a height of 1, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Extents of the input.
    pub input: [usize; 3],
    /// Extents of the output.
    pub output: [usize; 3],
    /// Extents of the window.
    pub kernel: [usize; 3],
    /// Steps of the window.
    pub stride: [usize; 3],
    /// Border before the first element; past the last as the output's extents need.
    pub padding: [usize; 3],
    /// Distance between the window's elements.
    pub dilation: [usize; 3],
}

impl Geometry {
    /// A window of one element, over one element.
    pub const POINT: Self = Self {
        input: [1; 3],
        output: [1; 3],
        kernel: [1; 3],
        stride: [1; 3],
        padding: [0; 3],
        dilation: [1; 3],
    };

    /// Extents of the input with the border that windows reach into. `None` where one of them, or a number of the
    /// window, is beyond [`MOST_REACH`], and arithmetic with it could wrap.
    pub(crate) fn bordered(&self) -> Option<[usize; 3]> {
        let Self { input, output, kernel, stride, padding, dilation } = *self;
        let numbers = [input, output, kernel, stride, padding, dilation];
        if numbers.as_flattened().iter().any(|number| *number > MOST_REACH) {
            return None;
        }
        let bordered = [0, 1, 2].map(|axis| {
            let last = (output[axis].max(1) - 1) * stride[axis] + (kernel[axis].max(1) - 1) * dilation[axis];
            (last + 1).max(padding[axis] + input[axis])
        });
        bordered.iter().all(|extent| *extent <= MOST_REACH).then_some(bordered)
    }

    /// Elements of a channel of the input and of the output.
    pub fn volumes(&self) -> (usize, usize) {
        (self.input.iter().product(), self.output.iter().product())
    }

    /// Elements of the window.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Whether there is one plane, and nothing beyond it is looked at.
    pub fn is_flat(&self) -> bool {
        [self.input[0], self.output[0], self.kernel[0]] == [1; 3] && self.padding[0] == 0
    }
}

/// Extents as text, without those along depth where images are flat: configs and logs name two.
pub(crate) fn extents_text(geometry: &Geometry, extents: &[usize; 3]) -> String {
    if geometry.is_flat() { format!("{:?}", &extents[1..]) } else { format!("{extents:?}") }
}
