//! The registry's masters, versions, gradients and moments on a device.
//!
//! Each side knows how new its content is by the stores' epochs: an older copy is remade before
//! use, so neither side can read stale weights.

mod aside;
mod versions;

use super::Gpu;
use super::fetching::Fetching;
use super::sending::Sending;
use crate::dtype::Packing;
use crate::ops::Op;
use crate::program::{ParameterRef, Phase, Place, Program};
use crate::shader::{Accelerator, Allocation, Operand};
use crate::state::{self, DeviceGradient, Registry, WaitingGradients};
use crate::tensor::Buffer;
use crate::weights::WeightStore;
use crate::{Error, Result};
use aside::Aside;
use std::any::Any;
use std::ops::RangeInclusive;
use std::sync::Arc;

#[derive(Debug, Default)]
struct StoreMirror {
    /// The flat master, with the epoch of its content.
    master: Option<(Allocation, u64)>,
    /// What a dropped master has left, by parameter.
    kept: Vec<Option<Allocation>>,
    gradient: Option<Allocation>,
    moments: Vec<Allocation>,
    /// By parameter.
    versions: Vec<Option<VersionMirror>>,
}

#[derive(Clone, Debug)]
struct PackedPart {
    bytes: Allocation,
    scales: Option<(Allocation, usize)>,
}

/// A packed parameter.
#[derive(Debug)]
struct VersionMirror {
    packing: Packing,
    part: PackedPart,
    epoch: u64,
}

/// One network's registry on one device.
#[derive(Debug)]
pub(crate) struct Mirror {
    gpu: Arc<Gpu>,
    stores: Vec<StoreMirror>,
    /// Grows whenever memory is replaced, so that recorded dispatches over the old one are dropped.
    generation: u64,
    /// Whether masters here are newer than the host's.
    masters_ahead: bool,
    gradients: Side,
    moments: Side,
    /// What layers keep, by number.
    kept: Vec<Option<Allocation>>,
    states: Side,
}

/// Where the newest content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Host,
    Device,
    Both,
}

impl Mirror {
    pub(crate) fn new(gpu: Arc<Gpu>) -> Self {
        Self {
            gpu,
            stores: Vec::new(),
            generation: 1,
            masters_ahead: false,
            gradients: Side::Host,
            moments: Side::Host,
            kept: Vec::new(),
            states: Side::Host,
        }
    }

    /// A number that grows whenever memory is replaced.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Brings whatever the program reads or writes up to the host's state, where that is newer.
    pub(super) fn prepare(&mut self, program: &Program, registry: &Registry) -> Result<()> {
        self.stores.resize_with(registry.stores().len(), StoreMirror::default);
        let (mut gradients, mut moments, mut states) = (false, false, false);
        for info in &program.values {
            match info.place {
                Place::Master(parameter) => self.prepare_master(parameter, registry)?,
                Place::Version(parameter, _) => self.prepare_versions(parameter.store, registry)?,
                Place::Gradient(parameter) => {
                    gradients = true;
                    self.prepare_gradient(parameter.store, registry)?;
                }
                Place::Moment { store, .. } => {
                    moments = true;
                    self.prepare_moments(store, registry)?;
                }
                Place::State(_) => states = true,
                Place::Buffer(_) | Place::Alias(_) | Place::Carried(_) | Place::Ring { .. } => {}
            }
        }
        for step in &program.steps {
            if let Op::Encode(encode) = &step.op {
                self.prepare_versions(encode.store, registry)?;
            }
        }
        if states {
            // All of them, since one side is kept for all.
            for number in 0..registry.states.len() {
                self.prepare_state(number, registry)?;
            }
            if self.states == Side::Host {
                self.states = Side::Both;
            }
        }
        if gradients && self.gradients == Side::Host {
            self.gradients = Side::Both;
        }
        if moments && self.moments == Side::Host {
            self.moments = Side::Both;
        }
        Ok(())
    }

