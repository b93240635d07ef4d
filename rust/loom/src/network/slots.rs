//! Sessions whose sequences come and go, each at a place of its own.

mod following;

use super::programs::ProgramKey;
use super::session::outputs::Outputs;
use super::session::steps::{StepWidths, SteppingOutput};
use super::session::{drawing, part_of};
use super::{Ending, Mode, Network, SessionExtent};
use crate::ops::{CacheType, RowPlace, StepValues};
use crate::precision::in_precision;
use crate::program::{Access, Phase, Run};
use crate::simd::Real;
use crate::state::{Carried, CarriedSpec};
use crate::tensor::{Shape, Tensor, TensorView};
use crate::{Error, Result, extents};

/// Steps that sequences go on by themselves in one call of the engine, at most.
const AHEAD: usize = 64;

/// Inference over several sequences that arrive piece by piece, each for itself: a call brings the next steps of some
/// of them, and what it makes of each is what a [`Session`](super::Session) of one row makes: on processors bit for bit;
/// GPUs multiply few rows by other kernels than many.
///
/// For layers whose state has a part of its own for each step, such as attention.
#[derive(Debug)]
pub struct Slots {
    capacity: usize,
    /// What keys and values are kept as.
    cache: CacheType,
    /// How many steps of each sequence have been seen.
    positions: Vec<usize>,
    carried: Carried,
    epoch: u64,
    device: crate::Device,
    /// What a step of each input holds.
    widths: StepWidths,
    /// What there is of outputs.
    outputs: Vec<SteppingOutput>,
    /// A run for each number of rows and steps that has been needed.
    runs: Vec<(Part, Run)>,
}

/// What goes through the network at once: room for so many rows, and so many steps of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    rows: usize,
    steps: usize,
    ending: Ending,
}

impl Network {
    /// Room for so many sequences of at most `capacity` steps, each at a place of its own.
    ///
    /// # Errors
    /// As [`session`](Self::session); [`Error::State`] also for layers whose state is that of the newest step alone;
    /// [`Error::Device`] where a GPU has no room for all of them, or shows kernels less.
    pub fn slots(&mut self, count: usize, capacity: usize) -> Result<Slots> {
        self.build()?;
        self.slots_keeping(count, capacity, CacheType::Full)
    }

    /// [`slots`](Self::slots) of a network that is built, which keep keys and values in fewer bits.
    ///
    /// # Errors
    /// As `slots`, and as [`session_keeping`](Self::session_keeping).
    pub fn slots_keeping(&self, count: usize, capacity: usize, cache: CacheType) -> Result<Slots> {
        self.check_built()?;
        if count == 0 || capacity == 0 {
            return Err(Error::Value("a session needs at least one sequence and one step".into()));
        }
        self.check_cache(cache)?;
        let (outputs, widths) = (self.stepping_outputs()?, StepWidths::of(self));
        let extent = SessionExtent { steps: 1, capacity, cache, ending: Ending::All, ahead: AHEAD };
        let places = self.carried_places(Mode { session: Some(extent), ..Mode::default() });
        if !places.iter().all(|place| place.spec.by_place) {
            return Err(Error::State(
                "a recurrent layer keeps the state of the newest step alone, so its sequences move together; begin a \
                 session for each"
                    .into(),
            ));
        }
        let device = self.device.accelerator();
        if let Some(device) = &device {
            // Kernels see all sequences at once.
            let most = device.capabilities().max_binding;
            let bytes = |spec: &CarriedSpec| spec.shape.len().saturating_mul(count * self.precision.size());
            if let Some(place) = places.iter().find(|place| bytes(&place.spec) > most) {
                return Err(Error::Device(format!(
                    "\"{}\" of {count} sequences takes {} bytes, more than the {most} that kernels of {} see at once",
                    place.spec.name,
                    bytes(&place.spec),
                    device.name()
                )));
            }
        }
        let mut carried = Carried::new(places, count, self.precision, device.as_ref())?;
        carried.by_sequence = true;
        let epoch = self.registry.epoch();
        let (positions, device) = (vec![0; count], self.device.clone());
        Ok(Slots { capacity, cache, positions, carried, epoch, device, widths, outputs, runs: Vec::new() })
    }
}

