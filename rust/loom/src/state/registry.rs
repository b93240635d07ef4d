//! Everything of a network that persists from step to step.

use super::on_device::{DeviceGradient, Fetch, Outbound, WaitingGradients};
use super::place::ParameterRef;
use super::ring::Ring;
use super::states::{Carried, State};
use super::training::{KnownReach, StateCopies, WatchPlaces};
use crate::error::in_context;
use crate::tensor::Buffer;
use crate::weights::WeightStore;
use crate::{Error, Result};
use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What an engine keeps of a network's registry in memory of its own, and may be newer there.
///
/// Each side knows how new its content is by the stores' epochs: an older copy is remade before
/// use, so neither side can read stale weights.
pub trait Mirror: Any + Debug + Send {
    /// The host has changed its gradients, or dropped them.
    fn forget_gradients(&mut self);

    /// Has a store's gradient be zeros here, in memory that is there once somebody asks for it.
    fn drop_gradient(&mut self, index: usize);

    /// The host has changed its moments, or dropped them.
    fn forget_moments(&mut self);

    /// The host has changed what layers keep.
    fn forget_states(&mut self);

    /// Whether anything here is newer than what the host has.
    fn is_ahead(&self) -> bool;

    /// Whether masters here are newer than the host's.
    fn masters_ahead(&self) -> bool;

    /// Whether gradients here are newer than the host's.
    fn gradients_ahead(&self) -> bool;

    /// A copy of a store with the master that is here.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost.
    fn current(&self, index: usize, store: &WeightStore) -> Result<WeightStore>;

    /// Reads a store's gradient back.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn current_gradient(&self, index: usize, bytes: &mut [u8]) -> Result<()>;

    /// Reads all gradients back at once, where they are newer here.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn fetch_gradients(&mut self, gradients: &mut [Buffer]) -> Result<()>;

    /// Begins to read these stores' gradients back, each of so many elements, one behind the other, as they are once all that was asked of the
    /// device so far has ended; `None` where the host has the newest.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn begin_fetch(&self, stores: &[(usize, usize)]) -> Result<Option<Box<dyn Fetch>>>;

    /// Memory of the host by which these stores' gradients, each of so many elements, one behind the other, are
    /// replaced here.
    ///
    /// # Errors
    /// As [`current`](Self::current); [`Error::Device`] where there is no memory for it.
    fn begin_send(&mut self, stores: &[(usize, usize)]) -> Result<Box<dyn Outbound>>;

    /// Room for gradients to wait in on this device, for who adds up several; it goes with who asked for it.
    fn waiting_gradients(&self) -> Box<dyn WaitingGradients>;

    /// The newest gradients of those of these stores, each of so many elements, that have any here.
    ///
    /// # Errors
    /// [`Error::Internal`] where the host has the newest.
    fn gradients_of(&self, stores: &[(usize, usize)]) -> Result<Vec<DeviceGradient>>;

    /// Takes note that gradients were changed here.
    fn note_gradients(&mut self);

    /// Reads back something kept beside the parameters, where this has the newer one.
    ///
    /// # Errors
    /// As [`current`](Self::current).
    fn current_state(&self, number: usize, elements: usize, bytes: &mut [u8]) -> Result<()>;

    /// Brings everything that is newer here back to the host.
    ///
    /// # Errors
    /// As [`current`](Self::current); the host then has what was last read back.
    fn synchronize(&mut self, registry: &mut Registry) -> Result<()>;
}

