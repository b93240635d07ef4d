//! The grid: cells that hold layers, in the order data flows through them.
//!
//! Data enters cell (0, 0, 0) and flows depth, then row, then column, then layer;
//! backwards each runs from high to low. An empty cell hands its input on.

mod adapter;
mod adapters;
mod build;
mod calibrate;
mod config;
mod entry;
mod feedback;
mod history;
mod kept_back;
mod kept_step;
mod lending;
mod link;
mod links;
mod looking;
mod lower;
mod measures;
mod mode;
mod morph;
mod named;
mod numerics;
#[cfg(test)]
mod numerics_tests;
mod parameters;
mod placed;
mod ports;
mod predict;
mod programs;
mod recovery;
mod rows;
mod session;
mod settled;
mod shapes;
mod slots;
mod states;
mod step_flow;
mod summary;
mod surgery;
#[cfg(test)]
mod surgery_tests;
mod values;
mod variable;
mod watch;

pub use crate::state::{Carried, Registry};
pub use adapter::Adapter;
pub(crate) use adapter::PlacedAdapter;
pub(crate) use build::Beginning;
pub use calibrate::InputRanges;
pub use config::{CellConfig, LayerSettings, NetworkConfig};
pub(crate) use entry::Entry;
pub(crate) use feedback::{FeedbackKind, FeedbackMap, FeedbackMaps};
pub(crate) use history::{History, Passes};
pub(crate) use kept_step::KeptStep;
pub use link::{Combine, Link};
pub use looking::InnerLayerInfo;
pub use lower::Lowered;
pub(crate) use lower::{Backward, Observe, no_context};
pub use measures::{LayerMeasures, MeasureHistory, Measures};
pub use mode::{Ending, LayerValue, Mode, Pick, SessionExtent};
pub use morph::Morph;
pub use named::{NamedInput, NamedOutput};
pub use numerics::Numerics;
pub(crate) use numerics::{Chosen, LayerNumerics};
pub use parameters::PackedParameter;
pub use placed::{Coordinates, InputRange, LayerCopy, Piece, PlacedLayer};
pub(crate) use placed::{at_layer, describe_path};
pub(crate) use ports::{row_of, slice};
pub(crate) use programs::ProgramKey;
pub use programs::Programs;
pub(crate) use rows::check_rows;
pub use session::{Draws, Session};
pub use settled::Settled;
pub use slots::Slots;
pub(crate) use states::unknown_state;
pub use summary::{LinkRow, SummaryRow};
pub use surgery::Incoming;
pub use values::LayerStatistics;
pub use watch::Watch;

use crate::layers::Layer;
use crate::program::{LayerPath, Rewrites};
use crate::state::{Notes, OptimizerState};
use crate::tensor::{Precision, Shape};
use crate::{Device, Error, Result, extents};
use kept_back::KeptBack;
use placed::no_layer;
pub(crate) use shapes::ExtentsKey;
use shapes::Variable;
use std::sync::{Arc, Mutex, PoisonError};

/// A network: a grid of cells, their layers, and everything that persists.
///
/// ```
/// use loom::{Network, layers::Dense, tensor_view};
///
/// let mut network = Network::new([4], [1, 1, 2])?;
/// network.add([0, 0, 0], Dense::new(8))?;
/// network.add([0, 0, 1], Dense::new(3))?;
/// network.build()?;
/// let output = network.predict(tensor_view(&[2, 4], &[0.5f32; 8])?)?;
/// assert_eq!(output.shape(), [2, 3]);
/// # Ok::<(), loom::Error>(())
/// ```
#[derive(Debug)]
pub struct Network {
    pub(crate) input_shape: Shape,
    pub(crate) grid: Coordinates,
    pub(crate) precision: Precision,
    pub(crate) seed: u64,
    /// Cells in the order data flows.
    pub(crate) cells: Vec<Vec<PlacedLayer>>,
    /// In the order in which they were made.
    pub(crate) links: Vec<Link>,
    /// What enters cells of one's choice; where there is none, the one input enters the first cell.
    pub(crate) inputs: Vec<NamedInput>,
    /// What leaves; where there is none, the one output leaves the last cell.
    pub(crate) outputs: Vec<NamedOutput>,
    /// Which extents of the input are not fixed.
    pub(crate) variable: Variable,
    /// Extents of a row of all named outputs; known once built.
    pub(crate) packed_output: Option<Shape>,
    pub(crate) registry: Registry,
    pub(crate) feedback: FeedbackMaps,
    pub(crate) programs: Programs,
    pub(crate) built: bool,
    /// What each cell hands on, in the order of the cells; known once built.
    pub(crate) cell_shapes: Vec<Shape>,
    /// Whether any layer carries something from batch to batch of training; known once built.
    pub(crate) carries: bool,
    pub(crate) passes: Passes,
    /// Moments, counters and the data cursor of the last training.
    pub(crate) optimizer_state: OptimizerState,
    /// What the newest watched training has shown.
    pub(crate) measures: Measures,
    /// What a file brought of the newest step by targets; whoever goes on from it takes it.
    pub(crate) kept_step: KeptStep,
    /// What whoever drives the training keeps with its state.
    pub(crate) notes: Notes,
    /// What the network is for, in words of whoever made it.
    pub(crate) card: Mutex<String>,
    /// What a device's newest step has left on the host.
    pub(crate) kept_back: Option<KeptBack>,
    /// Which steps programs fuse.
    pub(crate) rewrites: Rewrites,
    /// What it computes on.
    pub(crate) device: Device,
    /// Grows with every change that compiled programs depend on.
    pub(crate) revision: u64,
}

