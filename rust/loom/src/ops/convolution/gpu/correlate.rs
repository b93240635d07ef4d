//! The gradient of the weight: sums over all pixels of all images, cut into parts that are added in order.

use super::windows::{divisor, edges, element, enough, on_units, tiles, windows};
use crate::Result;
use crate::ops::convolution::Convolution;
use crate::shader::product::{Along, Hooks, Loader, Rounding, Tile, Tiled};
use crate::shader::{BothGradients, Operand, Recorder, Shader, THREADS};

/// Threads that share the parts of one element.
const SLICES: usize = 8;
/// Taps that a thread keeps sums for without tiles, at most.
const TAPS: usize = 64;
/// Sums that it would rather not go beyond, with the outputs that it takes at once: the fewer the sooner
/// its sums are added to the others', the more the less often the windows are read.
const FEW: (usize, usize) = (36, 4);
const MANY: (usize, usize) = (72, 8);
/// Pixels of each thread that are worth many sums.
const WORTH: usize = 16;
/// Sums that the threads of a workgroup add up at a time.
const ROUND: usize = 8;

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// A product with this tile, over so many parts of the pixels.
    Tiles(Tile, usize),
    /// Each thread for all taps and so many outputs, over so many parts.
    Direct(usize, usize),
}

struct Extents {
    inputs: usize,
    outputs: usize,
    taps: usize,
    plane: usize,
    pixels: usize,
}

impl Extents {
    fn new(op: &Convolution, rows: usize) -> Self {
        let (taps, (_, plane)) = (op.geometry.taps(), op.geometry.volumes());
        let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
        Self { inputs, outputs, taps, plane, pixels: rows * plane }
    }
}

/// The cut that suits the extents.
pub(super) fn choose(op: &Convolution, recorder: &Recorder<'_>) -> Cut {
    let Extents { inputs, outputs, taps, pixels, .. } = Extents::new(op, recorder.rows());
    if taps <= TAPS && (inputs <= 4 || outputs <= 4) {
        let cut = |(sums, most): (usize, usize), workgroups: usize| {
            let block = divisor(outputs, (sums / taps).clamp(1, most));
            let groups = op.groups * inputs * (outputs / block);
            (block, workgroups.div_ceil(groups).min(pixels / (2 * THREADS)).max(1))
        };
        let (block, parts) = cut(MANY, enough(recorder));
        let (block, parts) = match pixels / (parts * THREADS) {
            WORTH.. => (block, parts),
            _ => cut(FEW, 2 * enough(recorder)),
        };
        return Cut::Direct(block, parts);
    }
    // Rows that are channels of one tap look for it once; fewer, larger tiles read less again. A part
    // has six steps at least, so that its sums are worth writing out.
    let wide = outputs > 32;
    let [rows, columns, down, along] =
        match [64, 32, 16].into_iter().find(|rows| inputs.is_multiple_of(*rows)) {
            Some(64) if wide => [64, 64, 8, 4],
            Some(16) if wide => [16, 64, 4, 4],
            Some(16) => [16, 32, 4, 4],
            _ if wide => [32, 64, 4, 4],
            _ => [32, 32, 4, 4],
        };
    let tile = Tile::new(rows, columns, 16, down, along);
    let groups = op.groups * tiles(&tile, inputs * taps, outputs);
    let parts = (9 * enough(recorder) / 2).div_ceil(groups).min(pixels / (6 * tile.step() as usize));
    Cut::Tiles(tile, parts.max(1))
}

/// Where results go: the weight's, and the bias's where it is made along with it.
struct Results {
    destination: Operand,
    /// Elements of the weight, and where it starts.
    weights: usize,
    weight: usize,
    /// Elements of the bias, or none, and where it starts.
    biases: usize,
    bias: usize,
}

