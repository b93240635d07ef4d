//! The forward pass and the input gradient: every destination pixel gathers from its taps.

use super::Convolution;
use super::scratch::{ELEMENTS, OFFSETS, Shared, TASK, lend, tasks_worth};
use super::tiles::{
    ChannelStrip, PIXEL_SLACK, PLANE_COLUMNS, PLANE_ROWS, PixelStrip, PlaneStrip, Settle, channel_tile, even,
    pixel_channels,
};
use super::weights::{Made, Placed};
use super::window::{Axis, Fill, Frame, Stack, Sweep, classes};
use crate::ops::pointwise::Activation;
use crate::simd::{Cpu, Isa, LANES, Real};
use crate::{Error, Result, extents};
use std::ops::Range;

/// The most elements of the source that a task copies at once: a part of the second-level cache.
const BAND: usize = 1 << 16;
/// Sums that wait in the first-level cache for being moved to where they belong.
const WAITING: usize = 1 << 12;
/// Pixels that are worth copying a band for, where images are small.
const PIXELS: usize = 96;
/// From so many destination channels on, channels are the lanes, ...
const CHANNELS: usize = 12;
/// ... given so many terms, for the sums' way into their rows is longer then.
const TERMS: usize = 24;
/// What a sweep reads and writes.
pub(super) struct Operands<'a, T> {
    pub source: &'a [T],
    pub weight: &'a [T],
    pub bias: &'a [T],
    pub activation: Option<Activation>,
    pub destination: &'a mut [T],
}

/// A sweep, ready to be computed piece by piece.
struct Plan<'a, T> {
    isa: Isa,
    sweep: Sweep,
    stack: Stack,
    axes: [Axis; 2],
    frame: Frame,
    groups: usize,
    /// Channels of a group.
    sources: usize,
    destinations: usize,
    /// Whether the lanes are channels, not pixels.
    by_channel: bool,
    /// Whether each channel is read where it is, though it has a border.
    bare: bool,
    /// Destination channels of a piece's smallest part.
    panel: usize,
    /// For each class, where its terms find their elements, and rows of weights in the same order.
    taps: &'a [u32],
    weight: Placed<'a, T>,
    source: &'a [T],
    bias: &'a [T],
    activation: Option<Activation>,
    destination: Shared<T>,
    partition: Partition,
}

/// A piece: rows of a plane of each class, of some images.
struct Piece {
    images: Range<usize>,
    plane: usize,
    rows: Range<usize>,
}

/// How a sweep is cut into pieces.
#[derive(Clone, Copy)]
struct Partition {
    images: usize,
    /// Images and rows of a piece, and the pieces that there are of each.
    block: usize,
    blocks: usize,
    /// Planes, a piece each.
    planes: usize,
    band: usize,
    bands: usize,
    /// Panels of all groups, and the shares that they are dealt out in.
    panels: usize,
    shares: usize,
    tasks: usize,
}