/// Masters and versions, gradients and optimizer moments: one entry a layer with parameters.
///
/// On a GPU the newest content may be there; `synchronize` brings it back.
#[derive(Debug, Default)]
pub struct Registry {
    /// Trained, morphed and saved.
    pub(crate) stores: Vec<WeightStore>,
    /// The flat gradient of each store; empty until something is trained.
    pub(crate) gradients: Vec<Buffer>,
    /// The optimizer's moments of each store; saved on request.
    pub(crate) moments: Vec<Vec<Buffer>>,
    /// The stores whose moments are here, where several processes hold them in parts; those of others are empty.
    pub(crate) owned: Option<Vec<bool>>,
    /// Whether, after a step, the gradients of the others' stores are none, too.
    pub(crate) splits_gradients: bool,
    /// The process and the number of processes that the next training is to split its moments by, from the beginning, and
    /// whether its gradients, too.
    pub(crate) to_split: Option<(usize, usize, bool)>,
    /// What layers keep beside their parameters: saved, but neither trained nor morphed.
    pub(crate) states: Vec<State>,
    /// Where, among the states, a watched training has its own; after those of all layers.
    pub(crate) watch: Option<WatchPlaces>,
    /// How many of the stores belong to layers; feedback maps have the others.
    pub(crate) layer_stores: usize,
    /// How many moments the stores of feedback maps have.
    pub(crate) feedback_slots: usize,
    /// Memory for what layers carry from batch to batch of training, where any does; saved once it has
    /// [begun](Registry::begun).
    pub(crate) carried: Option<Carried>,
    /// What a mesh has held at its last ticks, while one of its programs runs.
    pub(crate) ring: Option<Ring>,
    /// Bounds of masters and moments, of the stores whose last update has left such.
    pub(crate) reach: Vec<Option<KnownReach>>,
    /// What layers kept and carried before the newest step.
    pub(crate) copies: StateCopies,
    /// States that were brought back from a device by themselves, as the host had them when it last had everything.
    pub(crate) fetched: Vec<(usize, Buffer)>,
    /// Whether all gradients are to be replaced by the next contribution.
    pub(crate) gradients_zeroed: bool,
    /// Of which stores gradients are zeros in memory, too, and stay so while their layers are frozen; none where that is
    /// not known.
    pub(crate) settled: Vec<bool>,
    /// What the epochs of stores that are no more count for; grows with every change of which layers there are.
    pub(crate) epochs_passed: u64,
    /// The copies on a device with memory of its own, where the network is on one.
    pub(crate) mirror: Option<Mutex<Box<dyn Mirror>>>,
}

/// What layers kept and carried before a step.
#[derive(Debug)]
pub(crate) struct StatesBefore {
    states: Vec<State>,
    carried: Option<Vec<Buffer>>,
}

impl StatesBefore {
    /// Only the first of the states, which are those of layers: what a watched training has noted stays.
    pub(crate) fn of_layers(mut self, count: usize) -> Self {
        self.states.truncate(count);
        self
    }
}

impl Registry {
    /// The weight stores, in the order their layers are passed.
    pub fn stores(&self) -> &[WeightStore] {
        &self.stores
    }

    /// What layers carry from batch to batch of training, once a batch has passed.
    pub(crate) fn begun(&self) -> Option<&Carried> {
        self.carried.as_ref().filter(|carried| carried.begun)
    }

    /// What layers carry has taken on what a batch has left, or somebody has set it.
    pub(crate) fn begin_carrying(&mut self) {
        if let Some(carried) = &mut self.carried {
            carried.begun = true;
            carried.note_change();
        }
    }

    /// A number that grows with every change of a master.
    pub(crate) fn epoch(&self) -> u64 {
        self.epochs_passed + self.stores.iter().map(WeightStore::epoch).sum::<u64>()
    }

    /// Has [`epoch`](Self::epoch) go beyond what it was, after stores have come and gone.
    pub(crate) fn pass_epoch(&mut self, before: u64) {
        self.epochs_passed += (before + 1).saturating_sub(self.epoch());
    }

    /// Offset and length, in elements, of a parameter in its flat store.
    pub(crate) fn extent(&self, parameter: ParameterRef) -> (usize, usize) {
        let store = &self.stores[parameter.store];
        match parameter.parameter {
            Some(index) => {
                let info = &store.parameters()[index];
                (info.offset, info.len())
            }
            None => (0, store.len()),
        }
    }

    /// A copy of what layers keep and carry; what is on a GPU alone is brought back first.
    ///
    /// # Errors
    /// [`Error::Device`] where a GPU was lost.
    pub(crate) fn copy_states(&mut self) -> Result<StatesBefore> {
        self.synchronize()?;
        let carried = self.carried.as_ref().map(Carried::contents).transpose()?;
        Ok(StatesBefore { states: self.states.clone(), carried })
    }

