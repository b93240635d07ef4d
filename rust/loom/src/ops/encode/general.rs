//! Encoding on a GPU of the types that are coded one by one with a scale, up to 16 bits.

use crate::dtype::{GpuEncoding, GpuStatistic};
use crate::shader::{Recorder, Shader, VersionOperands};
use crate::{Error, Result};

/// Columns whose scales one workgroup finds.
const COLUMNS: usize = 16;

/// The bits of the largest scale whose product with `limit` is finite.
fn largest_scale(limit: f32) -> u32 {
    let mut scale = f32::MAX / limit;
    while !(scale * limit).is_finite() {
        scale = scale.next_down();
    }
    scale.to_bits()
}

/// Records the dispatches that find the scales and make the codes.
pub(super) fn record(
    recorder: &mut Recorder<'_>,
    version: &VersionOperands,
    encoding: &GpuEncoding,
) -> Result<()> {
    let VersionOperands { packing, master, packed } = version;
    let dtype = packing.dtype;
    if master.elements * 4 > recorder.capabilities().max_binding {
        return Err(Error::Device(format!(
            "{} weights exceed what one binding of this device holds, so they cannot be encoded in {dtype} on \
             it; train them on the device \"cpu\"",
            master.elements
        )));
    }
    let scales = packed.scales().ok_or_else(|| Error::Internal(format!("{dtype} without scales")))?;
    let (rows, columns, block) = packing.groups_grid();
    let limit = encoding.limit as f32;
    let shader = |label: String, text: &str| {
        Shader::new(label, text)
            .constant("WORDS", packing.group_words())
            .section("DIVISION", include_str!("division.wgsl"))
            .control(recorder)
            .read("master", "u32", master.clone())
    };
    let across = columns.div_ceil(COLUMNS);
    let groups = rows.div_ceil(block) * across;
    let find = shader(format!("encode.{dtype} scales"), include_str!("find.wgsl"))
        .constant("LIMIT", limit.to_bits())
        .constant("LARGEST_CODE", encoding.limit as u32)
        .constant("LARGEST_SCALE", largest_scale(limit))
        .flag("MEAN", encoding.statistic == GpuStatistic::Mean)
        .flag("RANGE", encoding.statistic == GpuStatistic::Range)
        .flag("SIGN_ALONE", packing.dtype.row().bits == 1)
        .write("scales", "u32", scales.clone())
        // Of the matrix that groups cut: so many rows of a column each.
        .number("rows", rows)
        .number("columns", columns)
        .number("block", block)
        // Workgroups for the groups of all columns, and for all groups.
        .number("across", across)
        .number("groups", groups);
    let bits = dtype.row().bits;
    let codes = shader(format!("encode.{dtype}"), include_str!("codes.wgsl"))
        .constant("BITS", bits)
        .section("CODE", encoding.code)
        .read("scales", "u32", scales)
        .write("codes", "u32", packed.clone())
        .number("elements", master.elements)
        .number("columns", columns)
        .number("block", block);
    find.groups(recorder, groups)?;
    codes.elements(recorder, master.elements.div_ceil(32 / bits))
}
