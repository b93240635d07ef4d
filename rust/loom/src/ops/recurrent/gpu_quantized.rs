//! Steps with quantised states on a GPU: each row's h as codes with a scale, before every step, and exact sums of
//! products of codes.

use super::Recurrent;
use super::gpu_kernel::{RowKernel, UNROLLED, sum_over};
use crate::dtype::Packing;
use crate::matrix::IntegerWeight;
use crate::ops::product::gpu_quantized::block_of;
use crate::shader::{Operand, Recorder, Shader};
use crate::{Error, Result};
use std::ops::Range;

/// A hidden-to-hidden weight whose codes are multiplied.
pub(super) struct Quantized {
    /// Its codes, (units, gates), a number each.
    pub(super) codes: Operand,
    packed: Operand,
    packing: Packing,
    /// WGSL statements that return the scale of group `number` of a column.
    scale: String,
}

impl Recurrent {
    /// The codes of a direction's weight, where its products are of codes.
    pub(super) fn quantized_weight(
        &self,
        recorder: &mut Recorder<'_>,
        weight: &Operand,
        direction: usize,
    ) -> Result<Option<Quantized>> {
        if !self.is_quantized(direction) {
            return Ok(None);
        }
        let packing =
            weight.packing.ok_or_else(|| Error::Internal(format!("{self}: the weight is not packed")))?;
        IntegerWeight::check_type(packing.dtype)?;
        IntegerWeight::check_depth(packing.rows)?;
        let gates = self.cell.gates() * self.units;
        let codes = recorder.scratch(self.units * gates)?;
        let [code, scale] = packing.wgsl_integers()?;
        Shader::new("recurrent codes", include_str!("weights.wgsl"))
            .read("packed", "u32", weight.clone())
            .write("plain", "f32", codes.clone())
            .constant("UNITS", self.units)
            .constant("GATES", gates)
            .flag("TURNED", false)
            .append(&format!("fn code_at(k: u32, column: u32) -> i32 {{\n    {code}\n}}\n"))
            .section("ELEMENT", "f32(code_at(at / GATES, at % GATES))")
            .elements(recorder, self.units * gates)?;
        Ok(Some(Quantized { codes, packed: weight.clone(), packing, scale }))
    }
}

impl Quantized {
    /// Declares the scales, with the functions that quantise.
    pub(super) fn declare(&self, kernel: RowKernel) -> RowKernel {
        let (whole, bits) = match kernel.rows {
            1 => ("i32", "u32"),
            _ => ("vec4<i32>", "vec4<u32>"),
        };
        let each = |function: &str| match kernel.rows {
            1 => format!("{function}(x, scale)"),
            _ => {
                let parts = ["x", "y", "z", "w"].map(|part| format!("{function}(x.{part}, scale.{part})"));
                format!("Lanes({})", parts.join(", "))
            }
        };
        let functions = format!(
            "
alias Ints = {whole};
alias Bits = {bits};
fn scale_at(number: u32, column: u32) -> f32 {{
    {scale}
}}
fn one_scale(most: f32, unused: f32) -> f32 {{
    let magnitude = bitcast<u32>(most);
    if magnitude >= 0x7f800000u {{
        return bitcast<f32>(magnitude | 0x7fc00000u);
    }}
    let scale = quotient_of(magnitude, 0x42fe0000u);
    return select(bitcast<f32>(scale), 1.0, scale == 0u);
}}
fn one_code(value: f32, scale: f32) -> f32 {{
    let divisor = bitcast<u32>(scale);
    if divisor >= 0x7f800000u {{
        return 0.0;
    }}
    let bits = bitcast<u32>(value);
    let code = f32(integer_of(quotient_of(bits & 0x7fffffffu, divisor), 127u));
    return select(code, -code, bits >> 31u == 1u);
}}
fn row_scales(x: Lanes) -> Lanes {{
    let scale = x;
    return {scales};
}}
fn codes_of(x: Lanes, scale: Lanes) -> Lanes {{
    return {codes};
}}
",
            scale = self.scale,
            scales = each("one_scale"),
            codes = each("one_code"),
        );
        kernel.with(|shader| {
            let shader = match self.packed.scales() {
                Some(scales) => shader.read("scales", "f32", scales),
                None => shader.read("packed", "u32", self.packed.clone()),
            };
            shader.append(include_str!("../encode/division.wgsl")).append(&functions)
        })
    }

    /// WGSL that adds the products with the codes of `source` to the sums of some of `gates` gates.
    pub(super) fn sums(&self, source: &str, some: Range<usize>, gates: usize, units: usize) -> String {
        let each = |text: &str| -> String {
            let of = |gate: usize| {
                let column = format!("({}u + unit)", gate * units);
                text.replace("COLUMN", &column).replace('#', &gate.to_string())
            };
            some.clone().map(of).collect::<Vec<_>>().join("\n")
        };
        format!(
            "{start}
for (var number = 0u; number * {block}u < UNITS; number++) {{
    let end = min(number * {block}u + {block}u, UNITS);
    {clear}
    for (var k = number * {block}u; k < end; k++) {{
        let other = Ints(hold[{source}_codes + k]);
        {add}
    }}
    {scaled}
}}
{finish}",
            block = block_of(&self.packing),
            start = each("var r# = Lanes();"),
            clear = each("var s# = Ints();"),
            add = each(&format!("s# += other * Ints(i32(weight[k * {}u + COLUMN]));", gates * units)),
            scaled = each("r# = fma(Lanes(s#), Lanes(scale_at(number, COLUMN)), r#);"),
            finish = each(&format!("z# += r# * {source}_scale;")),
        )
    }
}

/// WGSL that quantises what is held from `source` on, to be found from element `at` of what a workgroup holds.
pub(super) fn quantize(source: &str, at: usize, barrier: &str) -> String {
    let largest = sum_over("UNITS", UNROLLED, |k| {
        format!(
            "    {source}_most = max({source}_most, bitcast<Bits>(hold[{source} + {k}]) & Bits(0x7fffffffu));"
        )
    });
    format!(
        "let {source}_codes = held + {at}u;
        var {source}_most = Bits();
        {{
        {largest}
        }}
        let {source}_scale = row_scales(bitcast<Lanes>({source}_most));
        for (var unit = thread; unit < UNITS; unit += THREADS) {{
            hold[{source}_codes + unit] = codes_of(hold[{source} + unit], {source}_scale);
        }}
        {barrier}"
    )
}