    /// Puts back what layers kept and carried before, where there is such a copy.
    pub(crate) fn restore_states(&mut self, before: Option<StatesBefore>) {
        let Some(before) = before else { return };
        let restored = before.states.len();
        self.states.splice(..restored, before.states);
        self.forget_device_states();
        if let (Some(carried), Some(contents)) = (&mut self.carried, before.carried) {
            carried.restore(contents);
        }
    }

    /// Makes room for gradients, where there is none yet.
    pub(crate) fn prepare_gradients(&mut self, element: usize) -> Result<()> {
        let held = |number: usize| self.owned.is_none() || !self.splits_gradients || self.owns(number);
        let size =
            |(number, store): (usize, &WeightStore)| if held(number) { store.len() * element } else { 0 };
        let sizes: Vec<usize> = self.stores.iter().enumerate().map(size).collect();
        let fits = self.gradients.len() == sizes.len()
            && self.gradients.iter().zip(&sizes).all(|(buffer, size)| buffer.len_bytes() == *size);
        if !fits {
            self.clear_gradients();
            let made = sizes.iter().map(|size| Buffer::zeroed(*size)).collect::<Result<_>>();
            self.gradients = made.map_err(|error| in_context("the gradients of all weights", error))?;
        }
        Ok(())
    }

    /// Makes room for gradients that were let go of.
    pub(crate) fn complete_gradients(&mut self, element: usize) -> Result<()> {
        for (gradient, store) in self.gradients.iter_mut().zip(&self.stores) {
            if gradient.len_bytes() != store.len() * element {
                *gradient = Buffer::zeroed(store.len() * element)?;
                self.gradients_zeroed = true;
            }
        }
        Ok(())
    }

    /// Where gradients are zeroed, has those of stores that the next pass does not write be zeros in memory, too: once
    /// it has run, what is there counts. Those that stay frozen are looked at once.
    pub(crate) fn settle_gradients(&mut self, is_written: impl Fn(usize) -> bool) {
        if !self.gradients_zeroed {
            return;
        }
        self.settled.resize(self.gradients.len(), false);
        for number in 0..self.gradients.len() {
            let was_settled = std::mem::replace(&mut self.settled[number], !is_written(number));
            if was_settled || is_written(number) {
                continue;
            }
            self.gradients[number].bytes_mut().fill(0);
            if let Some(mirror) = self.mirror_mut() {
                mirror.drop_gradient(number);
            }
        }
    }

    /// Forgets all gradients and their memory.
    pub(crate) fn clear_gradients(&mut self) {
        self.gradients.clear();
        self.settled.clear();
        self.gradients_zeroed = true;
        self.forget_device_gradients();
    }

    /// Makes room for `slots` moments a store, zeroed; those that fit already keep their content.
    pub(crate) fn prepare_moments(&mut self, slots: usize, element: usize) -> Result<()> {
        // How many moments each store has, and of which size.
        let wanted: Vec<(usize, usize)> = self
            .stores
            .iter()
            .enumerate()
            .map(|(number, store)| {
                let slots = if number < self.layer_stores { slots } else { self.feedback_slots };
                (slots, store.len() * element)
            })
            .collect();
        let held = |number: usize, size: usize| if self.owns(number) { size } else { 0 };
        let fits = self.moments.len() == wanted.len()
            && self.moments.iter().zip(&wanted).enumerate().all(|(number, (moments, (slots, size)))| {
                let size = held(number, *size);
                moments.len() == *slots && moments.iter().all(|moment| moment.len_bytes() == size)
            });
        if !fits {
            self.clear_moments();
            let fresh = |(slots, size): &(usize, usize)| (0..*slots).map(|_| Buffer::zeroed(*size)).collect();
            let made = wanted.iter().map(fresh).collect::<Result<_>>();
            self.moments =
                made.map_err(|error| in_context("the optimizer's moments of all weights", error))?;
            self.reach.clear();
        }
        Ok(())
    }

    /// A layer's weights, by the number of its store.
    ///
    /// # Errors
    /// [`Error::Internal`] where there are none.
    pub(crate) fn held(&self, number: usize) -> Result<&WeightStore> {
        self.stores.get(number).ok_or_else(lost)
    }

