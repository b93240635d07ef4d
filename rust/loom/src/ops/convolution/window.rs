//! How source pixels lie relative to destination pixels, and the padded copies that kernels read.
//!
//! The forward pass and the input gradient are both sweeps: every destination
//! pixel gathers from source pixels at a few fixed distances, the taps. Pixels
//! whose taps agree form a class. The forward pass has one class and steps
//! over the source by the stride; the input gradient steps by one and has as
//! many classes on an axis as the stride is long.
//!
//! A [`Frame`] holds a band of the source with its border of zeros, rows and
//! columns dealt out by their remainder modulo the step, so that neighbouring
//! destination pixels of a class always find their sources side by side.
//!
//! A volume is a stack of planes. A destination plane is computed like an
//! image, from a frame that holds for each channel the planes that its taps
//! reach: [`Stack`] tells which.

use super::Geometry;
use crate::simd::{Isa, Kernel, LANES, Real, Vector};

/// One axis of a sweep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Source pixels.
    pub source: usize,
    /// Destination pixels.
    pub destination: usize,
    /// Taps, over all classes.
    pub kernel: usize,
    /// Source pixels from one destination pixel of a class to the next.
    pub step: usize,
    /// Classes: destination pixels of a class are so far apart.
    pub classes: usize,
    dilation: usize,
    padding: usize,
    /// The least distance of any tap.
    low: isize,
    /// How much larger the largest is.
    reach: usize,
}

/// Whose source and destination the axes describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// From inputs to outputs.
    Forward,
    /// From output gradients to input gradients.
    InputGradient,
}

impl Axis {
    /// Depth, height and width.
    pub fn all(geometry: &Geometry, sweep: Sweep) -> [Self; 3] {
        [0, 1, 2].map(|axis| {
            let (input, output) = (geometry.input[axis], geometry.output[axis]);
            let (source, destination, step, classes) = match sweep {
                Sweep::Forward => (input, output, geometry.stride[axis], 1),
                Sweep::InputGradient => (output, input, 1, geometry.stride[axis]),
            };
            let mut made = Self {
                source,
                destination,
                kernel: geometry.kernel[axis],
                step,
                classes,
                dilation: geometry.dilation[axis],
                padding: geometry.padding[axis],
                low: 0,
                reach: 0,
            };
            let shifts = || (0..made.kernel).map(|tap| made.tap(sweep, tap).1);
            let low = shifts().min().unwrap_or(0);
            let reach = shifts().max().unwrap_or(0).abs_diff(low);
            (made.low, made.reach) = (low, reach);
            made
        })
    }

    /// The class a tap belongs to, and its distance: source = step x quotient + distance, where
    /// destination = classes x quotient + class.
    fn tap(&self, sweep: Sweep, tap: usize) -> (usize, isize) {
        let ahead = (tap * self.dilation) as isize - self.padding as isize;
        match sweep {
            Sweep::Forward => (0, ahead),
            Sweep::InputGradient => {
                let classes = self.classes as isize;
                (ahead.rem_euclid(classes) as usize, -ahead.div_euclid(classes))
            }
        }
    }

    /// The taps of a class in order, each with how far beyond the least distance it lies.
    pub fn taps(self, sweep: Sweep, class: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
        (0..self.kernel).filter_map(move |tap| {
            let (owner, shift) = self.tap(sweep, tap);
            (owner == class).then(|| (tap, shift.abs_diff(self.low)))
        })
    }

    /// Destination pixels of a class.
    pub fn pixels(&self, class: usize) -> usize {
        self.destination.saturating_sub(class).div_ceil(self.classes)
    }

    /// Places of a frame along this axis, of each remainder, to serve `pixels` destinations of a class.
    fn places(&self, pixels: usize) -> usize {
        pixels + self.reach / self.step
    }

    /// Whether three neighbours, itself in the middle, are what a pixel gathers.
    pub fn is_around(&self) -> bool {
        let steps = (self.step, self.classes, self.kernel, self.low, self.reach);
        steps == (1, 1, 3, -1, 2) && self.source == self.destination
    }

