//! Feedback maps: what brings targets back to the input of a layer in the difference modes.

use super::config::{TargetMode, TweenConfig};
use crate::layers::{BoundParameter, Context, Feedback, FeedbackForm, ParameterSpec, Sequential};
use crate::network::{FeedbackKind, FeedbackMap, FeedbackMaps, Network, at_layer};
use crate::program::{LayerPath, ParameterRef};
use crate::{Error, Result};

impl FeedbackForm {
    /// The mode that has such maps.
    fn mode(self) -> &'static str {
        match self {
            FeedbackForm::Inverse => TargetMode::Difference.name(),
            FeedbackForm::TransposedJacobian => TargetMode::DifferenceReconstruction.name(),
        }
    }
}

/// Keys the initial weights of feedback maps, as the index of an inner layer.
const FEEDBACK: usize = 0xFEED;

impl TargetMode {
    /// What feedback maps are to become.
    pub(crate) fn feedback_form(self) -> Option<FeedbackForm> {
        match self {
            TargetMode::ChainRule | TargetMode::Layerwise => None,
            TargetMode::Difference => Some(FeedbackForm::Inverse),
            TargetMode::DifferenceReconstruction => Some(FeedbackForm::TransposedJacobian),
        }
    }
}

/// Makes the feedback maps of all layers that targets pass back through, unless they are there.
///
/// # Errors
/// [`Error::State`] naming a layer that has none.
pub(crate) fn prepare(network: &mut Network, config: &TweenConfig, top: usize) -> Result<()> {
    let mode = config.mode;
    if mode != TargetMode::ChainRule && !network.links.is_empty() {
        return Err(Error::State(format!(
            "{} passes targets back through one layer after another, and does not know links; use \
             chain_rule for grids with links",
            mode.name()
        )));
    }
    let Some(form) = mode.feedback_form() else { return Ok(()) };
    let wanted = FeedbackKind { form, top };
    if network.feedback.kind != Some(wanted) {
        make(network, wanted, None)?;
    }
    network.registry.feedback_slots = config.feedback.optimizer.slots().len();
    Ok(())
}

/// What says whether the parameters of a layer's map were saved.
pub(crate) type Saved<'a> = &'a dyn Fn(&LayerPath, &[ParameterSpec]) -> Result<()>;

/// Makes new feedback maps for the layers below `top` but the first: with initial weights, or with zeros where they
/// were `saved` and are filled next.
pub(crate) fn make(network: &mut Network, kind: FeedbackKind, saved: Option<Saved<'_>>) -> Result<()> {
    let FeedbackKind { form, top } = kind;
    network.synchronize()?;
    let mut maps = Vec::new();
    let mut stores = Vec::new();
    for (number, placed) in network.layers().enumerate().take(top).skip(1) {
        let inputs = placed.input_shapes();
        match placed.layer.target_rules().feedback(&inputs, form) {
            Feedback::Learned(layers) => {
                let layer = Sequential::joined(layers);
                let output: Vec<_> = placed.output_shape.iter().cloned().collect();
                let specs = layer.parameters(&output);
                if let Some(saved) = saved {
                    saved(&placed.path, &specs)?;
                }
                let path = placed.path.inner(FEEDBACK).hash32();
                let store = network
                    .initial_store(path, &specs, saved.is_none())
                    .map_err(|error| at_layer(placed, error))?;
                maps.push(FeedbackMap {
                    of: number,
                    layer,
                    store: network.registry.layer_stores + stores.len(),
                });
                stores.push(store);
            }
            Feedback::Backward => {}
            Feedback::Unknown => {
                let error = Error::State(format!(
                    "there is no feedback map for this kind of layer, which {} needs; use chain_rule",
                    form.mode()
                ));
                return Err(at_layer(placed, error));
            }
        }
    }
    let registry = &mut network.registry;
    registry.stores.truncate(registry.layer_stores);
    registry.stores.extend(stores);
    network.feedback = FeedbackMaps { maps, kind: Some(kind) };
    registry.clear_gradients();
    network.restart_optimizer();
    let device = network.device.clone();
    // Stores are counted anew: copies on a device are of the old ones.
    network.registry.place_on(device.mirror());
    network.invalidate();
    Ok(())
}

/// What a feedback map finds its parameters in.
pub(crate) fn context(network: &Network, map: &FeedbackMap) -> Context {
    let store = &network.registry.stores[map.store];
    let path = network.layers().nth(map.of).map(|placed| placed.path.inner(FEEDBACK)).unwrap_or_default();
    Context {
        path,
        training: true,
        parameters: store
            .parameters()
            .iter()
            .enumerate()
            .map(|(index, info)| BoundParameter {
                name: info.name.clone(),
                reference: ParameterRef { store: map.store, parameter: Some(index) },
                shape: info.layout.storage_shape(),
                active: None,
                reads_packed: info.morphable,
                quantized: false,
                by_rows: false,
                trained: true,
                made: None,
            })
            .collect(),
        ..Context::default()
    }
}