    /// The same, to change.
    ///
    /// # Errors
    /// As [`held`](Self::held).
    pub(crate) fn held_mut(&mut self, number: usize) -> Result<&mut WeightStore> {
        self.stores.get_mut(number).ok_or_else(lost)
    }

    /// What layers keep, from one of these numbers on to another.
    ///
    /// # Errors
    /// [`Error::Internal`] where that is not there.
    pub(crate) fn kept(&self, numbers: impl RangeBounds<usize>) -> Result<&[State]> {
        self.states.get((numbers.start_bound().cloned(), numbers.end_bound().cloned())).ok_or_else(lost)
    }

    /// One of the things that layers keep, to change.
    ///
    /// # Errors
    /// As [`kept`](Self::kept).
    pub(crate) fn kept_mut(&mut self, number: usize) -> Result<&mut State> {
        self.states.get_mut(number).ok_or_else(lost)
    }

    /// A store's moment, to change.
    ///
    /// # Errors
    /// [`Error::Internal`] where it was not prepared.
    pub(crate) fn moment_mut(&mut self, store: usize, slot: usize) -> Result<&mut Buffer> {
        self.moments.get_mut(store).and_then(|moments| moments.get_mut(slot)).ok_or_else(lost)
    }

    /// Whether a store's moments are here, and not in another process.
    pub(crate) fn owns(&self, store: usize) -> bool {
        self.owned.as_ref().is_none_or(|owned| owned.get(store) == Some(&true))
    }

    /// Forgets all moments.
    pub(crate) fn clear_moments(&mut self) {
        self.moments.clear();
        self.owned = None;
        self.reach.clear();
        self.forget_device_moments();
    }
}

impl Registry {
    /// The copies on the GPU that the network is on.
    pub(crate) fn mirror(&self) -> Result<MutexGuard<'_, Box<dyn Mirror>>> {
        match &self.mirror {
            Some(mirror) => Ok(mirror.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Err(Error::Internal("a network without a mirror ran on a GPU".into())),
        }
    }

    /// Makes room for copies on a device, where that has memory of its own, and forgets those on another.
    pub(crate) fn place_on(&mut self, mirror: Option<Box<dyn Mirror>>) {
        self.mirror = mirror.map(Mutex::new);
    }