    fn prepare_master(&mut self, parameter: ParameterRef, registry: &Registry) -> Result<()> {
        let store = &registry.stores()[parameter.store];
        let held = &mut self.stores[parameter.store];
        if store.is_dropped() {
            held.master = None;
            let index = parameter
                .parameter
                .ok_or_else(|| Error::Internal("a dropped master is read parameter by parameter".into()))?;
            held.kept.resize_with(store.parameters().len(), || None);
            if held.kept[index].is_none() {
                let bytes = store.float_bytes(Some(index))?;
                let memory = self.gpu.storage("weights", bytes.len() as u64)?;
                self.gpu.upload(&memory, 0, bytes);
                held.kept[index] = Some(memory);
                self.generation += 1;
            }
            return Ok(());
        }
        let bytes = (store.len() * 4) as u64;
        if held.master.as_ref().is_none_or(|(memory, _)| memory.size() < bytes) {
            held.master = Some((self.gpu.storage("weights", bytes)?, u64::MAX));
            held.kept.clear();
            self.generation += 1;
        }
        if let Some((memory, epoch)) = &mut held.master
            && *epoch != store.epoch()
        {
            let content = store.float_bytes(None)?;
            self.gpu.upload(memory, 0, content);
            *epoch = store.epoch();
        }
        Ok(())
    }

    fn gradients_here(&self) -> Result<()> {
        match self.gradients {
            Side::Host => Err(Error::Internal("gradients of the host are to be added on a device".into())),
            Side::Device | Side::Both => Ok(()),
        }
    }

    fn prepare_gradient(&mut self, index: usize, registry: &Registry) -> Result<()> {
        let held = &mut self.stores[index].gradient;
        let bytes = (registry.stores()[index].len() * 4) as u64;
        if held.as_ref().is_none_or(|memory| memory.size() < bytes) {
            *held = Some(self.gpu.storage("gradients", bytes)?);
            self.generation += 1;
        }
        if let (Some(memory), Side::Host) = (held, self.gradients)
            && !registry.gradients_zeroed
            && let Some(content) = registry.gradients.get(index)
        {
            self.gpu.upload(memory, 0, content.bytes());
        }
        Ok(())
    }

    fn prepare_moments(&mut self, index: usize, registry: &Registry) -> Result<()> {
        let held = &mut self.stores[index].moments;
        let content = registry.moments.get(index).map_or(&[][..], |moments| moments.as_slice());
        let fits = held.len() == content.len()
            && held.iter().zip(content).all(|(memory, moment)| memory.size() >= moment.len_bytes() as u64);
        if !fits {
            *held = content
                .iter()
                .map(|moment| self.gpu.storage("optimizer moments", moment.len_bytes() as u64))
                .collect::<Result<_>>()?;
            self.generation += 1;
        }
        if self.moments == Side::Host || !fits {
            for (memory, moment) in held.iter().zip(content) {
                self.gpu.upload(memory, 0, moment.bytes());
            }
        }
        Ok(())
    }

    fn prepare_state(&mut self, number: usize, registry: &Registry) -> Result<()> {
        self.kept.resize_with(registry.states.len(), || None);
        let content = registry.states[number].content.bytes();
        let held = &mut self.kept[number];
        let fits = held.as_ref().is_some_and(|memory| memory.size() >= content.len() as u64);
        if !fits {
            *held = Some(self.gpu.storage("states of layers", content.len() as u64)?);
            self.generation += 1;
        }
        if let Some(memory) = held
            && (self.states == Side::Host || !fits)
        {
            self.gpu.upload(memory, 0, content);
        }
        Ok(())
    }

    /// Where something stored is on the device.
    pub(super) fn operand(&self, place: Place, registry: &Registry) -> Result<Operand> {
        let gone = || Error::Internal(format!("{place:?} is not on the device"));
        match place {
            Place::Master(parameter) => {
                let held = &self.stores[parameter.store];
                let (offset, len) = registry.extent(parameter);
                match (&held.master, parameter.parameter) {
                    (Some((memory, _)), _) => Ok(Operand::new(memory, offset, len)),
                    (None, Some(index)) => {
                        let kept = held.kept.get(index).and_then(Option::as_ref).ok_or_else(gone)?;
                        Ok(Operand::new(kept, 0, len))
                    }
                    (None, None) => Err(gone()),
                }
            }
            Place::Gradient(parameter) => {
                let (offset, len) = registry.extent(parameter);
                let memory = self.stores[parameter.store].gradient.as_ref().ok_or_else(gone)?;
                Ok(Operand::new(memory, offset, len))
            }
            Place::Moment { store, slot } => {
                let memory = self.stores[store].moments.get(slot).ok_or_else(gone)?;
                Ok(Operand::new(memory, 0, registry.stores()[store].len()))
            }
            Place::Version(parameter, _) => {
                let index = parameter.parameter.ok_or_else(gone)?;
                self.packed(parameter.store, index).ok_or_else(gone)
            }
            Place::State(number) => {
                let memory = self.kept.get(number).and_then(Option::as_ref).ok_or_else(gone)?;
                Ok(Operand::new(memory, 0, registry.states[number].spec.shape.len()))
            }
            Place::Buffer(_) | Place::Alias(_) | Place::Carried(_) | Place::Ring { .. } => Err(gone()),
        }
    }

