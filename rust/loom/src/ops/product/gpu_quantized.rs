//! The dense layer's product with quantised activations on a GPU: rows are quantised, with the CPU's codes
//! and scales to the bit, and products of codes are summed exactly, so that the sums are the CPU's too.

mod stream;

use super::Product;
use crate::dtype::{BLOCK, Granularity, Packing};
use crate::matrix::IntegerWeight;
use crate::ops::pointwise::WGSL_PRELUDE;
use crate::shader::{Operand, Recorder, Shader};
use crate::{Error, Result};
use stream::Stream;

/// The most threads of a workgroup that quantises a row.
const QUANTIZE_THREADS: usize = 512;
/// Threads of a workgroup that multiplies codes: each with a column of [`ROWS`] rows, or with a pixel of a
/// convolution.
pub(in crate::ops) const CODE_THREADS: usize = 64;
/// Rows of a thread.
const ROWS: usize = 8;

/// Text for each row of a thread, `#` its number.
fn each_row(text: &str) -> String {
    (0..ROWS).map(|row| format!("    {}\n", text.replace('#', &row.to_string()))).collect()
}

/// Records the quantisation of rows of `depth` elements; returns their codes, four to a word, and their scales.
pub(in crate::ops) fn quantize(
    recorder: &mut Recorder<'_>,
    x: &Operand,
    rows: usize,
    depth: usize,
) -> Result<[Operand; 2]> {
    let words = depth.div_ceil(4);
    let (codes, scales) = (recorder.scratch(rows * words)?, recorder.scratch(rows)?);
    let most_threads = recorder.capabilities().workgroup_threads;
    let threads = words.next_power_of_two().clamp(32, QUANTIZE_THREADS.min(most_threads));
    Shader::new("product quantize rows", include_str!("quantize_rows.wgsl"))
        .threads(threads)
        .section("DIVISION", include_str!("../encode/division.wgsl"))
        .read("x", "u32", x.clone())
        .write("codes", "u32", codes.clone())
        .write("scales", "u32", scales.clone())
        .number("rows", rows)
        .number("depth", depth)
        // Of a row of codes.
        .number("words", words)
        .groups(recorder, rows)?;
    Ok([codes, scales])
}

/// Records the quantisation of rows of `depth` elements with a scale for each block of 32; returns their codes, four to
/// a word, and their scales.
fn quantize_blocks(
    recorder: &mut Recorder<'_>,
    x: &Operand,
    rows: usize,
    depth: usize,
) -> Result<[Operand; 2]> {
    let (words, blocks) = (depth.div_ceil(4), depth.div_ceil(BLOCK));
    let (codes, scales) = (recorder.scratch(rows * words)?, recorder.scratch(rows * blocks)?);
    Shader::new("product quantize blocks", include_str!("quantize_blocks.wgsl"))
        .threads(CODE_THREADS)
        .section("DIVISION", include_str!("../encode/division.wgsl"))
        .read("x", "u32", x.clone())
        .write("codes", "u32", codes.clone())
        .write("scales", "u32", scales.clone())
        .number("rows", rows)
        .number("depth", depth)
        // Of a row of codes.
        .number("words", words)
        .number("blocks", blocks)
        .groups(recorder, (rows * blocks * BLOCK / 4).div_ceil(CODE_THREADS))?;
    Ok([codes, scales])
}

/// Refuses operands that one binding cannot hold.
pub(in crate::ops) fn check_binding(recorder: &Recorder<'_>, bytes: usize, what: &str) -> Result<()> {
    if bytes <= recorder.capabilities().max_binding {
        return Ok(());
    }
    Err(Error::Device(format!(
        "{what} exceeds what one binding of this device holds, as activations=\"int8\" needs it; compute on the \
         device \"cpu\", or leave the activations in float"
    )))
}

/// Inputs of a column that share a scale.
pub(in crate::ops) fn block_of(packing: &Packing) -> usize {
    match packing.granularity {
        Granularity::Block(block) => block.clamp(1, packing.rows.max(1)),
        _ => packing.rows.max(1),
    }
}

