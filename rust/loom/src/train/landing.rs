//! Steps land whole or not at all: what they would make infinite or NaN takes all of them back.
//!
//! Nothing is copied where that cannot happen: a bound of the gradients, found in one look at them, and
//! bounds of masters and moments, kept from step to step, tell how large an update can make anything at
//! most. Only where that comes near infinity, or beyond what a packed type holds, is there a copy of
//! everything first, and a look at all of it afterwards.

use super::OnNonFinite;
use crate::network::{Network, describe_path};
use crate::ops::measure::Action;
use crate::ops::update::{Reach, largest};
use crate::ops::{Foresight, Op, StepValues, Update, foresee::Wrong};
use crate::program::{Access, LayerPath, Phase, Place, Program, Run, Step, Value, resolve};
use crate::simd::{Cpu, Real};
use crate::state::{KnownReach, Registry, StateCopies, StatesBefore};
use crate::tensor::{Buffer, Precision};
use crate::weights::WeightStore;
use crate::{Error, Result};
use std::sync::Arc;

/// What a step would have made infinite or NaN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The layer, described.
    pub(crate) layer: String,
    /// What of it, and what would have become of it.
    pub(crate) what: String,
}

impl Fault {
    /// As an error of a training step.
    pub(crate) fn error(&self, step: u64) -> Error {
        Error::NonFinite(format!(
            "step {step} was taken back: in {} {}; lower the learning rate, clip gradients, or skip such steps \
             with on_nonfinite=\"skip\"",
            self.layer, self.what
        ))
    }

    /// As an error of a call that only moves what layers keep.
    pub(crate) fn error_of_call(&self) -> Error {
        Error::NonFinite(format!(
            "in {} {}; it was left as before; check the input and its scale, or lower the learning rate",
            self.layer, self.what
        ))
    }

    /// As an error of a call that applies gradients.
    pub(crate) fn error_of_update(&self) -> Error {
        Error::NonFinite(format!(
            "in {} {}; nothing was updated and the gradients are still there: clip them, lower the learning \
             rate, or call zero_gradients()",
            self.layer, self.what
        ))
    }
}

/// What the steps of a program write once they have been found good, of what layers keep and carry.
fn kept_places(program: &Program) -> impl Iterator<Item = (Option<&LayerPath>, Place)> {
    program.steps().iter().filter(|step| step.phase == Phase::States).flat_map(move |step| {
        step.writes.iter().map(move |value| (step.at.as_ref(), program.value(program.owner(*value)).place))
    })
}

fn kept_buffer(registry: &Registry, place: Place) -> Option<&Buffer> {
    match place {
        Place::State(number) => registry.states.get(number).map(|state| &state.content),
        Place::Carried(number) => registry.carried.as_ref()?.buffers.get(number),
        _ => None,
    }
}

impl StateCopies {
    /// Forgets what was copied.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// Copies what a program is about to write.
    pub(crate) fn add(&mut self, registry: &Registry, program: &Program) {
        for (_, place) in kept_places(program) {
            let Some(content) = kept_buffer(registry, place) else { continue };
            if self.held.len() == self.used {
                self.held.push((place, Buffer::default()));
            }
            let (held, copy) = &mut self.held[self.used];
            *held = place;
            if copy.len_bytes() == content.len_bytes() {
                copy.bytes_mut().copy_from_slice(content.bytes());
            } else {
                *copy = content.clone();
            }
            self.used += 1;
        }
    }

    /// Puts everything back.
    pub(crate) fn put_back(&self, registry: &mut Registry) {
        // The first copy of a place that was written twice is the one from before.
        for (place, copy) in self.held[..self.used].iter().rev() {
            let content = match *place {
                Place::State(number) => registry.states.get_mut(number).map(|state| &mut state.content),
                Place::Carried(number) => {
                    registry.carried.as_mut().and_then(|carried| carried.buffers.get_mut(number))
                }
                _ => None,
            };
            if let Some(content) = content {
                content.bytes_mut().copy_from_slice(copy.bytes());
            }
        }
    }
}

/// The first of what a program has written of what layers keep and carry that is not finite.
pub(crate) fn odd_state(registry: &Registry, program: &Program) -> Option<(Option<LayerPath>, String)> {
    kept_places(program).find_map(|(path, place)| {
        let content = kept_buffer(registry, place)?;
        let odd = match program.precision().stored() {
            Precision::Float64 => first_odd(content.as_slice::<f64>()),
            _ => first_odd(content.as_slice::<f32>()),
        };
        odd.map(|_| (path.cloned(), name_of(registry, place)))
    })
}

