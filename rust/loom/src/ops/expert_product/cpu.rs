//! The experts' products on the CPU: the rows that chose an expert together, one expert after the other.

use super::ExpertProduct;
use crate::Result;
use crate::matrix::{NoEpilogue, Output, PackedPanels, PanelSource, Start, Strided, product};
use crate::ops::{Args, Direction, Operation, View};
use crate::simd::{Isa, Real};
use crate::tensor::Buffer;
use std::cell::RefCell;
use std::ops::Range;

/// What a thread works in; it only grows.
#[derive(Default)]
struct Scratch {
    /// Where each expert's slots start, and all slots in the order of experts.
    starts: Vec<u32>,
    slots: Vec<u32>,
    /// Rows that chose one expert, what comes of them, and its weight where it is packed.
    rows: Buffer,
    results: Buffer,
    weight: Buffer,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// So many elements of a buffer that only grows.
fn room<T: Real>(buffer: &mut Buffer, len: usize) -> &mut [T] {
    if buffer.len_bytes() < len * size_of::<T>() {
        *buffer = Buffer::working::<T>(len);
    }
    &mut buffer.as_mut_slice::<T>()[..len]
}

impl Operation for ExpertProduct {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        // Taken out for the duration, so that a product inside may run tasks on this thread.
        let mut scratch = SCRATCH.take();
        self.sort(args.read::<T>(1), &mut scratch);
        match self.direction {
            Direction::Forward => self.forward::<T>(args, &mut scratch),
            Direction::InputGradient => self.input_gradient::<T>(args, &mut scratch),
            Direction::WeightGradient => self.weight_gradient::<T>(args, &mut scratch),
        }
        SCRATCH.set(scratch);
        Ok(())
    }
}

impl ExpertProduct {
    fn expert<T: Real>(&self, choice: T) -> usize {
        (choice.to_f64() as usize).min(self.experts - 1)
    }

    /// Slots in the order of their experts: a counting sort, which leaves those of one expert in theirs.
    fn sort<T: Real>(&self, choices: &[T], Scratch { starts, slots, .. }: &mut Scratch) {
        starts.clear();
        starts.resize(self.experts + 2, 0);
        for choice in choices {
            starts[self.expert(*choice) + 2] += 1;
        }
        for expert in 2..starts.len() {
            starts[expert] += starts[expert - 1];
        }
        slots.clear();
        slots.resize(choices.len(), 0);
        for (slot, choice) in choices.iter().enumerate() {
            let next = &mut starts[self.expert(*choice) + 1];
            slots[*next as usize] = slot as u32;
            *next += 1;
        }
    }

    /// The row of x that a slot reads.
    fn row(&self, slot: u32) -> usize {
        slot as usize / if self.spread { self.top_k } else { 1 }
    }

    /// An expert's columns of W.
    fn columns(&self, expert: usize) -> Range<usize> {
        expert * self.outputs..(expert + 1) * self.outputs
    }

    /// Shows an expert's weight, (inputs, outputs), as the right operand of a product.
    fn with_weight<T: Real>(&self, weight: View<'_>, expert: usize, then: impl FnOnce(&dyn PanelSource<T>)) {
        let columns = self.columns(expert);
        match weight.packed {
            Some(packing) => then(&PackedPanels::of_columns(packing, weight.bytes, weight.scales, columns)),
            None => {
                let plain = &weight.elements::<T>()[columns.start..];
                then(&Strided::new(plain, self.inputs, self.outputs, self.experts * self.outputs, 1));
            }
        }
    }

