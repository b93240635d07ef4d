//! The weight gradient: every weight sums over the pixels that it meets.

use super::Convolution;
use super::scratch::{ELEMENTS, OFFSETS, Shared, TASK, lend, tasks_worth};
use super::tiles::{Correlation, Interleave, channel_tile, even, tap_tile};
use super::window::{Axis, Fill, Frame, Stack, Sweep};
use crate::simd::{Cpu, Isa, LANES, Real};
use crate::{Error, Result, extents};
use std::ops::Range;

/// The most elements of a band of inputs, and of its output gradients: parts of the second-level cache.
const BAND: usize = 1 << 16;
/// The most elements that sums of chunks take, ...
const SUMS: usize = 1 << 20;
/// ... and the most chunks: enough for many threads, few enough to be added quickly.
const CHUNKS: usize = 8;
/// The fewest pixels that are worth a chunk, and the most that are summed between two visits to
/// the sums in memory, unless a row has more.
const PIXELS: usize = 256;
/// Elements that one task adds up.
const ADDED: usize = 1 << 12;
/// With fewer output channels in each of several groups, lanes run across the groups.
const CHANNELS: usize = 12;

impl Convolution {
    /// Images that a weight's gradient sums in one go: a function of the shapes alone.
    pub(super) fn chunk(&self, images: usize) -> usize {
        let sums = SUMS / self.weights().max(1);
        images.div_ceil(CHUNKS.min(1 + sums)).max(PIXELS.div_ceil(self.geometry.volumes().1))
    }
}

/// What the weight gradient reads and writes.
pub(super) struct Operands<'a, T> {
    pub input: &'a [T],
    pub gradient: &'a [T],
    pub accumulate: bool,
    pub destination: &'a mut [T],
}

/// A weight gradient, ready to be computed piece by piece.
struct Plan<'a, T> {
    op: &'a Convolution,
    isa: Isa,
    stack: Stack,
    axes: [Axis; 2],
    frame: Frame,
    /// Whether lanes run across groups.
    paired: bool,
    images: usize,
    chunk: usize,
    /// Rows, and planes of which all rows are taken, that are summed in one go.
    band: usize,
    block: usize,
    /// Parts of the weights, and the shares that they are dealt out in: tiles of taps of a group,
    /// or vectors of output channels.
    parts: usize,
    shares: usize,
    /// Taps of a tile.
    tile: usize,
    pixels: &'a [u32],
    taps: &'a [u32],
    input: &'a [T],
    gradient: &'a [T],
    accumulate: bool,
    destination: Shared<T>,
    sums: Shared<T>,
}