impl Network {
    /// An empty float32 network: `input_shape` without the batch axis, `grid` as (depth, rows, columns).
    ///
    /// # Errors
    /// [`Error::Value`] where an extent is zero.
    pub fn new(input_shape: impl Into<Shape>, grid: Coordinates) -> Result<Self> {
        Self::with_options(input_shape, grid, Precision::Float32, 0)
    }

    /// A 1x1x1 grid: layers in a row.
    ///
    /// # Errors
    /// [`Error::Value`] where an extent is zero.
    pub fn sequential(input_shape: impl Into<Shape>) -> Result<Self> {
        Self::new(input_shape, [1, 1, 1])
    }

    /// An empty network in this precision, whose initial weights and random draws come from `seed`.
    ///
    /// # Errors
    /// [`Error::Value`] where an extent is zero.
    pub fn with_options(
        input_shape: impl Into<Shape>,
        grid: Coordinates,
        precision: Precision,
        seed: u64,
    ) -> Result<Self> {
        let input_shape = input_shape.into();
        if input_shape.is_empty() {
            return Err(Error::Value(format!("input_shape {input_shape} has an empty axis")));
        }
        extents::check("input_shape", &input_shape)?;
        let cells = extents::product(&grid);
        if !(1..=1 << 20).contains(&cells) {
            return Err(Error::Value(format!("grid {} must have 1 to 1,048,576 cells", Shape::from(grid))));
        }
        Ok(Self {
            input_shape,
            grid,
            precision,
            seed,
            cells: vec![Vec::new(); cells],
            links: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            variable: Variable::default(),
            packed_output: None,
            registry: Registry::default(),
            feedback: FeedbackMaps::default(),
            programs: Programs::default(),
            built: false,
            cell_shapes: Vec::new(),
            carries: false,
            passes: Passes::default(),
            optimizer_state: OptimizerState::default(),
            measures: Measures::default(),
            kept_step: KeptStep::default(),
            notes: Notes::default(),
            card: Mutex::default(),
            kept_back: None,
            rewrites: Rewrites::default(),
            device: Device::cpu(),
            revision: 0,
        })
    }

    /// What the network computes on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Moves the network to a device; see [`Device::open`] for its names. The newest weights,
    /// gradients and optimizer moments go along, and what stateful layers carry.
    ///
    /// A GPU that was lost is left with the weights as they were last brought back from it, and with
    /// what was carried then.
    ///
    /// # Errors
    /// [`Error::Device`] for a GPU that is not there, or that cannot run this network's precision.
    pub fn to(&mut self, device: &str) -> Result<()> {
        self.to_device(Device::open(device, self.precision)?)
    }