/// Computes a sweep over `images` images.
pub(super) fn run<T: Real>(
    op: &Convolution,
    sweep: Sweep,
    cpu: &Cpu,
    images: usize,
    operands: Operands<'_, T>,
) -> Result<()> {
    let isa = cpu.isa();
    let [depth, vertical, horizontal] = Axis::all(&op.geometry, sweep);
    let (stack, axes) = (Stack::new(depth), [vertical, horizontal]);
    let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
    let (sources, destinations) = match sweep {
        Sweep::Forward => (inputs, outputs),
        Sweep::InputGradient => (outputs, inputs),
    };
    let terms = sources * op.geometry.taps();
    let by_channel = destinations >= CHANNELS && terms >= TERMS;
    let panel =
        if by_channel { channel_tile::<T>(isa).1 * LANES } else { pixel_channels::<T>(isa, usize::MAX) };

    let rows = axes[0].pixels(0);
    let bare = sources == 1
        && !by_channel
        && stack.is_flat()
        && axes.iter().all(Axis::is_around)
        && axes[0].source >= PLANE_ROWS
        && axes[1].source >= LANES;
    let in_place = match bare {
        true => Some(Frame::bare(&axes)),
        false => Frame::in_place(&axes).filter(|_| by_channel && stack.is_flat()),
    };
    let band = match in_place {
        Some(_) => rows,
        None => even(rows, Frame::rows_within(&axes, sources * stack.planes, BAND)),
    };
    let pixels = rows * axes[1].pixels(0);
    let block = if band < rows || !by_channel || pixels >= PIXELS {
        1
    } else {
        let fit = BAND / (sources * stack.planes * Frame::new(&axes, rows).channel).max(1);
        PIXELS.div_ceil(pixels).min(fit).clamp(1, images)
    };
    let blocks = images.div_ceil(block);
    let classes = stack.axis.classes * axes[0].classes * axes[1].classes;
    let volume = stack.axis.destination * axes[0].destination * axes[1].destination;
    let all = extents::product(&[images, op.groups, terms, destinations]);
    let work = (all / classes).saturating_mul(volume);
    let worth = tasks_worth(work, cpu.pool().threads());
    let planes = stack.axis.pixels(0);
    let cuts = if bare { 1 } else { worth.div_ceil(blocks * planes) };
    let band = band.min(even(rows, rows.div_ceil(cuts).max(1)));
    let bands = rows.div_ceil(band);
    let panels = op.groups * destinations.div_ceil(panel);
    let shares = worth.div_ceil(blocks * planes * bands).min(panels);
    let tasks = worth.min(blocks * planes * bands * shares);
    let partition = Partition { images, block, blocks, planes, band, bands, panels, shares, tasks };

    let frame = in_place.unwrap_or_else(|| Frame::new(&axes, band));
    if u32::try_from(frame.channel.saturating_mul(sources * stack.planes)).is_err() {
        return Err(Error::Shape(format!("{op}: one row of its images does not fit the memory it needs")));
    }
    let made = Made::new(op, sweep, [&stack.axis, &axes[0], &axes[1]], panel, by_channel, images * pixels);
    lend(&OFFSETS, terms, |taps: &mut [u32]| {
        fill_taps(&stack, &axes, sweep, &frame, sources, taps);
        lend(&ELEMENTS, made.len(), |memory| {
            made.fill(cpu, operands.weight, memory);
            let plan = Plan {
                isa,
                sweep,
                stack,
                axes,
                frame,
                groups: op.groups,
                sources,
                destinations,
                by_channel,
                bare,
                panel,
                taps,
                weight: made.place(operands.weight, memory, panel),
                source: operands.source,
                bias: operands.bias,
                activation: operands.activation,
                destination: Shared::new(operands.destination),
                partition,
            };
            cpu.pool().run(partition.tasks, &|task| plan.task(task));
        });
    });
    Ok(())
}

/// Where terms find their elements: for each class its taps, channel by channel.
fn fill_taps(stack: &Stack, axes: &[Axis; 2], sweep: Sweep, frame: &Frame, sources: usize, taps: &mut [u32]) {
    let mut to = taps.iter_mut();
    for [plane, row, column] in classes([&stack.axis, &axes[0], &axes[1]]) {
        for channel in 0..sources {
            for (_, z) in stack.axis.taps(sweep, plane) {
                for (_, y) in axes[0].taps(sweep, row) {
                    for ((_, x), to) in axes[1].taps(sweep, column).zip(&mut to) {
                        let place = (channel * stack.planes + z) * frame.channel;
                        *to = (place + frame.offset(axes, [y, x])) as u32;
                    }
                }
            }
        }
    }
}