impl Results {
    fn of(op: &Convolution, recorder: &mut Recorder<'_>) -> Result<Self> {
        let weight = recorder.write(0)?;
        let weights = weight.elements;
        // The gradient of another bias stays an operation of its own.
        let extents = [1, op.outputs, op.geometry.volumes().1];
        let fits = |both: &BothGradients| [both.sum.outer, both.sum.channels, both.sum.inner] == extents;
        let offered = recorder.offered_bias_gradient().is_some_and(fits);
        let Some(both) = offered.then(|| recorder.take_bias_gradient()).flatten() else {
            return Ok(Self { destination: weight, weights, weight: 0, biases: 0, bias: 0 });
        };
        let BothGradients { gradient, weight, bias, .. } = both;
        Ok(Self { destination: gradient, weights, weight, biases: op.outputs, bias })
    }

    fn elements(&self) -> usize {
        self.weights + self.biases
    }
}

pub(super) fn record(op: &Convolution, recorder: &mut Recorder<'_>, cut: Cut) -> Result<()> {
    let rounding = Rounding::of(op.mixed);
    let units = match cut {
        Cut::Tiles(tile, _) => on_units(op, recorder, tile),
        Cut::Direct(..) => None,
    };
    let cut = match (cut, units) {
        (Cut::Tiles(_, parts), Some(tile)) => Cut::Tiles(tile, parts),
        (cut, _) => cut,
    };
    let (source, gradient) = (recorder.read(0)?, recorder.read(1)?);
    let results = Results::of(op, recorder)?;
    let extents = Extents::new(op, recorder.rows());
    let Extents { inputs, outputs, taps, plane, pixels } = extents;
    if pixels == 0 {
        return reduce(recorder, source, &results, 0);
    }
    let (wanted, step) = match cut {
        Cut::Tiles(tile, parts) => (parts, tile.step() as usize),
        Cut::Direct(_, parts) => (parts, THREADS),
    };
    let chunk = pixels.div_ceil(wanted).next_multiple_of(step).max(step);
    let parts = pixels.div_ceil(chunk).max(1);
    let both = results.biases > 0;
    let [store_width, gradient_width] = match cut {
        Cut::Tiles(..) => [outputs, plane].map(|extent| if extent.is_multiple_of(4) { 4 } else { 1 }),
        Cut::Direct(..) => [1, 1],
    };
    // One part is the result; several are side by side, the weight's elements first.
    let (destination, places) = match parts {
        1 => (results.destination.clone(), [results.weight, results.bias, 0]),
        _ => (recorder.scratch(parts * results.elements())?, [0, results.weights, results.elements()]),
    };
    let place = if store_width == 4 { "destination[at / 4u][at % 4u]" } else { "destination[at]" };
    let adds = parts == 1 && recorder.accumulate();
    let before = |place: &str| if adds { format!("{place} + ") } else { String::new() };
    let [weight, bias, stride] = places;
    let shader = Shader::new(op.to_string(), include_str!("correlate.wgsl"))
        .read("source", "f32", source)
        .read("gradient", element(gradient_width), gradient)
        .write("destination", element(store_width), destination.clone())
        // Output pixels of all images, summed over in so many parts of so many.
        .number("pixels", pixels)
        .number("parts", parts)
        .number("chunk", chunk)
        // Where the weight's elements start, and the bias's, and how many there are of a part.
        .number("weight", weight)
        .number("bias", bias)
        .number("stride", stride)
        .section("STORED", element(store_width))
        .section("PLACE", place)
        .section("BEFORE", before("destination[at]"))
        .section("BEFORE_SUM", before(place))
        .constant("STORE_WIDTH", store_width);
    let shader = windows(op, true, false, shader);
    let (shader, groups) = match cut {
        Cut::Tiles(tile, _) => {
            let widths = [store_width, gradient_width];
            let shader = tiled(shader, tile, &extents, widths, both, rounding, units.is_some());
            (shader, tiles(&tile, inputs * taps, outputs))
        }
        Cut::Direct(block, _) => (direct(shader, block, taps, both, rounding), inputs * (outputs / block)),
    };
    shader.groups(recorder, groups * op.groups * parts)?;
    if parts > 1 {
        reduce(recorder, destination, &results, parts)?;
    }
    Ok(())
}

