//! What keeps a step from landing, and where it was found.

use crate::Error;
use crate::network::{Network, describe_path};
use crate::program::LayerPath;

/// What a step would have made infinite or NaN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The layer, described.
    pub(crate) layer: String,
    /// What of it, and what would have become of it.
    pub(crate) what: String,
}

impl Fault {
    /// As an error of a training step.
    pub(crate) fn error(&self, step: u64) -> Error {
        Error::NonFinite(format!(
            "step {step} was taken back: in {} {}; lower the learning rate, clip gradients, or skip such steps \
             with on_nonfinite=\"skip\"",
            self.layer, self.what
        ))
    }

    /// As an error of a call that only moves what layers keep.
    pub(crate) fn error_of_call(&self) -> Error {
        Error::NonFinite(format!(
            "in {} {}; it was left as before; check the input and its scale, or lower the learning rate",
            self.layer, self.what
        ))
    }

    /// As an error of a call that applies gradients.
    pub(crate) fn error_of_update(&self) -> Error {
        Error::NonFinite(format!(
            "in {} {}; nothing was updated and the gradients are still there: clip them, lower the learning \
             rate, or call zero_gradients()",
            self.layer, self.what
        ))
    }
}

/// Describes the layer at a path, which may be inside a composite one.
pub(crate) fn describe_at(network: &Network, path: Option<&LayerPath>) -> String {
    let placed = path
        .and_then(|path| network.layers().find(|placed| path.indices().starts_with(placed.path.indices())));
    placed.map_or_else(|| "the network".into(), describe_path)
}

/// Describes the layer that a store belongs to.
pub(super) fn describe_store(network: &Network, store: usize) -> String {
    let of_map = network.feedback.maps.iter().find(|map| map.store == store).map(|map| map.of);
    match of_map.and_then(|layer| network.layers().nth(layer)) {
        Some(placed) => format!("the feedback map of {}", describe_path(placed)),
        None => network
            .layers()
            .find(|placed| placed.all_stores().any(|own| own == store))
            .map_or_else(|| "the network".into(), describe_path),
    }
}
