//! Lowers what a trainer does with gradients: scaling, clipping, updates.

use super::{DepthScale, TrainingConfig, Watching};
use crate::layers::ParameterSpec;
use crate::network::{Network, PlacedLayer};
use crate::ops::update::Optimizer;
use crate::ops::{
    ClampGradient, ClipFactor, Directions, Encode, ScaleGradient, SquaredSum, TrustRatio, Update,
};
use crate::ops::{
    Foresee, Foresight, Op,
    foresee::{Foreseen, held},
};
use crate::program::{Builder, ParameterRef, Phase, Place, Value};
use crate::tensor::Shape;
use crate::weights::WeightStore;
use crate::{Error, Result, network::at_layer};
use std::ops::Range;

/// A store's whole flat gradient.
fn gradient(b: &mut Builder, store: usize, len: usize) -> Value {
    let place = Place::Gradient(ParameterRef { store, parameter: None });
    b.stored("gradient", Shape::from(len), place)
}

/// How gradients are clipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clips {
    /// All together, by their global norm.
    pub(crate) norm: bool,
    /// Element by element.
    pub(crate) elements: bool,
}

impl Clips {
    /// By their norm alone, or not at all where the limit is infinite.
    pub(crate) const NORM: Self = Self { norm: true, elements: false };

    /// As a training is set to.
    pub(super) fn of(config: &TrainingConfig) -> Self {
        Self { norm: config.largest_norm().is_some(), elements: config.clip_value.is_some() }
    }
}