    /// [`to`](Self::to) for a device that is open, which may be of an engine of one's own.
    ///
    /// # Errors
    /// [`Error::Device`] where the network's own device has failed, or the other one does.
    pub fn to_device(&mut self, device: Device) -> Result<()> {
        if device.is_same(&self.device) {
            return Ok(());
        }
        if let Err(error) = self.synchronize()
            && !self.device.is_lost()
        {
            return Err(error);
        }
        let carried = match &self.registry.carried {
            _ if self.device.is_lost() => self.carried_before_loss(&device)?,
            Some(carried) => Some(carried.moved_to(device.accelerator().as_ref())?),
            None => None,
        };
        if self.device.is_lost() {
            self.go_back()?;
        }
        self.device = device;
        self.registry.place_on(self.device.mirror());
        self.registry.carried = carried;
        self.passes.newest = None;
        self.invalidate();
        Ok(())
    }

    /// Brings what is newer on a GPU back to the host: weights, gradients, optimizer moments.
    ///
    /// Saving and reading do so themselves; while training on a GPU this marks what survives
    /// the loss of the device.
    ///
    /// # Errors
    /// [`Error::Device`] where the GPU was lost.
    pub fn synchronize(&mut self) -> Result<()> {
        if self.registry.is_synchronized() {
            return self.registry.synchronize();
        }
        // First, so that a device which is lost in between leaves both as they were.
        let outcome = self.copy_carried().and_then(|carried| {
            self.registry.synchronize()?;
            self.note_kept(carried);
            Ok(())
        });
        outcome.map_err(|error| self.with_loss(error))
    }

    /// Whether nothing on a GPU is newer than what the host has.
    pub fn is_synchronized(&self) -> bool {
        self.registry.is_synchronized()
    }

    /// Adds a layer at the end of a cell.
    ///
    /// # Errors
    /// [`Error::Index`] for a cell that is not there.
    pub fn add(&mut self, cell: Coordinates, layer: impl Layer + 'static) -> Result<()> {
        self.add_arc(cell, Arc::new(layer))
    }

    /// Adds a layer that is behind a pointer already.
    ///
    /// # Errors
    /// [`Error::Index`] for a cell that is not there.
    pub fn add_arc(&mut self, cell: Coordinates, layer: Arc<dyn Layer>) -> Result<()> {
        let index = self.cell_index(cell)?;
        let path = LayerPath::new(cell[0], cell[1], cell[2], self.cells[index].len());
        self.cells[index].push(PlacedLayer::new(layer, path));
        self.rearranged();
        Ok(())
    }

    /// Extents of the input, without the batch axis; those of the newest call where some are not fixed.
    pub fn input_shape(&self) -> &Shape {
        &self.input_shape
    }

    /// Extents of the output, without the batch axis: of what the last cell hands on, which links may have
    /// joined behind the last layer, or of a row of all named outputs. Known once built.
    pub fn output_shape(&self) -> &Shape {
        self.packed_output.as_ref().or(self.cell_shapes.last()).unwrap_or(&self.input_shape)
    }

    /// Extents of what a cell hands on, without the batch axis, once built: of its last layer's output, or, where
    /// it has no layer, of what arrives there.
    ///
    /// # Errors
    /// [`Error::Index`] for a cell that is not there.
    pub fn cell_output_shape(&self, cell: Coordinates) -> Result<Option<&Shape>> {
        Ok(self.cell_shapes.get(self.cell_index(cell)?))
    }

    /// Whether shapes are inferred and weights made for all layers and links there are.
    pub fn is_built(&self) -> bool {
        self.built
    }

    /// Depth, rows and columns of the grid.
    pub fn grid(&self) -> Coordinates {
        self.grid
    }

    /// The arithmetic of masters and activations.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The seed of initial weights and random draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Counters of the last training, and the optimizer the moments belong to.
    pub fn optimizer_state(&self) -> &OptimizerState {
        &self.optimizer_state
    }

    /// What was kept with the state of the last training.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Keeps something with the state of the last training: it is saved where that is, comes back with it, and
    /// is forgotten when a training starts afresh.
    pub fn set_notes(&mut self, notes: Notes) {
        self.notes = notes;
    }

    /// What is told of the network beside it, such as the names of its classes: a text, JSON by custom, that files
    /// keep and nothing here reads.
    pub fn card(&self) -> String {
        self.card.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells something of the network, in place of what was told before; an empty text for nothing. It is no part of the
    /// network: others may use that meanwhile.
    pub fn set_card(&self, card: impl Into<String>) {
        *self.card.lock().unwrap_or_else(PoisonError::into_inner) = card.into();
    }

    /// What the newest watched training has shown: losses, and each layer's figures.
    pub fn measures(&self) -> &Measures {
        &self.measures
    }

    /// How many layers a cell holds.
    ///
    /// # Errors
    /// [`Error::Index`] for a cell that is not there.
    pub fn cell_len(&self, cell: Coordinates) -> Result<usize> {
        Ok(self.cells[self.cell_index(cell)?].len())
    }

    /// The layers in the order data flows.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = &PlacedLayer> {
        self.cells.iter().flatten()
    }