/// Makes the results the sums of the parts.
fn reduce(recorder: &mut Recorder<'_>, partials: Operand, results: &Results, parts: usize) -> Result<()> {
    let elements = results.elements();
    Shader::new("convolution.reduce", include_str!("reduce.wgsl"))
        .section("BEFORE", if recorder.accumulate() { "destination[at]" } else { "0.0" })
        .constant("SLICES", SLICES)
        .read("partials", "f32", partials)
        .write("destination", "f32", results.destination.clone())
        .number("elements", elements)
        .number("parts", parts)
        // How many of the elements are the weight's; where its own and the bias's go.
        .number("weights", results.weights)
        .number("weight", results.weight)
        .number("bias", results.bias)
        .groups(recorder, elements.div_ceil(THREADS / SLICES))
}

fn tiled(
    shader: Shader,
    tile: Tile,
    extents: &Extents,
    [store_width, gradient_width]: [u32; 2],
    both: bool,
    rounding: Rounding,
    units: bool,
) -> Shader {
    let rows = match extents.inputs.is_multiple_of(tile.rows as usize) {
        true => include_str!("correlate_channels.wgsl"),
        false => include_str!("correlate_rows.wgsl"),
    };
    let kernel = Tiled {
        tile,
        left: Loader { along: Along::Depth, width: 1 },
        right: Loader { along: Along::Depth, width: gradient_width },
        store_width,
        edges: edges(&tile, extents.inputs * extents.taps, Some(extents.outputs), None),
        extents: ["(GROUP_SOURCES * TAPS)", "GROUP_OUTPUTS", "constants.pixels"],
        parts: Some(["constants.parts", "constants.chunk"]),
        hooks: Hooks {
            start_a: true,
            start_b: true,
            // The gradients' own sums are the bias's gradient.
            sum_b: both,
            batches: Some("GROUPS"),
            ..Hooks::default()
        },
        rounding,
        units,
    };
    let shader =
        shader.constant("GRADIENT_WIDTH", gradient_width).section("GRADIENT", element(gradient_width));
    kernel.add_to(shader.append(include_str!("correlate_tiles.wgsl")).append(rows))
}

fn direct(shader: Shader, block: usize, taps: usize, both: bool, rounding: Rounding) -> Shader {
    let each = |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<String>();
    // Sum number i is that of tap i / block and output i % block; after the taps' come the gradients' own.
    let count = (taps + usize::from(both)) * block;
    let sums = each(count, &|i| format!("    var sum{i} = 0.0;\n"));
    let gradients = each(block, &|i| format!("        let dy{i} = gradient[plane + {i}u * PIXELS];\n"));
    let own =
        each(if both { block } else { 0 }, &|i| format!("        sum{0} += dy{i};\n", taps * block + i));
    let factors =
        each(block, &|i| format!("        let h{i} = {};\n", rounding.operand(1, &format!("dy{i}"))));
    let products = each(taps, &|tap| {
        let found = format!("element(window, tap_of(channel, {tap}u))");
        let load = format!("        let x{tap} = {};\n", rounding.operand(1, &found));
        load + &each(block, &|i| {
            let sum = tap * block + i;
            format!("        sum{sum} = fma(x{tap}, h{i}, sum{sum});\n")
        })
    });
    let rounds = each(count.div_ceil(ROUND), &|round| {
        let first = round * ROUND;
        let number = ROUND.min(count - first);
        let puts = each(number, &|i| format!("    sums[{i}u * THREADS + thread] = sum{};\n", first + i));
        format!(
            "{puts}    let total{round} = add_up(thread);\n    if (thread < {number}u) {{\n        \
             put({first}u + thread, channel, column, total{round});\n    }}\n"
        )
    });
    shader
        .constant("BLOCK", block)
        .constant("ROUND", ROUND)
        .section("SUMS", sums.trim_end())
        .section("GRADIENTS", gradients.trim_end())
        .section("PRODUCTS", (own + &factors + &products).trim_end())
        .section("ROUNDS", rounds.trim_end())
        .append(rounding.functions())
        .append(include_str!("correlate_direct.wgsl"))
}
