//! What persists from step to step beside the weights: the registry, what layers keep and carry, the rings of
//! a mesh, the counters of a training; and the names by which programs find all of it.

mod loss_scale;
mod on_device;
mod optimizer_state;
mod place;
mod registry;
mod ring;
mod spec;
mod states;
mod training;

pub use loss_scale::LossScale;
pub use on_device::{DeviceGradient, Fetch, Landed, Outbound, PIECE_BYTES, WaitingGradients};
pub use optimizer_state::{Notes, OptimizerState};
pub use place::{LayerPath, ParameterRef, Place, Value};
pub(crate) use registry::StatesBefore;
pub use registry::{Mirror, Registry};
pub(crate) use ring::Member;
pub use ring::Ring;
pub use spec::{CarriedSpec, StateSpec};
pub use states::Carried;
pub(crate) use states::CarriedCopy;
pub(crate) use states::{CarriedPlace, State};
pub(crate) use training::{KnownReach, StateCopies, WatchPlaces};
