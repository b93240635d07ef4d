//! Clock mode: every layer of a grid fires at every tick, and links may point back.
//!
//! At a tick each layer reads what its source (the layer before it in its cell, the cell before, a link's
//! source) held after the tick before, so that layers may be run in any order, and all at once. The input
//! stays until it is changed; a signal needs as many ticks as there are layers on its path, and what a layer
//! reads before anything has arrived is zeros. A cell without layers takes no tick: it hands on what arrives. What every layer held at the last ticks is kept in rings of
//! buffers that turn and are never copied; gradients go back through them, tick by tick, as truncated
//! backpropagation through time (Williams and Peng 1990).
//!
//! ```
//! use loom::layers::Dense;
//! use loom::mesh::Mesh;
//! use loom::network::{Combine, Link};
//! use loom::{Network, tensor_view};
//!
//! let mut network = Network::new([2], [1, 1, 2])?;
//! network.add([0, 0, 0], Dense::new(4))?;
//! network.add([0, 0, 1], Dense::new(2))?;
//! // Back: what the second cell holds is added to what the first one reads.
//! network.link(Link { source: [0, 0, 1], target: [0, 0, 0], combine: Combine::Add, axis: None })?;
//! let mut mesh = Mesh::new(&mut network, 1, 0)?;
//! mesh.set_input(&mut network, tensor_view(&[1, 2], &[1.0f32, -1.0])?)?;
//! mesh.tick(&mut network, 3)?;
//! assert_eq!(mesh.output(&mut network, [0, 0, 1])?.shape(), [1, 2]);
//! # Ok::<(), loom::Error>(())
//! ```

mod cells;
mod config;
mod gradients;
mod lessons;
mod run;
mod save;
mod states;
mod targets;
mod tick;
mod train;
mod units;
mod wiring;

pub use cells::Given;
pub use config::{Sample, SteppingConfig, SteppingResult};
pub use train::{Stepper, train_stepping};

use crate::network::{Coordinates, Network, Watch, check_rows};
use crate::precision::in_precision;
use crate::program::Program;
use crate::simd::{Cpu, Real};
use crate::state::{Member, Ring, WatchPlaces};
use crate::tensor::{Buffer, Precision, Shape, Tensor, TensorView, check_finite};
use crate::{Device, Error, Result, extents};
use lessons::{Learning, Lessons};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tick::{HELD_INPUT, INPUT, output_of};
use units::Compiled;
use wiring::Wiring;

/// The most ticks a window may have.
pub const MAX_WINDOW: usize = 1 << 16;

/// A network that is clocked: what its layers held at the last ticks, its input, and the ticks so far.
///
/// The network itself stays with the caller and is handed to every call; it is to be the one that the mesh
/// was made for. Ticks and gradients give the same bits for any number of threads.
#[derive(Debug)]
pub struct Mesh {
    rows: usize,
    window: usize,
    training: bool,
    wiring: Wiring,
    /// Absent only while it is with the network, to run.
    ring: Option<Ring>,
    /// Ticks of the ring after which all is where it was.
    turns: usize,
    tick: u64,
    /// How many of the newest ticks gradients can go back through.
    reach: usize,
    /// The members that hold given gradients, by layer.
    given: BTreeMap<usize, usize>,
    /// Of which layers and ticks gradients are given that no pass has used yet.
    given_ticks: BTreeSet<(usize, u64)>,
    device: Device,
    revision: u64,
    forward: Option<Compiled>,
    backward: Option<Compiled>,
    /// What is measured while gradients go back, and where.
    watch: Option<(Watch, WatchPlaces)>,
    /// The extents of the network's input.
    input_shape: Shape,
    /// The members that take gradients of the network's input, by who reads it, once they were asked for.
    input_gradients: Vec<usize>,
    /// Whether they are asked for now.
    wants_input: bool,
    /// How layers learn by targets that are kept, where they do.
    learning: Option<Learning>,
    /// The members that hold the targets of layers, by layer, once there were any.
    targets: Vec<usize>,
    /// The layer that was last told what it is to be, and the member that holds that.
    aims: Option<(usize, usize)>,
    /// For each layer, how many ticks ago targets have reached it when gradients last went back.
    reached: Vec<Vec<usize>>,
    lessons: Option<Lessons>,
    /// The threads to use, unless those that all share.
    cpu: Option<Cpu>,
}

