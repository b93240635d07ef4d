//! The loop on the CPU: rows of the batch that share a task go through every step together.

use super::cells::{Backward, CandidateGradient, Forward, Reset, Row, RowGradient};
use super::weights::Weight;
use super::{Cell, InitialState, Recurrent};
use crate::ops::element_loops::map2;
use crate::ops::{Args, Direction, Operation};
use crate::simd::{Cpu, Kernel, LANES, Real, Vector};
use crate::tensor::Buffer;
use crate::{Error, Result};
use std::cell::RefCell;

/// The work that is worth a task of its own, in sixteens of multiplications: a few microseconds.
const TASK: usize = 1 << 14;
/// The most rows of a task: what they hold between steps stays in the nearest caches.
const MOST_ROWS: usize = 48;

thread_local! {
    /// Packed weights of the step that runs.
    static PACKED: RefCell<Buffer> = RefCell::default();
    /// What a task holds between steps.
    static HELD: RefCell<Buffer> = RefCell::default();
}

/// Elements, from memory that a thread keeps for the purpose.
fn elements<T: Real>(buffer: &mut Buffer, len: usize) -> &mut [T] {
    if buffer.len_bytes() < len * size_of::<T>() {
        *buffer = Buffer::working::<T>(len);
    }
    &mut buffer.as_mut_slice::<T>()[..len]
}

/// The distance of rows of so many elements: apart from each other in the first-level cache.
fn stride(len: usize) -> usize {
    len.next_multiple_of(LANES) + LANES
}

/// Row `row` of rows of `len` elements; nothing where there are none.
fn row_of<T>(x: &[T], row: usize, len: usize) -> &[T] {
    if x.is_empty() { x } else { &x[row * len..(row + 1) * len] }
}

/// The next row's elements `start..start + len`; none where there are no rows.
fn part_of<'a, T>(rows: &mut impl Iterator<Item = &'a mut [T]>, start: usize, len: usize) -> &'a mut [T] {
    rows.next().map_or(&mut [], |row| &mut row[start..start + len])
}

/// Operands and results by their documented numbers.
struct Numbers(usize);

impl Numbers {
    fn next(&mut self) -> usize {
        self.0 += 1;
        self.0 - 1
    }
}

/// `sums = input + bias`, or the bias alone, or zeros.
struct Fill<'a, T> {
    input: &'a [T],
    bias: &'a [T],
    sums: &'a mut [T],
}

impl<T: Real> Kernel<T> for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        match (self.input.is_empty(), self.bias.is_empty()) {
            (true, true) => self.sums.fill(T::ZERO),
            (true, false) => self.sums.copy_from_slice(self.bias),
            (false, true) => self.sums.copy_from_slice(self.input),
            (false, false) => map2::<V>(self.input, self.bias, self.sums, |x, bias| x + bias),
        }
    }
}

impl Operation for Recurrent {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let chunk = self.chunk(args.cpu, args.rows);
        if self.direction == Direction::WeightGradient {
            return Err(Error::Internal("a recurrence's weight gradient is a product".into()));
        }
        // The weights come after the inputs' shares forward, after dy backward.
        let at = if self.direction == Direction::Forward { self.directions } else { 1 };
        let mut lens = [0; 2];
        for (direction, len) in lens.iter_mut().enumerate().take(self.directions) {
            *len = Weight::<T>::elements(self, args.cpu, chunk, direction, args.view(at + direction))?;
        }
        let mut buffer = PACKED.take();
        let result = {
            let memory = elements::<T>(&mut buffer, lens[0] + lens[1]);
            let (first, second) = memory.split_at_mut(lens[0]);
            let packed = |direction: usize, memory| {
                Weight::pack(self, args.cpu, chunk, direction, args.view(at + direction), memory)
            };
            let weights = match self.directions {
                2 => packed(0, first).and_then(|one| Ok([one, packed(1, second)?])),
                _ => packed(0, first).map(|one| [one; 2]),
            };
            weights.map(|weights| match self.direction {
                Direction::Forward => self.forward(args, chunk, weights),
                _ => self.backward(args, chunk, weights),
            })
        };
        PACKED.set(buffer);
        result
    }
}

impl Recurrent {
    /// Rows of a task.
    fn chunk(&self, cpu: &Cpu, rows: usize) -> usize {
        let terms = self.units * self.cell.gates() * self.units;
        let work = rows * self.directions * self.time * terms / LANES;
        let tasks = (work / TASK).clamp(1, cpu.pool().threads());
        rows.div_ceil(tasks).clamp(1, MOST_ROWS)
    }

