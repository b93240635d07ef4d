//! Where the registry keeps what a watched training needs: the memory of the measures, and copies of
//! masters and moments to go back to.

use crate::network::Network;
use crate::ops::Update;
use crate::ops::measure::{Action, ExplosionRule, Header, MeasureMemory};
use crate::ops::update::Optimizer;
use crate::program::{Builder, Value};
use crate::state::{State, StateSpec, WatchPlaces};
use crate::tensor::Shape;
use crate::{Error, Result};

impl WatchPlaces {
    /// The memory of the measures, in a program.
    pub(crate) fn measures(&self, b: &mut Builder) -> Value {
        b.state("measures", Shape::from(self.memory.len()), self.measures)
    }
}

impl Network {
    /// Makes room for the measures of every layer, and for copies of the stores that `rules` move where
    /// `copies` are kept. What is there and fits stays, unless it is to be `fresh`.
    pub(crate) fn prepare_watch(
        &mut self,
        rules: &[Option<Optimizer>],
        copies: bool,
        fresh: bool,
    ) -> Result<()> {
        self.synchronize()?;
        let layers = self.layers().count();
        // Every layer's input and output may be a value of its own.
        let memory = MeasureMemory { layers, norms: 2 * layers };
        let mut specs =
            vec![StateSpec { name: "measures".into(), shape: Shape::from(memory.len()), initial: 0.0 }];
        let first = self.kept_by_layers();
        let mut places = WatchPlaces { memory, measures: first, copies: Vec::new() };
        for (store, rule) in rules.iter().enumerate() {
            let mut own = Vec::new();
            if let Some(rule) = rule.as_ref().filter(|_| copies) {
                let kept = Update::kept_moments(rule).filter(|kept| *kept).count();
                for number in 0..=kept {
                    own.push(first + specs.len());
                    specs.push(StateSpec {
                        name: format!("copy.{store}.{number}").into(),
                        shape: Shape::from(self.registry.stores[store].len()),
                        initial: 0.0,
                    });
                }
            }
            places.copies.push(own);
        }
        let held = &self.registry.states[first..];
        let fits =
            held.len() == specs.len() && held.iter().zip(&specs).all(|(held, spec)| held.spec == *spec);
        if fresh || !fits {
            self.keep_for_training(specs)?;
            self.set_measure(&places, Header::RateFactor, 1.0);
        }
        self.registry.watch = Some(places);
        Ok(())
    }

    /// Makes room for what a training keeps, in place of what one before has kept.
    pub(crate) fn keep_for_training(&mut self, specs: Vec<StateSpec>) -> Result<()> {
        let precision = self.precision;
        self.registry.states.truncate(self.kept_by_layers());
        let fresh: Vec<State> =
            specs.into_iter().map(|spec| State::new(spec, precision)).collect::<Result<_>>()?;
        self.registry.states.extend(fresh);
        self.registry.forget_device_states();
        Ok(())
    }

    /// How many of what the registry keeps belong to layers; what trainings keep comes after them.
    pub(crate) fn kept_by_layers(&self) -> usize {
        self.layers().map(|placed| placed.states.end).max().unwrap_or(0)
    }

    fn set_measure(&mut self, places: &WatchPlaces, what: Header, value: f64) {
        let content = &mut self.registry.states[places.measures].content;
        let place = MeasureMemory::header(what);
        match self.precision.stored() {
            crate::tensor::Precision::Float64 => content.as_mut_slice::<f64>()[place] = value,
            _ => content.as_mut_slice::<f32>()[place] = value as f32,
        }
    }

    /// What the judgement on a step was.
    pub(crate) fn judged_action(&mut self) -> Result<Action> {
        let kept = self.kept_measures()?;
        Ok(Action::from_code(kept[MeasureMemory::header(Header::Action)]))
    }

    /// Judges a step to have exploded that was found calm, for what its update would have made.
    pub(crate) fn judge_again(&mut self, rule: &ExplosionRule) -> Result<Action> {
        self.synchronize()?;
        let places = self.registry.watch.clone();
        let places = places.ok_or_else(|| Error::Internal("nothing was judged".into()))?;
        let kept = self.kept_measures()?;
        let get = |what| kept[MeasureMemory::header(what)];
        let action = if get(Header::HadSnapshot) != 0.0 { Action::RollBack } else { Action::Hold };
        for (what, value) in [
            (Header::Action, action.code()),
            (Header::RateFactor, get(Header::RateBefore) * rule.recovery_rate),
            (Header::PreviousGap, get(Header::GapBefore)),
            (Header::HasPrevious, get(Header::HadPrevious)),
            (Header::HasSnapshot, get(Header::HadSnapshot)),
            (Header::Explosions, get(Header::Explosions) + 1.0),
            (Header::Applied, 0.0),
        ] {
            self.set_measure(&places, what, value);
        }
        self.registry.forget_device_states();
        Ok(action)
    }

    /// Makes versions follow masters that went back to their copies.
    pub(crate) fn synchronize_after_rollback(&mut self) -> Result<()> {
        // A program that reads a version finds it older than the master.
        if !self.device.is_host() {
            self.synchronize()?;
        }
        self.refresh_versions()
    }

    /// The newest header and figures of a watched training, brought back from the device if need be.
    pub(crate) fn kept_measures(&mut self) -> Result<Vec<f64>> {
        let places = self.registry.watch.clone();
        let places = places.ok_or_else(|| Error::State("nothing was measured yet".into()))?;
        self.registry.fetch_state(places.measures)?;
        let content = &self.registry.states[places.measures].content;
        let kept = places.memory.kept();
        Ok(match self.precision.stored() {
            crate::tensor::Precision::Float64 => content.as_slice::<f64>()[..kept].to_vec(),
            _ => content.as_slice::<f32>()[..kept].iter().map(|x| f64::from(*x)).collect(),
        })
    }
}