    /// An expert's weight, (inputs, outputs), with the distance of its rows; decoded where it is packed.
    fn weight<'a, T: Real>(
        &self,
        isa: Isa,
        weight: View<'a>,
        expert: usize,
        decoded: &'a mut Buffer,
    ) -> (&'a [T], usize) {
        let columns = self.columns(expert);
        let Some(packing) = weight.packed else {
            return (&weight.elements::<T>()[columns.start..], self.experts * self.outputs);
        };
        let plain = room::<T>(decoded, self.inputs * self.outputs);
        let from = (weight.bytes, weight.scales);
        packing.decode_tile(isa, from, 0..self.inputs, columns, plain, self.outputs);
        (plain, self.outputs)
    }

    fn forward<T: Real>(&self, args: &mut Args<'_>, scratch: &mut Scratch) {
        let (x, weight, y) = (args.read::<T>(0), args.view(2), args.write::<T>(0));
        let Scratch { starts, slots, rows, results, .. } = scratch;
        for (expert, slots) in each(starts, slots) {
            let rows = gather(x, slots, self.inputs, |slot| self.row(slot), rows);
            let found = room::<T>(results, slots.len() * self.outputs);
            self.with_weight(weight, expert, |weight| {
                let rows = Strided::left(rows, slots.len(), self.inputs);
                let y = Output::new(&mut *found, slots.len(), self.outputs);
                product(args.cpu, &rows, weight, Start::Zero, &NoEpilogue, y);
            });
            for (slot, found) in slots.iter().zip(found.chunks_exact(self.outputs)) {
                y[*slot as usize * self.outputs..][..self.outputs].copy_from_slice(found);
            }
        }
    }

    fn input_gradient<T: Real>(&self, args: &mut Args<'_>, scratch: &mut Scratch) {
        let (dy, weight, dx) = (args.read::<T>(0), args.view(2), args.write::<T>(0));
        let Scratch { starts, slots, rows, results, weight: decoded } = scratch;
        dx.fill(T::ZERO);
        for (expert, slots) in each(starts, slots) {
            let rows = gather(dy, slots, self.outputs, |slot| slot as usize, rows);
            let found = room::<T>(results, slots.len() * self.inputs);
            let (weight, stride) = self.weight::<T>(args.cpu.isa(), weight, expert, decoded);
            product(
                args.cpu,
                &Strided::left(rows, slots.len(), self.outputs),
                &Strided::new(weight, self.outputs, self.inputs, 1, stride),
                Start::Zero,
                &NoEpilogue,
                Output::new(found, slots.len(), self.inputs),
            );
            for (slot, found) in slots.iter().zip(found.chunks_exact(self.inputs)) {
                let dx = &mut dx[self.row(*slot) * self.inputs..][..self.inputs];
                dx.iter_mut().zip(found).for_each(|(dx, found)| *dx += *found);
            }
        }
    }

    fn weight_gradient<T: Real>(&self, args: &mut Args<'_>, scratch: &mut Scratch) {
        let (x, dy, dw) = (args.read::<T>(0), args.read::<T>(2), args.write::<T>(0));
        let Scratch { starts, slots, rows, results, .. } = scratch;
        if !args.accumulate {
            dw.fill(T::ZERO);
        }
        for (expert, slots) in each(starts, slots) {
            let count = slots.len();
            let x = gather(x, slots, self.inputs, |slot| self.row(slot), rows);
            let dy = gather(dy, slots, self.outputs, |slot| slot as usize, results);
            let dw = &mut dw[self.columns(expert).start..];
            product(
                args.cpu,
                &Strided::left_transposed(x, self.inputs, count),
                &Strided::right(dy, count, self.outputs),
                Start::Continue,
                &NoEpilogue,
                Output::strided(dw, self.inputs, self.outputs, self.experts * self.outputs),
            );
        }
    }
}

/// The experts that were chosen, with their slots.
fn each<'a>(starts: &'a [u32], slots: &'a [u32]) -> impl Iterator<Item = (usize, &'a [u32])> {
    let part = |pair: &[u32]| &slots[pair[0] as usize..pair[1] as usize];
    starts[..starts.len() - 1].windows(2).map(part).enumerate().filter(|(_, slots)| !slots.is_empty())
}