    /// Of `places` side by side, the first of them `quotient` steps on: how many lie before the source, the
    /// first source pixel among them, and how many are inside.
    pub fn within(&self, quotient: usize, places: usize) -> (usize, usize, usize) {
        let start = (self.step * quotient) as isize + self.low;
        let before = if start < 0 { start.unsigned_abs() } else { 0 }.min(places);
        let from = usize::try_from(start).unwrap_or(0).min(self.source);
        (before, from, (places - before).min(self.source - from))
    }

    /// Whether every tap of every destination pixel lies inside the source, side by side.
    fn is_inside(&self) -> bool {
        let reached = self.pixels(0).max(1) - 1 + self.reach;
        self.step == 1 && self.low == 0 && reached < self.source
    }
}

/// The classes of planes, rows and columns, in the order of their terms.
pub(super) fn classes(axes: [&Axis; 3]) -> impl Iterator<Item = [usize; 3]> + use<> {
    let [planes, rows, columns] = axes.map(|axis| axis.classes);
    (0..planes * rows * columns).map(move |i| [i / columns / rows, i / columns % rows, i % columns])
}

/// The layout of one image's band: for each channel, for each remainder of the
/// row and of the column, rows of `pitch` elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Rows of each remainder.
    pub rows: usize,
    /// Elements of a row.
    pub pitch: usize,
    /// Elements of a channel.
    pub channel: usize,
    /// Whether this is the layout of the source itself, which then need not be copied.
    pub in_place: bool,
}

impl Frame {
    /// The layout for `rows` destination rows of each class.
    pub fn new(axes: &[Axis; 2], rows: usize) -> Self {
        let (rows, pitch) = (axes[0].places(rows), axes[1].places(axes[1].pixels(0)));
        let used = axes[0].step * axes[1].step * rows * pitch;
        // An odd number of cache lines, lest all channels fall on the same ones of the first-level cache.
        let lines = used.div_ceil(LANES) | 1;
        Self { rows, pitch, channel: lines * LANES, in_place: false }
    }

    /// The most destination rows, but at least one, whose frame takes about `limit` elements for
    /// all channels.
    pub fn rows_within(axes: &[Axis; 2], channels: usize, limit: usize) -> usize {
        let [vertical, horizontal] = axes;
        let row = channels * vertical.step * horizontal.step * horizontal.places(horizontal.pixels(0));
        (limit / row.max(1)).saturating_sub(vertical.places(0)).max(1)
    }

    /// The source's own layout, where it has all that kernels want.
    pub fn in_place(axes: &[Axis; 2]) -> Option<Self> {
        axes.iter().all(Axis::is_inside).then(|| Self::bare(axes))
    }

    /// The source's own layout, border or not.
    pub fn bare(axes: &[Axis; 2]) -> Self {
        let [rows, pitch] = [axes[0].source, axes[1].source];
        Self { rows, pitch, channel: rows * pitch, in_place: true }
    }

    /// Where a tap finds its element of channel 0 for the first destination pixel.
    pub fn offset(&self, axes: &[Axis; 2], beyond: [usize; 2]) -> usize {
        let [v, h] = [0, 1].map(|axis| (beyond[axis] % axes[axis].step, beyond[axis] / axes[axis].step));
        (v.0 * axes[1].step + h.0) * self.rows * self.pitch + v.1 * self.pitch + h.1
    }
}

/// How the planes of volumes lie in frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    pub axis: Axis,
    /// Planes of each channel that a frame holds: all that taps of one destination plane may reach.
    pub planes: usize,
}

impl Stack {
    /// Of this axis.
    pub fn new(axis: Axis) -> Self {
        Self { axis, planes: axis.reach + 1 }
    }

    /// Whether there is one plane only, and no tap looks beyond it.
    pub fn is_flat(&self) -> bool {
        let Axis { source, destination, kernel, low, .. } = self.axis;
        (source, destination, kernel, low) == (1, 1, 1, 0)
    }

