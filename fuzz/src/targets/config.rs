//! Settings as JSON: of networks and of how they are trained.

use super::{documented, limits};
use loom::Network;
use loom::train::{TrainingConfig, TweenConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a grid of cells takes, however few of them have layers.
const BESIDE: usize = 1 << 27;

/// Reads settings; those of a network that are accepted are written as what is read as the same.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let made = limits::within(BESIDE + 64 * data.len(), || documented(Network::from_json(text)));
    if let Some(network) = made {
        let written = network.to_json().expect("what was read is written");
        let again = Network::from_json(&written).expect("what was written is read");
        assert_eq!(again.config(), network.config());
        limits::within(BESIDE, || documented(network.summary_rows()));
    }
    if let Some(config) = settings::<TrainingConfig>(text) {
        documented(config.validate());
    }
    if let Some(config) = settings::<TweenConfig>(text) {
        documented(config.training().validate());
    }
}

/// Settings that are read, and written as what is read as the same.
fn settings<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(text: &str) -> Option<T> {
    let made: T = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&made).expect("what was read is written");
    let again: T = serde_json::from_str(&written).expect("what was written is read");
    assert_eq!(again, made);
    Some(made)
}