    /// The time of a direction's step.
    fn time_of(&self, direction: usize, step: usize) -> usize {
        if direction == 0 { step } else { self.time - 1 - step }
    }

    fn forward<T: Real>(&self, args: &mut Args<'_>, chunk: usize, weights: [Weight<'_, T>; 2]) {
        let (cpu, rows, directions) = (args.cpu, args.rows, self.directions);
        let mut number = Numbers(0);
        let each = |present: bool, numbers: &mut Numbers| -> [&[T]; 2] {
            std::array::from_fn(|d| if present && d < directions { args.read(numbers.next()) } else { &[] })
        };
        let inputs = each(true, &mut number);
        number.0 += directions;
        let biases = each(self.bias, &mut number);
        let mut initial =
            if self.initial == InitialState::Zeros { &[][..] } else { args.read::<T>(number.next()) };
        let mut place = self.initial;
        let mask = if self.mask { args.read::<T>(number.next()) } else { &[] };
        if self.resumes && args.values.position > 0 {
            initial = args.read(number.next());
            place = InitialState::Rows { offset: 0, stride: self.state_len() };
        }

        let mut number = Numbers(0);
        let y = args.write::<T>(number.next());
        let mut each = |numbers: &mut Numbers| -> [&mut [T]; 2] {
            std::array::from_fn(|d| {
                if self.keeps && d < directions { args.write(numbers.next()) } else { &mut [] }
            })
        };
        let [before, before_back] = each(&mut number);
        let [saved, saved_back] = each(&mut number);
        let state = if self.state { args.write::<T>(number.next()) } else { &mut [] };

        let (before_len, saved_len) = (self.time * self.units, self.time * self.cell.saved() * self.units);
        let results = [
            (y, chunk * self.output_len()),
            (before, chunk * before_len),
            (before_back, chunk * before_len),
            (saved, chunk * saved_len),
            (saved_back, chunk * saved_len),
            (state, chunk * self.state_len()),
        ];
        cpu.pool().for_each_piece(rows.div_ceil(chunk), results, |task, results| {
            let [y, before, before_back, saved, saved_back, state] = results;
            let first = task * chunk;
            let count = chunk.min(rows - first);
            let mut held = HELD.take();
            let mut kept = [(before, saved), (before_back, saved_back)];
            for (direction, (before, saved)) in kept.iter_mut().enumerate().take(directions) {
                let part = Part {
                    op: self,
                    cpu,
                    direction,
                    weight: weights[direction],
                    count,
                    place,
                    initial: match place {
                        InitialState::Rows { stride, .. } => &initial[first * stride..],
                        _ => initial,
                    },
                    mask: if self.mask { &mask[first * self.time..] } else { mask },
                };
                let gates = self.cell.gates() * self.units;
                let input = &inputs[direction][first * self.time * gates..];
                part.forward(&mut held, input, biases[direction], [&mut *y, before, saved, &mut *state]);
            }
            HELD.set(held);
        });
    }

    fn backward<T: Real>(&self, args: &mut Args<'_>, chunk: usize, weights: [Weight<'_, T>; 2]) {
        let (cpu, rows, directions) = (args.cpu, args.rows, self.directions);
        let mut number = Numbers(0);
        let dy = args.read::<T>(number.next());
        number.0 += directions;
        let each = |present: bool, numbers: &mut Numbers| -> [&[T]; 2] {
            std::array::from_fn(|d| if present && d < directions { args.read(numbers.next()) } else { &[] })
        };
        let before = each(self.cell.is_gru(), &mut number);
        let saved = each(true, &mut number);
        let reads_initial = self.cell == Cell::Lstm && self.initial != InitialState::Zeros;
        let initial = if reads_initial { args.read::<T>(number.next()) } else { &[] };
        let mask = if self.mask { args.read::<T>(number.next()) } else { &[] };

        let mut number = Numbers(0);
        let mut each =
            |present: bool, numbers: &mut Numbers| -> [&mut [T]; 2] {
                std::array::from_fn(|d| {
                    if present && d < directions { args.write(numbers.next()) } else { &mut [] }
                })
            };
        let [input, input_back] = each(true, &mut number);
        let [sums, sums_back] = each(self.cell.splits_gradient(), &mut number);
        let state = if self.state { args.write::<T>(number.next()) } else { &mut [] };
        let cells = if self.cell_gradients { args.write::<T>(number.next()) } else { &mut [] };

        let gates = self.time * self.cell.gates() * self.units;
        let results = [
            (input, chunk * gates),
            (input_back, chunk * gates),
            (sums, chunk * gates),
            (sums_back, chunk * gates),
            (state, chunk * self.initial_extents().0),
            (cells, chunk * self.steps_len()),
        ];
        cpu.pool().for_each_piece(rows.div_ceil(chunk), results, |task, results| {
            let [input, input_back, sums, sums_back, state, cells] = results;
            let first = task * chunk;
            let count = chunk.min(rows - first);
            let mut held = HELD.take();
            state.fill(T::ZERO);
            let mut gradients = [(input, sums), (input_back, sums_back)];
            for (direction, (input, sums)) in gradients.iter_mut().enumerate().take(directions) {
                let part = Part {
                    op: self,
                    cpu,
                    direction,
                    weight: weights[direction],
                    count,
                    place: self.initial,
                    initial: match self.initial {
                        InitialState::Rows { stride, .. } if reads_initial => &initial[first * stride..],
                        _ => initial,
                    },
                    mask: if self.mask { &mask[first * self.time..] } else { mask },
                };
                let skip = |x: &'_ [T], len: usize| if x.is_empty() { 0 } else { first * len };
                let before = &before[direction][skip(before[direction], self.time * self.units)..];
                let saved_len = self.time * self.cell.saved() * self.units;
                let saved = &saved[direction][first * saved_len..];
                let dy = &dy[first * self.output_len()..];
                part.backward(&mut held, [dy, before, saved], [input, sums, &mut *state, &mut *cells]);
            }
            HELD.set(held);
        });
    }
}

