//! `loom._native.Mesh` and `Stepper`: a network that is clocked, and its training on a stream.

use crate::arrays::{RealArray, TargetArray, to_numpy};
use crate::error::{detached, exception};
use crate::forks::Inside;
use crate::shared::{At, Network, split};
use crate::training::parse;
use loom::io::SaveOptions;
use loom::mesh::{Given, Mesh as Engine, Sample, Stepper as EngineStepper, SteppingConfig};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A clocked network; one call at a time.
#[pyclass(frozen, module = "loom._native")]
pub struct Mesh {
    network: Py<Network>,
    engine: Mutex<Engine>,
}

fn lock<T>(held: &Mutex<T>) -> PyResult<MutexGuard<'_, T>> {
    match held.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            let busy = "the mesh is in use by another thread; wait for that to end";
            Err(exception(loom::Error::State(busy.into())))
        }
    }
}

impl Mesh {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Engine, &mut loom::Network) -> loom::Result<T> + Send,
    ) -> PyResult<T> {
        let _inside = Inside::enter();
        let mut mesh = lock(&self.engine)?;
        let mut network = self.network.get().write()?;
        let (mesh, network) = (&mut *mesh, &mut *network);
        detached(py, move || work(mesh, network))
    }
}

#[pymethods]
impl Mesh {
    /// A mesh at rest, of so many rows, whose gradients go back through a window of ticks.
    #[new]
    fn new(py: Python<'_>, network: Py<Network>, rows: usize, window: usize) -> PyResult<Self> {
        let engine = network.get().change(py, |network| Engine::new(network, rows, window))?;
        Ok(Self { network, engine: Mutex::new(engine) })
    }

