//! Packed parameters on a device.

use super::{Mirror, PackedPart, VersionMirror};
use crate::program::{ParameterRef, Place};
use crate::shader::{Accelerator, Operand, VersionOperands};
use crate::state::{Mirror as _, Registry};
use crate::weights::WeightStore;
use crate::{Error, Result};

impl Mirror {
    /// Whether a store's versions here are those of its newest master.
    fn holds_versions(&self, index: usize, store: &WeightStore) -> bool {
        let held = &self.stores[index].versions;
        (0..store.parameters().len()).all(|number| {
            let held = held.get(number).and_then(Option::as_ref).filter(|held| held.epoch == store.epoch());
            held.map(|held| held.packing) == store.packing_of(number)
        })
    }

    pub(super) fn prepare_versions(&mut self, index: usize, registry: &Registry) -> Result<()> {
        let store = &registry.stores()[index];
        if self.holds_versions(index, store) {
            return Ok(());
        }
        // Encoded by the host from a master that has moved here.
        let newest = match store.encodes_on_host() && self.masters_ahead {
            true => Some(self.current(index, store)?),
            false => None,
        };
        let store = newest.as_ref().unwrap_or(store);
        let held = &mut self.stores[index].versions;
        held.resize_with(store.parameters().len(), || None);
        for (number, held) in held.iter_mut().enumerate() {
            let Some(packing) = store.packing_of(number) else {
                *held = None;
                continue;
            };
            let known = held.take().filter(|known| known.packing == packing);
            if known.as_ref().is_some_and(|known| known.epoch == store.epoch()) {
                *held = known;
                continue;
            }
            let (_, bytes, scales) = store.version(packing.dtype, number)?;
            let part = match known {
                Some(known) => known.part,
                None => {
                    self.generation += 1;
                    let packed = self.gpu.storage("packed weights", bytes.len() as u64)?;
                    let scales = match scales.len() {
                        0 => None,
                        count => Some((self.gpu.storage("scales", count as u64 * 4)?, count)),
                    };
                    PackedPart { bytes: packed, scales }
                }
            };
            self.gpu.upload(&part.bytes, 0, bytes);
            if let Some((memory, _)) = &part.scales {
                self.gpu.upload(memory, 0, bytemuck::cast_slice(scales));
            }
            *held = Some(VersionMirror { packing, part, epoch: store.epoch() });
        }
        Ok(())
    }

    pub(super) fn packed(&self, store: usize, index: usize) -> Option<Operand> {
        let VersionMirror { packing, part, .. } = self.stores[store].versions.get(index)?.as_ref()?;
        let scales = part.scales.as_ref().map(|(memory, count)| (memory, *count));
        Some(Operand::packed(&part.bytes, *packing, scales))
    }

    /// What encoding a store's versions reads and writes.
    pub(in crate::gpu) fn versions(&self, index: usize, registry: &Registry) -> Result<Vec<VersionOperands>> {
        let store = &registry.stores()[index];
        // What the host encodes is made anew before it is read.
        if store.encodes_on_host() {
            return Ok(Vec::new());
        }
        let mut operands = Vec::new();
        for number in 0..store.parameters().len() {
            let Some(packing) = store.packing_of(number) else { continue };
            let parameter = ParameterRef { store: index, parameter: Some(number) };
            let packed = self
                .packed(index, number)
                .ok_or_else(|| Error::Internal(format!("no version {} is on the device", packing.dtype)))?;
            let master = self.operand(Place::Master(parameter), registry)?;
            operands.push(VersionOperands { packing, master, packed });
        }
        Ok(operands)
    }
}
