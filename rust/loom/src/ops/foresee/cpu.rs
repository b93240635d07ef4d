//! The look ahead, plainly: the reference for devices. A processor itself looks afterwards, and takes back.

use super::{Foresee, Foreseen, Foresight, HeldParameter, Wrong};
use crate::Result;
use crate::ops::measure::Action;
use crate::ops::{Args, Operation, Update};
use crate::simd::Real;

impl Operation for Foresee {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let odd = |x: &T| !x.is_finite();
        let wrong = match &self.what {
            Foreseen::Update(update, held) => update_is_wrong::<T>(update, held, args)?,
            Foreseen::Average(average) => {
                let mut running = args.read::<T>(1).to_vec();
                let mut tried = Args::new(args.cpu, args.rows, args.values);
                tried.set_read(0, args.read::<T>(0));
                tried.set_write(0, &mut running);
                average.run::<T>(&mut tried)?;
                running.iter().any(odd).then_some(Wrong::Value)
            }
            Foreseen::Values => args.read::<T>(0).iter().any(odd).then_some(Wrong::Value),
        };
        args.write::<T>(0)[0] = T::from_usize(wrong.map_or(0, |wrong| wrong as usize));
        Ok(())
    }
}

/// Makes the update on copies, and looks at them.
fn update_is_wrong<T: Real>(
    update: &Update,
    held: &[HeldParameter],
    args: &Args<'_>,
) -> Result<Option<Wrong>> {
    let slots = update.optimizer.slots().len();
    // Gradient, and what else there is before the master.
    let first = update.memory_operand();
    let memory = first + 1 + slots;
    if let Some(watched) = &update.watched {
        let decision = watched.decide(args.read::<T>(memory));
        if decision.action != Action::Apply || decision.factor.is_none() {
            return Ok(None);
        }
    }
    let mut copies: Vec<Vec<T>> = (0..=slots).map(|number| args.read::<T>(first + number).to_vec()).collect();
    let mut tried = Args::new(args.cpu, args.rows, args.values);
    tried.set_read(0, args.read::<T>(0));
    for number in 1..first {
        tried.set_read(number, args.read::<T>(number));
    }
    if update.watched.is_some() {
        tried.set_read(first, args.read::<T>(memory));
    }
    for (number, copy) in copies.iter_mut().enumerate() {
        tried.set_write(number, copy);
    }
    update.run::<T>(&mut tried)?;
    let moving = |place: &usize| !update.frozen.iter().any(|part| part.contains(place));
    let places = held.iter().flat_map(|held| (held.first..held.end).map(|place| (place, held.most)));
    let wrongs = places.filter(|(place, _)| moving(place)).filter_map(|(place, most)| {
        let weight = copies[0][place];
        if !weight.is_finite() {
            return Some(Wrong::Value);
        }
        if copies[1..].iter().any(|moment| !moment[place].is_finite()) {
            return Some(Wrong::Moment);
        }
        (weight.to_f64().abs() > f64::from(most)).then_some(Wrong::Packed)
    });
    Ok(wrongs.max())
}

impl Operation for Foresight {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let earlier = if self.before > 0 { args.read::<T>(self.count)[0].to_f64() } else { 0.0 };
        let mut looks = (0..self.count).map(|number| (number, args.read::<T>(number)[0].to_f64()));
        let found = looks.find(|(_, wrong)| *wrong != 0.0);
        let found = found.map_or(0.0, |(number, wrong)| 4.0 * (self.before + number + 1) as f64 + wrong);
        args.write::<T>(0)[0] = T::from_f64(if earlier != 0.0 { earlier } else { found });
        Ok(())
    }
}