impl Mesh {
    /// Clocks a network for `rows` samples side by side, with everything at rest: zeros everywhere.
    ///
    /// `window` is through how many ticks gradients can go back; with a window of 0 the mesh only infers.
    /// With any other it starts in training mode (dropout on, batch statistics), which
    /// [`set_training`](Self::set_training) changes.
    ///
    /// # Errors
    /// [`Error::Value`] for no rows or too large a window; [`Error::State`] for links in a circle without a
    /// layer; whatever [`Network::build`] refuses.
    pub fn new(network: &mut Network, rows: usize, window: usize) -> Result<Self> {
        network.check_no_adapters("a mesh")?;
        network.check_fixed("a mesh")?;
        network.build()?;
        if rows == 0 {
            return Err(Error::Value("a mesh needs at least one row".into()));
        }
        if window > MAX_WINDOW {
            return Err(Error::Value(format!("window must be at most {MAX_WINDOW}, got {window}")));
        }
        let wiring = Wiring::new(network)?;
        let turns = (window + 1).max(2).next_multiple_of(2);
        let member = |shape: &Shape, slots: usize| Member { shape: shape.clone(), slots };
        let mut members = vec![
            member(network.input_shape(), 1),
            member(network.input_shape(), if window > 0 { turns } else { 1 }),
        ];
        members.extend(wiring.shapes.iter().map(|shape| member(shape, turns)));
        members.extend(wiring.carried.iter().map(|(_, spec)| member(&spec.shape, turns)));
        let edges = if window > 0 { &wiring.edges[..] } else { &[] };
        members.extend(edges.iter().map(|edge| member(&wiring.shapes[edge.source], 2)));
        // What layers hold now is made of what they held, each alone; what goes back may be copied from one to another.
        let outputs = output_of(0)..output_of(wiring.shapes.len());
        let device = network.device().accelerator();
        let ring = Ring::new(members, outputs, rows, turns, network.precision(), device.as_ref())?;
        let mut mesh = Self {
            rows,
            window,
            training: window > 0,
            wiring,
            ring: Some(ring),
            turns,
            tick: 0,
            reach: 0,
            given: BTreeMap::new(),
            given_ticks: BTreeSet::new(),
            device: network.device().clone(),
            revision: network.revision,
            forward: None,
            backward: None,
            watch: None,
            input_shape: network.input_shape().clone(),
            input_gradients: Vec::new(),
            wants_input: false,
            learning: None,
            targets: Vec::new(),
            aims: None,
            reached: Vec::new(),
            lessons: None,
            cpu: None,
        };
        mesh.reset_states();
        if window > 0 {
            // Whom nobody reads gets its gradient from outside or not at all.
            for layer in 0..mesh.wiring.shapes.len() {
                if mesh.wiring.edges_to(layer).next().is_none() {
                    mesh.take_gradients_of(layer)?;
                }
            }
        }
        Ok(mesh)
    }

    /// Samples side by side.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Through how many ticks gradients can go back at most.
    pub fn window(&self) -> usize {
        self.window
    }

    /// Ticks so far.
    pub fn ticks(&self) -> u64 {
        self.tick
    }

    /// Through how many ticks gradients could go back now: the last ones in training mode, as many as the
    /// window holds.
    pub fn reach(&self) -> usize {
        self.reach
    }

    /// How many layers there are: after as many ticks the input has been everywhere it gets without
    /// links that point back.
    pub fn layers(&self) -> usize {
        self.wiring.inputs.len()
    }

    /// Whether ticks are in training mode: dropout on, and to be gone back through.
    pub fn is_training(&self) -> bool {
        self.training
    }

    /// Turns training mode on or off for the ticks to come; only ticks since it was turned on can be gone
    /// back through.
    ///
    /// # Errors
    /// [`Error::State`] where it is turned on in a mesh without a window.
    pub fn set_training(&mut self, training: bool) -> Result<()> {
        if training && self.window == 0 {
            return Err(Error::State(
                "a mesh of window 0 only infers; make one with a larger window to train".into(),
            ));
        }
        if training != self.training {
            self.training = training;
            self.reach = 0;
            self.forget_programs();
        }
        Ok(())
    }

