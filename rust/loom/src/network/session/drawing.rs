//! What a session draws its steps by, where it goes on by itself.

use crate::ops::Sampling;
use crate::simd::Real;
use crate::state::Carried;
use crate::{Error, Result, extents};
use std::ops::Range;

/// Names of what sessions carry beside what layers do; the first holds what was chosen.
pub(super) const CHOSEN: &str = "chosen";
const DRAWS: &str = "draws";
const SAMPLING: &str = "sampling";
const BIASES: &str = "biases";
const COUNTS: &str = "counts";

/// How steps are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Draws<'a> {
    /// The settings of each row.
    pub sampling: &'a [Sampling],
    /// Numbers from 0 to below 1, (rows, count): one for each step that is drawn.
    pub uniforms: &'a [f64],
    /// What is added to scores, (rows, classes), where settings say so.
    pub biases: Option<&'a [f64]>,
    /// How often the answer has each class, as whole numbers, with a half for those that only what came before it has,
    /// (rows, classes): where settings ask for it.
    pub counts: Option<&'a [f64]>,
}

impl Draws<'_> {
    /// Whether they are those of so many rows, steps and classes.
    pub(super) fn check(&self, rows: usize, count: usize, classes: usize) -> Result<()> {
        let asked_for = |what: fn(&Sampling) -> bool| self.sampling.iter().any(what);
        let fits = |given: Option<&[f64]>, wanted: bool| match given {
            Some(given) => given.len() == rows * classes,
            None => !wanted,
        };
        let complete = self.sampling.len() == rows
            && self.uniforms.len() == rows * count
            && fits(self.biases, asked_for(|sampling| sampling.biased))
            && fits(self.counts, asked_for(Sampling::counts));
        if !complete {
            return Err(Error::Shape(format!(
                "{count} steps of {rows} rows are drawn by as many settings as rows, as many numbers as steps, and \
                 biases and counts of {classes} classes where settings ask for them"
            )));
        }
        match self.uniforms.iter().all(|draw| (0.0..1.0).contains(draw)) {
            true => Ok(()),
            false => Err(Error::Value("draws lie from 0 to below 1".into())),
        }
    }

    /// Puts them where programs read them: the draws of these places.
    pub(super) fn write<T: Real>(
        &self,
        carried: &mut Carried,
        capacity: usize,
        places: Range<usize>,
    ) -> Result<()> {
        let rows = self.sampling.len();
        let mut draws: Vec<T> = extents::zeros(rows * (capacity + 1))?;
        // The largest number of this precision below 1.
        let most = T::from_f64(1.0 - T::EPSILON.to_f64() / 2.0);
        let uniforms = self.uniforms.chunks_exact(places.len());
        for (row, uniforms) in draws.chunks_exact_mut(capacity + 1).zip(uniforms) {
            for (to, uniform) in row[places.clone()].iter_mut().zip(uniforms) {
                let drawn = T::from_f64(*uniform);
                *to = if drawn > most { most } else { drawn };
            }
        }
        carried.write(place(carried, DRAWS)?, &draws);
        let numbers = self.sampling.iter().flat_map(Sampling::numbers);
        let numbers: Vec<T> = numbers.map(T::from_f64).collect();
        carried.write(place(carried, SAMPLING)?, &numbers);
        for (name, given) in [(BIASES, self.biases), (COUNTS, self.counts)] {
            if let Some(given) = given {
                let given: Vec<T> = given.iter().copied().map(T::from_f64).collect();
                carried.write(place(carried, name)?, &given);
            }
        }
        Ok(())
    }
}

/// The number of something that sessions carry beside what layers do.
pub(super) fn place(carried: &Carried, name: &str) -> Result<usize> {
    let own = |number: &usize| carried.name(*number) == Some(name);
    let found = (0..carried.places().len()).rev().find(own);
    found.ok_or_else(|| Error::Internal(format!("a session carries no {name}")))
}

/// How many of what a session carries are kept with its steps: all but what it draws by.
pub(super) fn kept_places(carried: &Carried) -> usize {
    place(carried, CHOSEN).map_or(carried.places().len(), |chosen| chosen + 1)
}
