//! How the shards that one process computes go through its network, and where their gradients then are.

use super::buckets::Bucket;
use super::cut::Cut;
use super::shard_gradients::{Shards, add_flat, flat};
use super::spare::Spare;
use super::summing::{Node, cover, halves};
use super::trainer::Trainer;
use super::units::Unit;
use crate::Result;
use crate::network::Network;
use crate::ops::StepValues;
use crate::simd::{Cpu, Real};
use crate::state::{DeviceGradient, State, WaitingGradients};
use crate::tensor::Buffer;
use std::ops::Range;

/// The shards of a step as they go through the network, one after the other.
pub(super) struct OneByOne<'a, 'b, T: Real> {
    pub(super) cpu: &'a Cpu,
    pub(super) trainer: &'a mut Trainer,
    pub(super) network: &'a mut Network,
    pub(super) cut: &'a Cut<'b>,
    pub(super) values: &'a StepValues,
    pub(super) states: Option<&'a [State]>,
    pub(super) buckets: &'a [Bucket],
    pub(super) units: &'a mut Vec<Unit<T>>,
}

impl<T: Real> OneByOne<'_, '_, T> {
    /// Takes a shard through the network; whether it has rows.
    fn pass(&mut self, shard: usize) -> Result<bool> {
        let place = self.cut.place(shard);
        if place.is_empty() {
            return Ok(false);
        }
        let (mut unit, values) =
            self.trainer.forward::<T>(self.network, self.cut, (shard, place), self.values)?;
        self.trainer.backward(self.network, self.buckets, &values)?;
        self.trainer.keep(self.network, &mut unit, &values, self.states)?;
        self.units.push(unit);
        Ok(true)
    }

    /// As [`sum_of`], where the gradients lie on a device: the sum is the network's gradient there.
    pub(super) fn sum_on_device(&mut self, node: Node) -> Result<bool> {
        if node.1 == 1 {
            return self.pass(node.0);
        }
        let [left, right] = halves(node);
        if !self.sum_on_device(left)? {
            return self.sum_on_device(right);
        }
        if (right.0..right.0 + right.1).all(|shard| self.cut.place(shard).is_empty()) {
            return Ok(true);
        }
        self.lay_aside()?;
        self.sum_on_device(right)?;
        self.trainer.add_aside(self.network, self.buckets, 1)?;
        Ok(true)
    }

    /// Has the newest gradient wait on its device.
    pub(super) fn lay_aside(&mut self) -> Result<()> {
        let newest = on_device(self.network, self.buckets)?;
        self.trainer.waiting(self.network)?.lay_aside(newest)
    }
}

/// The newest gradients, which are on a device.
fn on_device(network: &mut Network, buckets: &[Bucket]) -> Result<Vec<DeviceGradient>> {
    let stores = buckets.iter().flat_map(|bucket| bucket.stores.iter().zip(&bucket.lengths));
    let stores: Vec<_> = stores.map(|(store, len)| (*store, *len)).collect();
    network.registry.device_gradients()?.gradients_of(&stores)
}

impl Trainer {
    /// What waits on the network's device, and goes with the trainer.
    pub(super) fn waiting(&mut self, network: &mut Network) -> Result<&mut dyn WaitingGradients> {
        let waiting = match self.waiting.take() {
            Some(waiting) => waiting,
            None => network.registry.device_gradients()?.waiting_gradients(),
        };
        Ok(&mut **self.waiting.insert(waiting))
    }

    /// Lets go of what waits on a device: that of a step that has failed.
    pub(super) fn forget_waiting(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.forget();
        }
    }

    /// Adds the newest gradient on a device to so many that wait there, which then wait no more.
    pub(super) fn add_aside(
        &mut self,
        network: &mut Network,
        buckets: &[Bucket],
        waiting: usize,
    ) -> Result<()> {
        self.add_part_aside(network, buckets, waiting)?;
        self.release_aside(network, waiting)
    }

    /// The same with the gradients of some buckets, while those of others are yet to come; so that all still wait.
    pub(super) fn add_part_aside(
        &mut self,
        network: &mut Network,
        buckets: &[Bucket],
        waiting: usize,
    ) -> Result<()> {
        for below in 0..waiting {
            let newest = on_device(network, buckets)?;
            self.waiting(network)?.add_to(&newest, below)?;
            network.registry.device_gradients()?.note_gradients();
        }
        Ok(())
    }

    /// Lets go of so many that have waited on a device, once all of them are added.
    pub(super) fn release_aside(&mut self, network: &mut Network, waiting: usize) -> Result<()> {
        if waiting > 0 {
            self.waiting(network)?.release(waiting);
        }
        Ok(())
    }
}

impl<T: Real> Shards<T> for OneByOne<'_, '_, T> {
    fn compute(&mut self, shard: usize) -> Result<bool> {
        let passed = self.pass(shard)?;
        if passed {
            self.network.registry.fetch_gradients()?;
        }
        Ok(passed)
    }

    fn copy(&mut self) -> Vec<T> {
        flat(self.cpu, &self.network.registry.gradients, self.buckets, &mut self.trainer.spare)
    }

    fn add_to(&mut self, sum: &mut [T]) {
        add_flat(self.cpu, &self.network.registry.gradients, self.buckets, sum);
    }

    fn give(&mut self, vector: Vec<T>) {
        self.trainer.spare.give(vector);
    }
}

/// Shards that have gone through the network together, each with a gradient of its own.
pub(super) struct Together<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) gradients: &'a [(usize, Vec<Buffer>)],
    pub(super) buckets: &'a [Bucket],
    pub(super) spare: &'a mut Spare,
    pub(super) newest: &'a [Buffer],
}

impl<T: Real> Shards<T> for Together<'_> {
    fn compute(&mut self, shard: usize) -> Result<bool> {
        let found = self.gradients.iter().find(|(other, _)| *other == shard);
        self.newest = found.map_or(&[], |(_, gradients)| gradients);
        Ok(found.is_some())
    }

    fn copy(&mut self) -> Vec<T> {
        flat(self.cpu, self.newest, self.buckets, self.spare)
    }

    fn add_to(&mut self, sum: &mut [T]) {
        add_flat(self.cpu, self.newest, self.buckets, sum);
    }

    fn give(&mut self, vector: Vec<T>) {
        self.spare.give(vector);
    }
}

/// The parts of the tree that one process adds up.
pub(super) fn nodes(shards: usize, own: &Range<usize>, by_shard: bool) -> Vec<Node> {
    match by_shard {
        true => own.clone().map(|shard| (shard, 1)).collect(),
        false => cover((0, shards), own),
    }
}
