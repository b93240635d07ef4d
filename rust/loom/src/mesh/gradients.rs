//! Gradients back through the window.

use super::cells::{Given, Shares};
use super::lessons::Learning;
use super::{Mesh, check_like, lost_ring};
use crate::network::{Network, Watch};
use crate::precision::in_precision;
use crate::simd::Real;
use crate::state::Member;
use crate::tensor::{Buffer, Tensor};
use crate::{Error, Result};

/// What gradients of a loss are multiplied by while they go back.
pub(super) fn scale_of(network: &Network) -> f64 {
    network.loss_scale().map_or(1.0, |now| f64::from(now.scale))
}

impl Mesh {
    /// Adds to the gradients of all parameters those of a loss whose gradients with respect to what cells
    /// handed on at the newest ticks are given, going back through the window; returns the gradient with respect
    /// to the network's input at each tick that it went through, (ticks, rows, ...), the oldest first.
    ///
    /// Summed over ticks that is the gradient of an input that was held all through them. It is zero where
    /// the input holds indices.
    ///
    /// Each layer computes its tick again from what it had read, with the same random draws: nothing but
    /// outputs is kept. Where weights have moved since an older tick of the window, gradients pass through
    /// the weights as they are now, at what layers held then. The network's own
    /// [`clip_gradients`](Network::clip_gradients) and [`apply_gradients`](Network::apply_gradients)
    /// come next.
    ///
    /// # Errors
    /// [`Error::State`] before any tick in training mode; [`Error::Value`] for an age that is not within [`reach`](Self::reach); [`Error::Shape`] and
    /// [`Error::NonFinite`] for gradients that do not fit.
    pub fn backward(&mut self, network: &mut Network, gradients: &[Given<'_>]) -> Result<Tensor> {
        self.check(network)?;
        self.check_trains()?;
        for given in gradients {
            let shape = self.wiring.shape_of(self.read_of(network, given.cell)?)?;
            check_like(&given.gradient, &shape, "gradient")?;
            self.check_row_count(&given.gradient, "gradient")?;
            if given.age >= self.reach {
                return Err(Error::Value(format!(
                    "a gradient is given for {} ticks ago, but there are only {} ticks to go back through \
                     (the window is {})",
                    given.age, self.reach, self.window
                )));
            }
        }
        if gradients.is_empty() {
            return Err(Error::Value("no gradient is given".into()));
        }
        for (number, given) in gradients.iter().enumerate() {
            if gradients[..number].iter().any(|other| (other.cell, other.age) == (given.cell, given.age)) {
                return Err(Error::Value("two gradients are given for one cell and tick".into()));
            }
        }
        self.forget_given();
        let direct = self.give(network, gradients)?;
        self.measure(network, None);
        self.learn_by(None);
        self.ask_for_input(true)?;
        // Gradients are scaled only while they are computed: what is there already is so in between, too.
        let scale = scale_of(network);
        if !network.registry.gradients_zeroed {
            network.scale_gradients(scale)?;
        }
        let count = self.go_back(network, self.rows as u64)?;
        network.scale_gradients(1.0 / scale)?;
        in_precision!(network.precision(), T => self.input_gradient::<T>(count, scale, &direct))
    }

    /// Says whether gradients of the network's input are wanted.
    pub(super) fn ask_for_input(&mut self, wanted: bool) -> Result<()> {
        while wanted && self.input_gradients.len() < self.wiring.input_readers.len() {
            let member = Member { shape: self.input_shape.clone(), slots: self.turns };
            let number = self.ring_mut()?.add(member)?;
            self.input_gradients.push(number);
        }
        if wanted != self.wants_input {
            self.wants_input = wanted;
            self.backward = None;
        }
        Ok(())
    }

    /// What has come to the network's input at each of these newest ticks, the oldest first; some by age
    /// `direct` from cells that handed it on.
    fn input_gradient<T: Real>(
        &self,
        count: usize,
        scale: f64,
        direct: &[(usize, Buffer)],
    ) -> Result<Tensor> {
        let Some(ring) = &self.ring else { return Err(lost_ring()) };
        let each = self.rows * self.input_shape.len();
        let mut elements = vec![T::ZERO; count * each];
        for (sum, age) in elements.chunks_mut(each.max(1)).zip((0..count).rev()) {
            for member in &self.input_gradients {
                let content = ring.download(*member, age)?;
                sum.iter_mut().zip(content.as_slice::<T>()).for_each(|(sum, x)| *sum += *x);
            }
        }
        if scale != 1.0 {
            elements.iter_mut().for_each(|x| *x *= T::from_f64(1.0 / scale));
        }
        for (age, gradient) in direct {
            let sum = elements.chunks_mut(each.max(1)).rev().nth(*age).into_iter().flatten();
            sum.zip(gradient.as_slice::<T>()).for_each(|(sum, x)| *sum += *x);
        }
        Tensor::new([&[count, self.rows], &self.input_shape[..]].concat(), elements)
    }

    /// Says what is measured while gradients go back; the network has been prepared for it.
    pub(super) fn measure(&mut self, network: &Network, watch: Option<&Watch>) {
        let wanted = watch.cloned().zip(network.registry.watch.clone());
        if wanted != self.watch {
            self.watch = wanted;
            self.backward = None;
        }
    }

    /// Refuses what cannot be gone back through.
    pub(super) fn check_trains(&self) -> Result<()> {
        if self.reach == 0 {
            return Err(Error::State(match (self.window, self.training) {
                (0, _) => "a mesh of window 0 only infers; make one with a larger window to go back".into(),
                (_, false) => "the newest ticks were not in training mode; call set_training(true)".into(),
                (_, true) => "there is no tick to go back through; call tick first".to_string(),
            }));
        }
        Ok(())
    }

    /// Lays gradients ready, scaled where losses are; they have been checked. Returns what of them goes
    /// straight to the network's input, by age.
    pub(super) fn give(
        &mut self,
        network: &Network,
        gradients: &[Given<'_>],
    ) -> Result<Vec<(usize, Buffer)>> {
        let Shares { layers, input } =
            in_precision!(network.precision(), T => self.shares::<T>(network, gradients)?);
        for ((layer, age), mut content) in layers {
            let member = match self.given.get(&layer) {
                Some(member) => *member,
                None => self.take_gradients_of(layer)?,
            };
            if network.scales_loss() {
                let scale = scale_of(network) as f32;
                content.as_mut_slice::<f32>().iter_mut().for_each(|x| *x *= scale);
            }
            let tick = self.tick - age as u64;
            let turns = self.turns as u64;
            // What was laid there a whole turn ago and never used is gone.
            self.given_ticks.retain(|(held, at)| *held != layer || at % turns != tick % turns);
            self.given_ticks.insert((layer, tick));
            self.ring_mut()?.upload(member, age, content.bytes());
        }
        Ok(input)
    }

    /// Makes room for gradients of a layer's output that are given.
    pub(super) fn take_gradients_of(&mut self, layer: usize) -> Result<usize> {
        let member = Member { shape: self.wiring.shapes[layer].clone(), slots: self.turns };
        let number = self.ring_mut()?.add(member)?;
        self.given.insert(layer, number);
        self.backward = None;
        Ok(number)
    }

    /// Forgets gradients that are laid ready.
    pub(super) fn forget_given(&mut self) {
        for (layer, tick) in std::mem::take(&mut self.given_ticks) {
            let age = (self.tick - tick) as usize;
            if let (Some(member), Some(ring)) = (self.given.get(&layer), &mut self.ring) {
                ring.clear(*member, age);
            }
        }
    }

    /// Forgets gradients of ticks that cannot be reached any more.
    fn forget_unreachable(&mut self) {
        let oldest = self.tick + 1 - self.reach as u64;
        let gone: Vec<(usize, u64)> =
            self.given_ticks.iter().copied().filter(|(_, tick)| *tick < oldest).collect();
        for (layer, tick) in gone {
            self.given_ticks.remove(&(layer, tick));
            let age = (self.tick - tick) as usize;
            if let (Some(member), Some(ring)) = (self.given.get(&layer), &mut self.ring) {
                ring.clear(*member, age);
            }
        }
    }

    /// Goes back through as many ticks as can be reached, with the gradients laid ready, which are then used up.
    /// Losses are means over `batch_rows` rows, where anything is measured.
    pub(super) fn go_back(&mut self, network: &mut Network, batch_rows: u64) -> Result<usize> {
        self.forget_unreachable();
        let count = self.reach;
        let outcome = match self.learning.as_ref().is_some_and(Learning::is_layerwise) {
            true => self.teach_layerwise(network, batch_rows),
            false => self.through_time(network, count, batch_rows),
        };
        self.forget_given();
        outcome.map(|()| count)
    }

    fn through_time(&mut self, network: &mut Network, count: usize, batch_rows: u64) -> Result<()> {
        if self.learning.is_some() {
            self.reached = self.reached_ages();
        }
        let mut backward = match self.backward.take() {
            Some(backward) => backward,
            None => self.compile_backward(network)?,
        };
        let outcome = match self.ring.is_some() {
            true => self.with_ring(network, |mesh, network| {
                mesh.run_backward(network, &mut backward, count, batch_rows)
            }),
            false => Err(lost_ring()),
        };
        self.backward = Some(backward);
        outcome
    }
}
