//! The two passes that gather: forward, and to the gradient of the input.

use super::windows::{SWEEP_THREADS, divisor, edges, element, enough, on_units, tiles, windows};
use crate::Result;
use crate::ops::convolution::Convolution;
use crate::ops::{Direction, pointwise};
use crate::shader::product::{Along, Hooks, Loader, Rounding, Storage, Tile, Tiled};
use crate::shader::{Recorder, Shader};

/// Channels that a thread makes without tiles, at most.
const BLOCK: usize = 8;
/// The widest window whose rows are read at once.
const ROW: usize = 9;

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// A product with this tile.
    Tiles(Tile),
    /// Each thread by itself, for so many channels.
    Direct(usize),
}

/// A pass over the pixels of the destination.
pub(super) struct Sweep<'a> {
    op: &'a Convolution,
    forward: bool,
    /// Channels of a group.
    sources: usize,
    destinations: usize,
    /// Taps of a pixel, at most.
    taps: usize,
    /// Pixels of a destination image that are looked at together.
    plane: usize,
    /// Residues of pixels, each of which meets taps of its own, where those are told apart.
    residues: Option<usize>,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(op: &'a Convolution) -> Self {
        let forward = op.direction == Direction::Forward;
        let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
        let (sources, destinations) = if forward { (inputs, outputs) } else { (outputs, inputs) };
        let g = &op.geometry;
        let (input, output) = g.volumes();
        let mut sweep = Self {
            op,
            forward,
            sources,
            destinations,
            taps: g.taps(),
            plane: if forward { output } else { input },
            residues: None,
        };
        // Every residue has a tap.
        let reaches = (0..3).all(|axis| g.stride[axis] <= g.kernel[axis]);
        let by_residue = !forward && g.stride != [1; 3] && g.is_flat() && g.dilation == [1; 3] && reaches;
        if by_residue && !sweep.is_thin() {
            let each = |extents: [usize; 3]| -> usize {
                (0..3).map(|axis| extents[axis].div_ceil(g.stride[axis])).product()
            };
            sweep.residues = Some(g.stride.iter().product());
            sweep.taps = each(g.kernel);
            sweep.plane = each(g.input);
        }
        sweep
    }

    /// Whether there are too few channels, or terms, for tiles.
    fn is_thin(&self) -> bool {
        self.destinations < 16 || self.sources * self.op.geometry.taps() <= 16
    }

    /// The cut that suits the extents.
    pub(super) fn choose(&self, recorder: &Recorder<'_>) -> Cut {
        if self.is_thin() {
            return Cut::Direct(divisor(self.destinations, BLOCK));
        }
        // A step of a tile should not go beyond the channels of one tap.
        let step = if self.sources.is_multiple_of(16) || !self.sources.is_multiple_of(8) { 16 } else { 8 };
        let [large, medium, small, tiny] = match self.destinations {
            33.. => [[64, 128, 8, 8], [64, 64, 8, 4], [32, 64, 4, 4], [32, 32, 4, 4]],
            17.. => [[32, 256, 8, 8], [32, 128, 4, 8], [32, 64, 4, 4], [32, 32, 4, 4]],
            _ => [[16, 128, 4, 4], [16, 128, 4, 4], [16, 64, 4, 4], [16, 64, 4, 4]],
        }
        .map(|[rows, columns, down, along]| Tile::new(rows, columns, step, down, along));
        let count =
            |tile: &Tile| self.products() * tiles(tile, self.destinations, recorder.rows() * self.plane);
        let enough = enough(recorder);
        let fits =
            |tile: &Tile| tile.workgroup_bytes(true) as usize <= recorder.capabilities().workgroup_storage;
        Cut::Tiles(if fits(&large) && count(&large) >= 2 * enough {
            large
        } else if count(&medium) >= enough {
            medium
        } else if count(&small) >= enough / 2 {
            self.sliced(recorder, small, 2)
        } else {
            self.sliced(recorder, tiny, 4)
        })
    }

    /// Products that are made side by side.
    fn products(&self) -> usize {
        self.op.groups * self.residues.unwrap_or(1)
    }

    /// The tile with as many slices, up to `most`, as have terms enough: they make up for few tiles.
    fn sliced(&self, recorder: &Recorder<'_>, tile: Tile, most: u32) -> Tile {
        let room = recorder.capabilities().workgroup_storage;
        let whole = self.sources.is_multiple_of(tile.depth as usize);
        let suits = |slices: &u32| {
            let step = (tile.depth * slices) as usize;
            let fits = tile.sliced(*slices).workgroup_bytes(true) as usize <= room;
            fits && self.sources * self.taps >= 4 * step && (!whole || self.sources.is_multiple_of(step))
        };
        tile.sliced([4, 2].into_iter().filter(|slices| *slices <= most).find(suits).unwrap_or(1))
    }

    pub(super) fn record(&self, recorder: &mut Recorder<'_>, cut: Cut) -> Result<()> {
        let (op, pixels) = (self.op, recorder.rows() * self.plane);
        let (source, weights, destination) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        let storage = Storage::of(weights.packing);
        // Four outputs side by side, where that is what a kernel wants of the weight.
        let wide = (op.outputs / op.groups).is_multiple_of(4)
            && match cut {
                Cut::Tiles(_) => true,
                Cut::Direct(block) => self.forward && block.is_multiple_of(4),
            };
        let weight_width = if wide { 4 } else { 1 };
        // Neighbouring pixels of a residue are none of the image.
        let store_width = if self.residues.is_none() && self.plane.is_multiple_of(4) { 4 } else { 1 };
        let rounding = Rounding::of(op.mixed);
        let mut decoded = storage.element("weights", weight_width);
        if storage == Storage::Int8 {
            decoded += &format!(" * scales[(group_number() * GROUP_OUTPUTS + output) / {weight_width}u]");
        }
        let (activation, activated) = self.activation(store_width);
        let shader = Shader::new(op.to_string(), include_str!("sweep.wgsl")).read("source", "f32", source);
        let mut shader = storage
            .declare(shader, "weights", [weight_width; 2], &weights)
            .write("destination", element(store_width), destination)
            // Destination pixels of all images.
            .number("pixels", pixels)
            .section("WEIGHT", element(weight_width))
            .section("DECODED", decoded)
            .section("STORED", element(store_width))
            .section("BIAS", if op.bias { " + bias[channel]" } else { "" })
            .section("ACTIVATION", activation)
            .section("ACTIVATED", activated)
            .section("PLACE", self.place())
            .constant("STORE_WIDTH", store_width);
        if op.bias {
            shader = shader.read("bias", "f32", recorder.read(2)?);
        }
        let shader = windows(op, self.forward, self.residues.is_some(), shader);
        let widths = [weight_width, store_width];
        let (shader, groups) = match cut {
            Cut::Tiles(tile) => {
                let units = on_units(op, recorder, tile);
                let tile = units.unwrap_or(tile);
                let shader = self.tiled(shader, tile, units.is_some(), rounding, widths);
                (shader, tiles(&tile, self.destinations, pixels))
            }
            Cut::Direct(block) => {
                let groups =
                    pixels.div_ceil(SWEEP_THREADS * store_width as usize) * (self.destinations / block);
                (self.direct(shader, block, rounding, widths), groups)
            }
        };
        shader.groups(recorder, groups * self.products())
    }

    /// WGSL that finds the place `at` of a channel's pixel, or leaves a pixel out that is none.
    fn place(&self) -> String {
        if self.residues.is_none() {
            return "let at = (pixel / PIXELS * DESTINATION_CHANNELS + channel) * PIXELS + pixel % PIXELS;"
                .into();
        }
        let [_, height, width] = self.op.geometry.input;
        format!(
            "let inside = pixel % PIXELS;\n    \
             let place = first_place() + vec2<u32>(inside / PIXELS_WIDTH * STRIDE_DOWN, inside % PIXELS_WIDTH * STRIDE_RIGHT);\n    \
             if place.x >= {height}u || place.y >= {width}u {{\n        return;\n    }}\n    \
             let at = ((pixel / PIXELS * DESTINATION_CHANNELS + channel) * {height}u + place.x) * {width}u + place.y;"
        )
    }

    /// What is called on sums before they are stored, and the call.
    fn activation(&self, width: u32) -> (String, &'static str) {
        match (self.op.activation, width) {
            (None, _) => (String::new(), "biased"),
            (Some(activation), width) => {
                let text = format!("{}\n{}", pointwise::WGSL_PRELUDE, activation.wgsl_value("activate"));
                let four = "vec4<f32>(activate(biased.x), activate(biased.y), activate(biased.z), activate(biased.w))";
                (text, if width == 4 { four } else { "activate(biased)" })
            }
        }
    }

    fn tiled(
        &self,
        shader: Shader,
        tile: Tile,
        units: bool,
        rounding: Rounding,
        [weight_width, store_width]: [u32; 2],
    ) -> Shader {
        // Of the weight (inputs, taps, outputs), terms are the outputs on the way back.
        let (along, term) = match (self.forward, self.residues) {
            (true, _) => (Along::Across, "k % GROUP_SOURCES, k / GROUP_SOURCES, row"),
            (false, None) => (Along::Depth, "row, k / GROUP_SOURCES, k % GROUP_SOURCES"),
            (false, Some(_)) => (Along::Depth, "row, whole_tap(k / GROUP_SOURCES), k % GROUP_SOURCES"),
        };
        // Of a residue's taps there are more or fewer; what is given as an expression of the product's number is
        // the same for all threads.
        let taps_along = |residue: &str, border: &str, extent: &str, stride: &str| {
            format!("(({extent} - ({residue} + {border}) % {stride} + {stride} - 1u) / {stride})")
        };
        let down =
            taps_along("own_batch / GROUPS / STRIDE_RIGHT", "FIRST_ROW", "KERNEL_HEIGHT", "STRIDE_DOWN");
        let right =
            taps_along("own_batch / GROUPS % STRIDE_RIGHT", "FIRST_COLUMN", "KERNEL_WIDTH", "STRIDE_RIGHT");
        let (depth, batches, terms) = match self.residues {
            None => ("(GROUP_SOURCES * TAPS)".into(), "GROUPS".into(), self.sources * self.taps),
            Some(residues) => (
                format!("(GROUP_SOURCES * {down} * {right})"),
                format!("(GROUPS * {residues}u)"),
                self.sources,
            ),
        };
        let channels = self.sources.is_multiple_of(tile.step() as usize);
        let load =
            if channels { include_str!("sweep_channels.wgsl") } else { include_str!("sweep_terms.wgsl") };
        let shader = shader.section("TERM", term).append(include_str!("sweep_tiles.wgsl")).append(load);
        Tiled {
            tile,
            left: Loader { along, width: weight_width },
            right: Loader { along: Along::Across, width: 1 },
            store_width,
            edges: edges(&tile, self.destinations, None, Some(terms)),
            extents: ["GROUP_DESTINATIONS", "constants.pixels", &depth],
            parts: None,
            hooks: Hooks { place_b: true, start_b: channels, batches: Some(&batches), ..Hooks::default() },
            rounding,
            units,
        }
        .add_to(shader)
    }

    /// Whether four neighbouring pixels are in one row, and their windows mostly share what they cover:
    /// worth it where a channel has little else to do, as in a depthwise convolution.
    fn reads_rows(&self) -> bool {
        let g = &self.op.geometry;
        let destination = if self.forward { g.output } else { g.input };
        self.sources == 1
            && self.op.groups > 1
            && destination[2].is_multiple_of(4)
            && g.kernel[2] <= ROW
            && g.dilation[2] == 1
            && if self.forward { g.stride[2] == 1 } else { g.stride == [1; 3] }
    }

    /// The terms of four pixels, row by row of the window: what they cover is read once for all.
    fn row_terms(&self, rounding: Rounding, products: &str) -> String {
        let width = self.op.geometry.kernel[2];
        // On the way back later taps are further left.
        let (leftmost, place): (usize, &dyn Fn(usize) -> usize) =
            if self.forward { (0, &|tap| tap) } else { (width - 1, &|tap| width - 1 - tap) };
        let elements: String = (0..width + 3)
            .map(|i| rounding.operand(1, &format!("element(window0, beside(left, {i}u))")))
            .enumerate()
            .map(|(i, element)| format!("            let e{i} = {element};\n"))
            .collect();
        let taps: String = (0..width)
            .map(|tap| {
                let [a, b, c, d] = [0, 1, 2, 3].map(|pixel| place(tap) + pixel);
                format!(
                    "            {{\n            let tap = line * KERNEL_WIDTH + {tap}u;\n            \
                     let x = vec4<f32>(e{a}, e{b}, e{c}, e{d});\n{products}\n            }}\n"
                )
            })
            .collect();
        format!(
            "        for (var line = 0u; line < TAPS / KERNEL_WIDTH; line++) {{\n            \
             let left = tap_of(channel, line * KERNEL_WIDTH + {leftmost}u);\n{elements}{taps}        }}"
        )
    }

    fn direct(
        &self,
        shader: Shader,
        block: usize,
        rounding: Rounding,
        [weight_width, store_width]: [u32; 2],
    ) -> Shader {
        let each = |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<String>();
        let wide = store_width == 4;
        let pixels = store_width as usize;
        let in_rows = wide && self.reads_rows();
        let windows = each(if in_rows { 1 } else { pixels }, &|i| {
            format!("    let window{i} = window_of(pixel + {i}u);\n")
        });
        let elements = (0..pixels).map(|i| format!("element(window{i}, at)")).collect::<Vec<_>>().join(", ");
        let elements = if wide { format!("vec4<f32>({elements})") } else { elements };
        let elements = rounding.operand(store_width, &elements);
        let ty = element(store_width);
        let sums = each(block, &|i| format!("    var sum{i} = {ty}();\n"));
        let product = |i: usize, weight: &str| {
            let weight = if wide { format!("vec4<f32>({weight})") } else { weight.to_string() };
            format!("            sum{i} = fma(x, {weight}, sum{i});\n")
        };
        let products = if weight_width == 4 {
            each(block / 4, &|i| {
                let four = rounding.operand(4, &format!("weight(channel, tap, first + {}u)", i * 4));
                let load = format!("            let w{i} = {four};\n");
                load + &each(4, &|j| product(i * 4 + j, &format!("w{i}[{j}]")))
            })
        } else {
            each(block, &|i| {
                let weight = match self.forward {
                    true => format!("weight(channel, tap, first + {i}u)"),
                    false => format!("weight(first + {i}u, tap, channel)"),
                };
                product(i, &rounding.operand(1, &weight))
            })
        };
        let products = products.trim_end();
        let terms = if in_rows {
            self.row_terms(rounding, products)
        } else {
            format!(
                "        for (var tap = 0u; tap < TAPS; tap++) {{\n            let at = tap_of(channel, tap);\n            \
                 let x = {elements};\n{products}\n        }}"
            )
        };
        let stores = each(block, &|i| format!("    store(first + {i}u, pixel, sum{i});\n"));
        shader
            .threads(SWEEP_THREADS)
            .constant("BLOCK", block)
            .section("WINDOWS", windows.trim_end())
            .section("SUMS", sums.trim_end())
            .section("TERMS", terms)
            .section("STORES", stores.trim_end())
            .append(rounding.functions())
            .append(include_str!("direct.wgsl"))
    }
}
