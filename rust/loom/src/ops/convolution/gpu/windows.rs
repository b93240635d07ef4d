//! What both ways of computing convolutions on a GPU share: windows over images, and how work is cut.

use crate::ops::convolution::Convolution;
use crate::shader::product::{Edges, Tile, units};
use crate::shader::{Recorder, Shader};

/// Workgroups that keep all of a device busy.
pub(super) fn enough(recorder: &Recorder<'_>) -> usize {
    // Software has a few threads; a multiprocessor wants two or more.
    let capabilities = recorder.capabilities();
    if capabilities.software { 8 } else { (2 * capabilities.speeds.processors as usize / 32 * 32).max(16) }
}

/// Threads of a workgroup that sweeps without tiles.
pub(super) const SWEEP_THREADS: usize = 128;

/// Fills in what `window.wgsl` or a sibling of it has to know of the geometry: from inputs to outputs,
/// or back, all pixels together or `by_residue`.
pub(super) fn windows(op: &Convolution, forward: bool, by_residue: bool, shader: Shader) -> Shader {
    let g = &op.geometry;
    let (source, mut destination) = if forward { (g.input, g.output) } else { (g.output, g.input) };
    let strided = !forward && g.stride != [1; 3];
    if by_residue {
        destination = [0, 1, 2].map(|axis| destination[axis].div_ceil(g.stride[axis]));
    }
    // Numbers before zero wrap around.
    let back = |distance: usize| (distance as u32).wrapping_neg();
    let along = |distance: usize| if forward || strided { distance as u32 } else { back(distance) };
    let border = |distance: usize| if forward { back(distance) } else { distance as u32 };
    let step = |stride: usize| if forward { stride } else { 1 };
    let text = match (g.is_flat(), strided) {
        (true, true) if by_residue => include_str!("residue_window.wgsl"),
        (true, true) => include_str!("strided_window.wgsl"),
        (true, false) => include_str!("window.wgsl"),
        (false, true) => include_str!("strided_volume_window.wgsl"),
        (false, false) => include_str!("volume_window.wgsl"),
    };
    let (sources, destinations) = if forward { (op.inputs, op.outputs) } else { (op.outputs, op.inputs) };
    shader
        .append(text)
        .append(include_str!("found.wgsl"))
        .section("GROUP", if by_residue { "batch % GROUPS" } else { "batch" })
        .constant("PIXELS", destination.iter().product::<usize>())
        .constant("PIXELS_HEIGHT", destination[1])
        .constant("PIXELS_WIDTH", destination[2])
        .constant("SOURCE_DEPTH", source[0])
        .constant("SOURCE_HEIGHT", source[1])
        .constant("SOURCE_WIDTH", source[2])
        .constant("SOURCE_PLANE", source.iter().product::<usize>())
        .constant("SOURCE_CHANNELS", sources)
        .constant("GROUP_SOURCES", sources / op.groups)
        .constant("DESTINATION_CHANNELS", destinations)
        .constant("GROUP_DESTINATIONS", destinations / op.groups)
        .constant("OUTPUTS", op.outputs)
        .constant("GROUP_OUTPUTS", op.outputs / op.groups)
        .constant("GROUPS", op.groups)
        .constant("KERNEL_HEIGHT", g.kernel[1])
        .constant("KERNEL_WIDTH", g.kernel[2])
        .constant("TAPS", g.taps())
        .constant("STEP_BACK", step(g.stride[0]))
        .constant("STEP_DOWN", step(g.stride[1]))
        .constant("STEP_RIGHT", step(g.stride[2]))
        .constant("STRIDE_BACK", g.stride[0])
        .constant("STRIDE_DOWN", g.stride[1])
        .constant("STRIDE_RIGHT", g.stride[2])
        .constant("FIRST_PLANE", border(g.padding[0]))
        .constant("FIRST_ROW", border(g.padding[1]))
        .constant("FIRST_COLUMN", border(g.padding[2]))
        .constant("TAP_BACK", along(g.dilation[0]))
        .constant("TAP_DOWN", along(g.dilation[1]))
        .constant("TAP_RIGHT", along(g.dilation[2]))
}

/// A scalar or a vector of four.
pub(super) fn element(width: u32) -> &'static str {
    if width == 4 { "vec4<f32>" } else { "f32" }
}

/// The largest divisor of `extent` up to `most`.
pub(super) fn divisor(extent: usize, most: usize) -> usize {
    (1..=most.min(extent)).rev().find(|divisor| extent.is_multiple_of(*divisor)).unwrap_or(1)
}

/// Tiles of a matrix of these extents.
pub(super) fn tiles(tile: &Tile, rows: usize, columns: usize) -> usize {
    rows.div_ceil(tile.rows as usize) * columns.div_ceil(tile.columns as usize)
}

/// The tile for matrix units, where the convolution is mixed and there are such: without slices, which
/// are for threads that multiply one by one.
pub(super) fn on_units(op: &Convolution, recorder: &Recorder<'_>, tile: Tile) -> Option<Tile> {
    let capabilities = recorder.capabilities();
    let tile = Tile { depth: tile.depth.next_multiple_of(16), slices: 1, ..tile };
    let fits = units::workgroup_bytes(&tile, 1) as usize <= capabilities.workgroup_storage;
    (op.mixed && capabilities.has_matrix_units() && fits && units::has_fragments(&tile)).then_some(tile)
}

/// What has to be looked at; the extent that grows with the images always is, so that one text
/// serves all batches.
pub(super) fn edges(tile: &Tile, rows: usize, columns: Option<usize>, depth: Option<usize>) -> Edges {
    let exact = Edges::of(tile, rows, columns.unwrap_or(0), depth.unwrap_or(0));
    Edges {
        rows: exact.rows,
        columns: exact.columns || columns.is_none(),
        depth: exact.depth || depth.is_none(),
    }
}