    /// One layer, by cell and place in the cell.
    ///
    /// # Errors
    /// [`Error::Index`] for a cell or layer that is not there.
    pub fn layer(&self, cell: Coordinates, layer: usize) -> Result<&PlacedLayer> {
        let index = self.cell_index(cell)?;
        let count = self.cells[index].len();
        self.cells[index].get(layer).ok_or_else(|| no_layer(cell, layer, count))
    }

    pub(crate) fn layer_mut(&mut self, cell: Coordinates, layer: usize) -> Result<&mut PlacedLayer> {
        let index = self.cell_index(cell)?;
        let count = self.cells[index].len();
        self.cells[index].get_mut(layer).ok_or_else(|| no_layer(cell, layer, count))
    }

    pub(crate) fn cell_index(&self, cell: Coordinates) -> Result<usize> {
        let [depth, rows, columns] = self.grid;
        if cell[0] >= depth || cell[1] >= rows || cell[2] >= columns {
            return Err(Error::Index(format!(
                "no cell {} in a grid of {depth} x {rows} x {columns} (depth, rows, columns)",
                Shape::from(cell)
            )));
        }
        Ok((cell[0] * rows + cell[1]) * columns + cell[2])
    }

    /// Lets an optimizer move a layer's parameters, or keeps it from doing so.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there.
    pub fn set_trainable(&mut self, cell: Coordinates, layer: usize, trainable: bool) -> Result<()> {
        self.layer_mut(cell, layer)?.trainable = trainable;
        self.invalidate();
        Ok(())
    }

    /// Keeps one parameter of a layer as it is while the rest is trained, or lets an optimizer move it again.
    /// Its gradient is made all the same, and counts in the global norm.
    ///
    /// # Errors
    /// [`Error::Index`] and [`Error::Value`] for a layer or a parameter that is not there, or that belongs
    /// to another layer, and whatever [`build`](Network::build) refuses.
    pub fn set_frozen(&mut self, cell: Coordinates, layer: usize, name: &str, frozen: bool) -> Result<()> {
        self.build()?;
        self.find_parameter(cell, layer, name)?;
        if frozen {
            self.layer(cell, layer)?.check_owns("freeze it")?;
        }
        let names = &mut self.layer_mut(cell, layer)?.frozen;
        names.retain(|other| other != name);
        if frozen {
            names.push(name.to_string());
        }
        self.invalidate();
        Ok(())
    }

    /// Multiplies the learning rate of one layer.
    ///
    /// # Errors
    /// [`Error::Value`] for a factor that is negative or not finite, or other than 1 for a layer that uses the
    /// parameters of another one; [`Error::Index`] for a layer that is not there.
    pub fn set_rate_factor(&mut self, cell: Coordinates, layer: usize, factor: f64) -> Result<()> {
        if !(factor.is_finite() && factor >= 0.0) {
            return Err(Error::Value(format!("a rate factor must be finite and at least 0, got {factor}")));
        }
        if factor != 1.0 {
            self.layer(cell, layer)?.check_owns("set the rate factor")?;
        }
        self.layer_mut(cell, layer)?.rate_factor = factor;
        self.invalidate();
        Ok(())
    }

    /// Chooses which steps programs fuse; results are the same bits whatever is chosen.
    pub fn set_rewrites(&mut self, rewrites: Rewrites) {
        self.rewrites = rewrites;
        self.invalidate();
    }

    /// Takes note that there are other layers, or in other places: shapes are inferred anew, and measures are of
    /// layers that were.
    pub(crate) fn rearranged(&mut self) {
        self.built = false;
        self.measures = Measures::default();
        self.registry.epochs_passed += 1;
        self.invalidate();
    }

    /// Drops compiled programs and the history, after a change they depend on.
    pub(crate) fn invalidate(&mut self) {
        self.registry.settled.clear();
        self.programs.clear();
        self.passes.newest = None;
        self.revision += 1;
    }
}