    /// Notes what these phases of the program have written here, `steps` times over.
    pub(super) fn note_writes(
        &mut self,
        program: &Program,
        registry: &mut Registry,
        phases: &RangeInclusive<Phase>,
    ) {
        for step in program.steps.iter().filter(|step| phases.contains(&step.phase)) {
            for value in &step.writes {
                match program.value(program.owner(*value)).place {
                    Place::Master(parameter) => {
                        let epoch = registry.stores[parameter.store].moved_on_device();
                        if let Some((_, held)) = &mut self.stores[parameter.store].master {
                            *held = epoch;
                        }
                        self.masters_ahead = true;
                    }
                    Place::Gradient(_) => self.gradients = Side::Device,
                    Place::Moment { .. } => self.moments = Side::Device,
                    Place::State(_) => self.states = Side::Device,
                    Place::Carried(_) => {
                        if let Some(carried) = &mut registry.carried {
                            carried.note_change();
                        }
                    }
                    Place::Version(..) | Place::Buffer(_) | Place::Alias(_) | Place::Ring { .. } => {}
                }
            }
            if let Op::Encode(encode) = &step.op {
                let store = &registry.stores[encode.store];
                // What the host encodes is made anew before it is read.
                if !store.encodes_on_host() {
                    let held = self.stores[encode.store].versions.iter_mut().flatten();
                    held.for_each(|version| version.epoch = store.epoch());
                }
            }
        }
    }
}

/// A registry's mirror as a GPU's.
///
/// # Errors
/// [`Error::Internal`] for another engine's.
pub(super) fn of_gpu(mirror: &mut dyn state::Mirror) -> Result<&mut Mirror> {
    let mirror: &mut dyn Any = mirror;
    mirror.downcast_mut().ok_or_else(|| Error::Internal("a network of another engine ran on a GPU".into()))
}

impl state::Mirror for Mirror {
    fn forget_gradients(&mut self) {
        self.gradients = Side::Host;
    }

    fn drop_gradient(&mut self, index: usize) {
        if self.stores.get_mut(index).is_some_and(|held| held.gradient.take().is_some()) {
            self.generation += 1;
        }
    }

    fn forget_moments(&mut self) {
        self.moments = Side::Host;
    }

    fn forget_states(&mut self) {
        self.states = Side::Host;
    }

    fn is_ahead(&self) -> bool {
        self.masters_ahead
            || self.gradients == Side::Device
            || self.moments == Side::Device
            || self.states == Side::Device
    }

    fn masters_ahead(&self) -> bool {
        self.masters_ahead
    }

    fn gradients_ahead(&self) -> bool {
        self.gradients == Side::Device
    }

    fn current(&self, index: usize, store: &WeightStore) -> Result<WeightStore> {
        let mut copy = store.clone();
        if let Some((memory, epoch)) = self.stores.get(index).and_then(|held| held.master.as_ref())
            && *epoch == store.epoch()
        {
            let mut parts = [(Operand::new(memory, 0, store.len()), copy.device_copy()?)];
            self.gpu.download(&mut parts)?;
            copy.refresh(crate::simd::Cpu::global()?)?;
        }
        Ok(copy)
    }

    fn current_gradient(&self, index: usize, bytes: &mut [u8]) -> Result<()> {
        match self.stores.get(index).and_then(|held| held.gradient.as_ref()) {
            Some(memory) if self.gradients == Side::Device => {
                self.gpu.download(&mut [(Operand::new(memory, 0, bytes.len() / 4), bytes)])
            }
            _ => Ok(()),
        }
    }

    fn fetch_gradients(&mut self, gradients: &mut [Buffer]) -> Result<()> {
        if self.gradients != Side::Device {
            return Ok(());
        }
        let held = self.stores.iter().zip(gradients).filter_map(|(held, gradient)| {
            let memory = held.gradient.as_ref()?;
            Some((Operand::new(memory, 0, gradient.len_bytes() / 4), gradient.bytes_mut()))
        });
        self.gpu.download(&mut held.collect::<Vec<_>>())?;
        self.gradients = Side::Both;
        Ok(())
    }

