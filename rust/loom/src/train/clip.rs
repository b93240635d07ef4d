//! Lowers what a trainer does with gradients: scaling, clipping, updates.

use super::{DepthScale, Optimizer, Watching};
use crate::Result;
use crate::layers::ParameterSpec;
use crate::network::{Network, PlacedLayer};
use crate::ops::{ClampGradient, ClipFactor, Encode, ScaleGradient, SquaredSum, Update};
use crate::program::{Builder, ParameterRef, Phase, Place, Value};
use crate::tensor::Shape;
use crate::weights::WeightStore;
#[cfg(feature = "gpu")]
use crate::{Device, Error, network::at_layer};
use std::ops::Range;

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
    lower_updates(network, b, &Updates::new(optimizer))
}

/// Where the parameters of a store are that the optimizer leaves out of the decay.
pub(crate) fn exempt_parts(
    optimizer: &Optimizer,
    weights: &WeightStore,
    specs: &[ParameterSpec],
) -> Vec<Range<usize>> {
    if !optimizer.decay_exempt() {
        return Vec::new();
    }
    let parameters = weights.parameters().iter().zip(specs);
    let exempt = parameters.filter(|(_, spec)| spec.decay_exempt);
    exempt.map(|(info, _)| info.offset..info.offset + info.len()).collect()
}

/// How all layers are updated.
pub(crate) struct Updates<'a> {
    pub(crate) optimizer: &'a Optimizer,
    pub(crate) depth_scale: DepthScale,
    /// What the measures have to say.
    pub(crate) watching: Option<&'a Watching<'a>>,
    /// Which update of the step this is, from 0, and of how many.
    pub(crate) repeat: [u32; 2],
    /// The layers that take part, by number, where not all do.
    pub(crate) only: Option<&'a [bool]>,
}

impl<'a> Updates<'a> {
    /// By this rule, once a step, all alike.
    pub(crate) fn new(optimizer: &'a Optimizer) -> Self {
        Self { optimizer, depth_scale: DepthScale::None, watching: None, repeat: [0, 1], only: None }
    }
}

/// [`lower_update`] with all there is to say about it.
pub(crate) fn lower_updates(network: &Network, b: &mut Builder, updates: &Updates<'_>) -> Result<()> {
    let Updates { optimizer, depth_scale, watching, repeat, only } = *updates;
    let count = network.layers().count();
    for (number, placed) in network.layers().enumerate() {
        if only.is_some_and(|layers| !layers[number]) {
            continue;
        }
        let (Some(store), true) = (placed.store, placed.trainable && !placed.is_tied()) else { continue };
        let weights = &network.registry.stores[store];
        weights.check_master()?;
        b.set_layer(Some(placed.path.clone()));
        b.set_phase(Phase::Update);
        let mut update = Update {
            rate_factor: placed.rate_factor * depth_scale.factor(number, count),
            repeat,
            offsets: weights.parameters().iter().map(|p| p.offset).collect(),
            ..Update::new(optimizer.clone(), weights.len())
        };
        update.exempt = exempt_parts(optimizer, weights, &placed.layer.parameters(&placed.input_shapes()));
        let frozen = weights.parameters().iter().filter(|p| placed.frozen.iter().any(|name| *name == p.name));
        update.frozen = frozen.map(|p| p.offset..p.offset + p.len()).collect();
        lower_store_update(b, store, update, watching, Some(number));
        if weights.is_packed() {
            // Later passes of this step read the version already.
            let is_last = repeat[0] + 1 == repeat[1];
            check_encodes(network, placed, store, is_last)?;
            b.set_phase(if is_last { Phase::Commit } else { Phase::Update });
            b.effect(Encode { store }, &[], &[]);
        }
    }
    b.set_layer(None);
    Ok(())
}

/// Refuses steps within a step on a GPU through weights that the host has to encode in between.
fn check_encodes(network: &Network, placed: &PlacedLayer, store: usize, is_last: bool) -> Result<()> {
    #[cfg(feature = "gpu")]
    if !is_last
        && !matches!(network.device(), Device::Cpu)
        && network.registry.stores[store].encodes_on_host()
    {
        let error = Error::Value(
            "its weights are packed by the host, which cannot do so between the local steps of one step on a \
             GPU; train with local_steps=1, on the device \"cpu\", or through a numeric type that the GPU packs, \
             such as \"int8\""
                .into(),
        );
        return Err(at_layer(placed, error));
    }
    let _ = (network, placed, store, is_last);
    Ok(())
}

/// Lowers the update of one store, which belongs to `layer` if to any.
pub(super) fn lower_store_update(
    b: &mut Builder,
    store: usize,
    mut update: Update,
    watching: Option<&Watching<'_>>,
    layer: Option<usize>,
) {
    let len = update.len;
    let mut reads = vec![gradient(b, store, len)];
    let whole = ParameterRef { store, parameter: None };
    let mut writes = vec![b.stored("master", Shape::from(len), Place::Master(whole))];
    for slot in 0..update.optimizer.slots().len() {
        writes.push(b.stored("moment", Shape::from(len), Place::Moment { store, slot }));
    }
    let is_first = update.repeat[0] == 0;
    if let Some((watched, memory, copies)) =
        watching.and_then(|watching| watching.update(b, (store, len), layer, is_first))
    {
        update.watched = Some(watched);
        reads.push(memory);
        writes.extend(copies);
    }
    b.effect(update, &reads, &writes);
}
