//! Sequences that go on by themselves, each from where it stands.

use super::{AHEAD, Part, Slots};
use crate::network::session::{Draws, STEPS_OF_A_FRAME, drawing};
use crate::network::{Ending, Network, Pick};
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::Phase;
use crate::simd::Real;
use crate::tensor::TensorView;
use crate::{Error, Result, extents};
use std::ops::Range;

impl Slots {
    /// Brings a step of some sequences, (rows, 1), and has each go on by itself, as
    /// [`Session::follow`](crate::network::Session::follow): by as many steps as `counts` says of it, or up to its first
    /// of `stops`. Returns the steps of each row; the last of them is for the caller to bring. Numbers of draws are (rows,
    /// the largest count).
    ///
    /// # Errors
    /// As [`advance`](Self::advance) and [`Session::follow`](crate::network::Session::follow).
    pub fn follow(
        &mut self,
        network: &Network,
        input: TensorView<'_>,
        (sequences, counts): (&[usize], &[usize]),
        stops: &[usize],
        draws: Option<&Draws<'_>>,
    ) -> Result<Vec<Vec<usize>>> {
        let steps = self.check(network, &input, sequences)?;
        if steps != 1 || counts.len() != sequences.len() || counts.contains(&0) {
            return Err(Error::Value(format!(
                "each of {} sequences that go on by themselves brings one step and makes one at least, got {steps} and \
                 {counts:?}",
                sequences.len()
            )));
        }
        let one = Part { rows: self.room(sequences.len()), steps: 1, ending: Ending::All };
        let flows = self.outputs.iter().any(|output| output.sequence);
        let classes = network.classes_chosen(self.extent(one), flows)?;
        if let Some(draws) = draws {
            draws.check(sequences.len(), counts.iter().copied().max().unwrap_or(0), classes)?;
        }
        let capacity = self.capacity;
        for (sequence, count) in sequences.iter().zip(counts) {
            let seen = self.positions[*sequence];
            if *count > capacity - seen {
                return Err(Error::State(format!(
                    "a step after {seen} and {} of its own are more than the session's capacity of {capacity}; begin \
                     one with a larger capacity",
                    count - 1
                )));
            }
        }
        in_precision!(network.precision, T => self.follow_in::<T>(network, &input, (sequences, counts), stops, draws))
    }

    fn follow_in<T: Real>(
        &mut self,
        network: &Network,
        input: &TensorView<'_>,
        (sequences, counts): (&[usize], &[usize]),
        stops: &[usize],
        draws: Option<&Draws<'_>>,
    ) -> Result<Vec<Vec<usize>>> {
        network.passes.note();
        let mut newest: Vec<T> = extents::zeros(sequences.len())?;
        input.copy_to(&mut newest);
        let pick = if draws.is_some() { Pick::Drawn } else { Pick::Likeliest };
        if let Some(draws) = draws {
            let computed = self.computed(sequences.len());
            draws.write_settings::<T>(&mut self.carried, computed)?;
        }
        // Choices beyond a stop are forgotten.
        let together = if stops.is_empty() { AHEAD } else { STEPS_OF_A_FRAME };
        let mut made: Vec<Vec<usize>> = vec![Vec::new(); sequences.len()];
        let before: Vec<usize> = sequences.iter().map(|sequence| self.positions[*sequence]).collect();
        // How many of a row's steps are wanted, once they are made.
        let end = |(row, count): (&Vec<usize>, &usize)| {
            let stop = row.iter().take(*count).position(|step| stops.contains(step));
            stop.map(|place| place + 1).or((row.len() >= *count).then_some(*count))
        };
        let mut done = 0;
        while let Some(most) =
            made.iter().zip(counts).filter(|row| end(*row).is_none()).map(|(_, count)| *count).max()
        {
            let steps = done..most.min(done + together);
            done = steps.end;
            if let Some(draws) = draws {
                draws.write_numbers::<T>(&mut self.carried, AHEAD, (steps.clone(), 1))?;
            }
            let chosen = self.go_on(network, &newest, sequences, (pick, steps));
            let chosen = match chosen {
                Ok(chosen) => chosen,
                Err(error) => {
                    sequences
                        .iter()
                        .zip(before)
                        .for_each(|(sequence, seen)| self.positions[*sequence] = seen);
                    return Err(error);
                }
            };
            for ((row, newest), chosen) in made.iter_mut().zip(&mut newest).zip(chosen) {
                *newest = T::from_usize(chosen.last().copied().unwrap_or(0));
                row.extend(chosen);
            }
        }
        for (((row, count), sequence), seen) in made.iter_mut().zip(counts).zip(sequences).zip(before) {
            row.truncate(end((row, count)).unwrap_or(*count));
            // The last choice is for the caller to bring.
            self.positions[*sequence] = seen + row.len();
        }
        Ok(made)
    }

    /// Reads the newest step of each row, and has them choose as many as there are in this part of a call.
    fn go_on<T: Real>(
        &mut self,
        network: &Network,
        newest: &[T],
        sequences: &[usize],
        (pick, steps): (Pick, Range<usize>),
    ) -> Result<Vec<Vec<usize>>> {
        let rows = sequences.len();
        let part = Part { rows: self.room(rows), steps: 1, ending: Ending::Chain(pick) };
        // Steps read what was chosen for their places: here these are counted from the first of them on.
        let mut chosen: Vec<T> = extents::zeros(self.computed(rows) * (AHEAD + 1))?;
        chosen.chunks_exact_mut(AHEAD + 1).zip(newest).for_each(|(row, newest)| row[0] = *newest);
        self.carried.write(drawing::place(&self.carried, drawing::CHOSEN)?, &chosen);
        let places = self.places(sequences);
        let values: Vec<StepValues> = (0..steps.len())
            .map(|step| StepValues {
                seed: network.seed,
                position: step as u64,
                places: places.clone(),
                ..StepValues::default()
            })
            .collect();
        let number = self.run(network, part)?;
        let computed = self.computed(rows);
        let (_, run) = &mut self.runs[number];
        run.rows = computed;
        run.follow(&network.registry, &mut self.carried, Phase::Forward..=Phase::Forward, &values)?;
        for sequence in sequences {
            self.positions[*sequence] += steps.len();
        }
        drawing::chosen::<T>(&self.carried, AHEAD, rows, 1..1 + steps.len())?.ok_or_else(|| {
            Error::NonFinite("the scores of a sequence that goes on by itself hold NaN or infinity".into())
        })
    }
}