/// What a product is followed by.
#[derive(Clone)]
struct Finish<'a> {
    accumulate: bool,
    bias: Option<&'a Operand>,
    /// WGSL of a function `activate`.
    activate: Option<String>,
    /// The sums themselves, as the bits of the results.
    raw: bool,
    /// Whether activations have a scale for each block, which sums are multiplied with.
    blocks: bool,
}

impl Finish<'_> {
    /// WGSL statements that store the `sum` of a `row` and `column`, which is an integer and still to be
    /// `scaled`, or a number.
    fn store(&self, scaled: bool) -> String {
        let mut text = String::from("let at = row * constants.columns + column;\n");
        if self.raw {
            return text + "    y[at] = bitcast<f32>(sum);";
        }
        text += match scaled {
            true => "    var value = f32(sum) * scale_at(0u, column) * row_scales[row];\n",
            false if self.blocks => "    var value = sum;\n",
            false => "    var value = sum * row_scales[row];\n",
        };
        if self.accumulate {
            text += "    value = y[at] + value;\n";
        }
        if self.bias.is_some() {
            text += "    value += bias[column];\n";
        }
        text + match self.activate {
            Some(_) => "    y[at] = activate(value);",
            None => "    y[at] = value;",
        }
    }
}

/// Records the quantisation of rows and their product with a weight.
fn record(
    recorder: &mut Recorder<'_>,
    [x, weight, y]: [&Operand; 3],
    packing: &Packing,
    rows: usize,
    finish: &Finish<'_>,
) -> Result<()> {
    let (depth, columns) = (packing.rows, packing.channels);
    IntegerWeight::check_type(packing.dtype)?;
    IntegerWeight::check_depth(depth)?;
    let most = packing.bytes().max(rows * depth.max(columns) * 4);
    check_binding(recorder, most, &format!("a product of {rows} rows and {depth} x {columns} weights"))?;
    let words = depth.div_ceil(4);
    let blocks = packing.has_blocks();
    let finish = &Finish { blocks, ..finish.clone() };
    let [codes, row_scales] = match blocks {
        true => quantize_blocks(recorder, x, rows, depth)?,
        false => quantize(recorder, x, rows, depth)?,
    };

    let [code, scale] = packing.wgsl_integers()?;
    let shader = |label: String, text: &str| {
        let mut shader = Shader::new(label, text)
            .section("SCALE", scale.clone())
            .read("codes", "u32", codes.clone())
            .read("row_scales", "f32", row_scales.clone())
            .read("packed", "u32", weight.clone())
            .when(weight.scales().is_some(), |shader| shader.scales("f32", weight));
        if let Some(bias) = finish.bias {
            shader = shader.read("bias", "f32", bias.clone());
        }
        shader
            .write("y", "f32", y.clone())
            .number("rows", rows)
            .number("depth", depth)
            .number("columns", columns)
            // Of a row of the activations' codes.
            .number("words", words)
            .unchecked()
    };
    let most_threads = recorder.capabilities().workgroup_threads;
    if let Some(stream) = Stream::new(packing, rows, finish.raw, most_threads) {
        let groups = rows.div_ceil(stream.rows) * columns.div_ceil(stream.columns());
        let label = format!("product int8 {} stream", packing.dtype);
        return shader(label, include_str!("gpu_quantized/stream.wgsl"))
            .threads(stream.threads)
            .section("ACTIVATE", finish.activate.as_deref().unwrap_or(""))
            .section("SUM", stream.result().0)
            .section("FINISH", finish.store(stream.result().1))
            .section("MAIN", stream.source())
            .groups(recorder, groups);
    }

    let block = block_of(packing);
    // Words of four codes are multiplied where groups begin with whole ones.
    let sum = if block.is_multiple_of(4) || block >= depth {
        format!(
            "for (var k = first; k < end; k += 4u) {{
            var four = 0u;
            for (var i = k; i < min(k + 4u, end); i++) {{
                four |= (bitcast<u32>(code_at(i, column)) & 255u) << ((i - k) * 8u);
            }}
            {}
        }}",
            each_row("sum# += dot4I8Packed(codes[min(row + #u, last) * constants.words + k / 4u], four);")
        )
    } else {
        let activation = "extractBits(bitcast<i32>(codes[min(row + #u, last) * constants.words + k / 4u]), k % 4u * 8u, 8u)";
        format!(
            "for (var k = first; k < end; k++) {{
            let own = code_at(k, column);
            {}
        }}",
            each_row(&format!("sum# += {activation} * own;"))
        )
    };
    let mut store = String::from("if row + #u <= last { let at = (row + #u) * constants.columns + column; ");
    if finish.raw {
        store += "y[at] = result#; }";
    } else {
        store += match blocks {
            true => "var value = result#; ",
            false => "var value = result# * row_scales[row + #u]; ",
        };
        if finish.accumulate {
            store += "value = y[at] + value; ";
        }
        if finish.bias.is_some() {
            store += "value += bias[column]; ";
        }
        store += if finish.activate.is_some() { "y[at] = activate(value); }" } else { "y[at] = value; }" };
    }
    let scaled = if finish.raw {
        each_row("result# = bitcast<f32>(sum#);")
    } else {
        let each = each_row(&match blocks {
            true => format!(
                "result# = fma(f32(sum#), scale * row_scales[min(row + #u, last) * {}u + number], result#);",
                depth.div_ceil(BLOCK)
            ),
            false => "result# = fma(f32(sum#), scale, result#);".to_string(),
        });
        format!("let scale = scale_at(number, column);\n{each}")
    };
    shader(format!("product int8 {}", packing.dtype), include_str!("quantized.wgsl"))
        .threads(CODE_THREADS)
        .constant("ROWS", ROWS)
        .constant("BLOCK", block)
        .section("CODE", code)
        .section("FINISH", finish.activate.as_deref().unwrap_or(""))
        .section("START", each_row("var result# = 0.0;"))
        .section("CLEAR", each_row("var sum# = 0;"))
        .section("SUM", sum)
        .section("SCALED", scaled)
        .section("STORE", each_row(&store))
        .groups(recorder, rows.div_ceil(ROWS) * columns.div_ceil(CODE_THREADS))
}