    fn begin_fetch(&self, stores: &[(usize, usize)]) -> Result<Option<Box<dyn state::Fetch>>> {
        if self.gradients != Side::Device {
            return Ok(None);
        }
        let operand = |(store, elements): &(usize, usize)| {
            let memory = self.stores.get(*store).and_then(|held| held.gradient.as_ref());
            let gone = || Error::Internal(format!("the gradient of store {store} is not on the device"));
            Ok(Operand::new(memory.ok_or_else(gone)?, 0, *elements))
        };
        let operands = stores.iter().map(operand).collect::<Result<Vec<_>>>()?;
        Ok(Some(Box::new(Fetching::begin(&self.gpu, &operands)?)))
    }

    fn begin_send(&mut self, stores: &[(usize, usize)]) -> Result<Box<dyn state::Outbound>> {
        let mut operands = Vec::with_capacity(stores.len());
        for &(store, elements) in stores {
            if self.stores.len() <= store {
                self.stores.resize_with(store + 1, StoreMirror::default);
            }
            let held = &mut self.stores[store].gradient;
            let bytes = (elements * 4) as u64;
            let memory = match held.take().filter(|memory| memory.size() >= bytes) {
                Some(memory) => memory,
                // Who has computed nothing has no gradient yet.
                None => {
                    self.generation += 1;
                    self.gpu.storage("gradients", bytes)?
                }
            };
            operands.push(Operand::new(held.insert(memory), 0, elements));
        }
        Ok(Box::new(Sending::begin(&self.gpu, operands)?))
    }

    fn waiting_gradients(&self) -> Box<dyn WaitingGradients> {
        Box::new(Aside::new(self.gpu.clone()))
    }

    fn gradients_of(&self, stores: &[(usize, usize)]) -> Result<Vec<DeviceGradient>> {
        self.gradients_here()?;
        let gradient = |(store, elements): &(usize, usize)| {
            let memory = self.stores.get(*store)?.gradient.clone()?;
            Some(DeviceGradient { store: *store, elements: *elements, memory }).filter(|_| *elements > 0)
        };
        Ok(stores.iter().filter_map(gradient).collect())
    }

    fn note_gradients(&mut self) {
        self.gradients = Side::Device;
    }

    fn current_state(&self, number: usize, elements: usize, bytes: &mut [u8]) -> Result<()> {
        match self.kept.get(number).and_then(Option::as_ref) {
            Some(memory) if self.states == Side::Device => {
                self.gpu.download(&mut [(Operand::new(memory, 0, elements), bytes)])
            }
            _ => Ok(()),
        }
    }

    fn synchronize(&mut self, registry: &mut Registry) -> Result<()> {
        if !self.is_ahead() {
            return Ok(());
        }
        let mut parts: Vec<(Operand, &mut [u8])> = Vec::new();
        // Gradients that are zeroed are nobody's any more.
        let wanted = self.gradients == Side::Device && !registry.gradients_zeroed;
        let gradients = if wanted { &mut registry.gradients[..] } else { &mut [] };
        let moments = if self.moments == Side::Device { &mut registry.moments[..] } else { &mut [] };
        for (held, gradient) in self.stores.iter().zip(gradients) {
            if let Some(memory) = &held.gradient {
                parts.push((Operand::new(memory, 0, gradient.len_bytes() / 4), gradient.bytes_mut()));
            }
        }
        for (held, moments) in self.stores.iter().zip(moments) {
            for (memory, moment) in held.moments.iter().zip(moments) {
                parts.push((Operand::new(memory, 0, moment.len_bytes() / 4), moment.bytes_mut()));
            }
        }
        if self.states == Side::Device {
            for (held, state) in self.kept.iter().zip(&mut registry.states) {
                if let Some(memory) = held {
                    let elements = state.spec.shape.len();
                    parts.push((Operand::new(memory, 0, elements), state.content.bytes_mut()));
                }
            }
        }
        if self.masters_ahead {
            for (held, store) in self.stores.iter().zip(&mut registry.stores) {
                if let Some((memory, epoch)) = &held.master
                    && *epoch == store.epoch()
                {
                    let elements = store.len();
                    parts.push((Operand::new(memory, 0, elements), store.device_copy()?));
                }
            }
        }
        self.gpu.download(&mut parts)?;
        if self.masters_ahead {
            let cpu = crate::simd::Cpu::global()?;
            for store in &mut registry.stores {
                store.refresh(cpu)?;
            }
        }
        self.masters_ahead = false;
        for side in [&mut self.gradients, &mut self.moments, &mut self.states] {
            if *side == Side::Device {
                *side = Side::Both;
            }
        }
        Ok(())
    }
}