    /// Copies the bands that destination planes with this quotient need, of whole channels of one
    /// image, into their frames.
    pub fn fill<T: Real>(&self, isa: Isa, quotient: usize, fill: Fill<'_, T>) {
        if self.is_flat() {
            T::dispatch(isa, fill);
            return;
        }
        let Fill { axes, frame, source, first, to } = fill;
        let plane = axes[0].source * axes[1].source;
        let (before, from, inside) = self.axis.within(quotient, self.planes);
        let channels = to.chunks_exact_mut(self.planes * frame.channel);
        for (source, to) in source.chunks_exact(self.axis.source * plane).zip(channels) {
            let (outside, to) = to.split_at_mut(before * frame.channel);
            let (to, beyond) = to.split_at_mut(inside * frame.channel);
            outside.fill(T::ZERO);
            beyond.fill(T::ZERO);
            let source = &source[from * plane..][..inside * plane];
            T::dispatch(isa, Fill { axes, frame, source, first, to });
        }
    }
}

/// Copies a band of some channels of one image into a frame.
pub(super) struct Fill<'a, T> {
    pub axes: &'a [Axis; 2],
    pub frame: &'a Frame,
    /// The channels, whole.
    pub source: &'a [T],
    /// The first destination row (of each class) of the band.
    pub first: usize,
    pub to: &'a mut [T],
}

impl<T: Real> Kernel<T> for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let Self { axes: [vertical, horizontal], frame, source, first, to } = self;
        let image = vertical.source * horizontal.source;
        for (source, to) in source.chunks_exact(image).zip(to.chunks_exact_mut(frame.channel)) {
            let mut rows = to.chunks_exact_mut(frame.pitch);
            for remainder in 0..vertical.step {
                for column in 0..horizontal.step {
                    let row = Row::new(horizontal, column, frame.pitch);
                    for (place, to) in (first..first + frame.rows).zip(&mut rows) {
                        let from = (vertical.step * place + remainder) as isize + vertical.low;
                        match usize::try_from(from).ok().filter(|&from| from < vertical.source) {
                            Some(from) => {
                                row.copy::<V>(&source[from * horizontal.source..][..horizontal.source], to);
                            }
                            None => clear::<V>(to),
                        }
                    }
                }
            }
        }
    }
}

/// What the rows of a frame that share a remainder have in common.
#[derive(Clone, Copy)]
struct Row {
    /// Places before the image, and those before its end.
    before: usize,
    end: usize,
    /// The source column of the first place inside.
    from: usize,
    step: usize,
}

impl Row {
    #[inline(always)]
    fn new(axis: &Axis, remainder: usize, pitch: usize) -> Self {
        let start = remainder as isize + axis.low;
        let before = if start < 0 { start.unsigned_abs().div_ceil(axis.step) } else { 0 }.min(pitch);
        let from = usize::try_from(start + (before * axis.step) as isize).unwrap_or(axis.source);
        let inside = axis.source.saturating_sub(from).div_ceil(axis.step);
        Self { before, end: pitch.min(before + inside), from, step: axis.step }
    }

    /// Every step-th element of a source row, with zeros around them.
    #[inline(always)]
    fn copy<V: Vector>(self, source: &[V::Element], to: &mut [V::Element]) {
        let zero = V::splat(V::Element::ZERO);
        let Self { before, end, from, step } = self;
        let len = to.len();
        if end == before {
            clear::<V>(to);
            return;
        }
        if len >= LANES && before <= LANES && len - end <= LANES {
            // Whole vectors, which the copy then overwrites, are quicker than narrow borders.
            zero.store(to);
            zero.store(&mut to[len - LANES..]);
        } else {
            clear::<V>(&mut to[..before]);
            clear::<V>(&mut to[end..]);
        }
        let (source, to) = (&source[from..], &mut to[before..end]);
        if step > 1 {
            for (to, from) in to.iter_mut().zip(source.iter().step_by(step)) {
                *to = *from;
            }
        } else if to.len() < LANES {
            V::load_partial(&source[..to.len()]).store_partial(to);
        } else {
            let last = to.len() - LANES;
            for at in (0..last).step_by(LANES) {
                V::load(&source[at..]).store(&mut to[at..]);
            }
            V::load(&source[last..]).store(&mut to[last..]);
        }
    }
}

/// Writes zeros.
#[inline(always)]
fn clear<V: Vector>(to: &mut [V::Element]) {
    let zero = V::splat(V::Element::ZERO);
    let mut pieces = to.chunks_exact_mut(LANES);
    for piece in &mut pieces {
        zero.store(piece);
    }
    for element in pieces.into_remainder() {
        *element = V::Element::ZERO;
    }
}
