//! Feedback maps of layers, which targets are brought back by.

use crate::layers::{FeedbackForm, Layer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One layer's learned feedback map.
#[derive(Clone, Debug)]
pub(crate) struct FeedbackMap {
    /// The layer it goes back through, by its number.
    pub(crate) of: usize,
    pub(crate) layer: Arc<dyn Layer>,
    /// Its weights, in the registry.
    pub(crate) store: usize,
}

/// The feedback maps of a network's layers, whose stores come after those of all layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct FeedbackMaps {
    pub(crate) maps: Vec<FeedbackMap>,
    /// Which there are.
    pub(crate) kind: Option<FeedbackKind>,
}

impl FeedbackMaps {
    /// The learned map back through a layer.
    pub(crate) fn of(&self, layer: usize) -> Option<&FeedbackMap> {
        self.maps.iter().find(|map| map.of == layer)
    }
}

/// Which feedback maps there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FeedbackKind {
    /// What they are to become.
    pub(crate) form: FeedbackForm,
    /// The layer that learns from the loss itself: those below it but the first have maps.
    pub(crate) top: usize,
}
