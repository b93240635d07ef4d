//! The order of every sum, in the plainest form: what the kernels equal bit for bit.

use super::{Convolution, Geometry};
use crate::simd::Real;

/// Where a tap lies in an image of `extent` pixels, or `None` in the border.
fn inside(geometry: &Geometry, axis: usize, output: usize, tap: usize) -> Option<usize> {
    let at = output * geometry.stride[axis] + tap * geometry.dilation[axis];
    at.checked_sub(geometry.padding[axis]).filter(|&at| at < geometry.input[axis])
}

/// The output pixel that a tap joins to an input pixel: `None` where there is no whole one,
/// `Some(None)` where it lies outside the output.
fn joined(geometry: &Geometry, axis: usize, input: usize, tap: usize) -> Option<Option<usize>> {
    let ahead = (input + geometry.padding[axis]) as isize - (tap * geometry.dilation[axis]) as isize;
    let stride = geometry.stride[axis] as isize;
    (ahead % stride == 0)
        .then(|| usize::try_from(ahead / stride).ok().filter(|&output| output < geometry.output[axis]))
}

impl Convolution {
    pub(super) fn weight_at(&self, channel: usize, tap: usize, output: usize) -> usize {
        (channel * self.geometry.taps() + tap) * self.outputs + output
    }
}

/// Every place in a box of these extents, in order.
pub(super) fn places(extents: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [depth, height, width] = extents;
    (0..depth * height * width).map(move |i| [i / width / height, i / width % height, i % width])
}

/// The number of a place in such a box.
fn number(extents: [usize; 3], [plane, row, column]: [usize; 3]) -> usize {
    (plane * extents[1] + row) * extents[2] + column
}

/// The number of the input element that a tap of an output's window meets; `None` in the border.
pub(super) fn met(geometry: &Geometry, output: [usize; 3], tap: [usize; 3]) -> Option<usize> {
    let [plane, row, column] = [0, 1, 2].map(|axis| inside(geometry, axis, output[axis], tap[axis]));
    Some(number(geometry.input, [plane?, row?, column?]))
}

/// y: over (channel of the group, kernel plane, row and column), the border counting as zeros; then the bias.
pub(super) fn forward<T: Real>(
    op: &Convolution,
    rows: usize,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    let g = &op.geometry;
    let (volume, _) = g.volumes();
    let (per_group_in, per_group_out) = (op.inputs / op.groups, op.outputs / op.groups);
    let mut y = y.iter_mut();
    for row in 0..rows {
        for output in 0..op.outputs {
            for place in places(g.output) {
                let mut sum = T::ZERO;
                for channel in 0..per_group_in {
                    let input = row * op.inputs + output / per_group_out * per_group_in + channel;
                    for (tap, at) in places(g.kernel).enumerate() {
                        let element = met(g, place, at).map_or(T::ZERO, |at| x[input * volume + at]);
                        sum = element.mul_add(w[op.weight_at(channel, tap, output)], sum);
                    }
                }
                if let Some(bias) = bias {
                    sum += bias[output];
                }
                *y.next().unwrap() = sum;
            }
        }
    }
}

/// dx: over (output channel of the group, kernel plane, row and column), only taps that join the
/// pixel to a whole output position, which counts as zero where it lies outside the output; then the bias.
pub(super) fn input_gradient<T: Real>(
    op: &Convolution,
    rows: usize,
    dy: &[T],
    w: &[T],
    bias: Option<&[T]>,
    dx: &mut [T],
) {
    let g = &op.geometry;
    let (_, volume) = g.volumes();
    let (per_group_in, per_group_out) = (op.inputs / op.groups, op.outputs / op.groups);
    let mut dx = dx.iter_mut();
    for row in 0..rows {
        for input in 0..op.inputs {
            for place in places(g.input) {
                let mut sum = T::ZERO;
                for channel in 0..per_group_out {
                    let output = input / per_group_in * per_group_out + channel;
                    for (tap, at) in places(g.kernel).enumerate() {
                        let joined = [0, 1, 2].map(|axis| joined(g, axis, place[axis], at[axis]));
                        let [Some(plane), Some(line), Some(column)] = joined else { continue };
                        let element = match (plane, line, column) {
                            (Some(plane), Some(line), Some(column)) => {
                                let at = number(g.output, [plane, line, column]);
                                dy[(row * op.outputs + output) * volume + at]
                            }
                            _ => T::ZERO,
                        };
                        let weight = w[op.weight_at(input % per_group_in, tap, output)];
                        sum = element.mul_add(weight, sum);
                    }
                }
                if let Some(bias) = bias {
                    sum += bias[input];
                }
                *dx.next().unwrap() = sum;
            }
        }
    }
}

/// dW: over (image, output plane, row and column), the border counting as zeros, in chunks of images:
/// the first goes on from what dW holds or from zero, the others start from zero and are added in order.
pub(super) fn weight_gradient<T: Real>(
    op: &Convolution,
    rows: usize,
    x: &[T],
    dy: &[T],
    accumulate: bool,
    dw: &mut [T],
) {
    let g = &op.geometry;
    let (volume, volume_out) = g.volumes();
    let (per_group_in, per_group_out) = (op.inputs / op.groups, op.outputs / op.groups);
    let chunk = op.chunk(rows);
    for channel in 0..per_group_in {
        for (tap, at) in places(g.kernel).enumerate() {
            for output in 0..op.outputs {
                let input = output / per_group_out * per_group_in + channel;
                let weight = op.weight_at(channel, tap, output);
                let mut total = if accumulate { dw[weight] } else { T::ZERO };
                for first in (0..rows).step_by(chunk) {
                    let mut sum = if first == 0 { total } else { T::ZERO };
                    for row in first..rows.min(first + chunk) {
                        for (pixel, place) in places(g.output).enumerate() {
                            let element = met(g, place, at)
                                .map_or(T::ZERO, |at| x[(row * op.inputs + input) * volume + at]);
                            let gradient = dy[(row * op.outputs + output) * volume_out + pixel];
                            sum = element.mul_add(gradient, sum);
                        }
                    }
                    total = if first == 0 { sum } else { total + sum };
                }
                dw[weight] = total;
            }
        }
    }
}