/// Lowers clipping, with the global norm where that is needed.
///
/// Gradients of a `scaled` loss are divided by the scale along with that, and their norm is always
/// looked at: it tells whether the scale was too large.
pub(crate) fn lower_clip(network: &Network, b: &mut Builder, clips: Clips, scaled: bool) -> Result<()> {
    b.set_phase(Phase::Verdict);
    let stores: Vec<(usize, usize)> =
        network.trained_stores().map(|(store, _)| (store, network.registry.stores[store].len())).collect();
    if clips.elements {
        for &(store, len) in &stores {
            let gradient = gradient(b, store, len);
            b.effect(ClampGradient { len, scaled }, &[], &[gradient]);
        }
    }
    if (clips.norm || scaled) && !stores.is_empty() {
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
    let Updates { watching, repeat, only, .. } = *updates;
    let count = network.layers().count();
    for (number, placed) in network.layers().enumerate() {
        if only.is_some_and(|layers| !layers[number]) {
            continue;
        }
        for store in placed.trained_stores() {
            let weights = &network.registry.stores[store];
            weights.check_master().map_err(|error| at_layer(placed, error))?;
            b.set_layer(Some(placed.path.clone()));
            b.set_phase(Phase::Update);
            let update = update_of(network, updates, (number, count), placed, store);
            lower_store_update(network, b, store, update, watching, Some(number));
            if weights.is_packed() {
                // Later passes of this step read the version already.
                let is_last = repeat[0] + 1 == repeat[1];
                check_encodes(network, placed, store, is_last)?;
                b.set_phase(if is_last { Phase::Commit } else { Phase::Update });
                b.effect(Encode { store }, &[], &[]);
            }
        }
    }
    b.set_layer(None);
    Ok(())
}

/// The update of a layer's store, or of one of its adapters'.
fn update_of(
    network: &Network,
    updates: &Updates<'_>,
    (number, count): (usize, usize),
    placed: &PlacedLayer,
    store: usize,
) -> Update {
    let weights = &network.registry.stores[store];
    let mut update = Update {
        rate_factor: placed.rate_factor * updates.depth_scale.factor(number, count),
        repeat: updates.repeat,
        offsets: weights.parameters().iter().map(|p| p.offset).collect(),
        ..Update::new(updates.optimizer.clone(), weights.len())
    };
    if placed.store == Some(store) {
        let specs = placed.layer.parameters(&placed.input_shapes());
        update.exempt = exempt_parts(updates.optimizer, weights, &specs);
    }
    let frozen = weights.parameters().iter().filter(|p| placed.frozen.iter().any(|name| *name == p.name));
    update.frozen = frozen.map(|p| p.offset..p.offset + p.len()).collect();
    update
}

/// What a step is about to move, for a look ahead at it: the store, its update, and the layer that it
/// belongs to if to any.
pub(super) type Moved = (usize, Update, Option<usize>);

/// All that [`lower_updates`] moves.
pub(super) fn moved_by(network: &Network, updates: &Updates<'_>) -> Vec<Moved> {
    let count = network.layers().count();
    let layers = network.layers().enumerate();
    let trained = layers.flat_map(|(number, placed)| {
        let update = move |store| update_of(network, updates, (number, count), placed, store);
        placed.trained_stores().map(move |store| (store, update(store), Some(number)))
    });
    trained.collect()
}

/// Lowers a look ahead at everything that [`lower_updates`] and the states of layers are about to write, on
/// devices that take back nothing.
pub(crate) fn lower_foresight(network: &Network, b: &mut Builder, updates: &Updates<'_>) -> Result<()> {
    lower_look(network, b, moved_by(network, updates), updates.watching)
}

/// [`lower_foresight`] at these updates.
pub(super) fn lower_look(
    network: &Network,
    b: &mut Builder,
    moved: Vec<Moved>,
    watching: Option<&Watching<'_>>,
) -> Result<()> {
    if moved.iter().any(|(_, update, _)| update.repeat[1] > 1) {
        return Ok(());
    }
    b.set_phase(Phase::Verdict);
    for (store, update, _) in &moved {
        network.registry.stores[*store].check_master()?;
        let operands = lower_operands(network, b, *store, update);
        b.update_operands.insert(*store, operands);
    }
    if network.device().is_host() {
        return Ok(());
    }
    let mut looks: Vec<Value> = Vec::new();
    let one = || Shape::from(1);
    b.set_phase(Phase::Verdict);
    for (store, mut update, layer) in moved {
        let weights = &network.registry.stores[store];
        weights.check_master()?;
        let len = weights.len();
        let whole = Place::Master(ParameterRef { store, parameter: None });
        let mut reads = b.update_operands.get(&store).cloned().unwrap_or_default();
        reads.push(b.stored("master", Shape::from(len), whole));
        for slot in 0..update.optimizer.slots().len() {
            reads.push(b.stored("moment", Shape::from(len), Place::Moment { store, slot }));
        }
        if let Some((watched, memory)) = watching.and_then(|watching| watching.decision(b, layer)) {
            update.watched = Some(watched);
            reads.push(memory);
        }
        let what = Foreseen::Update(Box::new(update), held(weights));
        looks.push(look(b, what, &reads));
        b.ports.foresight.push((None, whole));
    }
    for commit in b.commits().to_vec() {
        let Some(written) = commit.writes.first() else { continue };
        let (what, reads) = match &commit.op {
            Op::RunningAverage(average) => {
                (Foreseen::Average(average.clone()), vec![commit.reads[0], *written])
            }
            _ => (Foreseen::Values, vec![commit.reads[0]]),
        };
        b.ports.foresight.push((commit.at.clone(), b.info(*written).place));
        looks.push(look(b, what, &reads));
    }
    let mut before = 0;
    let groups = looks.chunks(Foresight::MOST);
    let last = groups.len().saturating_sub(1);
    for (number, group) in groups.enumerate() {
        let reads: Vec<Value> = group.iter().copied().chain(b.ports.foreseen).collect();
        let judged = watching.filter(|_| number == last && b.ports.recovers).and_then(|w| w.judged_again(b));
        let (judged, memory) = judged.unzip();
        let op = Foresight { count: group.len(), before, judged };
        let foreseen = b.apply_fixed_beside(op, &reads, "foreseen", one(), memory);
        // The verdict reads it after the program's own steps.
        b.pin(foreseen);
        b.ports.foreseen = Some(foreseen);
        before += group.len();
    }
    Ok(())
}

/// Looks ahead at what a step is about to write. What was found is set back by who brings looks together, for the next
/// step: so nothing else may lie there.
fn look(b: &mut Builder, what: Foreseen, reads: &[Value]) -> Value {
    let found = b.apply_fixed(Foresee { what }, reads, "look", Shape::from(1));
    b.pin(found);
    found
}

/// Refuses steps within a step on a GPU through weights that the host has to encode in between.
fn check_encodes(network: &Network, placed: &PlacedLayer, store: usize, is_last: bool) -> Result<()> {
    if !is_last && !network.device().is_host() && network.registry.stores[store].encodes_on_host() {
        let error = Error::Value(
            "its weights are packed by the host, which cannot do so between the local steps of one step on a \
             GPU; train with local_steps=1, on the device \"cpu\", or through a numeric type that the GPU packs, \
             such as \"int8\""
                .into(),
        );
        return Err(at_layer(placed, error));
    }
    Ok(())
}

/// What the update of a store reads but for the memory of the measures: the gradient, and what its rule wants to
/// know of whole parameters.
fn lower_operands(network: &Network, b: &mut Builder, store: usize, update: &Update) -> Vec<Value> {
    let len = update.len;
    let gradient = gradient(b, store, len);
    if !update.optimizer.goes_by_norms() && !update.optimizer.is_made_beside() {
        return vec![gradient];
    }
    let whole = Place::Master(ParameterRef { store, parameter: None });
    let mut reads = vec![gradient, b.stored("master", Shape::from(len), whole)];
    let slots = update.optimizer.slots().len();
    for slot in 0..slots {
        reads.push(b.stored("moment", Shape::from(len), Place::Moment { store, slot }));
    }
    let parameters = network.registry.stores[store].parameters();
    if update.optimizer.goes_by_norms() {
        let parts = parameters.iter().map(|info| info.offset..info.offset + info.len()).collect();
        let op = TrustRatio { update: Box::new(update.clone()), parts };
        return vec![gradient, b.apply_fixed(op, &reads, "trust_ratio", Shape::from(parameters.len()))];
    }
    let op = Directions::new(update, parameters);
    let scratch = Shape::from(op.scratch());
    let made = std::iter::repeat_n(("made moment", Shape::from(len)), slots);
    let results = std::iter::once(("direction", Shape::from(len))).chain(made).chain([("scratch", scratch)]);
    let mut operands = b.apply_list_fixed(op, &reads, results);
    operands.truncate(1 + slots);
    operands
}

/// Lowers the update of one store, which belongs to `layer` if to any.
pub(super) fn lower_store_update(
    network: &Network,
    b: &mut Builder,
    store: usize,
    mut update: Update,
    watching: Option<&Watching<'_>>,
    layer: Option<usize>,
) {
    let len = update.len;
    // A look ahead has needed them already.
    let made = b.update_operands.remove(&store);
    let mut reads = made.unwrap_or_else(|| lower_operands(network, b, store, &update));
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