    /// Lets all programs be lowered anew.
    fn forget_programs(&mut self) {
        self.forward = None;
        self.backward = None;
        self.lessons = None;
    }

    /// Computes on these threads and this instruction set, instead of those that the process shares; the
    /// bits are the same. Has no effect on a GPU.
    pub fn set_cpu(&mut self, cpu: Cpu) {
        self.cpu = Some(cpu);
    }

    /// Puts everything at rest again: zeros everywhere, tick 0, and the input zero; stateful layers begin new
    /// sequences.
    pub fn reset(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.clock = 0;
            ring.clear(HELD_INPUT, 0);
            (0..self.turns).for_each(|age| ring.clear(INPUT, age));
        }
        self.rest();
        self.tick = 0;
    }

    /// Puts what layers hold at rest, and gradients that are laid ready; stateful layers begin new sequences.
    fn rest(&mut self) {
        if let Some(ring) = &mut self.ring {
            for layer in 0..self.wiring.shapes.len() {
                (0..self.turns).for_each(|age| ring.clear(output_of(layer), age));
            }
        }
        self.forget_given();
        self.reach = 0;
        self.reset_states();
    }

    /// Puts what layers hold at rest where some of it is infinite or NaN, which a loop would go on with for good; stateful
    /// layers begin new sequences then. Ticks are counted on, and the input stays.
    pub(super) fn rest_if_not_finite(&mut self, network: &Network) -> Result<()> {
        for layer in 0..self.wiring.shapes.len() {
            if self.held(network, layer, 0)?.view().first_non_finite().is_some() {
                self.rest();
                break;
            }
        }
        Ok(())
    }

    /// Replaces the network's input, which then stays; the next tick is the first that reads it.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Value`] and [`Error::NonFinite`] for input that does not fit;
    /// [`Error::State`] for a network that has changed.
    pub fn set_input(&mut self, network: &mut Network, input: TensorView<'_>) -> Result<()> {
        self.check(network)?;
        network.check_input(&input)?;
        self.check_row_count(&input, "input")?;
        let content = content(network.precision(), &input)?;
        self.ring_mut()?.upload(HELD_INPUT, 0, content.bytes());
        Ok(())
    }

    /// Lets every layer fire this many times.
    ///
    /// # Errors
    /// [`Error::State`] for a network that has changed, [`Error::Device`] where a GPU fails.
    pub fn tick(&mut self, network: &mut Network, count: usize) -> Result<()> {
        self.check(network)?;
        let mut forward = match self.forward.take() {
            Some(forward) => forward,
            None => self.compile_forward(network)?,
        };
        let outcome = self.with_ring(network, |mesh, network| mesh.run_forward(network, &mut forward, count));
        self.forward = Some(forward);
        outcome
    }

    /// What a cell hands on now: [`cell_output`](Self::cell_output) of age 0.
    ///
    /// # Errors
    /// [`Error::Index`] for a cell that is not there; [`Error::Device`] where a GPU was lost.
    pub fn output(&self, network: &Network, cell: Coordinates) -> Result<Tensor> {
        self.cell_output(network, cell, 0)
    }

    /// What a layer, by its place in its cell, held `age` ticks ago; 0 is now.
    ///
    /// # Errors
    /// [`Error::Index`] for a layer that is not there, [`Error::Value`] for an age beyond the window.
    pub fn layer_output(
        &self,
        network: &Network,
        cell: Coordinates,
        layer: usize,
        age: usize,
    ) -> Result<Tensor> {
        self.held(network, number_of(network, cell, layer)?, age)
    }

    /// One tick of all layers in one program, forwards and backwards, to look at: as a GPU runs it.
    ///
    /// # Errors
    /// [`Error::State`] for a network that has changed.
    pub fn programs(&mut self, network: &mut Network) -> Result<[Program; 2]> {
        self.check(network)?;
        let all: Vec<usize> = (0..self.layers()).collect();
        let tick = self.lowering(network);
        Ok([tick.forward(&all, self.keeps_input())?, tick.backward(&all)?])
    }

    fn held(&self, network: &Network, layer: usize, age: usize) -> Result<Tensor> {
        self.check_device(network)?;
        self.check_age(age)?;
        self.member(network, output_of(layer), age)
    }

    /// What a member of the ring held: (rows, ...).
    fn member(&self, network: &Network, member: usize, age: usize) -> Result<Tensor> {
        let Some(ring) = &self.ring else { return Err(lost_ring()) };
        let shape = [&[self.rows], &ring.shape(member)[..]].concat();
        let content = ring.download(member, age)?;
        in_precision!(network.precision(), T => Tensor::new(shape, extents::copied(content.as_slice::<T>())?))
    }

    /// Refuses an age that is not kept.
    fn check_age(&self, age: usize) -> Result<()> {
        match age <= self.window {
            true => Ok(()),
            false => Err(Error::Value(format!(
                "what layers held {age} ticks ago is not kept; the window is {}",
                self.window
            ))),
        }
    }

    fn ring_mut(&mut self) -> Result<&mut Ring> {
        self.ring.as_mut().ok_or_else(lost_ring)
    }

    /// Lets the network have the ring while `work` runs its programs.
    fn with_ring(
        &mut self,
        network: &mut Network,
        work: impl FnOnce(&mut Self, &mut Network) -> Result<()>,
    ) -> Result<()> {
        network.registry.ring = self.ring.take();
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self, network)));
        self.ring = network.registry.ring.take();
        if let Some(ring) = &mut self.ring {
            ring.clock = self.tick;
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn count_ticks(&mut self, count: usize) {
        self.tick += count as u64;
        self.reach = if self.training { (self.reach + count).min(self.window) } else { 0 };
    }

    fn check_row_count(&self, array: &TensorView<'_>, what: &str) -> Result<()> {
        match array.rows() == self.rows {
            true => Ok(()),
            false => {
                let rows = array.rows();
                Err(Error::Shape(format!("{what} has {rows} rows, the mesh was made for {}", self.rows)))
            }
        }
    }

    fn check_device(&self, network: &Network) -> Result<()> {
        match self.device.is_same(network.device()) {
            true => Ok(()),
            false => Err(Error::State(
                "the network has moved to another device; make a new mesh, or save and load this one".into(),
            )),
        }
    }

    /// Takes up what has changed in the network, where the mesh still fits it.
    fn check(&mut self, network: &mut Network) -> Result<()> {
        network.build()?;
        self.check_device(network)?;
        if self.revision == network.revision {
            return Ok(());
        }
        network.check_no_adapters("a mesh")?;
        let wiring = Wiring::new(network)?;
        let same = wiring.inputs == self.wiring.inputs
            && wiring.cells == self.wiring.cells
            && wiring.carried == self.wiring.carried;
        if wiring.shapes != self.wiring.shapes || !same {
            return Err(Error::State(
                "the network's layers or links have changed since the mesh was made; make a new mesh".into(),
            ));
        }
        self.wiring = wiring;
        self.revision = network.revision;
        self.forget_programs();
        Ok(())
    }
}

/// An array's elements in a network's precision.
fn content(precision: Precision, array: &TensorView<'_>) -> Result<Buffer> {
    fn of<T: Real>(array: &TensorView<'_>) -> Result<Buffer> {
        let mut content = Buffer::of::<T>(array.elements().len())?;
        array.copy_to(content.as_mut_slice::<T>());
        Ok(content)
    }
    in_precision!(precision, T => of::<T>(array))
}

/// The number of a layer, by its place in its cell.
fn number_of(network: &Network, cell: Coordinates, layer: usize) -> Result<usize> {
    let path = network.layer(cell, layer)?.path();
    let number = network.layers().position(|placed| placed.path() == path);
    number.ok_or_else(|| Error::Internal("a layer lost its number".into()))
}

fn lost_ring() -> Error {
    Error::Internal("a mesh has lost its ring".into())
}

/// Checks that an array is like a layer's output, and finite.
fn check_like(array: &TensorView<'_>, shape: &Shape, what: &str) -> Result<()> {
    check_rows(array, shape, what)?;
    check_finite(array, what)
}
