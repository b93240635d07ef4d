//! Convolutions of images quantised to int8: windows are gathered from codes, as rows of integer products.

use super::Convolution;
use super::scratch::{ELEMENTS, Shared, TASK};
use crate::matrix::{IntegerWeight, QuantizedRows, Route, integer_rows};
use crate::ops::Args;
use crate::simd::Real;
use crate::tensor::Precision;
use crate::{Error, Result};
use std::ops::Range;

/// The most windows that are gathered together ...
const WINDOWS: usize = 192;
/// ... and the bytes that they should stay within, unless those are fewer windows than a tile has rows.
const BYTES: usize = 1 << 18;
const FEWEST: usize = 6;

impl Convolution {
    /// The taps of a window along an axis that meet elements, and the one that the first of them meets.
    fn met(&self, axis: usize, output: usize) -> (Range<usize>, usize) {
        let g = &self.geometry;
        let (step, start) = (g.dilation[axis], output * g.stride[axis]);
        let first = g.padding[axis].saturating_sub(start).div_ceil(step).min(g.kernel[axis]);
        let room = (g.input[axis] + g.padding[axis]).saturating_sub(start);
        let end = room.div_ceil(step).clamp(first, g.kernel[axis]);
        (first..end, (start + first * step).saturating_sub(g.padding[axis]))
    }

    /// Puts the codes that a window meets where they belong among those of its row; the rest stay as they are.
    fn gather(&self, image: &[u8], width: usize, group: usize, pixel: usize, row: &mut [u8]) {
        let g = &self.geometry;
        let [_, height, across] = g.output;
        let place = [pixel / (height * across), pixel / across % height, pixel % across];
        let met: [(Range<usize>, usize); 3] = std::array::from_fn(|axis| self.met(axis, place[axis]));
        let channels = self.inputs / self.groups;
        let [planes, lines, columns] = &met;
        if columns.0.is_empty() {
            return;
        }
        for channel in 0..channels {
            for (z, plane) in planes.0.clone().enumerate() {
                let z = planes.1 + z * g.dilation[0];
                for (y, line) in lines.0.clone().enumerate() {
                    let y = lines.1 + y * g.dilation[1];
                    let from =
                        (((group * channels + channel) * g.input[0] + z) * g.input[1] + y) * g.input[2];
                    let from = from + columns.1;
                    let to = ((channel * g.kernel[0] + plane) * g.kernel[1] + line) * g.kernel[2];
                    let to = to + columns.0.start;
                    if g.dilation[2] == 1 {
                        let run = columns.0.len() * width;
                        row[to * width..][..run].copy_from_slice(&image[from * width..][..run]);
                        continue;
                    }
                    for x in 0..columns.0.len() {
                        let code = &image[(from + x * g.dilation[2]) * width..][..width];
                        row[(to + x) * width..][..width].copy_from_slice(code);
                    }
                }
            }
        }
    }

    pub(super) fn forward_quantized<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        if T::PRECISION == Precision::Float64 {
            return Err(Error::Internal(format!("{self}: quantised activations are of single precision")));
        }
        let (cpu, rows, view) = (args.cpu, args.rows, args.view(1));
        let packing =
            view.packed.ok_or_else(|| Error::Internal(format!("{self}: the weight is not packed")))?;
        let (x, y) = (args.read::<f32>(0), args.write::<f32>(0));
        let bias = if self.bias { args.read::<f32>(2) } else { &[] };
        self.check(rows, x.len(), packing.elements(), y.len())?;
        if self.bias && bias.len() != self.outputs {
            return Err(Error::Internal(format!("{self}: a bias of {} elements", bias.len())));
        }
        let weight = IntegerWeight::new(packing, view.bytes, view.scales)?;
        if rows == 0 {
            return Ok(());
        }
        let (route, isa) = (Route::best(cpu.isa()), cpu.isa());
        let (volume, pixels) = self.geometry.volumes();
        let (depth, outputs) = (packing.rows, self.outputs / self.groups);
        let width = route.code_bytes();
        let most = (BYTES / (depth * width)).clamp(FEWEST, WINDOWS).min(pixels);
        let bands = pixels.div_ceil(most);
        let mut memory = ELEMENTS.take();
        let images = QuantizedRows::new(cpu, route, x, rows, self.inputs * volume, &mut memory);
        let y = Shared::new(y);
        let task = |task: usize| {
            let (row, group, band) = (task / bands / self.groups, task / bands % self.groups, task % bands);
            let first = band * most;
            let count = most.min(pixels - first);
            let mut memory = TASK.take();
            let fill = |window: usize, to: &mut [u8]| {
                self.gather(images.bytes(row), width, group, first + window, to);
            };
            let windows =
                QuantizedRows::gathered(route, (count, depth), images.scale(row), &mut memory, fill);
            integer_rows(&windows, &weight, group * outputs..(group + 1) * outputs, |columns, results| {
                let each = results.len() / count;
                for (place, column) in columns.enumerate() {
                    // SAFETY: a run of pixels of one channel of an image, within y as `check` has made sure; no
                    // other task writes these.
                    let out = unsafe {
                        let first = y.at((row * self.outputs + column) * pixels + first);
                        std::slice::from_raw_parts_mut(first, count)
                    };
                    for (out, results) in out.iter_mut().zip(results.chunks_exact(each)) {
                        *out = results[place];
                    }
                    if let Some(bias) = bias.get(column) {
                        out.iter_mut().for_each(|out| *out += bias);
                    }
                    if let Some(activation) = self.activation {
                        activation.apply(isa, out);
                    }
                }
            });
            TASK.set(memory);
        };
        cpu.pool().run(rows * self.groups * bands, &task);
        ELEMENTS.set(memory);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::reference::{met, places};
    use super::super::tests::{MACHINES, convolution, deep, numbers, square};
    use super::*;
    use crate::dtype::{DType, Granularity, Packing};
    use crate::ops::pointwise::Activation;
    use crate::ops::{Direction, Geometry, Operation, StepValues};
    use crate::simd::{Cpu, Isa};

