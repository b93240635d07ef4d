//! Layers in their places.

use super::adapter::PlacedAdapter;
use super::numerics::LayerNumerics;
use super::shapes::LayerShapes;
use crate::layers::Layer;
use crate::program::LayerPath;
use crate::state::State;
use crate::tensor::{Precision, Shape, Tensor};
use crate::weights::WeightStore;
use crate::{Error, Result, error};
use std::ops::Range;
use std::sync::Arc;

/// Coordinates of a cell: depth, row, column.
pub type Coordinates = [usize; 3];

/// What a layer was given to read while ranges were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct InputRange {
    /// The largest magnitude.
    pub largest: f64,
    /// The percentage that was asked for, and that percentile of the magnitudes, to one part in 256.
    pub percent: f64,
    /// See `percent`.
    pub percentile: f64,
    /// The mean square of each feature: of each channel of signals for convolutions and of images and
    /// volumes, otherwise of each element of the last axis.
    pub mean_squares: Vec<f64>,
}

/// A layer in its place, with what training may do to it.
#[derive(Debug, Clone)]
pub struct PlacedLayer {
    pub(crate) layer: Arc<dyn Layer>,
    pub(crate) path: LayerPath,
    /// Whether an optimizer may move its parameters.
    pub(crate) trainable: bool,
    /// The names of parameters that no optimizer may move, though the layer is trained.
    pub(crate) frozen: Vec<String>,
    /// Multiplies the learning rate.
    pub(crate) rate_factor: f64,
    /// What stands beside its weights.
    pub(crate) adapters: Vec<PlacedAdapter>,
    /// The numeric types it computes from.
    pub(crate) numerics: LayerNumerics,
    /// What it has been given to read while ranges were measured.
    pub(crate) range: Option<InputRange>,
    /// Its weight store in the registry, once built; `None` also for layers without parameters.
    pub(crate) store: Option<usize>,
    /// Its states in the registry, once built.
    pub(crate) states: Range<usize>,
    pub(crate) input_shape: Option<Shape>,
    /// Extents of its second input, where it takes one.
    pub(crate) context_shape: Option<Shape>,
    pub(crate) output_shape: Option<Shape>,
    /// What it takes over of copies when it is built; none from then on.
    pub(crate) brought: Vec<Piece>,
}

/// A copy of a layer with all that belongs to it, on its way into another place: weights and their packed
/// versions, what it keeps and carries, how it is trained and stored.
#[derive(Clone, Debug)]
pub struct LayerCopy {
    /// The layer and its settings, without a place in a registry.
    pub(crate) placed: PlacedLayer,
    /// The precision of the network that it was in.
    pub(crate) precision: Precision,
    /// Its own weights; those that it shares belong to another layer.
    pub(crate) store: Option<WeightStore>,
    pub(crate) states: Vec<State>,
    /// What it carries from batch to batch of training, by name; nothing before it does.
    pub(crate) carried: Vec<(String, Tensor)>,
}

impl PlacedLayer {
    /// Takes up the shapes that were found out for it.
    pub(super) fn take_shapes(&mut self, LayerShapes { inputs, output }: LayerShapes) {
        let mut inputs = inputs.into_iter();
        self.input_shape = inputs.next();
        self.context_shape = inputs.next();
        self.output_shape = Some(output);
    }
}

impl LayerCopy {
    /// The layer's description.
    pub fn layer(&self) -> &Arc<dyn Layer> {
        &self.placed.layer
    }

    /// Extents of its input where it was; `None` where that was never found out.
    pub fn input_shape(&self) -> Option<&Shape> {
        self.placed.input_shape.as_ref()
    }
}

/// What a layer takes over of a copy: all whose name begins with `from`, under the same name with `to` in its
/// stead; everything where both are empty.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The copy.
    pub copy: Arc<LayerCopy>,
    /// The layer's part of the copy, such as `branches.0`.
    pub from: String,
    /// What becomes of that, such as `branches.2`.
    pub to: String,
}

impl Piece {
    /// Everything of a copy.
    pub fn whole(copy: Arc<LayerCopy>) -> Self {
        Self { copy, from: String::new(), to: String::new() }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.from.is_empty() && self.to.is_empty()
    }

