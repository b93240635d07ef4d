//! What no file may hold: the one check that saving and loading share.

use crate::dtype::Packing;
use crate::network::{Network, describe_path};
use crate::ops::update::largest;
use crate::simd::{Cpu, Real};
use crate::tensor::{Buffer, Precision};
use crate::{Error, Result};

/// Refuses a network whose weights, scales or layers' states are not finite: [`load`](Network::load)
/// would not take them back.
///
/// # Errors
/// [`Error::NonFinite`] naming the layer and what of it.
pub(super) fn check_content(network: &Network) -> Result<()> {
    let cpu = Cpu::global()?;
    let double = network.precision().stored() == Precision::Float64;
    let is_odd = |bytes: &[u8]| match double {
        true => is_odd::<f64>(cpu, bytes),
        false => is_odd::<f32>(cpu, bytes),
    };
    for placed in network.layers() {
        let refused = |name: &str| {
            Err(Error::NonFinite(format!(
                "{}: \"{name}\" holds NaN or infinity, which no file may; set it, or go back to the last \
                 good checkpoint",
                describe_path(placed)
            )))
        };
        for state in network.registry.kept(placed.states.clone())? {
            if is_odd(state.content.bytes())? {
                return refused(&state.spec.name);
            }
        }
        let of_map = network
            .feedback
            .maps
            .iter()
            .filter(|map| network.layers().nth(map.of).is_some_and(|of| of.path() == placed.path()));
        let own = placed.store.into_iter().chain(placed.adapter_stores());
        for store in own.chain(of_map.map(|map| map.store)) {
            let weights = network.registry.held(store)?;
            for (index, info) in weights.parameters().iter().enumerate() {
                let packed = weights.dtype_of(index);
                let has_float = !(weights.is_dropped() && packed.is_some());
                if has_float && is_odd(weights.float_bytes(Some(index))?)? {
                    return refused(&info.name);
                }
                let scaled = |packing: &Packing| packing.scale_words() > 0;
                // What has no scales beside its codes need not be read.
                if !weights.packing_of(index).as_ref().is_some_and(scaled) {
                    continue;
                }
                let Some(dtype) = packed else { continue };
                let (packing, _, scales) = weights.version(dtype, index)?;
                if packing.has_odd_scales(scales) {
                    return refused(&info.name);
                }
            }
        }
    }
    Ok(())
}

fn is_odd<T: Real>(cpu: &Cpu, bytes: &[u8]) -> Result<bool> {
    let aligned = bytemuck::try_cast_slice::<u8, T>(bytes);
    let largest = match aligned {
        Ok(elements) => largest(cpu, elements),
        Err(_) => largest(cpu, Buffer::from_slice(bytes)?.as_slice::<T>()),
    };
    Ok(!largest.is_finite())
}
