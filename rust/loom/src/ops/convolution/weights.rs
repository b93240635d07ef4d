//! Weights as the sweeps read them: for each term a row of destination channels.

use super::Convolution;
use super::scratch::Shared;
use super::sweep::tasks_worth;
use super::tiles::Interleave;
use super::window::{Axis, Sweep};
use crate::cpu::{Cpu, LANES, Real};

/// What has to be made of the weights first.
pub(super) struct Made<'a> {
    op: &'a Convolution,
    sweep: Sweep,
    axes: &'a [Axis; 2],
    /// Terms, and elements from one term's row to the next's.
    terms: usize,
    row: usize,
    in_place: bool,
}

impl<'a> Made<'a> {
    /// For this sweep, whose kernels read whole vectors of channels or just those that there are.
    pub fn new(op: &'a Convolution, sweep: Sweep, axes: &'a [Axis; 2], whole_vectors: bool) -> Self {
        let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
        let taps = axes[0].kernel * axes[1].kernel;
        let row = |channels: usize| if whole_vectors { channels.next_multiple_of(LANES) } else { channels };
        let (terms, row) = match sweep {
            Sweep::Forward => (inputs * taps, row(outputs)),
            Sweep::InputGradient => (outputs * taps, row(inputs)),
        };
        let in_place = sweep == Sweep::Forward && row == outputs;
        Self { op, sweep, axes, terms, row, in_place }
    }

    /// Elements that are made.
    pub fn len(&self) -> usize {
        if self.in_place { 0 } else { self.op.groups * self.terms * self.row }
    }

    /// The first row, and from one row and one group to the next.
    pub fn place<'w, T>(&self, weight: &'w [T], made: &'w [T]) -> (&'w [T], usize, usize) {
        if self.in_place {
            (weight, self.op.outputs, self.row)
        } else {
            (made, self.row, self.terms * self.row)
        }
    }

    /// Makes them.
    pub fn fill<T: Real>(&self, cpu: &Cpu, weight: &[T], made: &mut [T]) {
        if self.in_place {
            return;
        }
        match self.sweep {
            Sweep::Forward => self.pad(weight, made),
            Sweep::InputGradient => self.turn(cpu, weight, made),
        }
    }

    /// Rows of a group's output channels, padded to whole vectors.
    fn pad<T: Real>(&self, weight: &[T], made: &mut [T]) {
        let outputs = self.op.outputs / self.op.groups;
        for (group, made) in made.chunks_exact_mut(self.terms * self.row).enumerate() {
            for (made, weight) in made.chunks_exact_mut(self.row).zip(weight.chunks_exact(self.op.outputs)) {
                made[..outputs].copy_from_slice(&weight[group * outputs..][..outputs]);
                made[outputs..].fill(T::ZERO);
            }
        }
    }

    /// Rows of a group's input channels: for each class, term (output channel, kernel row, kernel column).
    fn turn<T: Real>(&self, cpu: &Cpu, weight: &[T], made: &mut [T]) {
        let Self { op, axes: [vertical, horizontal], terms, row, .. } = *self;
        let (inputs, outputs) = (op.inputs / op.groups, op.outputs / op.groups);
        let taps = vertical.kernel * horizontal.kernel;
        let made = Shared::new(made);
        // Where the weights of a tap go: the first output channel's, and how far apart the others'.
        let place = |tap: usize| {
            let [y, x] = [tap / horizontal.kernel, tap % horizontal.kernel];
            let mut before = 0;
            for class_y in 0..vertical.classes {
                let ys = vertical.taps(self.sweep, class_y);
                for class_x in 0..horizontal.classes {
                    let xs = horizontal.taps(self.sweep, class_x);
                    let (width, size) = (xs.clone().count(), ys.clone().count() * xs.clone().count());
                    let at = (ys.clone().position(|(tap, _)| tap == y), xs.clone().position(|(tap, _)| tap == x));
                    if let (Some(y), Some(x)) = at {
                        return (before + y * width + x, size);
                    }
                    before += size * outputs;
                }
            }
            unreachable!("every tap belongs to a class")
        };
        let task = |task: usize| {
            let (group, tap) = (task / taps, task % taps);
            let (first, apart) = place(tap);
            let from = weight[tap * op.outputs + group * outputs..].as_ptr();
            let from_input = taps * op.outputs;
            for input in (0..inputs).step_by(LANES) {
                // A vector of input channels for each output channel, zeros past the last.
                if input + LANES <= row {
                    let rows = std::array::from_fn(|lane| {
                        let at = from.wrapping_add((input + lane) * from_input);
                        if input + lane < inputs { at } else { std::ptr::null() }
                    });
                    let to = made.at((group * terms + first) * row + input);
                    let turn = Interleave { rows, len: outputs, to, to_place: apart * row };
                    // SAFETY: rows of weights, and vectors of the memory for them that only this task writes.
                    unsafe { turn.run(cpu.isa()) };
                    continue;
                }
                for output in 0..outputs {
                    for lane in input..inputs {
                        let to = made.at((group * terms + first + output * apart) * row + lane);
                        // SAFETY: a weight, and its place in the memory for them, likewise.
                        unsafe { *to = *from.add(lane * from_input + output) };
                    }
                }
            }
        };
        let tasks = op.groups * taps;
        if tasks_worth(op.groups * terms * row * LANES, cpu.pool().threads()) == 1 {
            (0..tasks).for_each(task);
        } else {
            cpu.pool().run(tasks, &task);
        }
    }
}