/// The rows that these slots read, side by side.
fn gather<'a, T: Real>(
    x: &[T],
    slots: &[u32],
    extent: usize,
    row: impl Fn(u32) -> usize,
    buffer: &'a mut Buffer,
) -> &'a [T] {
    let rows = room::<T>(buffer, slots.len() * extent);
    for (slot, to) in slots.iter().zip(rows.chunks_exact_mut(extent)) {
        to.copy_from_slice(&x[row(*slot) * extent..][..extent]);
    }
    rows
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::dtype::{DType, testing::sample};
    use crate::ops::testing::{Data, Setting, assert_bits, assert_close, cpus, numbers};

    pub(in super::super) fn choices(steps: usize, experts: usize, top_k: usize) -> Vec<f32> {
        // Some experts often, others never.
        let choice =
            |slot: usize| ((slot / top_k) * 3 + slot % top_k) * 2 % experts.max(2).next_multiple_of(2);
        (0..steps * top_k).map(|slot| choice(slot).min(experts - 1) as f32).collect()
    }

    /// All three by plain loops.
    fn check<T: Real>(op: &ExpertProduct, steps: usize) {
        let ExpertProduct { experts, top_k, inputs, outputs, spread, .. } = *op;
        let slots = steps * top_k;
        let choices: Vec<T> =
            choices(steps, experts, top_k).iter().map(|x| T::from_f64(f64::from(*x))).collect();
        let x = numbers::<T>(1, if spread { steps } else { slots } * inputs);
        let w = numbers::<T>(2, inputs * experts * outputs);
        let dy = numbers::<T>(3, slots * outputs);
        let of = |direction| ExpertProduct { direction, ..op.clone() };
        let row = |slot: usize| if spread { slot / top_k } else { slot };
        let place = |slot: usize, i: usize, o: usize| {
            i * experts * outputs + choices[slot].to_f64() as usize * outputs + o
        };
        let y = Setting::new(1, &[&x, &choices, &w], &[dy.len()]).result(&of(Direction::Forward));
        let expected: Vec<T> = (0..slots * outputs)
            .map(|at| {
                let (slot, o) = (at / outputs, at % outputs);
                let term = |sum: T, i: usize| x[row(slot) * inputs + i].mul_add(w[place(slot, i, o)], sum);
                (0..inputs).fold(T::ZERO, term)
            })
            .collect();
        assert_bits(&y, &expected);
        let mut dx = vec![0.0; x.len()];
        let before = numbers::<T>(4, w.len());
        let mut dw = before.clone();
        for slot in 0..slots {
            for i in 0..inputs {
                for o in 0..outputs {
                    let (at, dy) = (place(slot, i, o), dy[slot * outputs + o]);
                    dx[row(slot) * inputs + i] += (dy * w[at]).to_f64();
                    dw[at] = x[row(slot) * inputs + i].mul_add(dy, dw[at]);
                }
            }
        }
        let found = Setting::new(1, &[&dy, &choices, &w], &[x.len()]).result(&of(Direction::InputGradient));
        let found: Vec<f64> = found.iter().map(|x| x.to_f64()).collect();
        assert_close(&found, &dx, 1e-5);
        let mut setting = Setting::new(1, &[&x, &choices, &dy], &[w.len()]);
        setting.accumulate = true;
        setting.writes = vec![Data::Real(before)];
        assert_bits(&setting.result(&of(Direction::WeightGradient)), &dw);
    }

    #[test]
    fn products_are_those_of_the_chosen_weights() {
        for (steps, experts, top_k, inputs, outputs) in
            [(1, 1, 1, 1, 1), (5, 4, 2, 7, 3), (40, 6, 3, 17, 33), (3, 9, 9, 20, 5)]
        {
            for spread in [false, true] {
                let direction = Direction::Forward;
                let op = ExpertProduct { direction, experts, top_k, inputs, outputs, spread };
                check::<f32>(&op, steps);
                check::<f64>(&op, steps);
            }
        }
    }

    #[test]
    fn packed_experts_are_decoded() {
        let (steps, experts, top_k, inputs, outputs) = (4, 3, 2, 64, 5);
        let choices = choices(steps, experts, top_k);
        let w = numbers::<f32>(2, inputs * experts * outputs);
        let x = numbers::<f32>(1, steps * inputs);
        let op =
            ExpertProduct { direction: Direction::Forward, experts, top_k, inputs, outputs, spread: true };
        for dtype in DType::all() {
            let sample = sample(dtype, &w, experts * outputs);
            let plain = sample.decoded::<f32>();
            let mut y = vec![0.0f32; steps * top_k * outputs];
            let values = crate::ops::StepValues::default();
            let mut args = Args::new(&cpus()[0], 1, &values);
            args.set_read(0, &x);
            args.set_read(1, &choices);
            args.set_packed(2, sample.bytes(), sample.packing, &sample.scales);
            args.set_write(0, &mut y);
            op.run::<f32>(&mut args).unwrap();
            let expected = Setting::new(1, &[&x, &choices, &plain], &[y.len()]).result(&op);
            assert_bits(&y, &expected);
        }
    }
}
