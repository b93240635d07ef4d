//! The order of every sum, in the plainest form: what the kernels equal bit for bit.

use super::{Convolution, Geometry2D};
use crate::cpu::Real;

/// Where a tap lies in an image of `extent` pixels, or `None` in the border.
fn inside(geometry: &Geometry2D, axis: usize, output: usize, tap: usize) -> Option<usize> {
    let at = output * geometry.stride[axis] + tap * geometry.dilation[axis];
    at.checked_sub(geometry.padding[axis]).filter(|&at| at < geometry.input[axis])
}

/// The output pixel that a tap joins to an input pixel: `None` where there is no whole one,
/// `Some(None)` where it lies outside the output.
fn joined(geometry: &Geometry2D, axis: usize, input: usize, tap: usize) -> Option<Option<usize>> {
    let ahead = (input + geometry.padding[axis]) as isize - (tap * geometry.dilation[axis]) as isize;
    let stride = geometry.stride[axis] as isize;
    (ahead % stride == 0)
        .then(|| usize::try_from(ahead / stride).ok().filter(|&output| output < geometry.output[axis]))
}

impl Convolution {
    fn weight_at(&self, channel: usize, taps: [usize; 2], output: usize) -> usize {
        let [height, width] = self.geometry.kernel;
        ((channel * height + taps[0]) * width + taps[1]) * self.outputs + output
    }
}

/// y: over (channel of the group, kernel row, kernel column), the border counting as zeros; then the bias.
pub(super) fn forward<T: Real>(
    op: &Convolution,
    rows: usize,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    let g = &op.geometry;
    let (per_group_in, per_group_out) = (op.inputs / op.groups, op.outputs / op.groups);
    let mut y = y.iter_mut();
    for row in 0..rows {
        for output in 0..op.outputs {
            for oy in 0..g.output[0] {
                for ox in 0..g.output[1] {
                    let mut sum = T::ZERO;
                    for channel in 0..per_group_in {
                        let plane = row * op.inputs + output / per_group_out * per_group_in + channel;
                        for ky in 0..g.kernel[0] {
                            for kx in 0..g.kernel[1] {
                                let element = match (inside(g, 0, oy, ky), inside(g, 1, ox, kx)) {
                                    (Some(iy), Some(ix)) => x[(plane * g.input[0] + iy) * g.input[1] + ix],
                                    _ => T::ZERO,
                                };
                                sum = element.mul_add(w[op.weight_at(channel, [ky, kx], output)], sum);
                            }
                        }
                    }
                    if let Some(bias) = bias {
                        sum = sum + bias[output];
                    }
                    *y.next().unwrap() = sum;
                }
            }
        }
    }
}

/// dx: over (output channel of the group, kernel row, kernel column), only taps that join the
/// pixel to a whole output position, which counts as zero where it lies outside the output.
pub(super) fn input_gradient<T: Real>(op: &Convolution, rows: usize, dy: &[T], w: &[T], dx: &mut [T]) {
    let g = &op.geometry;
    let (per_group_in, per_group_out) = (op.inputs / op.groups, op.outputs / op.groups);
    let mut dx = dx.iter_mut();
    for row in 0..rows {
        for input in 0..op.inputs {
            for iy in 0..g.input[0] {
                for ix in 0..g.input[1] {
                    let mut sum = T::ZERO;
                    for channel in 0..per_group_out {
                        let output = input / per_group_in * per_group_out + channel;
                        let plane = row * op.outputs + output;
                        for ky in 0..g.kernel[0] {
                            for kx in 0..g.kernel[1] {
                                let (Some(oy), Some(ox)) = (joined(g, 0, iy, ky), joined(g, 1, ix, kx))
                                else {
                                    continue;
                                };
                                let element = match (oy, ox) {
                                    (Some(oy), Some(ox)) => dy[(plane * g.output[0] + oy) * g.output[1] + ox],
                                    _ => T::ZERO,
                                };
                                let weight = w[op.weight_at(input % per_group_in, [ky, kx], output)];
                                sum = element.mul_add(weight, sum);
                            }
                        }
                    }
                    *dx.next().unwrap() = sum;
                }
            }
        }
    }
}

/// dW: over (image, output row, output column), the border counting as zeros, in chunks of images:
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
    let (per_group_in, per_group_out) = (op.inputs / op.groups, op.outputs / op.groups);
    let chunk = op.chunk(rows);
    for channel in 0..per_group_in {
        for ky in 0..g.kernel[0] {
            for kx in 0..g.kernel[1] {
                for output in 0..op.outputs {
                    let input = output / per_group_out * per_group_in + channel;
                    let at = op.weight_at(channel, [ky, kx], output);
                    let mut total = if accumulate { dw[at] } else { T::ZERO };
                    for first in (0..rows).step_by(chunk) {
                        let mut sum = if first == 0 { total } else { T::ZERO };
                        for row in first..rows.min(first + chunk) {
                            for oy in 0..g.output[0] {
                                for ox in 0..g.output[1] {
                                    let element = match (inside(g, 0, oy, ky), inside(g, 1, ox, kx)) {
                                        (Some(iy), Some(ix)) => {
                                            x[((row * op.inputs + input) * g.input[0] + iy) * g.input[1] + ix]
                                        }
                                        _ => T::ZERO,
                                    };
                                    let plane = row * op.outputs + output;
                                    let gradient = dy[(plane * g.output[0] + oy) * g.output[1] + ox];
                                    sum = element.mul_add(gradient, sum);
                                }
                            }
                        }
                        total = if first == 0 { sum } else { total + sum };
                    }
                    dw[at] = total;
                }
            }
        }
    }
}
