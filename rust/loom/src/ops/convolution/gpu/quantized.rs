//! The forward direction with quantised images on a GPU: the CPU's codes and scales to the bit, and their exact
//! sums.

use super::Convolution;
use crate::matrix::IntegerWeight;
use crate::ops::pointwise::WGSL_PRELUDE;
use crate::ops::product::gpu_quantized::{CODE_THREADS, block_of, check_binding, quantize};
use crate::shader::{Recorder, Shader};
use crate::{Error, Result};

/// Channels of a thread, which has one pixel.
const COLUMNS: usize = 8;
/// Words of codes of each of them that a workgroup holds at once.
const WORDS: usize = 32;

/// Text for each channel of a thread, `#` its number.
fn each_column(text: &str) -> String {
    (0..COLUMNS).map(|column| format!("    {}\n", text.replace('#', &column.to_string()))).collect()
}

impl Convolution {
    /// Records it; `raw` stores the sums themselves, as the bits of the results.
    pub(super) fn record_quantized(&self, recorder: &mut Recorder<'_>, raw: bool) -> Result<()> {
        let (x, weight, y) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        let packing =
            weight.packing.ok_or_else(|| Error::Internal(format!("{self}: the weight is not packed")))?;
        IntegerWeight::check_type(packing.dtype)?;
        IntegerWeight::check_depth(packing.rows)?;
        let (rows, g) = (recorder.rows(), &self.geometry);
        let (volume, pixels) = g.volumes();
        let most = packing.bytes().max(x.elements.max(y.elements) * 4);
        check_binding(recorder, most, &format!("{self} of {rows} rows"))?;
        let [codes, image_scales] = quantize(recorder, &x, rows, self.inputs * volume)?;

        let activate = self.activation.map(|a| format!("{WGSL_PRELUDE}{}", a.wgsl_value("activate")));
        let mut store = String::from(
            "if there && column + #u < limit { let at = (image * OUTPUTS + column + #u) * PIXELS + pixel; ",
        );
        if raw {
            store += "y[at] = result#; }";
        } else {
            store += "var value = result# * image_scales[image]; ";
            if self.bias {
                store += "value += bias[column + #u]; ";
            }
            store += if activate.is_some() { "y[at] = activate(value); }" } else { "y[at] = value; }" };
        }
        let scaled = match raw {
            true => "result# = bitcast<f32>(sum#);",
            false => "result# = fma(f32(sum#), scale_at(number, min(column + #u, OUTPUTS - 1u)), result#);",
        };
        let [code, scale] = packing.wgsl_integers()?;
        let outputs = self.outputs / self.groups;
        let mut shader =
            Shader::new(format!("convolution int8 {}", packing.dtype), include_str!("quantized.wgsl"))
                .threads(CODE_THREADS)
                .constant("COLUMNS", COLUMNS)
                .constant("WORDS", WORDS)
                .constant("BLOCK", block_of(&packing))
                .constant("IMAGE_WORDS", (self.inputs * volume).div_ceil(4))
                .constant("SOURCE_DEPTH", g.input[0])
                .constant("SOURCE_HEIGHT", g.input[1])
                .constant("SOURCE_WIDTH", g.input[2])
                .constant("PIXELS_HEIGHT", g.output[1])
                .constant("PIXELS_WIDTH", g.output[2])
                .constant("PIXELS", pixels)
                .constant("KERNEL_HEIGHT", g.kernel[1])
                .constant("KERNEL_WIDTH", g.kernel[2])
                .constant("TAPS", g.taps())
                .constant("STRIDE_BACK", g.stride[0])
                .constant("STRIDE_DOWN", g.stride[1])
                .constant("STRIDE_RIGHT", g.stride[2])
                .constant("BORDER_BACK", g.padding[0])
                .constant("BORDER_DOWN", g.padding[1])
                .constant("BORDER_RIGHT", g.padding[2])
                .constant("TAP_BACK", g.dilation[0])
                .constant("TAP_DOWN", g.dilation[1])
                .constant("TAP_RIGHT", g.dilation[2])
                .constant("DEPTH", packing.rows)
                .constant("OUTPUTS", self.outputs)
                .constant("GROUP_INPUTS", self.inputs / self.groups)
                .constant("GROUP_OUTPUTS", outputs)
                .constant("ACROSS", outputs.div_ceil(COLUMNS))
                .constant("GROUPS", self.groups)
                .section("CODE", code)
                .section("SCALE", scale)
                .section("FINISH", activate.as_deref().unwrap_or(""))
                .section("START", each_column("var result# = 0.0;"))
                .section("CLEAR", each_column("var sum# = 0;"))
                .section("SUM", each_column("sum# += dot4I8Packed(own, panel[#u * WORDS + word]);"))
                .section("SCALED", each_column(scaled))
                .section("STORE", each_column(&store))
                .read("codes", "u32", codes)
                .read("image_scales", "f32", image_scales)
                .read("packed", "u32", weight.clone())
                .when(weight.scales().is_some(), |shader| shader.scales("f32", &weight));
        if self.bias {
            shader = shader.read("bias", "f32", recorder.read(2)?);
        }
        let groups = (rows * pixels).div_ceil(CODE_THREADS) * self.groups * outputs.div_ceil(COLUMNS);
        shader.write("y", "f32", y).number("pixels", rows * pixels).unchecked().groups(recorder, groups)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::super::quantized::tests::{Packed, cases, images, quantize, sums};
    use super::super::super::reference::places;
    use super::*;
    use crate::dtype::{DType, Granularity};
    use crate::gpu::testing;
    use crate::ops::pointwise::Activation;
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::ops::{Args, Op, Operation, StepValues};
    use crate::simd::Cpu;

    fn packed_of(packed: &Packed) -> testing::Packed<'_> {
        testing::Packed { packing: packed.packing, bytes: &packed.bytes, scales: &packed.scales }
    }