impl Slots {
    /// Extents of what so many steps make of each output, as [`Session::output_shapes`](super::Session::output_shapes).
    pub fn output_shapes(&self, steps: usize) -> Vec<Shape> {
        self.outputs.iter().map(|output| output.extents(steps)).collect()
    }

    /// How many steps of each sequence have been seen.
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// The most steps of a sequence.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets everything seen; weights that have moved since are taken up.
    ///
    /// # Errors
    /// [`Error::State`] where the network has moved to another device.
    pub fn reset(&mut self, network: &Network) -> Result<()> {
        if !self.device.is_same(&network.device) {
            return Err(Error::State("the network has moved to another device; begin new sessions".into()));
        }
        self.carried.reset()?;
        self.positions.fill(0);
        self.epoch = network.registry.epoch();
        self.runs.clear();
        Ok(())
    }

    /// Goes back to where only the first `position` steps of a sequence had been seen.
    ///
    /// # Errors
    /// [`Error::Value`] where there is no such sequence, or it has not seen so many.
    pub fn rewind(&mut self, sequence: usize, position: usize) -> Result<()> {
        let seen = self.position(sequence)?;
        if position > seen {
            return Err(Error::Value(format!(
                "a sequence that has seen {seen} steps cannot go back to {position}"
            )));
        }
        // What lies behind is overwritten before it is looked at.
        self.positions[sequence] = position;
        Ok(())
    }

    /// Makes the first `count` steps of one sequence those of another, which forgets its own.
    ///
    /// # Errors
    /// [`Error::Value`] where there is no such sequence, or the first has not seen so many; [`Error::Device`] where
    /// a GPU was lost or has no room.
    pub fn copy(&mut self, from: usize, to: usize, count: usize) -> Result<()> {
        let (seen, _) = (self.position(from)?, self.position(to)?);
        if count > seen {
            return Err(Error::Value(format!("a sequence that has seen {seen} steps has no first {count}")));
        }
        let of_layers = drawing::place(&self.carried, drawing::CHOSEN).unwrap_or(usize::MAX);
        self.carried.copy_sequence(of_layers, (from, to), count)?;
        self.positions[to] = count;
        Ok(())
    }

    /// The outputs for the next steps of some sequences, (rows, steps, ...), or with `last` for the last of them,
    /// (rows, 1, ...); `sequences` says of which sequence each row is.
    ///
    /// # Errors
    /// As [`advance`](super::Session::advance); [`Error::Value`] also for a sequence that is not there or there twice.
    pub fn advance(
        &mut self,
        network: &Network,
        input: TensorView<'_>,
        sequences: &[usize],
        last: bool,
    ) -> Result<Tensor> {
        in_precision!(network.precision, T => self.advance_in::<T>(network, input, sequences, last))
    }

    fn position(&self, sequence: usize) -> Result<usize> {
        let count = self.positions.len();
        self.positions
            .get(sequence)
            .copied()
            .ok_or_else(|| Error::Value(format!("there is no sequence {sequence}, only {count} of them")))
    }

    /// Checks a call; returns how many steps it brings.
    fn check(&self, network: &Network, input: &TensorView<'_>, sequences: &[usize]) -> Result<usize> {
        network.check_built()?;
        if self.epoch != network.registry.epoch() || !self.device.is_same(&network.device) {
            return Err(Error::State(
                "the network has changed since the session began; reset the session or begin a new one"
                    .into(),
            ));
        }
        let steps = self.widths.check(network, input)?;
        if input.rows() != sequences.len() || steps == 0 || sequences.is_empty() {
            return Err(Error::Shape(format!(
                "a call brings a row for each of its {} sequences and at least one step, got {} rows and {steps} steps",
                sequences.len(),
                input.rows()
            )));
        }
        for (number, sequence) in sequences.iter().enumerate() {
            let seen = self.position(*sequence)?;
            if sequences[..number].contains(sequence) {
                return Err(Error::Value(format!("sequence {sequence} is there twice")));
            }
            if steps > self.capacity - seen {
                return Err(Error::State(format!(
                    "{steps} more steps after {seen} are more than the session's capacity of {}; begin one with a \
                     larger capacity",
                    self.capacity
                )));
            }
        }
        Ok(steps)
    }

