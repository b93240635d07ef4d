//! Weights as the sweeps read them: for each term a row of destination channels.

use super::Convolution;
use super::scratch::{Shared, tasks_worth};
use super::tiles::Interleave;
use super::window::{Axis, Sweep, classes};
use crate::simd::{Cpu, LANES, Real};

/// The weight's rows are read where they are for up to this many sums of each weight ...
const FEW_PIXELS: usize = 64;
/// ... or where a row is this short: rows far apart fall on the same sets of a cache.
const SHORT_ROW: usize = 64;

/// What has to be made of the weights first: for each group and each panel of
/// its destination channels, a row of the panel's width for each term.
pub(super) struct Made<'a> {
    op: &'a Convolution,
    sweep: Sweep,
    axes: [&'a Axis; 3],
    /// Destination channels and terms of a group.
    channels: usize,
    terms: usize,
    /// Elements of a row.
    width: usize,
    in_place: bool,
}

/// Where a sweep's weights are.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a, T> {
    /// The first group's first panel's first row.
    pub first: &'a [T],
    /// From one row, one panel and one group to the next.
    pub row: usize,
    pub panel: usize,
    pub group: usize,
}

impl<'a> Made<'a> {
    /// For a sweep that takes `panel` destination channels at a time, over so many `pixels`; its
    /// kernels read whole vectors of channels, or just those that there are.
    pub fn new(
        op: &'a Convolution,
        sweep: Sweep,
        axes: [&'a Axis; 3],
        panel: usize,
        whole_vectors: bool,
        pixels: usize,
    ) -> Self {
        let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
        let taps = op.geometry.taps();
        let (channels, terms) = match sweep {
            Sweep::Forward => (outputs, inputs * taps),
            Sweep::InputGradient => (inputs, outputs * taps),
        };
        let near = pixels <= FEW_PIXELS || op.outputs <= SHORT_ROW;
        let fits = !whole_vectors || channels.is_multiple_of(LANES) && near;
        let width = if whole_vectors { panel.min(channels.next_multiple_of(LANES)) } else { channels };
        Self { op, sweep, axes, channels, terms, width, in_place: sweep == Sweep::Forward && fits }
    }

    /// Panels of a group.
    fn panels(&self) -> usize {
        self.channels.div_ceil(self.width)
    }

    /// Elements that are made.
    pub fn len(&self) -> usize {
        if self.in_place { 0 } else { self.op.groups * self.panels() * self.terms * self.width }
    }

    /// Where they then are, for panels of `panel` channels.
    pub fn place<'w, T>(&self, weight: &'w [T], made: &'w [T], panel: usize) -> Placed<'w, T> {
        if self.in_place {
            return Placed { first: weight, row: self.op.outputs, panel, group: self.channels };
        }
        let of_panel = self.terms * self.width;
        // Rows may hold all of a group's channels, several panels side by side.
        let panel = if self.width < self.channels { of_panel } else { panel };
        Placed { first: made, row: self.width, panel, group: self.panels() * of_panel }
    }

    /// Makes them.
    pub fn fill<T: Real>(&self, cpu: &Cpu, weight: &[T], made: &mut [T]) {
        if self.in_place {
            return;
        }
        match self.sweep {
            Sweep::Forward => self.pad(cpu, weight, made),
            Sweep::InputGradient => self.turn(cpu, weight, made),
        }
    }

    /// Whether making them is worth waking other threads for.
    fn parallel(&self, cpu: &Cpu) -> bool {
        tasks_worth(self.len() * LANES, cpu.pool().threads()) > 1
    }

    /// Rows of a group's output channels, panel by panel, padded to whole vectors.
    fn pad<T: Real>(&self, cpu: &Cpu, weight: &[T], made: &mut [T]) {
        let panels = self.panels();
        let one = |index: usize, made: &mut [T]| {
            let first = index % panels * self.width;
            let count = self.width.min(self.channels - first);
            let first = index / panels * self.channels + first;
            for (made, weight) in made.chunks_exact_mut(self.width).zip(weight.chunks_exact(self.op.outputs))
            {
                made[..count].copy_from_slice(&weight[first..first + count]);
                made[count..].fill(T::ZERO);
            }
        };
        let panel = self.terms * self.width;
        if self.parallel(cpu) {
            cpu.pool().for_each_chunk(made, panel, one);
        } else {
            made.chunks_mut(panel).enumerate().for_each(|(index, made)| one(index, made));
        }
    }

    /// Rows of a group's input channels: for each class, term (output channel, kernel plane, kernel row,
    /// kernel column).
    fn turn<T: Real>(&self, cpu: &Cpu, weight: &[T], made: &mut [T]) {
        let Self { op, axes, terms, width, .. } = *self;
        let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
        let taps = op.geometry.taps();
        let made = Shared::new(made);
        // Where the weights of a tap go: the first output channel's, and how far apart the others'.
        let place = |tap: usize| {
            let [_, height, width] = op.geometry.kernel;
            let tap = [tap / width / height, tap / width % height, tap % width];
            let mut before = 0;
            for class in classes(axes) {
                // Taps of the class along each axis, and which of them this is.
                let mut found = Some(0);
                let mut size = 1;
                for axis in 0..3 {
                    let taps = axes[axis].taps(self.sweep, class[axis]);
                    let count = taps.clone().count();
                    let at = taps.clone().position(|(other, _)| other == tap[axis]);
                    found = found.zip(at).map(|(found, at)| found * count + at);
                    size *= count;
                }
                if let Some(found) = found {
                    return (before + found, size);
                }
                before += size * outputs;
            }
            unreachable!("every tap belongs to a class")
        };
        let task = |task: usize| {
            let (group, tap) = (task / taps, task % taps);
            let (first, apart) = place(tap);
            let from = weight[tap * op.outputs + group * outputs..].as_ptr();
            let from_input = taps * op.outputs;
            for input in (0..inputs).step_by(LANES) {
                let panel = group * self.panels() + input / width;
                let to = made.at((panel * terms + first) * width + input % width);
                // A vector of input channels for each output channel, zeros past the last.
                if input % width + LANES <= width {
                    let rows = std::array::from_fn(|lane| {
                        let at = from.wrapping_add((input + lane) * from_input);
                        if input + lane < inputs { at } else { std::ptr::null() }
                    });
                    let to_place = apart * width;
                    let turn =
                        Interleave { rows, len: outputs, runs: 1, from_run: 0, to, to_place, to_run: 0 };
                    // SAFETY: rows of weights, and vectors of the memory for them that only this task writes.
                    unsafe { turn.run(cpu.isa()) };
                    continue;
                }
                for output in 0..outputs {
                    for lane in 0..inputs - input {
                        let to = to.wrapping_add(output * apart * width + lane);
                        // SAFETY: a weight, and its place in the memory for them, likewise.
                        unsafe { *to = *from.add((input + lane) * from_input + output) };
                    }
                }
            }
        };
        let tasks = op.groups * taps;
        if self.parallel(cpu) {
            cpu.pool().run(tasks, &task);
        } else {
            (0..tasks).for_each(task);
        }
    }
}
