//! Going back to what the host has, where the device with the newest weights is lost.

use super::Network;
use super::kept_back::KeptBack;
use crate::error::AS_READ_BACK;
use crate::state::OptimizerState;
use crate::{Error, Result};

impl Network {
    /// Notes the counters before a device moves anything that it alone has from there on.
    pub(crate) fn keep_back(&mut self) {
        if !self.device.is_host() && self.registry.is_synchronized() {
            self.kept_back =
                Some(KeptBack { state: self.optimizer_state.clone(), measures: self.measures.clone() });
        }
    }

    /// Goes back to what the host has, where the device was lost with anything newer.
    pub(super) fn go_back(&mut self) -> Result<()> {
        if self.registry.is_synchronized() {
            return Ok(());
        }
        self.registry.go_back()?;
        if let Some(KeptBack { state, measures }) = self.kept_back.take() {
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
