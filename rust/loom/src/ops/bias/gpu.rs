//! The bias on a GPU: memory-bound, so units of four elements where they lie side by side.

use super::{BiasAdd, BiasGradient};
use crate::Result;
use crate::ops::segment;
use crate::shader::{GpuOperation, Operand, Recorder, Shader, THREADS};

/// Additions of one thread, before the rows are better shared out among more workgroups.
const PATIENCE: usize = 64;
/// Additions of one thread where they are shared out.
const SHARE: usize = 32;
/// The most parts that rows are shared out into.
const PARTS: usize = 256;

impl GpuOperation for BiasAdd {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, bias, z) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        let side_by_side = self.inner == 1 && self.channels.is_multiple_of(4);
        let in_plane = self.inner.is_multiple_of(4);
        let wide = if side_by_side || in_plane { 4 } else { 1 };
        let unit = unit(wide);
        let channels = if side_by_side { self.channels / 4 } else { self.channels };
        let inner = if in_plane { self.inner / 4 } else { self.inner };
        let units = z.elements / wide;
        Shader::new("bias_add", include_str!("add.wgsl"))
            .section("UNIT", unit)
            .read("x", unit, x)
            .read("bias", if side_by_side { unit } else { "f32" }, bias)
            .write("z", unit, z)
            .number("units", units)
            // Units of bias.
            .number("channels", channels)
            // Units of x that share one unit of bias.
            .number("inner", inner)
            .elements(recorder, units)
    }
}

/// The type of as many neighbouring elements: one, or four.
pub(in crate::ops) fn unit(wide: usize) -> &'static str {
    if wide == 4 { "vec4<f32>" } else { "f32" }
}

/// How rows are shared out: rows of a part, and parts.
pub(in crate::ops) fn share(rows: usize, lanes: usize, additions: usize) -> (usize, usize) {
    let each = rows.div_ceil(lanes) * additions;
    if each <= PATIENCE {
        return (rows.max(1), 1);
    }
    let parts = each.div_ceil(SHARE).min(PARTS).min(rows);
    let part = rows.div_ceil(parts);
    (part, rows.div_ceil(part))
}

/// The sums over the rows of a matrix of `columns`.
pub(in crate::ops) fn sum_columns(
    recorder: &mut Recorder<'_>,
    dz: Operand,
    (rows, columns): (usize, usize),
    sums: Operand,
    accumulate: bool,
) -> Result<()> {
    let wide = if columns.is_multiple_of(4) { 4 } else { 1 };
    let units = columns / wide;
    // Few columns a workgroup make many workgroups, and many threads for each column.
    let mut width = segment::lanes(units, 32);
    while width > 2 && rows * width > 8 * THREADS {
        width /= 2;
    }
    let (part, parts) = share(rows, THREADS / width, 1);
    let groups = units.div_ceil(width) * parts;
    let partial = if parts == 1 { sums.clone() } else { recorder.scratch(parts * columns)? };
    Shader::new("bias_gradient", include_str!("columns.wgsl"))
        .constant("WIDTH", width)
        .section("UNIT", unit(wide))
        .read("dz", unit(wide), dz)
        // (parts, columns)
        .write("sums", unit(wide), partial.clone())
        .number("rows", rows)
        // In units.
        .number("columns", units)
        // Rows of a part.
        .number("part", part)
        .number("parts", parts)
        .number("accumulate", accumulate && parts == 1)
        .groups(recorder, groups)?;
    match parts {
        1 => Ok(()),
        _ => sum_columns(recorder, partial, (parts, columns), sums, accumulate),
    }
}

impl GpuOperation for BiasGradient {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (dz, db) = (recorder.read(0)?, recorder.write(0)?);
        let (images, accumulate) = (recorder.rows() * self.outer, recorder.accumulate());
        if self.inner == 1 {
            return sum_columns(recorder, dz, (images, self.channels), db, accumulate);
        }
        let wide = if self.inner.is_multiple_of(4) { 4 } else { 1 };
        let units = self.inner / wide;
        let width = segment::lanes(units, 64);
        let (part, parts) = share(images, THREADS / width, units.div_ceil(width));
        let sums = if parts == 1 { db.clone() } else { recorder.scratch(parts * self.channels)? };
        Shader::new("bias_gradient", include_str!("planes.wgsl"))
            .constant("WIDTH", width)
            .section("UNIT", unit(wide))
            .section("WHOLE", if wide == 4 { "(sum.x + sum.y) + (sum.z + sum.w)" } else { "sum" })
            .section("JOIN", segment::join("join", "f32", THREADS, "a + b"))
            .read("dz", unit(wide), dz)
            // (parts, channels)
            .write("sums", "f32", sums.clone())
            .number("images", images)
            .number("channels", self.channels)
            // Units of a plane.
            .number("inner", units)
            // Images of a part.
            .number("part", part)
            .number("parts", parts)
            .number("accumulate", accumulate && parts == 1)
            .groups(recorder, self.channels * parts)?;
        match parts {
            1 => Ok(()),
            _ => sum_columns(recorder, sums, (parts, self.channels), db, accumulate),
        }
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Setting, numbers};
    use proptest::prelude::*;

    fn both((rows, outer, channels, inner): (usize, usize, usize, usize)) {
        let x: Vec<f32> = numbers(1, rows * outer * channels * inner);
        let bias: Vec<f32> = numbers(2, channels);
        check(BiasAdd { outer, channels, inner }, &Setting::new(rows, &[&x, &bias], &[x.len()]));
        let gradient = BiasGradient { outer, channels, inner };
        let mut setting = Setting::new(rows, &[&x], &[channels]);
        check(gradient.clone(), &setting);
        setting.accumulate = true;
        check(gradient, &setting);
    }

    #[test]
    fn extents_of_every_kind() {
        for extents in [
            (1, 1, 1, 1),
            (1, 1, 1, 2),
            (1024, 1, 512, 1),
            (1024, 1, 10, 1),
            (64, 1, 512, 1),
            (1, 1, 512, 1),
            (9_000, 1, 3, 1),
            (3_000, 2, 8, 1),
            (40, 1, 8, 676),
            (3, 2, 5, 49),
            (1, 1, 3, 50_000),
            // More workgroups than one dimension has.
            (1, 1, 70_000, 3),
        ] {
            both(extents);
        }
    }

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(8))]

        #[test]
        fn any_extents(rows in 1..150usize, outer in 1..3usize, channels in 1..150usize,
                       inner in prop_oneof![Just(1), 2..50usize]) {
            both((rows, outer, channels, inner));
        }
    }
}