fn first_odd<T: Real>(elements: &[T]) -> Option<usize> {
    elements.iter().position(|x| !x.is_finite())
}

/// What layers keep and carry, named.
fn name_of(registry: &Registry, place: Place) -> String {
    let would = "would become infinite or NaN";
    match place {
        Place::State(number) => format!("\"{}\" {would}", registry.states[number].spec.name),
        Place::Carried(number) => match registry.carried.as_ref().and_then(|carried| carried.name(number)) {
            Some(name) => format!("the carried state \"{name}\" {would}"),
            None => format!("a carried state {would}"),
        },
        _ => would.into(),
    }
}

/// The stores whose masters a program writes, with the rules that move them.
fn updated(program: &Program) -> impl Iterator<Item = (&Step, &Update, usize)> {
    program.steps().iter().filter_map(|step| {
        let update = match &step.op {
            Op::Update(update) => update,
            Op::ProductUpdate(fused) => &fused.update,
            _ => return None,
        };
        match program.value(*step.writes.first()?).place {
            Place::Master(parameter) => Some((step, update, parameter.store)),
            _ => None,
        }
    })
}

/// Whether any store is updated more than once in a step.
pub(crate) fn repeats(program: &Program) -> bool {
    updated(program).any(|(_, update, _)| update.repeat[1] > 1)
}

/// Everything that an update may change, as it was.
struct Before {
    stores: Vec<(usize, WeightStore, Vec<Buffer>)>,
    kept: StatesBefore,
}

impl Before {
    /// A copy of these stores, with what layers keep and carry.
    fn of(registry: &mut Registry, stores: impl Iterator<Item = usize>) -> Result<Self> {
        let mut numbers: Vec<usize> = stores.collect();
        numbers.sort_unstable();
        numbers.dedup();
        let kept = registry.copy_states()?;
        let copy = |number: usize| {
            (
                number,
                registry.stores[number].clone(),
                registry.moments.get(number).cloned().unwrap_or_default(),
            )
        };
        Ok(Self { stores: numbers.into_iter().map(copy).collect(), kept })
    }

    /// Puts everything back; where there is a `device`, what is there is stale from here on.
    fn put_back(self, registry: &mut Registry, device: bool) {
        for (number, mut store, moments) in self.stores {
            if device {
                store.renumber(registry.stores[number].epoch() + 1);
            }
            registry.stores[number] = store;
            if let Some(held) = registry.moments.get_mut(number) {
                *held = moments;
            }
        }
        registry.forget_device_moments();
        registry.restore_states(Some(self.kept));
    }
}

impl Network {
    /// Describes the layer at a path, which may be inside a composite one.
    pub(crate) fn describe_at(&self, path: Option<&LayerPath>) -> String {
        let placed = path
            .and_then(|path| self.layers().find(|placed| path.indices().starts_with(placed.path.indices())));
        placed.map_or_else(|| "the network".into(), describe_path)
    }

    /// Describes the layer that a store belongs to.
    fn describe_store(&self, store: usize) -> String {
        let of_map = self.feedback.iter().find(|map| map.store == store).map(|map| map.of);
        match of_map.and_then(|layer| self.layers().nth(layer)) {
            Some(placed) => format!("the feedback map of {}", describe_path(placed)),
            None => self
                .layers()
                .find(|placed| placed.store == Some(store))
                .map_or_else(|| "the network".into(), describe_path),
        }
    }

    /// Has what layers keep and carry take on what a forward pass has made of it, unless that is not
    /// finite: it then stays, and the layer is named.
    pub(crate) fn take_on_states(&mut self, run: &mut Run, values: &StepValues) -> Result<Option<Fault>> {
        let program = run.program().clone();
        if !program.commits_states() {
            return Ok(None);
        }
        if run.is_remote() {
            return self.take_on_device(run, values);
        }
        let mut copies = std::mem::take(&mut self.registry.copies);
        copies.clear();
        copies.add(&self.registry, &program);
        let access = Access::Exclusive(&mut self.registry);
        let outcome = run.execute(access, Phase::States..=Phase::States, values);
        let odd = odd_state(&self.registry, &program);
        if odd.is_some() || outcome.is_err() {
            copies.put_back(&mut self.registry);
        }
        self.registry.copies = copies;
        outcome?;
        Ok(odd.map(|(path, what)| Fault { layer: self.describe_at(path.as_ref()), what }))
    }

