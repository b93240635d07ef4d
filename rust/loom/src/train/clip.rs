//! Lowers what a trainer does with gradients: scaling, clipping, updates.

use super::Optimizer;
use crate::Result;
use crate::network::Network;
use crate::ops::{ClampGradient, ClipFactor, Encode, ScaleGradient, SquaredSum, Update};
use crate::program::{Builder, ParameterRef, Phase, Place, Value};
use crate::tensor::Shape;

/// A store's whole flat gradient.
fn gradient(b: &mut Builder, store: usize, len: usize) -> Value {
    let place = Place::Gradient(ParameterRef { store, parameter: None });
    b.stored("gradient", Shape::from(len), place)
}

/// Lowers clamping of elements (`clamp`), the global norm and scaling by it (`norm`).
///
/// Gradients of a `scaled` loss are divided by the scale along with that, and their norm is always
/// looked at: it tells whether the scale was too large.
pub(crate) fn lower_clip(
    network: &Network,
    b: &mut Builder,
    [norm, clamp]: [bool; 2],
    scaled: bool,
) -> Result<()> {
    b.set_phase(Phase::Verdict);
    let stores: Vec<(usize, usize)> =
        network.trained_stores().map(|(store, _)| (store, network.registry.stores[store].len())).collect();
    if clamp {
        for &(store, len) in &stores {
            let gradient = gradient(b, store, len);
            b.effect(ClampGradient { len, scaled }, &[], &[gradient]);
        }
    }
    if (norm || scaled) && !stores.is_empty() {
        let mut total: Option<Value> = None;
        for &(store, len) in &stores {
            let gradient = gradient(b, store, len);
            let reads: Vec<Value> = [Some(gradient), total].into_iter().flatten().collect();
            let op = SquaredSum { len, first: total.is_none() };
            total = Some(b.apply_fixed(op, &reads, "squares", Shape::from(1)));
        }
        let reads: Vec<Value> = total.into_iter().collect();
        let factor = b.apply_fixed(ClipFactor { scaled }, &reads, "clip", Shape::from(2));
        b.ports.gradient_norm = Some(factor);
        lower_scale(network, b, factor);
    }
    Ok(())
}

/// Lowers scaling of every gradient by the second element of `factor`.
pub(crate) fn lower_scale(network: &Network, b: &mut Builder, factor: Value) {
    let stores: Vec<(usize, usize)> =
        network.trained_stores().map(|(store, _)| (store, network.registry.stores[store].len())).collect();
    for (store, len) in stores {
        let gradient = gradient(b, store, len);
        b.effect(ScaleGradient { len }, &[factor], &[gradient]);
    }
}

/// Lowers the update of every trained store, and the encoding of versions that follow it.
pub(crate) fn lower_update(network: &Network, b: &mut Builder, optimizer: &Optimizer) -> Result<()> {
    lower_update_scaled(network, b, optimizer, |_| 1.0)
}

/// [`lower_update`] with a factor on the rate of each trained layer, by its number among the layers.
pub(crate) fn lower_update_scaled(
    network: &Network,
    b: &mut Builder,
    optimizer: &Optimizer,
    scale: impl Fn(usize) -> f64,
) -> Result<()> {
    for (number, placed) in network.layers().enumerate() {
        let (Some(store), true) = (placed.store, placed.trainable && !placed.is_tied()) else { continue };
        let weights = &network.registry.stores[store];
        weights.check_master()?;
        let len = weights.len();
        b.set_layer(Some(placed.path.clone()));
        b.set_phase(Phase::Update);
        let gradient = gradient(b, store, len);
        let whole = ParameterRef { store, parameter: None };
        let mut writes = vec![b.stored("master", Shape::from(len), Place::Master(whole))];
        for slot in 0..optimizer.slots().len() {
            writes.push(b.stored("moment", Shape::from(len), Place::Moment { store, slot }));
        }
        let exempt = if optimizer.decay_exempt() {
            weights
                .parameters()
                .iter()
                .filter(|p| !p.morphable)
                .map(|p| p.offset..p.offset + p.len())
                .collect()
        } else {
            Vec::new()
        };
        let rate_factor = placed.rate_factor * scale(number);
        let offsets = weights.parameters().iter().map(|p| p.offset).collect();
        let update =
            Update { optimizer: optimizer.clone(), rate_factor, len, offsets, exempt, watched: None };
        b.effect(update, &[gradient], &writes);
        if let Some(dtype) = placed.dtype {
            b.set_phase(Phase::Commit);
            b.effect(Encode { store, dtype }, &[], &[]);
        }
    }
    b.set_layer(None);
    Ok(())
}