impl Product {
    /// Records the forward direction with quantised activations.
    pub(super) fn record_quantized(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, weight, y) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        let bias = if self.bias { Some(recorder.read(2)?) } else { None };
        let packing =
            weight.packing.ok_or_else(|| Error::Internal(format!("{self}: the weight is not packed")))?;
        let packing = self.quantized_packing(packing)?;
        let finish = Finish {
            accumulate: recorder.accumulate(),
            bias: bias.as_ref(),
            activate: self.activation.map(|a| format!("{WGSL_PRELUDE}{}", a.wgsl_value("activate"))),
            raw: false,
            blocks: false,
        };
        let rows = recorder.rows() * self.multiplier;
        record(recorder, [&x, &weight, &y], &packing, rows, &finish)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::Buffer;
    use crate::dtype::DType;
    use crate::gpu::testing::{self, Packed, cases};
    use crate::matrix::{
        Bias, NoEpilogue, Output, QuantizedRows, Route, Start, integer_product, integer_sums,
    };
    use crate::ops::pointwise::Activation;
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::ops::{Direction, Op};
    use crate::simd::Cpu;
    use proptest::prelude::*;

    struct Weight {
        packing: Packing,
        bytes: Vec<u8>,
        scales: Vec<f32>,
    }

    impl Weight {
        fn new(dtype: DType, granularity: Option<Granularity>, k: usize, n: usize) -> Self {
            let granularity = dtype.granularity(granularity).unwrap_or(dtype.row().granularity);
            let packing = Packing::new(dtype, k, n).with(granularity);
            let (mut bytes, mut scales) = (vec![0; packing.bytes()], vec![0.0; packing.scale_words()]);
            packing.encode(None, &numbers::<f32>(5, k * n), &mut bytes, &mut scales).unwrap();
            Self { packing, bytes, scales }
        }

