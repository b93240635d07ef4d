//! What a session has kept of its steps, to be looked at, stored, and put back.

use super::Session;
use super::drawing::kept_places;
use crate::network::Network;
use crate::ops::CacheType;
use crate::ops::attention::Unpack;
use crate::precision::in_precision;
use crate::simd::{Isa, Real};
use crate::state::{CarriedPlace, CarriedSpec};
use crate::tensor::{Buffer, Tensor, TensorView, check_finite};
use crate::{Error, Result, extents};

impl Session {
    /// What the layers carry of the steps seen so far, (rows, steps, ...) each, in the order of the layers: the keys
    /// and values of attention. What the session keeps in fewer bits comes as its bytes, taken for elements.
    ///
    /// # Errors
    /// [`Error::State`] where a layer's state is that of the newest step alone, [`Error::Device`] where it is on a GPU
    /// that was lost.
    pub fn kept(&self) -> Result<Vec<Tensor>> {
        self.check_by_place()?;
        let contents = self.carried.contents()?;
        let places = self.carried.places().iter().zip(&contents);
        places
            .take(kept_places(&self.carried))
            .map(|(place, content)| {
                let extents = &place.spec.shape[..];
                in_precision!(self.carried.precision(), T => self.first_steps::<T>(extents, content))
            })
            .collect()
    }

    /// Of each part of [`kept`](Self::kept), whether it is bytes, taken for elements.
    pub fn packs(&self) -> Vec<bool> {
        let packed = |place: &CarriedPlace| self.cache != CacheType::Full && place.spec.packable.is_some();
        self.carried.places().iter().take(kept_places(&self.carried)).map(packed).collect()
    }

    fn first_steps<T: Real>(&self, extents: &[usize], content: &Buffer) -> Result<Tensor> {
        let places = extents.first().copied().unwrap_or(1).max(1);
        let elements: usize = extents.iter().product();
        let len = self.position * (elements / places);
        let mut kept: Vec<T> = extents::zeros(extents::elements("what a session keeps", self.rows, len)?)?;
        if len > 0 {
            let rows = content.as_slice::<T>().chunks_exact(elements);
            for (row, kept) in rows.zip(kept.chunks_exact_mut(len)) {
                kept.copy_from_slice(&row[..len]);
            }
        }
        let mut shape = vec![self.rows, self.position];
        shape.extend(extents.iter().skip(1));
        Tensor::new(shape, kept)
    }

    /// Puts back what [`kept`](Self::kept) has given, of this network with these weights: the session has seen those
    /// steps, and no others.
    ///
    /// # Errors
    /// [`Error::Shape`] for what another network, another number of rows, or a session with more room has kept;
    /// [`Error::NonFinite`]; and as `kept`.
    pub fn restore(&mut self, network: &Network, kept: &[TensorView<'_>]) -> Result<()> {
        self.check_by_place()?;
        self.reset(network)?;
        let mut contents = self.carried.contents()?;
        let steps = kept.first().and_then(|kept| kept.shape().get(1).copied()).unwrap_or(0);
        let wanted = kept_places(&self.carried);
        if kept.len() != wanted || steps > self.capacity {
            return Err(Error::Shape(format!(
                "this session keeps {} tensors of up to {} steps, got {} of {steps}",
                wanted,
                self.capacity,
                kept.len()
            )));
        }
        for ((place, content), kept) in self.carried.places().iter().zip(&mut contents).zip(kept) {
            let extents = &place.spec.shape[..];
            let wanted: Vec<usize> =
                [self.rows, steps].iter().chain(extents.iter().skip(1)).copied().collect();
            if kept.shape() != wanted {
                return Err(Error::Shape(format!(
                    "\"{}\" of this session is {wanted:?}, got {:?}",
                    place.spec.name,
                    kept.shape()
                )));
            }
            in_precision!(self.carried.precision(), T => {
                self.check_finite::<T>(&place.spec, kept)?;
                put::<T>(content, kept, self.rows);
            });
        }
        self.carried.restore(contents);
        self.position = steps;
        Ok(())
    }

    /// Refuses what is infinite or NaN, packed or not.
    fn check_finite<T: Real>(&self, spec: &CarriedSpec, kept: &TensorView<'_>) -> Result<()> {
        const WHAT: &str = "what a session has kept";
        let (cache, extent) = match (self.cache, spec.packable) {
            (CacheType::Full, _) | (_, None) => return check_finite(kept, WHAT),
            (cache, Some(extent)) => (cache, extent),
        };
        let mut packed = vec![T::ZERO; kept.elements().len()];
        kept.copy_to(&mut packed);
        let stride = cache.elements(T::PRECISION, extent);
        let mut numbers = vec![T::ZERO; packed.len() / stride * extent];
        T::dispatch(Isa::best(), Unpack { cache, packed: &packed, stride, extent, numbers: &mut numbers });
        check_finite(&crate::tensor_view(&[numbers.len()], &numbers)?, WHAT)
    }

    fn check_by_place(&self) -> Result<()> {
        match self.by_place {
            true => Ok(()),
            false => Err(Error::State(
                "a recurrent layer keeps the state of the newest step alone, so there are no steps to keep"
                    .into(),
            )),
        }
    }
}

/// Writes the first steps of each row.
fn put<T: Real>(content: &mut Buffer, kept: &TensorView<'_>, rows: usize) {
    let mut all = vec![T::ZERO; kept.elements().len()];
    kept.copy_to(&mut all);
    let content = content.as_mut_slice::<T>();
    let (row, len) = (content.len() / rows, all.len() / rows);
    if len > 0 {
        for (content, all) in content.chunks_exact_mut(row).zip(all.chunks_exact(len)) {
            content[..len].copy_from_slice(all);
        }
    }
}