    /// The network in a file and the mesh that was saved with it.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<(Py<Network>, Py<Mesh>)> {
        let (network, engine) = detached(py, move || Engine::load(path))?;
        let network = Py::new(py, Network::new(network))?;
        let mesh = Self { network: network.clone_ref(py), engine: Mutex::new(engine) };
        Ok((network, Py::new(py, mesh)?))
    }

    /// The mesh in these bytes, for a network that may be on any device.
    #[staticmethod]
    fn restore(py: Python<'_>, network: Py<Network>, data: &[u8]) -> PyResult<Self> {
        let engine = network.get().change(py, |network| Engine::restore(network, data))?;
        Ok(Self { network, engine: Mutex::new(engine) })
    }

    /// Saves network and mesh to a file, with the optimizer's state if asked.
    fn save(&self, py: Python<'_>, path: PathBuf, optimizer: bool) -> PyResult<()> {
        self.with(py, move |mesh, network| mesh.save(network, path, SaveOptions { optimizer, deploy: false }))
    }

    /// The bytes that `save` writes.
    fn to_bytes<'py>(&self, py: Python<'py>, optimizer: bool) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, move |mesh, network| {
            mesh.to_bytes(network, SaveOptions { optimizer, deploy: false })
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Rows, window, ticks, reach, and whether ticks are in training mode.
    fn state(&self) -> PyResult<(usize, usize, u64, usize, bool)> {
        let mesh = lock(&self.engine)?;
        Ok((mesh.rows(), mesh.window(), mesh.ticks(), mesh.reach(), mesh.is_training()))
    }

    /// How many layers there are.
    fn layers(&self) -> PyResult<usize> {
        Ok(lock(&self.engine)?.layers())
    }

    /// Turns training mode on or off.
    fn set_training(&self, training: bool) -> PyResult<()> {
        lock(&self.engine)?.set_training(training).map_err(exception)
    }

    /// Puts everything at rest.
    fn reset(&self) -> PyResult<()> {
        lock(&self.engine)?.reset();
        Ok(())
    }

    /// Replaces the input.
    fn set_input(&self, py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        self.with(py, move |mesh, network| mesh.set_input(network, view))
    }

    /// Lets every layer fire so many times.
    fn tick(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        self.with(py, move |mesh, network| mesh.tick(network, count))
    }

    /// What a cell, or a layer of it, held so many ticks ago.
    fn output(
        &self,
        py: Python<'_>,
        cell: [usize; 3],
        layer: Option<usize>,
        age: usize,
    ) -> PyResult<Py<PyAny>> {
        let _inside = Inside::enter();
        let guard = lock(&self.engine)?;
        let network = self.network.get().read()?;
        let (mesh, network) = (&*guard, &*network);
        let tensor = detached(py, move || match layer {
            Some(layer) => mesh.layer_output(network, cell, layer, age),
            None => mesh.cell_output(network, cell, age),
        })?;
        to_numpy(py, tensor)
    }

    /// The names of what a layer carries from tick to tick.
    fn state_names(&self, py: Python<'_>, at: At) -> PyResult<Vec<String>> {
        let (cell, layer) = split(at);
        self.with(py, |mesh, network| mesh.state_names(network, cell, layer))
    }

    /// What a layer carries into the next tick.
    fn carried(&self, py: Python<'_>, at: At, name: &str) -> PyResult<Py<PyAny>> {
        let (cell, layer) = split(at);
        let tensor = self.with(py, |mesh, network| mesh.state(network, cell, layer, name))?;
        to_numpy(py, tensor)
    }

    /// Sets what a layer carries into the next tick.
    fn set_carried(&self, py: Python<'_>, at: At, name: &str, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let (cell, layer) = split(at);
        let array = RealArray::borrow(values)?;
        let view = array.view()?;
        self.with(py, |mesh, network| mesh.set_state(network, cell, layer, name, view))
    }

    /// Lets stateful layers begin new sequences.
    fn reset_states(&self) -> PyResult<()> {
        lock(&self.engine)?.reset_states();
        Ok(())
    }

    /// Adds to all gradients those of given ones, (cell, age, gradient) each; returns that of the input at
    /// each tick, the oldest first.
    fn backward(
        &self,
        py: Python<'_>,
        gradients: Vec<([usize; 3], usize, Bound<'_, PyAny>)>,
    ) -> PyResult<Py<PyAny>> {
        let arrays = gradients.iter().map(|(_, _, g)| RealArray::borrow(g)).collect::<PyResult<Vec<_>>>()?;
        let given = gradients
            .iter()
            .zip(&arrays)
            .map(|((cell, age, _), array)| Ok(Given { cell: *cell, age: *age, gradient: array.view()? }))
            .collect::<PyResult<Vec<_>>>()?;
        let to_input = self.with(py, move |mesh, network| mesh.backward(network, &given))?;
        to_numpy(py, to_input)
    }
}

/// Trains a mesh sample by sample.
#[pyclass(frozen, module = "loom._native")]
pub struct Stepper {
    mesh: Py<Mesh>,
    engine: Mutex<EngineStepper>,
}

#[pymethods]
impl Stepper {
    /// By a training config in JSON; the extents are ticks a sample, samples an update, and updates in all.
    #[new]
    #[pyo3(signature = (mesh, config, extents, output, resume))]
    fn new(
        py: Python<'_>,
        mesh: Py<Mesh>,
        config: &str,
        extents: (usize, usize, u64),
        output: Option<[usize; 3]>,
        resume: bool,
    ) -> PyResult<Self> {
        let training = parse(config)?;
        let (ticks, update_every, total_updates) = extents;
        let settings = SteppingConfig { training, ticks, update_every, output, total_updates };
        let engine =
            mesh.get().with(py, move |mesh, network| EngineStepper::new(network, mesh, &settings, resume))?;
        Ok(Self { mesh, engine: Mutex::new(engine) })
    }

    /// Shows a sample to the mesh; its loss, where it has a target.
    fn step(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        target: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<f64>> {
        let input = RealArray::borrow(x)?;
        let target = target.map(TargetArray::borrow).transpose()?;
        let sample =
            Sample { input: input.view()?, target: target.as_ref().map(TargetArray::view).transpose()? };
        let _inside = Inside::enter();
        let mut guard = lock(&self.engine)?;
        let stepper = &mut *guard;
        self.mesh.get().with(py, move |mesh, network| stepper.step(network, mesh, &sample))
    }

    /// Updates by what waits for that.
    fn update(&self, py: Python<'_>) -> PyResult<()> {
        let _inside = Inside::enter();
        let mut guard = lock(&self.engine)?;
        let stepper = &mut *guard;
        self.mesh.get().with(py, move |mesh, network| stepper.update(network, mesh))
    }

    /// What training has done so far.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let guard = lock(&self.engine)?;
        let found = &guard.result;
        let result = PyDict::new(py);
        result.set_item("losses", &found.losses)?;
        result.set_item("samples", found.samples)?;
        result.set_item("ticks", found.ticks)?;
        result.set_item("updates", found.updates)?;
        result.set_item("skipped_updates", found.skipped_updates)?;
        result.set_item("explosions", found.explosions)?;
        Ok(result)
    }
}