    /// Makes the updates of a step and all that follows them, or, where anything would become infinite or
    /// NaN, nothing: everything is then as before, and what it was is told.
    pub(crate) fn land(&mut self, run: &mut Run, values: &StepValues) -> Result<Option<Fault>> {
        if run.is_remote() {
            return self.land_on_device(run, values);
        }
        if let Some(fault) = self.take_on_states(run, values)? {
            return Ok(Some(fault));
        }
        let certain = match self.precision.stored() {
            Precision::Float64 => self.is_certain::<f64>(run, values)?,
            _ => self.is_certain::<f32>(run, values)?,
        };
        let program = run.program().clone();
        if certain {
            let access = Access::Exclusive(&mut self.registry);
            run.execute(access, Phase::Update..=Phase::Commit, values)?;
            self.note_reach(&program);
            return Ok(None);
        }
        let fault = self.land_carefully(&program, |network| {
            let access = Access::Exclusive(&mut network.registry);
            run.execute(access, Phase::Update..=Phase::Commit, values)
        });
        if !matches!(fault, Ok(None)) && program.commits_states() {
            let copies = std::mem::take(&mut self.registry.copies);
            copies.put_back(&mut self.registry);
            self.registry.copies = copies;
        }
        fault
    }

    /// Does what moves the stores that a program updates, over a copy of everything: where it leaves
    /// anything infinite or NaN, or cannot be done, everything is as before.
    pub(crate) fn land_carefully(
        &mut self,
        program: &Program,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Option<Fault>> {
        let stores = || updated(program).map(|(_, _, store)| store);
        let device = !self.device.is_host();
        self.synchronize()?;
        let before = Before::of(&mut self.registry, stores())?;
        let outcome = work(self).and_then(|()| self.synchronize());
        let fault = match &outcome {
            Ok(()) => stores().find_map(|store| self.odd_store(store)),
            // A version could not be made of its master; the others are looked at first.
            Err(Error::NonFinite(_) | Error::Value(_)) => {
                let mut odd = stores().find_map(|store| self.odd_store(store));
                if odd.is_none() {
                    odd = stores().find_map(|store| self.refused_version(store));
                }
                odd
            }
            Err(_) => None,
        };
        if fault.is_some() || outcome.is_err() {
            before.put_back(&mut self.registry, device);
        }
        match (fault, outcome) {
            (Some(fault), _) => Ok(Some(fault)),
            (None, outcome) => outcome.map(|()| None),
        }
    }

    /// What is not finite in a store's master and moments.
    fn odd_store(&self, store: usize) -> Option<Fault> {
        let weights = &self.registry.stores[store];
        let moments = self.registry.moments.get(store).map_or(&[][..], Vec::as_slice);
        let master = weights.float_bytes(None).ok()?;
        let is_odd = |bytes: &[u8], part: &std::ops::Range<usize>| match self.precision.stored() {
            Precision::Float64 => first_odd(&bytemuck::cast_slice::<u8, f64>(bytes)[part.clone()]).is_some(),
            _ => first_odd(&bytemuck::cast_slice::<u8, f32>(bytes)[part.clone()]).is_some(),
        };
        weights.parameters().iter().find_map(|info| {
            let part = info.offset..info.offset + info.len();
            let what = if is_odd(master, &part) {
                "parameter"
            } else if moments.iter().any(|moment| is_odd(moment.bytes(), &part)) {
                "an optimizer's moment of parameter"
            } else {
                return None;
            };
            let what = format!("{what} \"{}\" would become infinite or NaN", info.name);
            Some(Fault { layer: self.describe_store(store), what })
        })
    }

    /// What keeps a store's versions from being made.
    fn refused_version(&mut self, store: usize) -> Option<Fault> {
        let error = self.registry.stores[store].refresh(Cpu::global().ok()?).err()?;
        let message = error.to_string();
        // What to do about a weight that is there is nothing to do about one that is not.
        let what = message.split(", which").next().unwrap_or(&message).replace(" holds ", " would hold ");
        let dtype = message.split("infinite in ").nth(1).and_then(|rest| rest.split(';').next());
        let what = match dtype {
            Some(dtype) => format!("{what}, which is infinite in {dtype}"),
            None => what,
        };
        Some(Fault { layer: self.describe_store(store), what })
    }

    /// Whether nothing that the updates of a step make can be infinite or NaN, nor beyond a packed type.
    fn is_certain<T: Real>(&mut self, run: &Run, values: &StepValues) -> Result<bool> {
        let program = run.program().clone();
        let moves = |step: &&Step| step.phase >= Phase::Update;
        // Updates after the first go by gradients that are not there yet.
        let single = program.steps().iter().filter(moves).all(|step| match &step.op {
            Op::Update(update) => update.repeat[1] == 1,
            Op::ProductUpdate(fused) => fused.update.repeat[1] == 1,
            Op::Encode(_) => step.phase == Phase::Commit,
            _ => false,
        });
        if !single {
            return Ok(false);
        }
        let cpu = Cpu::global()?;
        let mut known = std::mem::take(&mut self.registry.reach);
        known.resize(self.registry.stores.len(), None);
        let mut certain = true;
        for (step, update, store) in updated(&program) {
            let access = Access::Exclusive(&mut self.registry);
            let (gradient, factor) = bounds_of_step::<T>(cpu, &program, (step, update), run, &access)?;
            let weights = &self.registry.stores[store];
            let master = || -> Result<f64> {
                Ok(largest(cpu, bytemuck::cast_slice::<u8, T>(weights.float_bytes(None)?)))
            };
            let before = match known[store].filter(|known| known.epoch == weights.epoch()) {
                Some(known) => known.reach,
                None => {
                    let mut moments = [0.0; 3];
                    let held = self.registry.moments.get(store).map_or(&[][..], Vec::as_slice);
                    for (bound, moment) in moments.iter_mut().zip(held) {
                        *bound = largest(cpu, moment.as_slice::<T>());
                    }
                    Reach::of(master()?, moments)
                }
            };
            let most = weights.most_packed();
            let mut after = update.reach::<T>(before, gradient, factor, values);
            if !after.is_within(T::PRECISION, most) {
                // Bounds grow from step to step, weights rarely do.
                after = update.reach::<T>(before.with_master(master()?), gradient, factor, values);
            }
            certain = after.is_within(T::PRECISION, most);
            if !certain {
                break;
            }
            // Its epoch follows once it has landed.
            known[store] = Some(KnownReach { epoch: u64::MAX, reach: after });
        }
        if !certain {
            known.clear();
        }
        self.registry.reach = known;
        Ok(certain)
    }

    /// The bounds that were foreseen are those of what is there.
    fn note_reach(&mut self, program: &Arc<Program>) {
        let Registry { reach, stores, .. } = &mut self.registry;
        for (_, _, store) in updated(program) {
            if let Some(Some(known)) = reach.get_mut(store) {
                known.epoch = stores[store].epoch();
            }
        }
    }
}

/// A bound of the gradient that an update reads or makes, and what its rate is multiplied by.
fn bounds_of_step<T: Real>(
    cpu: &Cpu,
    program: &Program,
    (step, update): (&Step, &Update),
    run: &Run,
    access: &Access<'_>,
) -> Result<(f64, f64)> {
    let elements =
        |value: Value| -> Result<&[T]> { Ok(resolve::<T>(program, value, run, access)?.elements::<T>()) };
    let (gradient, watched) = match &step.op {
        Op::ProductUpdate(fused) => {
            let (x, dy) = (elements(step.reads[0])?, elements(step.reads[1])?);
            let flat = elements(step.reads[2])?;
            let (inputs, outputs) = (fused.product.inputs, fused.product.outputs);
            let rows = (run.rows * fused.product.multiplier) as f64;
            // Rounded to 16 bits first, where the network is mixed.
            let made = 1.02 * rows * largest(cpu, x) * largest(cpu, dy);
            // The weight's own gradient is not there.
            let rest = largest(cpu, &flat[..fused.offset])
                .max(largest(cpu, &flat[fused.offset + inputs * outputs..]));
            (if made.is_nan() { f64::INFINITY } else { made.max(rest) }, 3)
        }
        _ => (largest(cpu, elements(step.reads[0])?), 1),
    };
    let factor = match &update.watched {
        Some(watch) => {
            let decision = watch.decide(elements(step.reads[watched])?);
            if decision.action == Action::Apply { decision.factor.unwrap_or(0.0) } else { 0.0 }
        }
        None => 1.0,
    };
    Ok((gradient, factor))
}

impl super::Trainer {
    /// Leaves a step out that could not land, or says why.
    pub(super) fn refused(
        &self,
        network: &mut Network,
        report: super::StepReport,
        values: &StepValues,
        fault: &Fault,
    ) -> Result<super::StepReport> {
        network.registry.gradients_zeroed = true;
        if self.config.on_nonfinite == OnNonFinite::Raise {
            return Err(fault.error(values.step));
        }
        let left_out = super::backprop::left_out(network, report.rate);
        Ok(super::StepReport { gradient_norm: report.gradient_norm, rows: report.rows, ..left_out })
    }
}

impl Network {
    /// [`take_on_states`](Self::take_on_states) on a GPU: what they have become is read back.
    fn take_on_device(&mut self, run: &mut Run, values: &StepValues) -> Result<Option<Fault>> {
        let program = run.program().clone();
        let odd = self.keep_on_device(&program, |network| {
            let access = Access::Exclusive(&mut network.registry);
            run.execute(access, Phase::States..=Phase::States, values)
        })?;
        Ok(odd.map(|(path, what)| Fault { layer: self.describe_at(path.as_ref()), what }))
    }