/// Computes it over `images` images.
pub(super) fn run<T: Real>(
    op: &Convolution,
    cpu: &Cpu,
    images: usize,
    operands: Operands<'_, T>,
) -> Result<()> {
    let Operands { input, gradient, accumulate, destination } = operands;
    if images == 0 {
        if !accumulate {
            destination.fill(T::ZERO);
        }
        return Ok(());
    }
    let [depth, vertical, horizontal] = Axis::all(&op.geometry, Sweep::Forward);
    let (stack, axes) = (Stack::new(depth), [vertical, horizontal]);
    let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
    let area = op.geometry.taps();
    let terms = inputs * area;
    let paired = op.groups > 1 && outputs < CHANNELS;

    // Channels whose bands lie in memory together.
    let (together, gradients) = if paired {
        ((LANES / outputs + 2) * inputs, LANES)
    } else {
        (inputs, outputs.next_multiple_of(LANES))
    };
    let rows = axes[0].destination;
    // With lanes across groups it is laid out once more, pixel by pixel.
    let limit = if paired { BAND / 4 } else { BAND };
    let band = Frame::rows_within(&axes, together * stack.planes, limit)
        .min(BAND / (gradients * axes[1].destination));
    let band = even(rows, band.max(1));
    let frame = Frame::in_place(&axes)
        .filter(|_| !paired && stack.is_flat())
        .unwrap_or_else(|| Frame::new(&axes, band));
    let chunk = op.chunk(images);
    let area_out = rows * axes[1].destination;
    let block = match band < rows {
        true => 1,
        false => (PIXELS / area_out)
            .min(BAND / (together * stack.planes * frame.channel))
            .clamp(1, chunk.min(images) * stack.axis.destination),
    };
    let channel = stack.planes * frame.channel;
    // From the elements of one plane of a block to the next's.
    let frame_plane = match (paired, frame.in_place) {
        (true, _) => channel,
        (false, true) => op.inputs * channel,
        (false, false) => inputs * channel,
    };
    if u32::try_from(frame_plane.saturating_mul(block).saturating_add(inputs * channel)).is_err() {
        return Err(Error::Shape(format!("{op}: one row of its images does not fit the memory it needs")));
    }

    let chunks = images.div_ceil(chunk);
    let most = tap_tile::<T>(cpu.isa());
    let tile = even(if paired { area } else { terms }, most);
    let parts = if paired { op.outputs.div_ceil(LANES) } else { op.groups * terms.div_ceil(tile) };
    let work = extents::product(&[images, stack.axis.destination, rows, axes[1].destination, op.weights()]);
    let worth = tasks_worth(work, cpu.pool().threads());
    let shares = worth.div_ceil(chunks).min(parts);

    let of_plane = band * axes[1].destination;
    let pixels = block * of_plane;
    lend(&OFFSETS, pixels + terms, |offsets: &mut [u32]| {
        let (to_pixels, to_taps) = offsets.split_at_mut(pixels);
        for (pixel, to) in to_pixels.iter_mut().enumerate() {
            let (plane, pixel) = (pixel / of_plane, pixel % of_plane);
            let (row, column) = (pixel / axes[1].destination, pixel % axes[1].destination);
            *to = (plane * frame_plane + row * frame.pitch + column) as u32;
        }
        let mut to = to_taps.iter_mut();
        for input in 0..inputs {
            for (_, z) in stack.axis.taps(Sweep::Forward, 0) {
                for (_, y) in axes[0].taps(Sweep::Forward, 0) {
                    for ((_, x), to) in axes[1].taps(Sweep::Forward, 0).zip(&mut to) {
                        let place = (input * stack.planes + z) * frame.channel;
                        *to = (place + frame.offset(&axes, [y, x])) as u32;
                    }
                }
            }
        }
        lend(&ELEMENTS, (chunks - 1) * op.weights(), |sums| {
            let plan = Plan {
                op,
                isa: cpu.isa(),
                stack,
                axes,
                frame,
                paired,
                images,
                chunk,
                band,
                block,
                parts,
                shares,
                tile,
                pixels: to_pixels,
                taps: to_taps,
                input,
                gradient,
                accumulate,
                destination: Shared::new(destination),
                sums: Shared::new(sums),
            };
            let tasks = chunks * shares;
            if worth == 1 {
                cpu.pool().run(1, &|_| (0..tasks).for_each(|task| plan.task(task)));
            } else {
                cpu.pool().run(tasks, &|task| plan.task(task));
            }
            if chunks > 1 {
                let len = op.weights();
                let add = |start: usize, to: &mut [T]| {
                    for chunk in 0..chunks - 1 {
                        for (to, sum) in to.iter_mut().zip(&sums[chunk * len + start..]) {
                            *to += *sum;
                        }
                    }
                };
                let piece = if worth == 1 { len } else { ADDED };
                cpu.pool().for_each_chunk(destination, piece, |index, to| add(index * piece, to));
            }
        });
    });
    Ok(())
}