/// One direction of some rows: operands from these rows on.
struct Part<'a, T> {
    op: &'a Recurrent,
    cpu: &'a Cpu,
    direction: usize,
    weight: Weight<'a, T>,
    count: usize,
    place: InitialState,
    initial: &'a [T],
    mask: &'a [T],
}

impl<T: Real> Part<'_, T> {
    /// Whether a row's step is a real one.
    fn is_real(&self, row: usize, time: usize) -> bool {
        self.mask.is_empty() || self.mask[row * self.op.time + time] != T::ZERO
    }

    /// State `number` of a row before the first step; nothing where that is zeros.
    fn initial(&self, row: usize, number: usize) -> &[T] {
        if self.initial.is_empty() {
            return &[];
        }
        let op = self.op;
        let at = (self.direction * op.cell.states() + number) * op.units;
        let at = match self.place {
            InitialState::Rows { offset, stride } => row * stride + offset + at,
            _ => at,
        };
        &self.initial[at..at + op.units]
    }

    /// Where a row's elements of y or dy at a time are: (start, len).
    fn output(&self, row: usize, time: usize) -> std::ops::Range<usize> {
        let op = self.op;
        let step = if op.sequences { row * op.time + time } else { row };
        let start = (step * op.directions + self.direction) * op.units;
        start..start + op.units
    }

    fn forward(&self, held: &mut Buffer, input: &[T], bias: &[T], [y, before, saved, state]: [&mut [T]; 4]) {
        let Self { op, cpu, count, .. } = *self;
        let (cell, units, time, isa) = (op.cell, op.units, op.time, cpu.isa());
        let (gates, saved_len) = (cell.gates() * units, cell.saved() * units);
        // The candidate of this GRU takes the input's share after the reset gate.
        let summed = if cell == Cell::Gru { 2 * units } else { gates };
        let (sums_stride, stride) = (stride(gates), stride(units));
        let resets_first = cell == Cell::ResetFirstGru;
        let held = elements::<T>(held, count * (sums_stride + 3 * stride));
        let (sums, states) = held.split_at_mut(count * sums_stride);
        let (hidden, states) = states.split_at_mut(count * stride);
        let (cell_state, reset) = states.split_at_mut(count * stride);
        for row in 0..count {
            for (number, to) in [&mut *hidden, &mut *cell_state].into_iter().enumerate().take(cell.states()) {
                let to = &mut to[row * stride..][..units];
                match self.initial(row, number) {
                    [] => to.fill(T::ZERO),
                    initial => to.copy_from_slice(initial),
                }
            }
        }
        for step in 0..time {
            let t = op.time_of(self.direction, step);
            for (row, sums) in sums.chunks_exact_mut(sums_stride).enumerate() {
                let input = &input[(row * time + t) * gates..][..gates];
                let (to, rest) = sums[..gates].split_at_mut(summed);
                let (bias, bias_rest) = if bias.is_empty() { (bias, bias) } else { bias.split_at(summed) };
                T::dispatch(isa, Fill { input: &input[..summed], bias, sums: to });
                if !rest.is_empty() {
                    T::dispatch(isa, Fill { input: &[], bias: bias_rest, sums: rest });
                }
                if !before.is_empty() {
                    before[(row * time + t) * units..][..units]
                        .copy_from_slice(&hidden[row * stride..][..units]);
                }
            }
            let moved = step > 0 || !self.initial.is_empty();
            // The real rows of the step.
            macro_rules! rows {
                () => {{
                    let mut kept = saved.chunks_exact_mut(time * saved_len);
                    let states = hidden.chunks_exact_mut(stride).zip(cell_state.chunks_exact_mut(stride));
                    let states = states.zip(reset.chunks_exact_mut(stride));
                    let rows = sums.chunks_exact(sums_stride).zip(states).enumerate();
                    rows.filter_map(move |(row, (sums, ((hidden, cell_state), reset)))| {
                        let saved = part_of(&mut kept, t * saved_len, saved_len);
                        let cell_state = &mut cell_state[..units];
                        if !self.is_real(row, t) {
                            saved.fill(T::ZERO);
                            // The step after this one needs to know what c was before it.
                            if cell == Cell::Lstm && !saved.is_empty() {
                                saved[4 * units..].copy_from_slice(cell_state);
                            }
                            return None;
                        }
                        let input = &input[(row * time + t) * gates..][..gates];
                        let (sums, hidden) = (&sums[..gates], &mut hidden[..units]);
                        Some(Row { input, sums, hidden, cell_state, reset: &mut reset[..units], saved })
                    })
                }};
            }
            if resets_first {
                let (shape, candidate) = ((count, units), 2 * units);
                if moved {
                    let (from, to) = ((&*hidden, stride), (&mut *sums, sums_stride));
                    self.weight.multiply_part(cpu, shape, (0..units, 0..candidate), from, to);
                }
                T::dispatch(isa, Reset { rows: rows!() });
                if op.is_quantized(self.direction) {
                    // Products of codes are of all columns.
                    for (row, sums) in sums.chunks_exact_mut(sums_stride).enumerate() {
                        let input = &input[(row * time + t) * gates..][candidate..gates];
                        let bias = if bias.is_empty() { bias } else { &bias[candidate..] };
                        T::dispatch(isa, Fill { input, bias, sums: &mut sums[candidate..gates] });
                    }
                }
                if moved {
                    let (from, to) = ((&*reset, stride), (&mut *sums, sums_stride));
                    self.weight.multiply_part(cpu, shape, (0..units, candidate..gates), from, to);
                }
            } else if moved {
                let (from, to) = ((&*hidden, stride), (&mut *sums, sums_stride));
                self.weight.multiply(cpu, (count, units), from, to);
            }
            let rows = rows!();
            T::dispatch(isa, Forward { cell, rows });
            if op.sequences || step + 1 == time {
                for row in 0..count {
                    let y = &mut y[self.output(row, t)];
                    match op.sequences && !self.is_real(row, t) {
                        true => y.fill(T::ZERO),
                        false => y.copy_from_slice(&hidden[row * stride..][..units]),
                    }
                }
            }
        }
        for (row, state) in state.chunks_exact_mut(op.state_len()).enumerate() {
            let state = &mut state[self.direction * cell.states() * units..][..cell.states() * units];
            for (to, from) in state.chunks_exact_mut(units).zip([&*hidden, &*cell_state]) {
                to.copy_from_slice(&from[row * stride..][..units]);
            }
        }
    }

    fn backward(
        &self,
        held: &mut Buffer,
        [dy, before, saved]: [&[T]; 3],
        [input, shared, state, cells]: [&mut [T]; 4],
    ) {
        let Self { op, cpu, count, .. } = *self;
        let (cell, units, time, isa) = (op.cell, op.units, op.time, cpu.isa());
        let (gates, saved_len) = (cell.gates() * units, cell.saved() * units);
        let (sums_stride, stride) = (stride(gates), stride(units));
        let held = elements::<T>(held, count * (sums_stride + 2 * stride));
        let (sums, states) = held.split_at_mut(count * sums_stride);
        states.fill(T::ZERO);
        let (hidden, cell_state) = states.split_at_mut(count * stride);
        let resets_first = cell == Cell::ResetFirstGru;
        let reaches = |row: usize, step: usize| match op.sequences {
            true => self.is_real(row, op.time_of(self.direction, step)),
            false => step + 1 == time,
        };
        for step in (0..time).rev() {
            let t = op.time_of(self.direction, step);
            if step + 1 == time {
                for row in (0..count).filter(|row| reaches(*row, step)) {
                    hidden[row * stride..][..units].copy_from_slice(&dy[self.output(row, t)]);
                }
            }
            let place = (t * op.directions + self.direction) * units;
            // The real rows of the step.
            macro_rules! rows {
                () => {{
                    let states = hidden.chunks_exact_mut(stride).zip(cell_state.chunks_exact_mut(stride));
                    let results =
                        input.chunks_exact_mut(time * gates).zip(sums.chunks_exact_mut(sums_stride));
                    let mut cells = cells.chunks_exact_mut(op.steps_len());
                    results.zip(states).enumerate().filter_map(move |(row, (results, states))| {
                        let (input, sums) = (&mut results.0[t * gates..][..gates], &mut results.1[..gates]);
                        let state = part_of(&mut cells, place, units);
                        if !self.is_real(row, t) {
                            input.fill(T::ZERO);
                            sums.fill(T::ZERO);
                            state.fill(T::ZERO);
                            return None;
                        }
                        let before = match cell {
                            Cell::Gru | Cell::ResetFirstGru => row_of(before, row * time + t, units),
                            Cell::Lstm if step == 0 => self.initial(row, 1),
                            Cell::Lstm => {
                                let last = op.time_of(self.direction, step - 1);
                                &row_of(saved, row * time + last, saved_len)[4 * units..]
                            }
                            Cell::Tanh | Cell::Relu => &[],
                        };
                        let saved = row_of(saved, row * time + t, saved_len);
                        let (hidden, cell_state) = (&mut states.0[..units], &mut states.1[..units]);
                        Some(RowGradient { saved, before, hidden, cell_state, input, sums, state })
                    })
                }};
            }
            let (first, candidate) = (0..2 * units, 2 * units..gates);
            if resets_first {
                T::dispatch(isa, CandidateGradient { rows: rows!() });
                let (from, to) = ((&*sums, sums_stride), (&mut *cell_state, stride));
                self.weight.multiply_part(cpu, (count, gates), (candidate, 0..units), from, to);
            }
            let rows = rows!();
            T::dispatch(isa, Backward { cell, rows });
            for (row, shared) in shared.chunks_exact_mut(time * gates).enumerate() {
                shared[t * gates..][..gates].copy_from_slice(&sums[row * sums_stride..][..gates]);
            }
            if step == 0 && !op.state {
                continue;
            }
            if step > 0 && op.sequences {
                let last = op.time_of(self.direction, step - 1);
                for row in (0..count).filter(|row| reaches(*row, step - 1)) {
                    let dy = &dy[self.output(row, last)];
                    T::dispatch(isa, Add { x: dy, to: &mut hidden[row * stride..][..units] });
                }
            }
            let (from, to) = ((&*sums, sums_stride), (&mut *hidden, stride));
            match resets_first {
                true => self.weight.multiply_part(cpu, (count, gates), (first, 0..units), from, to),
                false => self.weight.multiply(cpu, (count, gates), from, to),
            }
        }
        let (row_len, offset) = op.initial_extents();
        for (row, state) in state.chunks_exact_mut(row_len).enumerate() {
            let state =
                &mut state[offset + self.direction * cell.states() * units..][..cell.states() * units];
            for (to, from) in state.chunks_exact_mut(units).zip([&*hidden, &*cell_state]) {
                to.copy_from_slice(&from[row * stride..][..units]);
            }
        }
    }
}

/// `to += x`.
struct Add<'a, T> {
    x: &'a [T],
    to: &'a mut [T],
}

impl<T: Real> Kernel<T> for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (to, rest) = self.to.as_chunks_mut::<LANES>();
        let (x, x_rest) = self.x.as_chunks::<LANES>();
        for (to, x) in to.iter_mut().zip(x) {
            (V::load(to) + V::load(x)).store(to);
        }
        if !rest.is_empty() {
            (V::load_partial(rest) + V::load_partial(x_rest)).store_partial(rest);
        }
    }
}