    /// Does what has the layers of a program keep and carry something new on a GPU; where that is not finite,
    /// it is put back.
    pub(crate) fn keep_on_device(
        &mut self,
        program: &Program,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Option<(Option<LayerPath>, String)>> {
        let numbers: Vec<usize> = kept_places(program)
            .filter_map(|(_, place)| match place {
                Place::State(number) => Some(number),
                _ => None,
            })
            .collect();
        let carries = kept_places(program).any(|(_, place)| matches!(place, Place::Carried(_)));
        let fetch = |registry: &mut Registry| -> Result<()> {
            numbers.iter().try_for_each(|number| registry.fetch_state(*number))?;
            if let Some(carried) = registry.carried.as_mut().filter(|_| carries) {
                carried.buffers = carried.contents()?;
            }
            Ok(())
        };
        fetch(&mut self.registry)?;
        let mut copies = std::mem::take(&mut self.registry.copies);
        copies.clear();
        copies.add(&self.registry, program);
        let outcome = work(self).and_then(|()| fetch(&mut self.registry));
        let odd = odd_state(&self.registry, program);
        if odd.is_some() || outcome.is_err() {
            self.synchronize()?;
            copies.put_back(&mut self.registry);
            self.registry.forget_device_states();
            if let Some(carried) = self.registry.carried.as_mut().filter(|_| carries) {
                let before = std::mem::take(&mut carried.buffers);
                carried.restore(before);
            }
        }
        self.registry.copies = copies;
        outcome?;
        Ok(odd)
    }

    /// [`land`](Self::land) on a GPU, which has looked ahead by the time of the verdict.
    fn land_on_device(&mut self, run: &mut Run, values: &StepValues) -> Result<Option<Fault>> {
        let program = run.program().clone();
        let work = |network: &mut Self, run: &mut Run| {
            let access = Access::Exclusive(&mut network.registry);
            run.execute(access, Phase::States..=Phase::Commit, values)
        };
        if repeats(&program) {
            return self.land_carefully(&program, |network| work(network, run));
        }
        if let Some(port) = program.ports().foreseen {
            run.fetch(&[port])?;
            if let Some(fault) = self.foreseen_fault(&program, f64::from(run.read::<f32>(port)[0])) {
                return Ok(Some(fault));
            }
        }
        work(self, run).map(|()| None)
    }

    /// What a look ahead has found.
    pub(crate) fn foreseen_fault(&self, program: &Program, result: f64) -> Option<Fault> {
        let (number, wrong) = Foresight::read(result)?;
        let (path, place) = program.ports().foresight.get(number)?;
        let would = "would become infinite or NaN";
        let Place::Master(parameter) = place else {
            let layer = self.describe_at(path.as_ref());
            return Some(Fault { layer, what: name_of(&self.registry, *place) });
        };
        let store = &self.registry.stores[parameter.store];
        let what = match wrong {
            Wrong::Value => format!("its parameters {would}"),
            Wrong::Moment => format!("the optimizer's moments of its parameters {would}"),
            Wrong::Packed => {
                let mut types: Vec<&str> = store.versions().map(|held| held.packing.dtype.name()).collect();
                types.dedup();
                format!("its parameters would be beyond what {} holds", types.join(" or "))
            }
        };
        Some(Fault { layer: self.describe_store(parameter.store), what })
    }
}