    fn mirror_mut(&mut self) -> Option<&mut dyn Mirror> {
        self.mirror.as_mut().map(|mirror| &mut **mirror.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// The host has changed gradients.
    pub(crate) fn forget_device_gradients(&mut self) {
        if let Some(mirror) = self.mirror_mut() {
            mirror.forget_gradients();
        }
    }

    /// The copies on a device, whose gradients are to be added up there.
    ///
    /// # Errors
    /// [`Error::Internal`] where there is no such device.
    pub(crate) fn device_gradients(&mut self) -> Result<&mut dyn Mirror> {
        self.mirror_mut()
            .ok_or_else(|| Error::Internal("gradients of the host are to be added on a device".into()))
    }

    /// The host has changed moments.
    pub(crate) fn forget_device_moments(&mut self) {
        if let Some(mirror) = self.mirror_mut() {
            mirror.forget_moments();
        }
    }

    /// The host has changed what layers keep.
    pub(crate) fn forget_device_states(&mut self) {
        if let Some(mirror) = self.mirror_mut() {
            mirror.forget_states();
        }
    }

    /// Brings what is newer on the GPU back to the host.
    ///
    /// # Errors
    /// [`Error::Device`] where the GPU was lost; the host then has what was last brought back.
    pub(crate) fn synchronize(&mut self) -> Result<()> {
        let Some(mirror) = self.mirror.take() else { return Ok(()) };
        let mut inner = mirror.into_inner().unwrap_or_else(PoisonError::into_inner);
        let outcome = inner.synchronize(self);
        self.mirror = Some(inner.into());
        if outcome.is_ok() {
            self.fetched.clear();
        }
        outcome
    }

    /// Brings all gradients back to the host, where the GPU's are newer.
    ///
    /// # Errors
    /// [`Error::Device`] where the GPU was lost.
    pub(crate) fn fetch_gradients(&mut self) -> Result<()> {
        let Some(mirror) = &mut self.mirror else { return Ok(()) };
        mirror.get_mut().unwrap_or_else(PoisonError::into_inner).fetch_gradients(&mut self.gradients)
    }

    /// Begins to bring these stores' gradients back to the host, where a device has the newest.
    ///
    /// # Errors
    /// [`Error::Device`] where it was lost.
    pub(crate) fn begin_fetch(&self, stores: &[usize]) -> Result<Option<Box<dyn Fetch>>> {
        match &self.mirror {
            Some(_) => {
                let stores: Vec<_> = stores.iter().map(|store| (*store, self.stores[*store].len())).collect();
                self.mirror()?.begin_fetch(&stores)
            }
            None => Ok(None),
        }
    }

    /// Memory by which these stores' gradients on the device are replaced.
    ///
    /// # Errors
    /// [`Error::Device`] where it was lost or has no memory for them; [`Error::Internal`] where there is none.
    pub(crate) fn begin_send(&mut self, stores: &[usize]) -> Result<Box<dyn Outbound>> {
        let stores: Vec<_> = stores.iter().map(|store| (*store, self.stores[*store].len())).collect();
        self.device_gradients()?.begin_send(&stores)
    }

    /// What layers keep, as the newest of it is.
    ///
    /// # Errors
    /// [`Error::Device`] where it is on a GPU that was lost.
    pub(crate) fn states_here(&mut self) -> Result<Vec<State>> {
        (0..self.states.len()).try_for_each(|number| self.fetch_state(number))?;
        Ok(self.states.clone())
    }

    /// Has layers keep something else.
    pub(crate) fn set_states(&mut self, states: Vec<State>) {
        self.states = states;
        self.forget_device_states();
    }

    /// Brings one state back to the host, where the GPU's is newer.
    ///
    /// # Errors
    /// [`Error::Device`] where the GPU was lost.
    pub(crate) fn fetch_state(&mut self, number: usize) -> Result<()> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut self.states[number];
        if mirror.is_ahead() && !self.fetched.iter().any(|(known, _)| *known == number) {
            self.fetched.push((number, state.content.clone()));
        }
        mirror.current_state(number, state.spec.shape.len(), state.content.bytes_mut())
    }

    /// Goes back to what was last brought back of everything, where the device that has the newest was lost.
    ///
    /// # Errors
    /// [`Error::NonFinite`] for weights that a packed type does not hold.
    pub(crate) fn go_back(&mut self) -> Result<()> {
        for (number, content) in std::mem::take(&mut self.fetched) {
            if let Some(state) = self.states.get_mut(number) {
                state.content = content;
            }
        }
        // Those of a step that did not land.
        self.gradients_zeroed = true;
        self.reach.clear();
        let cpu = crate::simd::Cpu::global()?;
        self.stores.iter_mut().try_for_each(|store| store.refresh(cpu))
    }

    /// Whether nothing on the GPU is newer than what the host has.
    pub(crate) fn is_synchronized(&self) -> bool {
        self.mirror().map_or(true, |mirror| !mirror.is_ahead())
    }

    /// A store with its newest master.
    ///
    /// # Errors
    /// [`Error::Device`] where it is on a GPU that was lost.
    pub(crate) fn store(&self, index: usize) -> Result<Cow<'_, WeightStore>> {
        let store = &self.stores[index];
        match &self.mirror {
            Some(_) if self.mirror()?.masters_ahead() => {
                Ok(Cow::Owned(self.mirror()?.current(index, store)?))
            }
            _ => Ok(Cow::Borrowed(store)),
        }
    }

    /// A store's newest gradient.
    ///
    /// # Errors
    /// [`Error::Device`] where it is on a GPU that was lost.
    pub(crate) fn gradient(&self, index: usize) -> Result<Cow<'_, Buffer>> {
        match &self.mirror {
            Some(_) if self.mirror()?.gradients_ahead() => {
                let mut copy = self.gradients[index].clone();
                self.mirror()?.current_gradient(index, copy.bytes_mut())?;
                Ok(Cow::Owned(copy))
            }
            _ => Ok(Cow::Borrowed(&self.gradients[index])),
        }
    }
}

fn lost() -> Error {
    Error::Internal("what the registry keeps is not what its layers have".into())
}