    #[test]
    fn results_are_those_of_the_cpu() {
        let Some(gpu) = testing::gpu() else { return };
        for (number, op) in cases().into_iter().enumerate() {
            let activation = Some(Activation::Tanh).filter(|_| number % 2 == 0);
            let op = Convolution { bias: number % 3 > 0, activation, ..op };
            let (x, bias) = (images(&op, 3), numbers::<f32>(4, op.outputs));
            for (dtype, granularity) in [
                (DType::Int8, None),
                (DType::Int4, Some(Granularity::Block(5))),
                (DType::Ternary, Some(Granularity::Tensor)),
                (DType::Binary, None),
                (DType::Q8_0, None),
                (DType::Q4_0, None),
            ] {
                let packed = Packed::of(&op, dtype, granularity);
                let plain = vec![0.0f32; packed.packing.elements()];
                let setting = Setting::new(3, &[&x, &plain, &bias], &[op.lengths(3)[2]]);
                let mut expected = vec![0.0f32; op.lengths(3)[2]];
                let values = StepValues::default();
                let mut args = Args::new(Cpu::global().unwrap(), 3, &values);
                args.set_read(0, &x);
                args.set_packed(1, &packed.bytes, packed.packing, &packed.scales);
                args.set_read(2, &bias);
                args.set_write(0, &mut expected);
                op.run::<f32>(&mut args).unwrap();
                let name = Op::from(op.clone());
                let found = testing::run(&gpu, &name, &setting, Some((1, packed_of(&packed)))).unwrap();
                testing::compare(&name, &[Data::Real(expected)], &found);
            }
        }
    }

    #[test]
    fn raw_sums_are_the_exact_integers() {
        let Some(gpu) = testing::gpu() else { return };
        for op in cases() {
            for dtype in [DType::Int8, DType::Int4, DType::Ternary, DType::Binary] {
                let packed = Packed::of(&op, dtype, None);
                let x = images(&op, 2);
                let plain = vec![0.0f32; packed.packing.elements()];
                let setting = Setting::new(2, &[&x, &plain], &[op.lengths(2)[2]]);
                let record = |recorder: &mut Recorder<'_>| op.record_quantized(recorder, true);
                let found =
                    testing::run_recorded(&gpu, &setting, Some((1, packed_of(&packed))), record).unwrap();
                let found: Vec<i64> =
                    found[0].real().iter().map(|sum| i64::from(sum.to_bits() as i32)).collect();
                let mut expected = Vec::new();
                for image in x.chunks_exact(x.len() / 2) {
                    let (_, codes) = quantize(image);
                    for output in 0..op.outputs {
                        for place in places(op.geometry.output) {
                            expected.push(sums(&op, &packed, &codes, output, place)[0].1);
                        }
                    }
                }
                assert!(found == expected, "{op} in {dtype}");
            }
        }
    }
}
