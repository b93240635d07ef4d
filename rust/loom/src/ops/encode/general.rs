//! Encoding on a GPU of the types that are coded one by one with a scale, up to 16 bits.

use crate::dtype::{GpuEncoding, GpuStatistic};
use crate::shader::{Bind, Recorder, Template, VersionOperands};
use crate::{Error, Result};

/// Threads of a workgroup.
const THREADS: usize = 256;
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
    let template = |text: &str| {
        Template::new(text)
            .constant("WORDS", packing.group_words())
            .section("DIVISION", include_str!("division.wgsl"))
    };
    let across = columns.div_ceil(COLUMNS);
    let groups = rows.div_ceil(block) * across;
    let find = template(include_str!("find.wgsl"))
        .constant("LIMIT", limit.to_bits())
        .constant("LARGEST_CODE", encoding.limit as u32)
        .constant("LARGEST_SCALE", largest_scale(limit))
        .flag("MEAN", encoding.statistic == GpuStatistic::Mean)
        .flag("RANGE", encoding.statistic == GpuStatistic::Range)
        .flag("SIGN_ALONE", packing.dtype.row().bits == 1)
        .kernel(format!("encode.{dtype} scales"));
    let operands = [Bind::Read(recorder.control()), Bind::Read(master.clone()), Bind::Write(scales.clone())];
    let constants = [rows, columns, block, across, groups].map(|extent| extent as u32);
    recorder.dispatch(&find, &operands, &constants, groups)?;
    let bits = dtype.row().bits;
    let codes = template(include_str!("codes.wgsl"))
        .constant("THREADS", THREADS)
        .constant("BITS", bits)
        .section("CODE", encoding.code)
        .kernel(format!("encode.{dtype}"));
    let operands = [
        Bind::Read(recorder.control()),
        Bind::Read(master.clone()),
        Bind::Read(scales),
        Bind::Write(packed.clone()),
    ];
    let words = master.elements.div_ceil(32 / bits);
    let constants = [master.elements, columns, block].map(|extent| extent as u32);
    recorder.dispatch(&codes, &operands, &constants, words.div_ceil(THREADS))
}