        fn packed(&self) -> Packed<'_> {
            Packed { packing: self.packing, bytes: &self.bytes, scales: &self.scales }
        }
    }

    fn op(k: usize, n: usize) -> Product {
        Product { quantized: true, ..Product::new(Direction::Forward, 1, k, n) }
    }

    proptest! {
        #![proptest_config(cases(12))]

        #[test]
        fn any_extents_are_as_on_the_cpu(
            dtype in 0..IntegerWeight::TYPES.len(),
            (m, k, n) in (1..20_usize, 1..90_usize, 1..150_usize),
            granularity in prop_oneof![
                2 => Just(None),
                1 => Just(Some(Granularity::Tensor)),
                2 => (1..20_usize).prop_map(|rows| Some(Granularity::Block(rows))),
            ],
            accumulate: bool,
            bias: bool,
        ) {
            let Some(gpu) = testing::gpu() else { return Ok(()) };
            let weight = Weight::new(IntegerWeight::TYPES[dtype], granularity, k, n);
            let op = Product { bias, activation: Some(Activation::Tanh).filter(|_| bias), ..op(k, n) };
            let (x, offsets, before) = (numbers::<f32>(1, m * k), numbers(2, n), numbers::<f32>(3, m * n));
            let codes = IntegerWeight::new(weight.packing, &weight.bytes, &weight.scales).unwrap();
            let start = if accumulate { Start::Continue } else { Start::Zero };
            let mut expected = before.clone();
            let out = Output::new(&mut expected, m, n);
            if bias {
                integer_product(Cpu::global().unwrap(), &x, &codes, start, &Bias::Columns(&offsets), out);
                Activation::Tanh.apply(Cpu::global().unwrap().isa(), &mut expected);
            } else {
                integer_product(Cpu::global().unwrap(), &x, &codes, start, &NoEpilogue, out);
            }
            let mut setting = Setting::new(m, &[&x, &vec![0.0; k * n], &offsets], &[m * n]);
            setting.writes = vec![Data::Real(before)];
            setting.accumulate = accumulate;
            let name = Op::from(op);
            let found = testing::run(&gpu, &name, &setting, Some((1, weight.packed()))).unwrap();
            testing::compare(&name, &[Data::Real(expected)], &found);
        }
    }

    /// The same integers as on the CPU, on each of its instruction sets.
    #[test]
    fn raw_sums_are_the_integers_of_the_cpu() {
        let Some(gpu) = testing::gpu() else { return };
        for dtype in IntegerWeight::TYPES {
            // Of a single block, whose scale is the row's.
            let (m, k, n) = (11, if dtype.is_block_format() { 32 } else { 701 }, 70);
            let weight = Weight::new(dtype, None, k, n);
            let mut x = numbers::<f32>(8, m * k);
            x[..k].fill(0.0);
            let setting = Setting::new(m, &[&x, &vec![0.0; k * n]], &[m * n]);
            let record = |recorder: &mut Recorder<'_>| {
                let operands = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
                let finish =
                    Finish { accumulate: false, bias: None, activate: None, raw: true, blocks: false };
                record(recorder, [&operands.0, &operands.1, &operands.2], &weight.packing, m, &finish)
            };
            let found = testing::run_recorded(&gpu, &setting, Some((1, weight.packed())), record).unwrap();
            let found: Vec<i32> = found[0].real().iter().map(|sum| sum.to_bits() as i32).collect();
            let codes = IntegerWeight::new(weight.packing, &weight.bytes, &weight.scales).unwrap();
            for route in Route::available() {
                let mut memory = Buffer::default();
                let rows = QuantizedRows::new(Cpu::global().unwrap(), route, &x, m, k, &mut memory);
                let mut sums = vec![0; m * n];
                integer_sums(route, &rows, &codes, 0..k, &mut sums);
                assert!(sums == found, "{dtype} on {route:?}");
            }
        }
    }
}
