//! What stateful layers carry from tick to tick.

use super::tick::carried_in;
use super::{Mesh, check_like, content, number_of};
use crate::Result;
use crate::network::{Coordinates, Network, at_layer, unknown_state};
use crate::tensor::{Tensor, TensorView};

impl Mesh {
    /// The names of what a layer carries from tick to tick, such as the state of a recurrent one.
    ///
    /// # Errors
    /// [`Error::Index`](crate::Error::Index) for a layer that is not there.
    pub fn state_names(&self, network: &Network, cell: Coordinates, layer: usize) -> Result<Vec<String>> {
        let carried = self.wiring.carried_by(number_of(network, cell, layer)?);
        Ok(carried.map(|number| self.wiring.carried[number].1.name.to_string()).collect())
    }

    /// What a layer carries into the next tick under this name: (rows, ...).
    ///
    /// # Errors
    /// [`Error::Index`](crate::Error::Index) and [`Error::Value`](crate::Error::Value) for a layer or name that
    /// is not there; [`Error::Device`](crate::Error::Device) where a GPU was lost.
    pub fn state(&self, network: &Network, cell: Coordinates, layer: usize, name: &str) -> Result<Tensor> {
        self.check_device(network)?;
        let number = self.carried_number(network, cell, layer, name)?;
        self.member(network, carried_in(&self.wiring, number), 0)
    }

    /// Sets what a layer carries into the next tick under this name: (rows, ...).
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::NonFinite`](crate::Error::NonFinite) for values that do
    /// not fit, [`Error::State`](crate::Error::State) for a network that has changed, and as
    /// [`state`](Self::state).
    pub fn set_state(
        &mut self,
        network: &mut Network,
        cell: Coordinates,
        layer: usize,
        name: &str,
        values: TensorView<'_>,
    ) -> Result<()> {
        self.check(network)?;
        let number = self.carried_number(network, cell, layer, name)?;
        self.check_row_count(&values, name)?;
        check_like(&values, &self.wiring.carried[number].1.shape, name)?;
        let content = content(network.precision(), &values)?;
        let member = carried_in(&self.wiring, number);
        self.ring_mut()?.upload(member, 0, content.bytes());
        Ok(())
    }

    /// Lets stateful layers begin new sequences at the next tick; all else stays.
    pub fn reset_states(&mut self) {
        for (number, (_, spec)) in self.wiring.carried.iter().enumerate() {
            if let Some(ring) = &mut self.ring {
                ring.fill(carried_in(&self.wiring, number), 0, spec.initial);
            }
        }
    }

    fn carried_number(
        &self,
        network: &Network,
        cell: Coordinates,
        layer: usize,
        name: &str,
    ) -> Result<usize> {
        let own: Vec<usize> = self.wiring.carried_by(number_of(network, cell, layer)?).collect();
        let named = |number: usize| &*self.wiring.carried[number].1.name;
        if let Some(number) = own.iter().find(|number| named(**number) == name) {
            return Ok(*number);
        }
        let names = own.iter().map(|number| named(*number));
        Err(at_layer(network.layer(cell, layer)?, unknown_state(name, names)))
    }
}
