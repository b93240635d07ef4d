//! Steps land whole or not at all: what they would make infinite or NaN takes all of them back.
//!
//! Nothing is copied where that cannot happen: a bound of the gradients, found in one look at them, and
//! bounds of masters and moments, kept from step to step, tell how large an update can make anything at
//! most. Only where that comes near infinity, or beyond what a packed type holds, is there a copy of
//! everything first, and a look at all of it afterwards.

use super::fault::{Fault, describe_at, describe_store};
use super::states::{first_odd, name_of, rewind, take_on_states};
use super::watch;
use crate::network::Network;
use crate::ops::measure::{Action, ExplosionRule};
use crate::ops::update::{Reach, largest};
use crate::ops::{Foresight, Op, StepValues, Update, foresee::Wrong};
use crate::precision::in_precision;
use crate::program::{Access, Phase, Place, Program, Run, Step, Value, resolve};
use crate::simd::{Cpu, Real};
use crate::state::{KnownReach, Registry, StatesBefore};
use crate::tensor::Buffer;
use crate::weights::WeightStore;
use crate::{Error, Result};
use std::sync::Arc;

/// What has become of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The weights have moved.
    Landed,
    /// Its loss or its gradients were infinite or NaN.
    NonFinite,
    /// Something would have become infinite or NaN by it.
    Refused(Fault),
    /// Nothing has moved, or the step before was taken back; it has been counted.
    Exploded,
}

/// Lands a step by `land`, unless its measures have found by the rule that it exploded; where there is such a
/// rule, a step that cannot land has exploded, too.
pub(crate) fn settle(
    network: &mut Network,
    run: &mut Run,
    values: &StepValues,
    rule: Option<ExplosionRule>,
    land: impl FnOnce(&mut Network, &mut Run) -> Result<Option<Fault>>,
) -> Result<Fate> {
    let mut action = match rule {
        Some(_) => watch::judged_action(network)?,
        None => Action::Apply,
    };
    if action == Action::Apply {
        let Some(fault) = land(network, run)? else { return Ok(Fate::Landed) };
        let Some(rule) = rule else { return Ok(Fate::Refused(fault)) };
        action = watch::judge_again(network, &rule)?;
    }
    let access = Access::Exclusive(&mut network.registry);
    run.execute(access, Phase::Update..=Phase::Update, values)?;
    count_explosion(network, action == Action::RollBack);
    watch::synchronize_after_rollback(network)?;
    Ok(Fate::Exploded)
}

/// Counts a step that changed the weights.
pub(crate) fn count_update(network: &mut Network) {
    if network.scales_loss() {
        network.optimizer_state.loss_scale.note_good_step();
    }
    network.optimizer_state.updates += 1;
    network.optimizer_state.count_step();
    network.note_updates();
}

/// Counts a step that exploded: the update before it, where it was taken back, is none any more.
pub(super) fn count_explosion(network: &mut Network, taken_back: bool) {
    let state = &mut network.optimizer_state;
    state.count_step();
    state.updates = state.updates.saturating_sub(u64::from(taken_back));
    network.note_updates();
}

