//! Going back to what the host has, where the device with the newest weights is lost.

use super::Network;
use super::kept_back::KeptBack;
use crate::device::Device;
use crate::error::AS_READ_BACK;
use crate::simd::Cpu;
use crate::state::{Carried, CarriedCopy, OptimizerState};
use crate::weights::WeightStore;
use crate::{Error, Result};

impl Network {
    /// Notes the counters, and what layers carry, before a device moves anything that it alone has from there on.
    ///
    /// # Errors
    /// [`Error::Device`] where the device was lost, [`Error::Memory`] where there is no room.
    pub(crate) fn keep_back(&mut self) -> Result<()> {
        if self.device.is_host() || !self.registry.is_synchronized() {
            return Ok(());
        }
        let carried = self.copy_carried().map_err(|error| self.with_loss(error))?;
        self.note_kept(carried);
        Ok(())
    }

    /// Notes what belongs to what the host has now.
    pub(super) fn note_kept(&mut self, carried: Option<CarriedCopy>) {
        let (state, measures) = (self.optimizer_state.clone(), self.measures.clone());
        self.kept_back = Some(KeptBack { state, measures, carried });
    }

    /// What layers carry from batch to batch, as it is now; the copy that there is where nothing has changed since.
    pub(super) fn copy_carried(&self) -> Result<Option<CarriedCopy>> {
        let Some(carried) = self.registry.begun() else { return Ok(None) };
        let held = self.kept_back.as_ref().and_then(|kept| kept.carried.as_ref());
        let held = held.filter(|copy| copy.is_of(carried)).cloned();
        held.map_or_else(|| carried.copy(), Ok).map(Some)
    }

    /// What layers carried when the host last had everything, for another device; nothing where they carried nothing,
    /// or are others now.
    pub(super) fn carried_before_loss(&self, device: &Device) -> Result<Option<Carried>> {
        let copy = self.kept_back.as_ref().and_then(|kept| kept.carried.as_ref());
        // Where nothing newer was lost with the device, somebody may have had the layers begin anew.
        let copy = copy.filter(|_| self.registry.carried.is_some() || !self.registry.is_synchronized());
        let fits = |copy: &&CarriedCopy| self.is_built() && copy.places() == self.carried_in_training();
        let Some(copy) = copy.filter(fits) else { return Ok(None) };
        copy.placed_on(self.precision, device.accelerator().as_ref()).map(Some)
    }

    /// Packs anew, as far as that can be done, what a call has left older than its master: one that failed half way
    /// through an update, say. What cannot be packed says so when it is read, until the weight is another one.
    ///
    /// [`Trainer::step`](crate::train::Trainer::step) and the manual loop do so after an error. It is nothing to do
    /// between calls, and costs a look at a number for each packed weight then.
    pub fn mend(&mut self) {
        if !self.built || self.registry.stores.iter().all(WeightStore::is_current) {
            return;
        }
        // What a device has is packed anew once it is brought back.
        if self.registry.mirror().is_ok_and(|mirror| mirror.masters_ahead()) {
            return;
        }
        let Ok(cpu) = Cpu::global() else { return };
        self.key_draws();
        for store in &mut self.registry.stores {
            // An error is that of a weight that its type does not hold.
            drop(store.refresh(cpu));
        }
    }

    /// Goes back to what the host has, where the device was lost with anything newer.
    pub(super) fn go_back(&mut self) -> Result<()> {
        if self.registry.is_synchronized() {
            return Ok(());
        }
        self.registry.go_back()?;
        if let Some(KeptBack { state, measures, .. }) = self.kept_back.take() {
            (self.optimizer_state, self.measures) = (state, measures);
        }
        // Gradients that were added up are none any more.
        self.optimizer_state.pass_rows_again();
        Ok(())
    }

    /// The error, with what is left where it is the loss of the device.
    pub(crate) fn with_loss(&self, error: Error) -> Error {
        match error {
            Error::Device(message) if message.contains(AS_READ_BACK) => {
                Error::Device(message.replacen(AS_READ_BACK, &self.describe_left(), 1))
            }
            other => other,
        }
    }

    /// What is left of the network without its device.
    fn describe_left(&self) -> String {
        let point = |state: &OptimizerState| {
            format!(
                "weights, optimizer and counters are left of step {} (epoch {}, batch {})",
                state.step, state.epoch, state.batch
            )
        };
        let newest = &self.optimizer_state;
        match &self.kept_back {
            _ if self.registry.is_synchronized() => format!("{}, the newest", point(newest)),
            Some(KeptBack { state, .. }) => {
                let lost = newest.step.saturating_sub(state.step);
                format!("{}, and the {lost} steps since are lost", point(state))
            }
            None => AS_READ_BACK.into(),
        }
    }
}