impl<T: Real> Plan<'_, T> {
    /// Computes a share of the weights over one chunk of images.
    fn task(&self, task: usize) {
        let (chunk, share) = (task / self.shares, task % self.shares);
        let parts = share * self.parts / self.shares..(share + 1) * self.parts / self.shares;
        let images = chunk * self.chunk..self.images.min((chunk + 1) * self.chunk);
        let planes = images.start * self.stack.axis.destination..images.end * self.stack.axis.destination;
        let weights = self.op.weights();
        let (to, accumulate) = match chunk {
            0 => (self.destination.at(0), self.accumulate),
            _ => (self.sums.at((chunk - 1) * weights), false),
        };
        for plane in planes.clone().step_by(self.block) {
            let block = plane..planes.end.min(plane + self.block);
            for row in (0..self.axes[0].destination).step_by(self.band) {
                let rows = row..self.axes[0].destination.min(row + self.band);
                let accumulate = accumulate || plane > planes.start || row > 0;
                if self.paired {
                    for part in parts.clone() {
                        self.across_groups(part, &block, &rows, to, accumulate);
                    }
                } else {
                    let per_group = self.parts / self.op.groups;
                    let mut part = parts.start;
                    while part < parts.end {
                        let group = part / per_group;
                        let end = parts.end.min((group + 1) * per_group);
                        let tiles = part - group * per_group..end - group * per_group;
                        self.in_group(group, tiles, &block, &rows, to, accumulate);
                        part = end;
                    }
                }
            }
        }
    }

    /// The gradients of one output channel in some rows; planes are those of one image after the other.
    fn gradient_rows(&self, plane: usize, output: usize, rows: &Range<usize>) -> &[T] {
        let (height, width) = (self.axes[0].destination, self.axes[1].destination);
        let depth = self.stack.axis.destination;
        let plane = (plane / depth * self.op.outputs + output) * depth + plane % depth;
        let start = (plane * height + rows.start) * width;
        &self.gradient[start..start + rows.len() * width]
    }

    /// Copies the bands of some input channels.
    fn fill(&self, plane: usize, channels: Range<usize>, first: usize, to: &mut [T]) {
        let depth = &self.stack.axis;
        let volume = depth.source * self.axes[0].source * self.axes[1].source;
        let start = (plane / depth.destination * self.op.inputs + channels.start) * volume;
        let source = &self.input[start..start + channels.len() * volume];
        let fill = Fill { axes: &self.axes, frame: &self.frame, source, first, to };
        self.stack.fill(self.isa, plane % depth.destination, fill);
    }

    /// Elements of a channel's frame.
    fn channel(&self) -> usize {
        self.stack.planes * self.frame.channel
    }

    /// Puts the gradients of up to 16 output channels side by side, pixel by pixel.
    fn interleave(
        &self,
        plane: usize,
        outputs: Range<usize>,
        rows: &Range<usize>,
        to: *mut T,
        to_place: usize,
    ) {
        let pointers = std::array::from_fn(|lane| match outputs.start + lane {
            output if output < outputs.end => self.gradient_rows(plane, output, rows).as_ptr(),
            _ => std::ptr::null(),
        });
        let len = rows.len() * self.axes[1].destination;
        // SAFETY: rows of `len` elements; the callers' memory has a vector for each.
        unsafe {
            Interleave { rows: pointers, len, runs: 1, from_run: 0, to, to_place, to_run: 0 }.run(self.isa)
        };
    }

    /// Puts an input channel of each of up to 16 output channels' groups side by side, place by place of a
    /// frame, with zeros for the border.
    fn interleave_inputs(
        &self,
        image: usize,
        lanes: &Range<usize>,
        input: usize,
        first: usize,
        places: &mut [T],
    ) {
        let [vertical, horizontal] = &self.axes;
        let (inputs, outputs) = (self.op.inputs / self.op.groups, self.op.outputs / self.op.groups);
        let Frame { rows, pitch, .. } = self.frame;
        let (above, from_row, lines) = vertical.within(first, rows);
        let (before, from, columns) = horizontal.within(0, pitch);
        let line = pitch * LANES;
        places[..above * line].fill(T::ZERO);
        places[(above + lines) * line..rows * line].fill(T::ZERO);
        let inside = &mut places[above * line..(above + lines) * line];
        for row in inside.chunks_exact_mut(line) {
            row[..before * LANES].fill(T::ZERO);
            row[(before + columns) * LANES..].fill(T::ZERO);
        }
        if lines == 0 || columns == 0 {
            return;
        }
        let (height, width) = (vertical.source, horizontal.source);
        let pointers = std::array::from_fn(|lane| match lanes.start + lane {
            output if output < lanes.end => {
                let plane = image * self.op.inputs + output / outputs * inputs + input;
                self.input[(plane * height + from_row) * width + from..].as_ptr()
            }
            _ => std::ptr::null(),
        });
        let turn = Interleave {
            rows: pointers,
            len: columns,
            runs: lines,
            from_run: width,
            to: inside[before * LANES..].as_mut_ptr(),
            to_place: LANES,
            to_run: line,
        };
        // SAFETY: rows of each plane, and a vector for each place inside.
        unsafe { turn.run(self.isa) };
    }

    /// Some tiles of a group's taps, with output channels as lanes.
    fn in_group(
        &self,
        group: usize,
        tiles: Range<usize>,
        planes: &Range<usize>,
        rows: &Range<usize>,
        to: *mut T,
        accumulate: bool,
    ) {
        let op = self.op;
        let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
        let area = op.geometry.taps();
        let taps = tiles.start * self.tile..(inputs * area).min(tiles.end * self.tile);
        let channels = taps.start / area..taps.end.div_ceil(area);
        let frame_plane = if self.frame.in_place { 0 } else { inputs * self.channel() };
        let of_plane = rows.len() * self.axes[1].destination;
        let pixels = planes.len() * of_plane;
        let (_, vectors) = channel_tile::<T>(self.isa);
        let width = vectors * LANES;
        lend(&TASK, planes.len() * frame_plane + pixels * width, |memory| {
            let (frame, gradients) = memory.split_at_mut(planes.len() * frame_plane);
            let origin = if self.frame.in_place {
                let plane = planes.start * op.inputs + group * inputs;
                self.input.as_ptr().wrapping_add(plane * self.frame.channel + rows.start * self.frame.pitch)
            } else {
                let first = group * inputs;
                for (plane, frame) in planes.clone().zip(frame.chunks_exact_mut(frame_plane)) {
                    let frame = &mut frame[channels.start * self.channel()..];
                    self.fill(plane, first + channels.start..first + channels.end, rows.start, frame);
                }
                frame.as_ptr()
            };
            for first in (0..outputs).step_by(width) {
                let count = width.min(outputs - first);
                let vectors = count.div_ceil(LANES);
                for vector in 0..vectors {
                    let start = group * outputs + first + vector * LANES;
                    let end = (group + 1) * outputs;
                    let apart = vectors * LANES;
                    for (plane, gradients) in planes.clone().zip(gradients.chunks_exact_mut(of_plane * apart))
                    {
                        let to = gradients[vector * LANES..].as_mut_ptr();
                        self.interleave(plane, start..end.min(start + LANES), rows, to, apart);
                    }
                }
                for tap in taps.clone().step_by(self.tile) {
                    let tile = Correlation {
                        pixels: &self.pixels[..pixels],
                        taps: &self.taps[tap..taps.end.min(tap + self.tile)],
                        frame: origin,
                        gradient: gradients.as_ptr(),
                        vectors,
                        paired: false,
                        to: to.wrapping_add(tap * op.outputs + group * outputs + first),
                        to_tap: op.outputs,
                        channels: count,
                        accumulate,
                    };
                    // SAFETY: the frame holds every tap of these pixels; these sums are this task's.
                    unsafe { tile.run(self.isa) };
                }
            }
        });
    }

    /// All taps of 16 output channels of several groups, each lane with an input channel of its own.
    fn across_groups(
        &self,
        part: usize,
        planes: &Range<usize>,
        rows: &Range<usize>,
        to: *mut T,
        accumulate: bool,
    ) {
        let op = self.op;
        let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
        let area = op.geometry.taps();
        let lanes = part * LANES..op.outputs.min((part + 1) * LANES);
        let groups = lanes.start / outputs..(lanes.end - 1) / outputs + 1;
        let channel = self.channel();
        let of_plane = rows.len() * self.axes[1].destination;
        let pixels = planes.len() * of_plane;
        let at_once = self.stack.is_flat() && self.axes.iter().all(|axis| axis.step == 1);
        let frame_plane = if at_once { 0 } else { groups.len() * inputs * channel };
        lend(&TASK, planes.len() * (frame_plane + channel * LANES) + pixels * LANES, |memory| {
            let (frame, rest) = memory.split_at_mut(planes.len() * frame_plane);
            let (places, gradients) = rest.split_at_mut(planes.len() * channel * LANES);
            for (index, plane) in planes.clone().enumerate() {
                if !at_once {
                    let frame = &mut frame[index * frame_plane..][..frame_plane];
                    self.fill(plane, groups.start * inputs..groups.end * inputs, rows.start, frame);
                }
                let gradients = &mut gradients[index * of_plane * LANES..];
                self.interleave(plane, lanes.clone(), rows, gradients.as_mut_ptr(), LANES);
            }
            for input in 0..inputs {
                let places_of_planes = places.chunks_exact_mut(channel * LANES).enumerate();
                for ((index, places), plane) in places_of_planes.zip(planes.clone()) {
                    if at_once {
                        self.interleave_inputs(plane, &lanes, input, rows.start, places);
                        continue;
                    }
                    let frame = &frame[index * frame_plane..][..frame_plane];
                    let rows = std::array::from_fn(|lane| match lanes.start + lane {
                        output if output < lanes.end => {
                            let plane = (output / outputs - groups.start) * inputs + input;
                            frame[plane * channel..].as_ptr()
                        }
                        _ => std::ptr::null(),
                    });
                    let to = places.as_mut_ptr();
                    let turn = Interleave {
                        rows,
                        len: channel,
                        runs: 1,
                        from_run: 0,
                        to,
                        to_place: LANES,
                        to_run: 0,
                    };
                    // SAFETY: channels of the frame, and a vector for each of their places.
                    unsafe { turn.run(self.isa) };
                }
                for tap in (0..area).step_by(self.tile) {
                    let tile = Correlation {
                        pixels: &self.pixels[..pixels],
                        taps: &self.taps[tap..area.min(tap + self.tile)],
                        frame: places.as_ptr(),
                        gradient: gradients.as_ptr(),
                        vectors: 1,
                        paired: true,
                        to: to.wrapping_add((input * area + tap) * op.outputs + lanes.start),
                        to_tap: op.outputs,
                        channels: lanes.len(),
                        accumulate,
                    };
                    // SAFETY: the places hold every tap of these pixels; these sums are this task's.
                    unsafe { tile.run(self.isa) };
                }
            }
        });
    }
}