    pub(in super::super) struct Packed {
        pub packing: Packing,
        pub bytes: Vec<u8>,
        pub scales: Vec<f32>,
    }

    impl Packed {
        pub fn of(op: &Convolution, dtype: DType, granularity: Option<Granularity>) -> Self {
            let rows = op.weights() / op.outputs;
            let granularity = dtype.granularity(granularity).unwrap_or(dtype.row().granularity);
            let packing = Packing::new(dtype, rows, op.outputs).with(granularity);
            let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
            packing.encode(None, &numbers::<f32>(op.weights(), 7), &mut bytes, &mut scales).unwrap();
            Self { packing, bytes, scales }
        }

        pub fn weight(&self) -> IntegerWeight<'_> {
            IntegerWeight::new(self.packing, &self.bytes, &self.scales).unwrap()
        }

        /// The scale of an element: what it decodes to by its code.
        fn scale(&self, k: usize, column: usize) -> f32 {
            let Packing { rows, channels, .. } = self.packing;
            let mut decoded = vec![0.0f32; rows * channels];
            self.packing.decode(Isa::portable(), &self.bytes, &self.scales, &mut decoded);
            let end = self.weight().group_end(k);
            let with_code = (k..end).find(|k| self.weight().code(*k, column) != 0);
            with_code
                .map_or(0.0, |k| decoded[k * channels + column] / f32::from(self.weight().code(k, column)))
        }
    }

    /// Convolutions with every kind of border, step and group.
    pub(in super::super) fn cases() -> Vec<Convolution> {
        let quantized =
            |op: Convolution| Convolution { quantized: true, direction: Direction::Forward, ..op };
        let plain = |geometry, channels, groups| {
            quantized(convolution(Direction::Forward, geometry, channels, groups))
        };
        let dilated = Geometry {
            input: [1, 9, 11],
            output: [1, 5, 4],
            kernel: [1, 3, 3],
            stride: [1, 2, 3],
            padding: [0, 2, 2],
            dilation: [1, 2, 2],
        };
        vec![
            plain(square(1, 1, 1, 0), [1, 1], 1),
            plain(square(7, 3, 1, 1), [3, 70], 1),
            plain(square(16, 1, 1, 0), [5, 4], 1),
            plain(square(9, 5, 2, 3), [4, 6], 2),
            plain(square(6, 3, 1, 2), [6, 6], 6),
            plain(dilated, [2, 3], 1),
            plain(deep(square(6, 3, 1, 1), [5, 2, 2, 1]), [2, 5], 1),
            // A window that is wider than the image.
            plain(square(3, 7, 1, 2), [2, 3], 1),
        ]
    }

    /// Rows of images, one of zeros among them.
    pub(in super::super) fn images(op: &Convolution, rows: usize) -> Vec<f32> {
        let mut x = numbers::<f32>(op.lengths(rows)[0], 3);
        let image = x.len() / rows;
        x[..image].fill(0.0);
        x
    }

    /// The exact sums of each group of weights that share a scale, for a channel at a pixel of an image.
    pub(in super::super) fn sums(
        op: &Convolution,
        packed: &Packed,
        codes: &[i64],
        output: usize,
        place: [usize; 3],
    ) -> Vec<(usize, i64)> {
        let (g, channels) = (&op.geometry, op.inputs / op.groups);
        let first = output / (op.outputs / op.groups) * channels;
        let weight = packed.weight();
        let mut sums: Vec<(usize, i64)> = Vec::new();
        for channel in 0..channels {
            for (tap, at) in places(g.kernel).enumerate() {
                let k = channel * g.taps() + tap;
                if sums.last().is_none_or(|(first, _)| weight.group_end(*first) <= k) {
                    sums.push((k, 0));
                }
                let Some(at) = met(g, place, at) else { continue };
                let code = codes[(first + channel) * g.volumes().0 + at];
                if let Some((_, sum)) = sums.last_mut() {
                    *sum += code * i64::from(weight.code(k, output));
                }
            }
        }
        sums
    }

    /// An image quantised by the definition.
    pub(in super::super) fn quantize(image: &[f32]) -> (f32, Vec<i64>) {
        let largest = image.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let scale = if largest / 127.0 == 0.0 { 1.0 } else { largest / 127.0 };
        (scale, image.iter().map(|x| (x / scale).round_ties_even().clamp(-127.0, 127.0) as i64).collect())
    }

    fn expected(op: &Convolution, packed: &Packed, rows: usize, x: &[f32], bias: &[f32]) -> Vec<f32> {
        let mut y = Vec::new();
        for image in x.chunks_exact(x.len() / rows) {
            let (scale, codes) = quantize(image);
            for (output, bias) in bias.iter().enumerate() {
                for place in places(op.geometry.output) {
                    let groups = sums(op, packed, &codes, output, place);
                    let sum = groups.iter().fold(0.0f32, |sum, (k, exact)| {
                        (*exact as f32).mul_add(packed.scale(*k, output), sum)
                    });
                    y.push((sum * scale + bias).max(0.0));
                }
            }
        }
        y
    }

    fn run(op: &Convolution, packed: &Packed, cpu: &Cpu, rows: usize, x: &[f32], bias: &[f32]) -> Vec<f32> {
        let mut y = vec![7.0f32; op.lengths(rows)[2]];
        let values = StepValues::default();
        let mut args = Args::new(cpu, rows, &values);
        args.set_read(0, x);
        args.set_packed(1, &packed.bytes, packed.packing, &packed.scales);
        args.set_read(2, bias);
        args.set_write(0, &mut y);
        op.run::<f32>(&mut args).unwrap();
        y
    }

    #[test]
    fn convolutions_are_the_formula_on_every_machine() {
        for op in cases() {
            let op = Convolution { bias: true, activation: Some(Activation::Relu), ..op };
            let (x, bias) = (images(&op, 3), numbers::<f32>(op.outputs, 4));
            // Scales that are powers of two, so that dividing what is decoded by its code gives them exactly.
            for (dtype, granularity) in [
                (DType::Int8, None),
                (DType::Int4, Some(Granularity::Block(5))),
                (DType::Ternary, Some(Granularity::Tensor)),
                (DType::Binary, None),
                (DType::Q8_0, None),
                (DType::Q4_0, None),
            ] {
                let mut packed = Packed::of(&op, dtype, granularity);
                for scale in &mut packed.scales {
                    *scale = f32::from_bits(scale.to_bits() & 0xFF80_0000);
                }
                let expected = expected(&op, &packed, 3, &x, &bias);
                for cpu in MACHINES.iter() {
                    let found = run(&op, &packed, cpu, 3, &x, &bias);
                    if dtype.is_block_format() {
                        // Their scales of 16 bits are not found exactly by dividing.
                        let near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4);
                        assert!(near, "{op} in {dtype} on {cpu:?}");
                    } else {
                        assert_eq!(found, expected, "{op} in {dtype} on {cpu:?}");
                    }
                    // An image alone has the same bits.
                    let image = x.len() / 3;
                    let alone = run(&op, &packed, cpu, 1, &x[image..2 * image], &bias);
                    let own = found.len() / 3;
                    assert_eq!(alone, found[own..2 * own], "{op} in {dtype} on {cpu:?}");
                }
            }
        }
    }

    #[test]
    fn an_image_with_nan_gives_nan_and_leaves_the_others() {
        let op = cases().remove(1);
        let packed = Packed::of(&op, DType::Int8, None);
        let (mut x, bias) = (images(&op, 3), numbers::<f32>(op.outputs, 4));
        let before = run(&op, &packed, &MACHINES[0], 3, &x, &bias);
        let image = x.len() / 3;
        x[image + 5] = f32::NAN;
        x[2 * image] = f32::INFINITY;
        let found = run(&op, &packed, &MACHINES[0], 3, &x, &bias);
        let own = found.len() / 3;
        assert_eq!(found[..own], before[..own]);
        assert!(found[own..].iter().all(|y| y.is_nan()));
    }
}