    /// The same with a master, where weights of the copy are lent: a part of a layer is taken from one.
    pub(super) fn thawed(mut self) -> Result<Self> {
        if self.copy.store.as_ref().is_some_and(WeightStore::is_lent) {
            let copy = Arc::make_mut(&mut self.copy);
            copy.placed.numerics = LayerNumerics::default();
            copy.store.as_mut().map_or(Ok(()), WeightStore::thaw)?;
        }
        Ok(self)
    }

    /// What something of the copy is called where it goes; `None` for what does not belong to the piece.
    pub(crate) fn renamed(&self, name: &str) -> Option<String> {
        let rest = match self.from.is_empty() {
            true => name,
            false => name.strip_prefix(&self.from)?.strip_prefix('.')?,
        };
        Some(if self.to.is_empty() { rest.to_string() } else { format!("{}.{rest}", self.to) })
    }
}

impl PlacedLayer {
    /// A layer in a place where it has nothing yet.
    pub(crate) fn new(layer: Arc<dyn Layer>, path: LayerPath) -> Self {
        Self {
            layer,
            path,
            trainable: true,
            frozen: Vec::new(),
            adapters: Vec::new(),
            rate_factor: 1.0,
            numerics: LayerNumerics::default(),
            range: None,
            store: None,
            states: 0..0,
            input_shape: None,
            context_shape: None,
            output_shape: None,
            brought: Vec::new(),
        }
    }

    /// The layer's description.
    pub fn layer(&self) -> &dyn Layer {
        &*self.layer
    }

    /// Where it stands.
    pub fn path(&self) -> &LayerPath {
        &self.path
    }

    /// Whether an optimizer may move its parameters.
    pub fn trainable(&self) -> bool {
        self.trainable
    }

    /// The parameters that no optimizer may move, though the layer is trained.
    pub fn frozen(&self) -> &[String] {
        &self.frozen
    }

    /// What the learning rate is multiplied by.
    pub fn rate_factor(&self) -> f64 {
        self.rate_factor
    }

    /// What it was given to read while ranges were measured, if they were.
    pub fn range(&self) -> Option<&InputRange> {
        self.range.as_ref()
    }

    /// Extents of its input, once built.
    pub fn input_shape(&self) -> Option<&Shape> {
        self.input_shape.as_ref()
    }

    /// Extents of all its inputs, once built.
    pub(crate) fn input_shapes(&self) -> Vec<Shape> {
        self.input_shape.iter().chain(&self.context_shape).cloned().collect()
    }

    /// Whether it uses the parameters of another layer.
    pub fn is_tied(&self) -> bool {
        self.layer.tied_to().is_some()
    }

    /// Refuses to do something to the parameters of another layer.
    pub(super) fn check_owns(&self, what: &str) -> Result<()> {
        let Some(at) = self.layer.tied_to() else { return Ok(()) };
        let owner = LayerPath::new(at[0], at[1], at[2], at[3]);
        let error =
            format!("the layer uses the parameters of layer {owner}; {what} there, for all that use them");
        Err(at_layer(self, Error::Value(error)))
    }

    /// Extents of its output, once built.
    pub fn output_shape(&self) -> Option<&Shape> {
        self.output_shape.as_ref()
    }
}

/// `cell (0, 0, 1), layer 2 (dense)`
pub(crate) fn describe_path(placed: &PlacedLayer) -> String {
    let indices = placed.path.indices();
    format!(
        "cell ({}, {}, {}), layer {} ({})",
        indices[0],
        indices[1],
        indices[2],
        indices[3],
        placed.layer.kind()
    )
}

/// Adds where a layer stands to what it says is wrong.
pub(crate) fn at_layer(placed: &PlacedLayer, error: Error) -> Error {
    error::in_context(&describe_path(placed), error)
}

pub(super) fn no_layer(cell: Coordinates, layer: usize, count: usize) -> Error {
    Error::Index(format!("cell {} has {count} layers, there is no layer {layer}", Shape::from(cell)))
}