impl<T: Real> Plan<'_, T> {
    /// Computes a run of pieces.
    fn task(&self, task: usize) {
        let Partition { blocks, planes, bands, shares, tasks, .. } = self.partition;
        let pieces = blocks * planes * bands * shares;
        let frame_len = if self.frame.in_place { 0 } else { self.partition.block * self.frame_image() };
        let waiting = if self.by_channel { 0 } else { self.panel * (self.segment_places() + PIXEL_SLACK) };
        lend(&TASK, frame_len + PIXEL_SLACK + waiting, |memory| {
            let (frame, waiting) = memory.split_at_mut(frame_len + PIXEL_SLACK);
            for piece in task * pieces / tasks..(task + 1) * pieces / tasks {
                self.piece(piece, frame, waiting);
            }
        });
    }

    /// Elements of a group's frame of one image.
    fn frame_image(&self) -> usize {
        self.sources * self.stack.planes * self.frame.channel
    }

    /// Destination rows whose sums wait together.
    fn segment(&self) -> usize {
        (WAITING / (self.panel * self.frame.pitch).max(1)).clamp(1, self.partition.band)
    }

    /// Places of a frame that these rows take.
    fn segment_places(&self) -> usize {
        self.segment() * self.frame.pitch
    }

    /// Computes a share of the channels of some rows of some images.
    fn piece(&self, piece: usize, memory: &mut [T], waiting: &mut [T]) {
        let Partition { images, block, planes, band, bands, panels, shares, .. } = self.partition;
        let (share, piece) = (piece % shares, piece / shares);
        let (row, piece) = (piece % bands * band, piece / bands);
        let (plane, image) = (piece % planes, piece / planes * block);
        let rows = row..(row + band).min(self.axes[0].pixels(0));
        let piece = Piece { images: image..images.min(image + block), plane, rows };
        let per_group = panels / self.groups;
        let mut filled = None;
        for panel in share * panels / shares..(share + 1) * panels / shares {
            let (group, panel) = (panel / per_group, panel % per_group);
            if !self.frame.in_place && filled != Some(group) {
                self.fill(group, &piece, memory);
                filled = Some(group);
            }
            self.panel(group, panel, &piece, memory, waiting);
        }
    }

    /// Copies a group's band of some images.
    fn fill(&self, group: usize, piece: &Piece, memory: &mut [T]) {
        let len = self.sources * self.stack.axis.source * self.axes[0].source * self.axes[1].source;
        for (image, to) in piece.images.clone().zip(memory.chunks_exact_mut(self.frame_image())) {
            let source = &self.source[(image * self.groups + group) * len..][..len];
            let fill = Fill { axes: &self.axes, frame: &self.frame, source, first: piece.rows.start, to };
            self.stack.fill(self.isa, piece.plane, fill);
        }
    }

    /// Computes some channels of a group, class by class.
    fn panel(&self, group: usize, panel: usize, piece: &Piece, memory: &[T], waiting: &mut [T]) {
        let &Piece { ref images, plane, ref rows } = piece;
        let [vertical, horizontal] = &self.axes;
        let depth = &self.stack.axis;
        let channels = panel * self.panel..self.destinations.min((panel + 1) * self.panel);
        let (frame, frame_image) = if self.frame.in_place {
            let group_len = self.sources * self.frame.channel;
            let image = self.groups * group_len;
            let at = images.start * image + group * group_len + rows.start * self.frame.pitch;
            (self.source.as_ptr().wrapping_add(at), image)
        } else {
            (memory.as_ptr(), self.frame_image())
        };
        let width = horizontal.destination;
        let area = vertical.destination * width;
        let volume = depth.destination * area;
        let first = group * self.destinations + channels.start;
        let bias = self.bias.get(first..first + channels.len()).unwrap_or_default();
        let to_image = self.groups * self.destinations * volume;
        let mut terms = 0;
        for [class, row, column] in classes([depth, vertical, horizontal]) {
            let count = self.sources
                * depth.taps(self.sweep, class).count()
                * vertical.taps(self.sweep, row).count()
                * horizontal.taps(self.sweep, column).count();
            let taps = &self.taps[terms..terms + count];
            let Placed { first: weight, row: weight_row, panel: weight_panel, group: weight_group } =
                self.weight;
            let weight = weight
                .as_ptr()
                .wrapping_add(group * weight_group + panel * weight_panel + terms * weight_row);
            terms += count;
            let end = rows.end.min(vertical.pixels(row));
            let columns = horizontal.pixels(column);
            if plane >= depth.pixels(class) || end <= rows.start || columns == 0 {
                continue;
            }
            let at = (rows.start * vertical.classes + row) * width + column;
            let at = (plane * depth.classes + class) * area + at;
            let to = self.destination.at(images.start * to_image + first * volume + at);
            let strip = ChannelStrip {
                taps,
                frame,
                frame_row: self.frame.pitch,
                frame_image,
                weight,
                weight_row,
                bias,
                channels: channels.len(),
                images: images.len(),
                rows: end - rows.start,
                columns,
                to,
                to_channel: volume,
                to_image,
                to_row: vertical.classes * width,
                to_column: horizontal.classes,
            };
            if self.by_channel {
                // SAFETY: the frame holds every tap of these pixels, the weights whole vectors
                // of these channels; the piece's part of the destination is this task's.
                unsafe { strip.run(self.isa) };
            } else if self.sources == 1 && strip.to_column == 1 && columns >= PLANE_COLUMNS {
                self.by_plane(&strip);
            } else {
                self.by_pixel(&strip, waiting);
            }
        }
        self.activate(first, channels.len(), piece);
    }

    /// Computes a strip of channels that have one source channel, each by itself.
    fn by_plane(&self, strip: &ChannelStrip<'_, T>) {
        for image in 0..strip.images {
            for channel in 0..strip.channels {
                let plane = PlaneStrip {
                    taps: strip.taps,
                    frame: strip.frame.wrapping_add(image * strip.frame_image),
                    frame_row: strip.frame_row,
                    weight: strip.weight.wrapping_add(channel),
                    weight_row: strip.weight_row,
                    bias: strip.bias.get(channel).copied(),
                    bare: self.bare,
                    rows: strip.rows,
                    columns: strip.columns,
                    to: strip.to.wrapping_add(image * strip.to_image + channel * strip.to_channel),
                    to_row: strip.to_row,
                };
                // SAFETY: the frame holds every tap of these pixels and some slack; they are this task's.
                unsafe { plane.run(self.isa) };
            }
        }
    }

    /// Computes a strip of few channels with pixels as lanes.
    fn by_pixel(&self, strip: &ChannelStrip<'_, T>, waiting: &mut [T]) {
        let segment = self.segment();
        let to_channel = self.segment_places() + PIXEL_SLACK;
        for image in 0..strip.images {
            let mut channel = 0;
            while channel < strip.channels {
                let channels = pixel_channels::<T>(self.isa, strip.channels - channel);
                for row in (0..strip.rows).step_by(segment) {
                    let rows = segment.min(strip.rows - row);
                    let sums = PixelStrip {
                        taps: strip.taps,
                        frame: strip.frame.wrapping_add(image * strip.frame_image + row * strip.frame_row),
                        weight: strip.weight.wrapping_add(channel),
                        weight_row: strip.weight_row,
                        channels,
                        places: (rows - 1) * strip.frame_row + strip.columns,
                        to: waiting.as_mut_ptr(),
                        to_channel,
                    };
                    // SAFETY: the frame holds every tap of these pixels and some slack, and so
                    // does the memory that sums wait in.
                    unsafe { sums.run(self.isa) };
                    for i in 0..channels {
                        let to =
                            image * strip.to_image + (channel + i) * strip.to_channel + row * strip.to_row;
                        let settle = Settle {
                            from: waiting[i * to_channel..].as_ptr(),
                            from_row: strip.frame_row,
                            bias: strip.bias.get(channel + i).copied(),
                            rows,
                            columns: strip.columns,
                            to: strip.to.wrapping_add(to),
                            to_row: strip.to_row,
                            to_column: strip.to_column,
                        };
                        // SAFETY: pixels of the strip, which is this task's.
                        unsafe { settle.run(self.isa) };
                    }
                }
                channel += channels;
            }
        }
    }

    /// Applies the activation to some channels' rows of a plane of each class.
    fn activate(&self, first: usize, channels: usize, piece: &Piece) {
        let Some(activation) = self.activation else { return };
        let &Piece { ref images, plane, ref rows } = piece;
        let [depth, vertical] = [&self.stack.axis, &self.axes[0]];
        let (height, width) = (vertical.destination, self.axes[1].destination);
        let planes = plane * depth.classes..depth.destination.min((plane + 1) * depth.classes);
        let rows = rows.start * vertical.classes..height.min(rows.end * vertical.classes);
        let whole = rows.len() == height;
        for image in images.clone() {
            let channel = image * self.groups * self.destinations + first;
            let apply = |plane: usize, len: usize| {
                let at = self.destination.at((plane * height + rows.start) * width);
                // SAFETY: rows of the piece, which is this task's.
                activation.apply(self.isa, unsafe { std::slice::from_raw_parts_mut(at, len) });
            };
            if whole && planes.len() == depth.destination {
                apply(channel * depth.destination, channels * planes.len() * height * width);
                continue;
            }
            for channel in channel..channel + channels {
                for plane in planes.clone() {
                    apply(channel * depth.destination + plane, rows.len() * width);
                }
            }
        }
    }
}