    fn advance_in<T: Real>(
        &mut self,
        network: &Network,
        input: TensorView<'_>,
        sequences: &[usize],
        last: bool,
    ) -> Result<Tensor> {
        let steps = self.check(network, &input, sequences)?;
        network.passes.note();
        let rows = sequences.len();
        let (known, widths) = (self.outputs.clone(), self.widths.clone());
        let flows = known.iter().any(|output| output.sequence);
        let mut all: Vec<T> = extents::zeros(input.elements().len())?;
        input.copy_to(&mut all);
        let width = all.len() / rows / steps;
        let most = network.most_steps(&known, rows, last);
        let mut outputs = Outputs::<T>::new(rows, steps, (&known, !network.outputs.is_empty()), last);
        while outputs.done() < steps {
            let done = outputs.done();
            let count = part_of(steps - done, most);
            let ending = if last && flows && count > 1 { Ending::Last } else { Ending::All };
            let places = self.places(sequences);
            let values = StepValues { seed: network.seed, places, ..StepValues::default() };
            let part = Part { rows: self.room(rows), steps: count, ending };
            let number = self.run(network, part)?;
            let computed = self.computed(rows);
            let (_, run) = &mut self.runs[number];
            run.rows = computed;
            if let Some(port) = run.program().ports().input {
                let (given, others) = run.write::<T>(port).split_at_mut(rows * count * width);
                for (row, to) in all.chunks_exact(steps * width).zip(given.chunks_exact_mut(count * width)) {
                    widths.copy(row, (steps, done), to, count);
                }
                others.fill(T::ZERO);
            }
            let access = Access::Session(&network.registry, &mut self.carried);
            run.execute(access, Phase::Forward..=Phase::Forward, &values)?;
            for sequence in sequences {
                self.positions[*sequence] += count;
            }
            outputs.take(&mut self.runs[number].1, count)?;
        }
        outputs.into_tensor()
    }

    fn extent(&self, Part { steps, ending, .. }: Part) -> SessionExtent {
        SessionExtent { steps, capacity: self.capacity, cache: self.cache, ending, ahead: AHEAD }
    }

    /// The rows that a program for so many has room for: as many as a power of two, so that there are few programs.
    fn room(&self, rows: usize) -> usize {
        rows.next_power_of_two().min(self.positions.len())
    }

    /// How many rows are computed where so many are asked for. A GPU compiles kernels for each number of them: there the
    /// rest of a program's room is computed, too, for nobody.
    fn computed(&self, rows: usize) -> usize {
        if self.device.accelerator().is_some() { self.room(rows) } else { rows }
    }

    /// Where the rows of a call stand; those that are computed for nobody behind all that is kept, where nothing is seen
    /// and nothing is written.
    fn places(&self, sequences: &[usize]) -> Vec<RowPlace> {
        let place = |sequence: &usize| RowPlace { sequence: *sequence, position: self.positions[*sequence] };
        let mut places: Vec<RowPlace> = sequences.iter().map(place).collect();
        let nobody = RowPlace { sequence: 0, position: self.capacity };
        places.resize(self.computed(sequences.len()), nobody);
        places
    }

    /// The number of the run for so many rows and steps.
    fn run(&mut self, network: &Network, part: Part) -> Result<usize> {
        if let Some(number) = self.runs.iter().position(|(held, _)| *held == part) {
            return Ok(number);
        }
        let mode = Mode { session: Some(self.extent(part)), ..Mode::default() };
        let key = ProgramKey::forward(mode, part.rows);
        let run =
            network.programs.lease(&key, &network.device, || network.compile_session(&key, part.steps))?;
        self.runs.push((part, run));
        Ok(self.runs.len() - 1)
    }
}
