//! What a session draws its steps by, where it goes on by itself.

use crate::ops::{Change, Draw, Sampling};
use crate::simd::Real;
use crate::state::Carried;
use crate::{Error, Result, extents};
use std::ops::Range;

/// Names of what sessions carry beside what layers do; the first holds what was chosen.
pub(in crate::network) const CHOSEN: &str = "chosen";
const DRAWS: &str = "draws";
const SAMPLING: &str = "sampling";
const CHANGES: &str = "changes";

/// How steps are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Draws<'a> {
    /// The settings of each row.
    pub sampling: &'a [Sampling],
    /// Numbers from 0 to below 1, (rows, count): one for each step that is drawn.
    pub uniforms: &'a [f64],
    /// What is known of classes of each row, in the order of the classes: those with a bias, and, where settings ask for
    /// it, those that came before.
    pub changes: &'a [Vec<Change>],
    /// Of how many classes they choose.
    pub classes: usize,
}

impl Draws<'_> {
    /// Whether they are those of so many rows, steps and classes.
    pub(in crate::network) fn check(&self, rows: usize, count: usize, classes: usize) -> Result<()> {
        let complete = self.sampling.len() == rows
            && self.uniforms.len() == rows * count
            && self.changes.len() == rows
            && self.classes == classes;
        if !complete {
            return Err(Error::Shape(format!(
                "{count} steps of {rows} rows of {classes} classes are drawn by as many settings and lists of changes as \
                 rows, as many numbers as steps, and of as many classes; these are of {}",
                self.classes
            )));
        }
        let in_order = |list: &Vec<Change>| {
            list.iter()
                .all(|change| change.class < classes && change.count.is_finite() && change.count >= 0.0)
                && list.is_sorted_by(|one, next| one.class < next.class)
        };
        if !self.changes.iter().all(in_order) {
            return Err(Error::Value(format!(
                "changes are of classes below {classes}, each once and in their order, with counts from 0 on"
            )));
        }
        match self.uniforms.iter().all(|draw| (0.0..1.0).contains(draw)) {
            true => Ok(()),
            false => Err(Error::Value("draws lie from 0 to below 1".into())),
        }
    }

    /// Puts the numbers of these steps of the call where programs of `ahead` places read them, from this place on.
    pub(in crate::network) fn write_numbers<T: Real>(
        &self,
        carried: &mut Carried,
        ahead: usize,
        (steps, place_of_first): (Range<usize>, usize),
    ) -> Result<()> {
        let rows = self.sampling.len();
        let mut draws: Vec<T> = extents::zeros(rows * (ahead + 1))?;
        // The largest number of this precision below 1.
        let most = T::from_f64(1.0 - T::EPSILON.to_f64() / 2.0);
        let uniforms = self.uniforms.chunks_exact((self.uniforms.len() / rows.max(1)).max(1));
        for (row, uniforms) in draws.chunks_exact_mut(ahead + 1).zip(uniforms) {
            for (to, uniform) in row[place_of_first..].iter_mut().zip(&uniforms[steps.clone()]) {
                let drawn = T::from_f64(*uniform);
                *to = if drawn > most { most } else { drawn };
            }
        }
        carried.write(place(carried, DRAWS)?, &draws);
        Ok(())
    }

    /// Puts settings and changes where programs of so many rows read them; rows without any take the largest.
    pub(in crate::network) fn write_settings<T: Real>(
        &self,
        carried: &mut Carried,
        rows: usize,
    ) -> Result<()> {
        let numbers = self.sampling.iter().flat_map(Sampling::numbers);
        let mut numbers: Vec<T> = numbers.map(T::from_f64).collect();
        numbers.resize(rows * Sampling::NUMBERS, T::ZERO);
        carried.write(place(carried, SAMPLING)?, &numbers);
        carried.write(place(carried, CHANGES)?, &Draw::lists::<T>(rows, self.changes)?);
        Ok(())
    }
}

/// The number of something that sessions carry beside what layers do.
pub(in crate::network) fn place(carried: &Carried, name: &str) -> Result<usize> {
    let own = |number: &usize| carried.name(*number) == Some(name);
    let found = (0..carried.places().len()).rev().find(own);
    found.ok_or_else(|| Error::Internal(format!("a session carries no {name}")))
}

/// What was chosen for these places by each of the first rows, in programs of `ahead` places; none where scores were not finite.
pub(in crate::network) fn chosen<T: Real>(
    carried: &Carried,
    ahead: usize,
    rows: usize,
    places: Range<usize>,
) -> Result<Option<Vec<Vec<usize>>>> {
    let content = carried.content(place(carried, CHOSEN)?)?;
    let rows = content.as_slice::<T>().chunks_exact(ahead + 1).take(rows);
    let step = |step: &T| Some(step.to_f64()).filter(|step| *step >= 0.0).map(|step| step as usize);
    Ok(rows.map(|row| row[places.clone()].iter().map(step).collect()).collect())
}

/// How many of what a session carries are kept with its steps: all but what it draws by.
pub(super) fn kept_places(carried: &Carried) -> usize {
    place(carried, CHOSEN).map_or(carried.places().len(), |chosen| chosen + 1)
}