/// The stores whose masters a program writes, with the rules that move them.
pub(super) fn updated(program: &Program) -> impl Iterator<Item = (&Step, &Update, usize)> {
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
pub(super) struct Before {
    stores: Vec<(usize, WeightStore, Vec<Buffer>)>,
    kept: StatesBefore,
}

impl Before {
    /// A copy of these stores, with what layers keep and carry.
    pub(super) fn of(registry: &mut Registry, stores: impl Iterator<Item = usize>) -> Result<Self> {
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
    pub(super) fn put_back(self, registry: &mut Registry, device: bool) {
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

/// Makes the updates of a step and all that follows them, or, where anything would become infinite or
/// NaN, nothing: everything is then as before, and what it was is told.
pub(crate) fn land(network: &mut Network, run: &mut Run, values: &StepValues) -> Result<Option<Fault>> {
    if run.is_remote() {
        return land_on_device(network, run, values);
    }
    if let Some(fault) = take_on_states(network, run, values)? {
        return Ok(Some(fault));
    }
    let certain = in_precision!(network.precision, T => is_certain::<T>(&mut network.registry, run, values)?);
    let program = run.program().clone();
    // Further local steps pass through the batch from where the first has begun.
    let moved = repeats(&program).then(|| rewind(&mut network.registry, &program));
    if certain {
        let access = Access::Exclusive(&mut network.registry);
        run.execute(access, Phase::Update..=Phase::Commit, values)?;
        note_reach(&mut network.registry, &program);
        if let Some(moved) = &moved {
            moved.put_back(&mut network.registry);
        }
        return Ok(None);
    }
    let fault = land_carefully(network, &program, |network| {
        let access = Access::Exclusive(&mut network.registry);
        run.execute(access, Phase::Update..=Phase::Commit, values)
    });
    if matches!(fault, Ok(None)) {
        if let Some(moved) = &moved {
            moved.put_back(&mut network.registry);
        }
    } else if program.commits_states() {
        let copies = std::mem::take(&mut network.registry.copies);
        copies.put_back(&mut network.registry);
        network.registry.copies = copies;
    }
    fault
}

/// Does what moves the stores that a program updates, over a copy of everything: where it leaves
/// anything infinite or NaN, or cannot be done, everything is as before.
pub(crate) fn land_carefully(
    network: &mut Network,
    program: &Program,
    work: impl FnOnce(&mut Network) -> Result<()>,
) -> Result<Option<Fault>> {
    let stores = || updated(program).map(|(_, _, store)| store);
    let device = !network.device.is_host();
    network.synchronize()?;
    let before = Before::of(&mut network.registry, stores())?;
    // The step is not counted yet.
    let outcome = work(network).and_then(|()| network.registry.synchronize());
    let fault = match &outcome {
        Ok(()) => stores().find_map(|store| odd_store(network, store)),
        // A version could not be made of its master; the others are looked at first.
        Err(Error::NonFinite(_) | Error::Value(_)) => {
            let mut odd = stores().find_map(|store| odd_store(network, store));
            if odd.is_none() {
                odd = stores().find_map(|store| refused_version(network, store));
            }
            odd
        }
        Err(_) => None,
    };
    if fault.is_some() || outcome.is_err() {
        before.put_back(&mut network.registry, device);
    }
    match (fault, outcome) {
        (Some(fault), _) => Ok(Some(fault)),
        (None, outcome) => outcome.map(|()| None),
    }
}

/// What is not finite in a store's master and moments.
pub(super) fn odd_store(network: &Network, store: usize) -> Option<Fault> {
    let weights = &network.registry.stores[store];
    let moments = network.registry.moments.get(store).map_or(&[][..], Vec::as_slice);
    let master = weights.float_bytes(None).ok()?;
    let is_odd = |bytes: &[u8], part: &std::ops::Range<usize>| in_precision!(network.precision, T => first_odd(&bytemuck::cast_slice::<u8, T>(bytes)[part.clone()]).is_some());
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
        Some(Fault { layer: describe_store(network, store), what })
    })
}

/// What keeps a store's versions from being made.
pub(super) fn refused_version(network: &mut Network, store: usize) -> Option<Fault> {
    let error = network.registry.stores[store].refresh(Cpu::global().ok()?).err()?;
    let message = error.to_string();
    // What to do about a weight that is there is nothing to do about one that is not.
    let what = message.split(", which").next().unwrap_or(&message).replace(" holds ", " would hold ");
    let dtype = message.split("infinite in ").nth(1).and_then(|rest| rest.split(';').next());
    let what = match dtype {
        Some(dtype) => format!("{what}, which is infinite in {dtype}"),
        None => what,
    };
    Some(Fault { layer: describe_store(network, store), what })
}

/// Whether nothing that the updates of a step make can be infinite or NaN, nor beyond a packed type.
pub(super) fn is_certain<T: Real>(registry: &mut Registry, run: &Run, values: &StepValues) -> Result<bool> {
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
    let mut known = std::mem::take(&mut registry.reach);
    known.resize(registry.stores.len(), None);
    let mut certain = true;
    for (step, update, store) in updated(&program) {
        if !registry.owns(store) {
            known[store] = None;
            continue;
        }
        let access = Access::Exclusive(registry);
        let (gradient, factor) = bounds_of_step::<T>(cpu, &program, (step, update), run, &access)?;
        let mut made = [0.0; 3];
        if update.optimizer.is_made_beside() {
            for (made, value) in made.iter_mut().zip(&step.reads[1..update.memory_operand()]) {
                *made = largest(cpu, resolve::<T>(&program, *value, run, &access)?.elements::<T>());
            }
        }
        let weights = &registry.stores[store];
        let master =
            || -> Result<f64> { Ok(largest(cpu, bytemuck::cast_slice::<u8, T>(weights.float_bytes(None)?))) };
        let before = match known[store].filter(|known| known.epoch == weights.epoch()) {
            Some(known) => known.reach,
            None => {
                let mut moments = [0.0; 3];
                let held = registry.moments.get(store).map_or(&[][..], Vec::as_slice);
                for (bound, moment) in moments.iter_mut().zip(held) {
                    *bound = largest(cpu, moment.as_slice::<T>());
                }
                Reach::of(master()?, moments)
            }
        };
        let before = match update.optimizer.is_made_beside() {
            true => before.with_moments(made),
            false => before,
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
    registry.reach = known;
    Ok(certain)
}

/// The bounds that were foreseen are those of what is there.
pub(super) fn note_reach(registry: &mut Registry, program: &Arc<Program>) {
    let Registry { reach, stores, .. } = registry;
    for (_, _, store) in updated(program) {
        if let Some(Some(known)) = reach.get_mut(store) {
            known.epoch = stores[store].epoch();
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
        _ => (largest(cpu, elements(step.reads[0])?), update.memory_operand()),
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

/// [`land`] on a GPU, which has looked ahead by the time of the verdict.
fn land_on_device(network: &mut Network, run: &mut Run, values: &StepValues) -> Result<Option<Fault>> {
    let program = run.program().clone();
    let work = |network: &mut Network, run: &mut Run| {
        let access = Access::Exclusive(&mut network.registry);
        run.execute(access, Phase::States..=Phase::Commit, values)
    };
    if repeats(&program) {
        return land_carefully(network, &program, |network| work(network, run));
    }
    if let Some(port) = program.ports().foreseen {
        run.fetch(&[port])?;
        if let Some(fault) = foreseen_fault(network, &program, f64::from(run.read::<f32>(port)[0])) {
            return Ok(Some(fault));
        }
    }
    work(network, run).map(|()| None)
}

/// What a look ahead has found.
pub(crate) fn foreseen_fault(network: &Network, program: &Program, result: f64) -> Option<Fault> {
    let (number, wrong) = Foresight::read(result)?;
    let (path, place) = program.ports().foresight.get(number)?;
    let would = "would become infinite or NaN";
    let Place::Master(parameter) = place else {
        let layer = describe_at(network, path.as_ref());
        return Some(Fault { layer, what: name_of(&network.registry, *place) });
    };
    let store = &network.registry.stores[parameter.store];
    let what = match wrong {
        Wrong::Value => format!("its parameters {would}"),
        Wrong::Moment => format!("the optimizer's moments of its parameters {would}"),
        Wrong::Packed => {
            let mut types: Vec<&str> = store.versions().map(|held| held.packing.dtype.name()).collect();
            types.dedup();
            format!("its parameters would be beyond what {} holds", types.join(" or "))
        }
    };
    Some(Fault { layer: describe_store(network, parameter.store), what })
}
