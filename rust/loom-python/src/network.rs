//! What `loom._native.Network` can do.

use crate::arrays::{RealArray, to_numpy};
use crate::error::{detached, exception, from_json};
use crate::exchange::{Communicator, Ways};
use crate::figures::{PackedArrays, WeightsState, gradient_dict, layer_dicts, packed_arrays, training_dict};
use crate::ranges::InputRanges;
use crate::shared::{At, Claim, Network, split};
use crate::tensor_file::{TensorFile, element_named};
use loom::Network as Engine;
use loom::dtype::{Calibration, DType, Granularity, Recipe, Rounding};
use loom::io::{FileRows, LoadOptions, SaveOptions};
use loom::network::{InnerLayerInfo, LayerValue, Morph, Numerics, PlacedLayer};
use loom::program::LayerPath;
use loom::train::Notes;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The largest magnitude, the percentage, that percentile, and the mean square of each feature.
type RangeArrays = (f64, f64, f64, Py<PyAny>);

/// The figures of every layer in one forward pass.
type Figures = Vec<Py<PyDict>>;

/// Path, name, config, and extents of input and output.
type InnerFigures = (Vec<usize>, String, String, Vec<usize>, Vec<usize>);

/// A parameter's name, the type of its elements in files, the tensors it is made of, and rows of those: the tensor in
/// the upper half of each number, the row in the lower.
type Rows<'py> = (String, String, Vec<(PyRef<'py, TensorFile>, String)>, PyReadonlyArray1<'py, u64>);

fn file_rows((name, element, tensors, order): Rows<'_>) -> PyResult<FileRows> {
    let tensors = tensors.iter().map(|(file, name)| file.0.shared(name)).collect::<Result<_, _>>();
    let order = order.as_slice()?.iter().map(|at| ((at >> 32) as u32, *at as u32)).collect();
    Ok(FileRows { name, element: element_named(&element)?, tensors: tensors.map_err(exception)?, order })
}

/// The value of a layer of this name.
fn value_named(which: &str) -> PyResult<LayerValue> {
    Ok(match which {
        "input" => LayerValue::Input,
        "preactivation" => LayerValue::Preactivation,
        "output" => LayerValue::Output,
        "input_gradient" => LayerValue::InputGradient,
        "attention_weights" => LayerValue::AttentionWeights,
        _ => {
            let known = "input, preactivation, output, input_gradient, attention_weights";
            let message = format!("unknown value of a layer \"{which}\". Known: {known}");
            return Err(exception(loom::Error::Value(message)));
        }
    })
}

/// Whether a layer is at one of these places; every one is where there are none.
fn chosen(places: Option<&[At]>, placed: &PlacedLayer) -> bool {
    places.is_none_or(|places| places.iter().any(|at| placed.path().indices() == at))
}

pub fn parse_layer(layer: &str) -> PyResult<Box<dyn loom::layers::Layer>> {
    let config = from_json(layer)?;
    loom::layers::from_config(&config).map_err(exception)
}

#[pymethods]
impl Network {
    /// Makes the network that a config in JSON describes.
    #[new]
    fn from_config(config: &str) -> PyResult<Self> {
        Ok(Self::new(Engine::from_json(config).map_err(exception)?))
    }

    /// Loads a network from a file, comparing it with its checksums unless told otherwise.
    #[staticmethod]
    #[pyo3(signature = (path, verify = true))]
    fn load(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Self> {
        detached(py, move || Engine::load_with(path, LoadOptions { verify })).map(Self::new)
    }

    /// Makes a network from the bytes of a file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        detached(py, move || Engine::from_bytes(data)).map(Self::new)
    }

    /// Saves to a file, with the optimizer's state if asked, or with no more than inference reads.
    fn save(&self, py: Python<'_>, path: PathBuf, optimizer: bool, deploy: bool) -> PyResult<()> {
        self.look_settled(py, move |engine| engine.save(path, SaveOptions { optimizer, deploy }))
    }

    /// What is told of the network beside it.
    fn card(&self) -> PyResult<String> {
        Ok(self.read()?.card())
    }

    /// Tells something of the network.
    fn set_card(&self, card: String) -> PyResult<()> {
        self.read()?.set_card(card);
        Ok(())
    }

    /// The bytes that `save` writes.
    fn to_bytes<'py>(&self, py: Python<'py>, optimizer: bool) -> PyResult<Bound<'py, PyBytes>> {
        let options = SaveOptions { optimizer, deploy: false };
        let bytes = self.look_settled(py, move |engine| engine.to_bytes(options))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The network's config as JSON.
    fn config(&self) -> PyResult<String> {
        self.read()?.to_json().map_err(exception)
    }

    /// Adds layers, given as configs in JSON, at the end of a cell; all of them or none.
    fn add(&self, cell: [usize; 3], layers: Vec<String>) -> PyResult<()> {
        let layers: Vec<_> = layers.iter().map(|layer| parse_layer(layer)).collect::<PyResult<_>>()?;
        let mut engine = self.write()?;
        for layer in layers {
            engine.add_arc(cell, layer.into()).map_err(exception)?;
        }
        Ok(())
    }

    /// Adds a link, given as JSON.
    fn link(&self, link: &str) -> PyResult<()> {
        let link = from_json(link)?;
        self.write()?.link(link).map_err(exception)
    }

    /// Names inputs and the cells they enter, given as JSON.
    fn set_inputs(&self, inputs: &str) -> PyResult<()> {
        let inputs = from_json(inputs)?;
        self.write()?.set_inputs(inputs).map_err(exception)
    }

    /// Names outputs and the cells they come from, given as JSON.
    fn set_outputs(&self, outputs: &str) -> PyResult<()> {
        let outputs = from_json(outputs)?;
        self.write()?.set_outputs(outputs).map_err(exception)
    }

    /// The axes of the input that have no fixed extent.
    fn variable_axes(&self) -> PyResult<Vec<usize>> {
        Ok(self.read()?.variable_axes().to_vec())
    }

    /// Whether rows begin with their lengths, and else, of sequences, why they cannot; once built.
    fn lengths(&self) -> PyResult<(bool, Option<String>)> {
        let engine = self.read()?;
        Ok((engine.has_lengths(), engine.lengths_refused().map(String::from)))
    }

    /// One sample's extents as they come in, in the newest call.
    fn input_extents(&self) -> PyResult<Vec<usize>> {
        Ok(self.read()?.input_shape().to_vec())
    }

    /// Gives the axes of no fixed extent another one, for the calls to come.
    fn set_extents(&self, py: Python<'_>, extents: Vec<usize>) -> PyResult<()> {
        if self.read()?.input_shape()[..] == extents[..] {
            return Ok(());
        }
        self.change(py, move |engine| engine.set_extents(loom::Shape::new(extents)))
    }

    /// One sample's extents of each named input as they come in, in the newest call.
    fn named_input_extents(&self) -> PyResult<Vec<Vec<usize>>> {
        Ok(self.read()?.named_inputs().iter().map(|input| input.shape.to_vec()).collect())
    }

    /// Gives the named inputs other extents where theirs are not fixed, for the calls to come.
    fn set_named_extents(&self, py: Python<'_>, extents: Vec<Vec<usize>>) -> PyResult<()> {
        let extents: Vec<loom::Shape> = extents.into_iter().map(loom::Shape::new).collect();
        if self.read()?.named_inputs().iter().map(|input| &input.shape).eq(&extents) {
            return Ok(());
        }
        self.change(py, move |engine| engine.set_named_extents(extents))
    }

    /// Which of the lengths that a row begins with is that of each input; None for one of fixed extents. Once built.
    fn input_lengths(&self) -> PyResult<Vec<Option<usize>>> {
        let engine = self.read()?;
        Ok(if engine.has_lengths() { engine.input_lengths().to_vec() } else { Vec::new() })
    }

    /// Which length each output has steps of, where rows have lengths; None for one that has none. Once built.
    fn output_lengths(&self) -> PyResult<Vec<Option<usize>>> {
        let engine = self.read()?;
        Ok(if engine.named_outputs().is_empty() {
            vec![engine.output_length()]
        } else {
            engine.output_lengths()
        })
    }

    /// Gives the input other extents for good, where no parameter depends on them; `packed` for rows of several
    /// sequences, which begin with the number of each step's.
    fn resize(&self, py: Python<'_>, extents: Vec<usize>, packed: bool) -> PyResult<()> {
        self.change(py, move |engine| engine.resize(loom::Shape::new(extents), packed))
    }

    /// What the whole numbers of each named input must be below; None for real numbers.
    fn index_limits(&self) -> PyResult<Vec<Option<usize>>> {
        Ok(self.read()?.index_limits())
    }

    /// Extents of one sample of each named output, once built.
    fn named_output_shapes(&self) -> PyResult<Vec<Vec<usize>>> {
        Ok(self.read()?.named_output_shapes().iter().map(|shape| shape.to_vec()).collect())
    }

    /// What the whole numbers in the input must be below, where the network reads such.
    fn index_limit(&self) -> PyResult<Option<usize>> {
        Ok(self.read()?.index_limit())
    }

    /// Forgets what stateful layers carry from batch to batch.
    fn reset_states(&self) -> PyResult<()> {
        self.write()?.reset_states();
        Ok(())
    }

    /// Moves the network to a device.
    fn to(&self, py: Python<'_>, device: &str) -> PyResult<()> {
        self.change(py, |engine| engine.to(device))
    }

    /// The device that the network is on: "cpu" or "gpu:0".
    fn device(&self) -> PyResult<String> {
        Ok(self.read()?.device().to_string())
    }

    /// Brings what is newer on a GPU back to the host, where nobody else uses the network.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        self.settle(py)
    }

    /// Drops the moments that other ranks of a training hold.
    fn split_moments(&self, py: Python<'_>, rank: usize, ranks: usize) -> PyResult<()> {
        self.change(py, |network| {
            network.split_moments(rank, ranks);
            Ok(())
        })
    }

    /// Has the next training hold this rank's moments alone from its first step on, and its gradients where told so.
    fn split_at_once(&self, py: Python<'_>, rank: usize, ranks: usize, gradients: bool) -> PyResult<()> {
        self.change(py, |network| {
            network.split_at_once(rank, ranks, gradients);
            Ok(())
        })
    }

    /// Brings the moments that ranks hold in parts together, in all of them or in the first.
    fn gather_moments(
        &self,
        py: Python<'_>,
        communicator: &Bound<'_, PyAny>,
        everywhere: bool,
    ) -> PyResult<()> {
        let mut exchange = Communicator::of(communicator, 0, Ways::default())?;
        self.change(py, |network| network.gather_moments(&mut exchange, everywhere))
    }

    /// Infers shapes; every weight is set or lent next, and takes no memory before.
    fn build_bare(&self, py: Python<'_>) -> PyResult<()> {
        self.prepare(py, Engine::is_built, Engine::build_bare)
    }

    /// Has a layer compute from rows of tensors of files, as they lie there.
    fn lend(&self, py: Python<'_>, at: At, parts: Vec<Rows<'_>>) -> PyResult<()> {
        let (cell, layer) = split(at);
        let parts: Vec<_> = parts.into_iter().map(file_rows).collect::<PyResult<_>>()?;
        self.change(py, move |engine| engine.lend_rows(cell, layer, parts))
    }

    /// Infers shapes and makes initial weights.
    fn build(&self, py: Python<'_>) -> PyResult<()> {
        self.prepare(py, Engine::is_built, Engine::build)
    }

    /// Panics in tasks of a loop, for tests of what becomes of that.
    #[cfg(debug_assertions)]
    fn _panic(&self, py: Python<'_>, tasks: usize) -> PyResult<()> {
        self.change(py, move |_| {
            loom::simd::Cpu::global()?.pool().run(tasks, &|task| panic!("on purpose, in task {task}"));
            Ok(())
        })
    }

    /// A network like this one that is built, but has no weights: to look at. None where this one is built.
    fn outline(&self, py: Python<'_>) -> PyResult<Option<Self>> {
        let outline = self.look(py, |engine| match engine.is_built() {
            true => Ok(None),
            false => engine.outline().map(Some),
        })?;
        Ok(outline.map(Self::new))
    }

    /// The table of layers as text.
    fn summary(&self, py: Python<'_>) -> PyResult<String> {
        self.look(py, Engine::summary)
    }

    /// One sample's extents of the output; builds the network.
    fn output_shape(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.look_built(py, |engine| Ok(engine.output_shape().to_vec()))
    }

    /// One sample's extents as they leave a cell; builds the network.
    fn cell_output_shape(&self, py: Python<'_>, cell: [usize; 3]) -> PyResult<Vec<usize>> {
        self.look_built(py, move |engine| {
            Ok(engine.cell_output_shape(cell)?.map(|shape| shape.to_vec()).unwrap_or_default())
        })
    }

    /// A layer's input and output extents; builds the network.
    fn layer_shapes(&self, py: Python<'_>, at: At) -> PyResult<(Vec<usize>, Vec<usize>)> {
        let (cell, layer) = split(at);
        self.look_built(py, move |engine| {
            let placed = engine.layer(cell, layer)?;
            let extents = |shape: Option<&loom::Shape>| shape.map(|shape| shape.to_vec()).unwrap_or_default();
            Ok((extents(placed.input_shape()), extents(placed.output_shape())))
        })
    }

    /// How many layers a cell holds.
    fn cell_len(&self, cell: [usize; 3]) -> PyResult<usize> {
        self.read()?.cell_len(cell).map_err(exception)
    }

    /// Whether an optimizer may move a layer.
    fn trainable(&self, at: At) -> PyResult<bool> {
        let (cell, layer) = split(at);
        Ok(self.read()?.layer(cell, layer).map_err(exception)?.trainable())
    }

    /// Lets an optimizer move a layer, or keeps it from doing so.
    fn set_trainable(&self, at: At, trainable: bool) -> PyResult<()> {
        let (cell, layer) = split(at);
        self.write()?.set_trainable(cell, layer, trainable).map_err(exception)
    }

    /// The parameters of a layer that no optimizer may move, though the layer is trained.
    fn frozen(&self, at: At) -> PyResult<Vec<String>> {
        let (cell, layer) = split(at);
        Ok(self.read()?.layer(cell, layer).map_err(exception)?.frozen().to_vec())
    }

    /// Keeps a parameter as it is, or lets an optimizer move it again.
    fn set_frozen(&self, py: Python<'_>, at: At, name: &str, frozen: bool) -> PyResult<()> {
        let (cell, layer) = split(at);
        self.change(py, move |engine| engine.set_frozen(cell, layer, name, frozen))
    }

    /// The adapters of a layer, as JSON.
    fn adapters(&self, at: At) -> PyResult<String> {
        let (cell, layer) = split(at);
        let engine = self.read()?;
        let adapters: Vec<_> = engine.layer(cell, layer).map_err(exception)?.adapters().collect();
        serde_json::to_string(&adapters)
            .map_err(|error| exception(loom::Error::Serialization(error.to_string())))
    }

    /// Puts an adapter, described as JSON, beside weights of a layer.
    fn add_adapter(&self, py: Python<'_>, at: At, adapter: &str) -> PyResult<()> {
        let (cell, layer) = split(at);
        let adapter = from_json(adapter)?;
        self.change(py, move |engine| engine.add_adapter(cell, layer, adapter))
    }

    /// Takes an adapter away from a layer.
    fn remove_adapter(&self, py: Python<'_>, at: At, name: &str) -> PyResult<()> {
        let (cell, layer) = split(at);
        self.change(py, move |engine| engine.remove_adapter(cell, layer, name))
    }

    /// Has a layer compute with an adapter or not, and lets an optimizer move it or not.
    fn set_adapter(&self, py: Python<'_>, at: At, name: &str, active: bool, trainable: bool) -> PyResult<()> {
        let (cell, layer) = split(at);
        self.change(py, move |engine| engine.set_adapter(cell, layer, name, (active, trainable)))
    }

    /// Adds what an adapter adds to the weights of a layer, and takes it away.
    fn merge_adapter(&self, py: Python<'_>, at: At, name: &str) -> PyResult<()> {
        let (cell, layer) = split(at);
        self.change(py, move |engine| engine.merge_adapter(cell, layer, name))
    }

    /// The weights of a layer beside which an adapter can stand; builds the network.
    fn adaptable(&self, py: Python<'_>, at: At) -> PyResult<Vec<String>> {
        let (cell, layer) = split(at);
        self.look_built(py, move |engine| engine.adaptable(cell, layer))
    }

    /// What the learning rate of a layer is multiplied by.
    fn rate_factor(&self, at: At) -> PyResult<f64> {
        let (cell, layer) = split(at);
        Ok(self.read()?.layer(cell, layer).map_err(exception)?.rate_factor())
    }

    /// Multiplies the learning rate of a layer.
    fn set_rate_factor(&self, at: At, factor: f64) -> PyResult<()> {
        let (cell, layer) = split(at);
        self.write()?.set_rate_factor(cell, layer, factor).map_err(exception)
    }

    /// The names of a layer's parameters; builds the network.
    fn parameter_names(&self, py: Python<'_>, at: At) -> PyResult<Vec<String>> {
        let (cell, layer) = split(at);
        self.look_built(py, move |engine| engine.parameter_names(cell, layer))
    }

    /// A parameter's extents.
    fn parameter_shape(&self, py: Python<'_>, at: At, name: &str) -> PyResult<Vec<usize>> {
        let (cell, layer) = split(at);
        self.look_built(py, move |engine| Ok(engine.parameter_shape(cell, layer, name)?.to_vec()))
    }

    /// A parameter's master; with `active`, as the forward pass reads it.
    fn parameter(&self, py: Python<'_>, at: At, name: &str, active: bool) -> PyResult<Py<PyAny>> {
        let (cell, layer) = split(at);
        self.settle(py)?;
        let tensor = self.look_built(py, move |engine| {
            if active {
                engine.active_parameter(cell, layer, name)
            } else {
                engine.parameter(cell, layer, name)
            }
        })?;
        to_numpy(py, tensor)
    }

    /// Sets a parameter's master.
    fn set_parameter(&self, py: Python<'_>, at: At, name: &str, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let (cell, layer) = split(at);
        let array = RealArray::borrow(values)?;
        let view = array.view()?;
        self.change(py, move |engine| engine.set_parameter(cell, layer, name, view))
    }

    /// The names of what a layer carries from batch to batch of training; builds the network.
    fn carried_names(&self, py: Python<'_>, at: At) -> PyResult<Vec<String>> {
        let (cell, layer) = split(at);
        self.look_built(py, move |engine| engine.carried_names(cell, layer))
    }

    /// The names of what a layer keeps beside its parameters, and of what it carries, once it does; builds
    /// the network.
    fn state_names(&self, py: Python<'_>, at: At) -> PyResult<Vec<String>> {
        let (cell, layer) = split(at);
        self.look_built(py, move |engine| engine.state_names(cell, layer))
    }

    /// What a layer keeps or carries under a name.
    fn state(&self, py: Python<'_>, at: At, name: &str) -> PyResult<Py<PyAny>> {
        let (cell, layer) = split(at);
        let tensor = self.look_settled(py, move |engine| engine.state(cell, layer, name))?;
        to_numpy(py, tensor)
    }

    /// Sets what a layer keeps or carries under a name.
    fn set_state(&self, py: Python<'_>, at: At, name: &str, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let (cell, layer) = split(at);
        let array = RealArray::borrow(values)?;
        let view = array.view()?;
        self.change(py, move |engine| engine.set_state(cell, layer, name, view))
    }

    /// A parameter's gradient.
    fn gradient(&self, py: Python<'_>, at: At, name: &str) -> PyResult<Py<PyAny>> {
        let (cell, layer) = split(at);
        self.settle(py)?;
        let tensor = self.look_built(py, move |engine| engine.gradient(cell, layer, name))?;
        to_numpy(py, tensor)
    }

    /// What a layer, by cell, place in it, and places inside layers, read or made in the newest pass, which must
    /// be one of `forward`: "input", "preactivation", "output", or "input_gradient".
    fn layer_value(&self, py: Python<'_>, path: Vec<usize>, which: &str) -> PyResult<Py<PyAny>> {
        let (path, which) = (LayerPath::from(path), value_named(which)?);
        let on_host = self.read()?.device().is_host();
        let fetched = on_host || (!path.is_inner() && which != LayerValue::InputGradient);
        let tensor = if fetched {
            self.look(py, move |engine| engine.value_at(&path, which))?
        } else {
            self.change(py, move |engine| {
                engine.fetch_value(&path, which)?;
                engine.value_at(&path, which)
            })?
        };
        to_numpy(py, tensor)
    }

    /// What layers read, make or attend to in inference over these rows, each by its path and which value; the
    /// empty path is the network.
    fn layer_values(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        batch_size: usize,
        asked: Vec<(Vec<usize>, String)>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let named = |(path, which): (Vec<usize>, String)| Ok((LayerPath::from(path), value_named(&which)?));
        let asked: Vec<_> = asked.into_iter().map(named).collect::<PyResult<_>>()?;
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        let tensors = self.look(py, move |engine| engine.layer_values(view, batch_size, &asked))?;
        tensors.into_iter().map(|tensor| to_numpy(py, tensor)).collect()
    }

    /// The gradient of the input in inference over these rows, for that of the output.
    fn input_gradient(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        gradient: &Bound<'_, PyAny>,
        batch_size: usize,
    ) -> PyResult<Py<PyAny>> {
        let (array, gradient) = (RealArray::borrow(x)?, RealArray::borrow(gradient)?);
        let (view, gradient) = (array.view()?, gradient.view()?);
        let tensor = self.look(py, move |engine| engine.input_gradient(view, gradient, batch_size))?;
        to_numpy(py, tensor)
    }

    /// The layers inside a layer: path, what their parameters' names start with, config as JSON, and extents of
    /// input and output; builds the network.
    fn inner_layers(&self, py: Python<'_>, at: At) -> PyResult<Vec<InnerFigures>> {
        let (cell, layer) = split(at);
        let found = self.look_built(py, move |engine| engine.inner_layers(cell, layer))?;
        let told = |layer: InnerLayerInfo| {
            let shapes = (layer.input_shape.to_vec(), layer.output_shape.to_vec());
            (layer.path.indices().to_vec(), layer.name, layer.config.to_string(), shapes.0, shapes.1)
        };
        Ok(found.into_iter().map(told).collect())
    }

    /// Changes the numeric type of the layers at these places, or of all, by a granularity, a calibration and
    /// a rounding, with activations in float or in a numeric type; of parameters of these names alone, or of
    /// all that take on the type of their layer.
    fn morph(
        &self,
        py: Python<'_>,
        dtype: &str,
        layers: Option<Vec<At>>,
        recipe: (Option<String>, String, String),
        activations: Option<&str>,
        parameters: Option<Vec<String>>,
    ) -> PyResult<()> {
        let dtype = DType::parse(dtype).map_err(exception)?;
        let (granularity, calibration, rounding) = recipe;
        let granularity =
            granularity.map(|text| text.parse::<Granularity>()).transpose().map_err(exception)?;
        let calibration: Calibration = calibration.parse().map_err(exception)?;
        let rounding: Rounding = rounding.parse().map_err(exception)?;
        let activations = activations.map(DType::parse).transpose().map_err(exception)?;
        let numerics = Numerics { recipe: Recipe { granularity, calibration, rounding }, activations };
        self.change(py, move |engine| {
            let names: Option<Vec<&str>> =
                parameters.as_ref().map(|names| names.iter().map(String::as_str).collect());
            engine.morph_layers(Morph { dtype, numerics, parameters: names.as_deref() }, |placed| {
                chosen(layers.as_deref(), placed)
            })
        })
    }

    /// Replaces what was measured before of what every layer is given to read.
    fn take_ranges(&self, py: Python<'_>, ranges: &InputRanges) -> PyResult<()> {
        self.change(py, move |engine| ranges.with(|ranges| engine.take_ranges(ranges)))
    }

    /// What a layer was given to read while that was measured; None where it was not.
    fn input_range(&self, py: Python<'_>, at: At) -> PyResult<Option<RangeArrays>> {
        let (cell, layer) = split(at);
        let engine = self.read()?;
        let Some(range) = engine.layer(cell, layer).map_err(exception)?.range() else { return Ok(None) };
        let squares = PyArray1::from_slice(py, &range.mean_squares).into_any().unbind();
        Ok(Some((range.largest, range.percent, range.percentile, squares)))
    }

    /// Frees the masters of packed weights.
    fn drop_masters(&self, py: Python<'_>, layers: Option<Vec<At>>) -> PyResult<()> {
        self.change(py, move |engine| engine.drop_masters_where(|placed| chosen(layers.as_deref(), placed)))
    }

    /// Makes dropped masters again of the packed weights of the layers at these places, or of all.
    fn unpack(&self, py: Python<'_>, layers: Option<Vec<At>>) -> PyResult<()> {
        self.change(py, move |engine| engine.unpack_where(|placed| chosen(layers.as_deref(), placed)))
    }

    /// A layer's epoch, whether its masters were dropped, its packed versions, the bytes of each parameter as
    /// the forward pass reads it, and the names of those that take on the layer's type.
    fn weights_state(&self, py: Python<'_>, at: At) -> PyResult<Py<PyDict>> {
        let (cell, layer) = split(at);
        self.settle(py)?;
        let state = self.look_built(py, move |engine| {
            Ok(engine.weights(cell, layer)?.map(|store| WeightsState::of(&store)))
        })?;
        state.unwrap_or_default().into_dict(py)
    }

    /// Bytes of a layer's weights in a numeric type, or in the one that the forward pass reads.
    #[pyo3(signature = (at, dtype))]
    fn weights_nbytes(&self, py: Python<'_>, at: At, dtype: Option<&str>) -> PyResult<usize> {
        let (cell, layer) = split(at);
        let dtype = dtype.map(DType::parse).transpose().map_err(exception)?;
        self.look_built(py, move |engine| {
            let own = engine.precision().dtype();
            Ok(engine.weights(cell, layer)?.map_or(0, |store| match dtype {
                Some(dtype) if dtype != own => store.nbytes(dtype),
                Some(_) => store.parameter_count() * engine.precision().size(),
                None => store.active_bytes(),
            }))
        })
    }

    /// A packed parameter's type, granularity, bytes, scales and zero points; None where it is not packed.
    fn packed_parameter(&self, py: Python<'_>, at: At, name: &str) -> PyResult<Option<PackedArrays>> {
        let (cell, layer) = split(at);
        let found = self.change(py, move |engine| engine.packed_parameter(cell, layer, name))?;
        found.map(|packed| packed_arrays(py, packed)).transpose()
    }

    /// Bytes of the weights that the forward pass reads; builds the network.
    fn weight_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.look_built(py, |engine| Ok(engine.weight_bytes()))
    }

    /// The numeric type of a layer's weights; None for a layer without weights.
    fn layer_dtype(&self, py: Python<'_>, at: At) -> PyResult<Option<String>> {
        let (cell, layer) = split(at);
        self.look_built(py, move |engine| engine.layer_dtype(cell, layer))
    }

    /// The output for each row, dropout off. The network must have been built.
    fn predict(&self, py: Python<'_>, x: &Bound<'_, PyAny>, batch_size: usize) -> PyResult<Py<PyAny>> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        let tensor = self.look(py, move |engine| engine.predict_batched(view, batch_size))?;
        to_numpy(py, tensor)
    }

    /// The same, with each layer's statistics for each batch; above 1 of `levels` those of layers inside others,
    /// too.
    fn predict_observed(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        batch_size: usize,
        levels: usize,
    ) -> PyResult<(Py<PyAny>, Vec<Figures>)> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        let (tensor, statistics) = self.look(py, move |engine| {
            let mut statistics = Vec::new();
            let keep = |layers| statistics.push(layers);
            let output = match levels {
                0 | 1 => engine.predict_observed(view, batch_size, keep),
                _ => engine.predict_observed_inside(view, batch_size, keep),
            }?;
            Ok((output, statistics))
        })?;
        let statistics: PyResult<_> = statistics.iter().map(|layers| layer_dicts(py, layers)).collect();
        Ok((to_numpy(py, tensor)?, statistics?))
    }

    /// A forward pass that keeps history, in training or as in inference, and whether the way back keeps the
    /// gradient of what each layer read: the output, the seconds it took,
    /// and, at 1 of `levels`, each layer's statistics, above also those of layers inside others.
    fn forward(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        training: bool,
        levels: usize,
        input_gradients: bool,
    ) -> PyResult<(Py<PyAny>, f64, Option<Figures>)> {
        let array = RealArray::borrow(x)?;
        let view = array.view()?;
        let (step, layers) = self.change(py, move |engine| {
            let step = match (input_gradients, training) {
                (true, _) => engine.forward_keeping_gradients(view, training),
                (false, true) => engine.forward(view),
                (false, false) => engine.forward_inference(view),
            }?;
            let layers = match levels {
                0 => None,
                1 => Some(engine.layer_statistics()?),
                _ => Some(engine.layer_statistics_inside()?),
            };
            Ok((step, layers))
        })?;
        let figures = layers.map(|layers| layer_dicts(py, &layers)).transpose()?;
        Ok((to_numpy(py, step.output)?, step.duration.as_secs_f64(), figures))
    }

    /// Adds to the gradients; returns the input's.
    fn backward(&self, py: Python<'_>, gradient: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let array = RealArray::borrow(gradient)?;
        let view = array.view()?;
        let tensor = self.change(py, move |engine| engine.backward(view))?;
        to_numpy(py, tensor)
    }

    /// Scales the gradients to a global norm; returns the norm before.
    fn clip_gradients(&self, py: Python<'_>, max_norm: f64) -> PyResult<f64> {
        self.change(py, move |engine| engine.clip_gradients(max_norm))
    }

    /// Updates from the gradients, and clears them.
    fn apply_gradients(&self, py: Python<'_>, rate: f64) -> PyResult<()> {
        self.change(py, move |engine| engine.apply_gradients(rate))
    }

    /// Clears the gradients.
    fn zero_gradients(&self) -> PyResult<()> {
        self.write()?.zero_gradients();
        Ok(())
    }

    /// Chooses the rule that `apply_gradients` follows, given as JSON.
    fn set_optimizer(&self, optimizer: &str) -> PyResult<()> {
        let optimizer = from_json(optimizer)?;
        self.write()?.set_optimizer(optimizer).map_err(exception)
    }

    /// Each trainable layer's gradient in figures.
    fn gradient_statistics(&self, py: Python<'_>) -> PyResult<Vec<Py<PyDict>>> {
        self.settle(py)?;
        let layers = self.look(py, Engine::gradient_statistics)?;
        layers.iter().map(|layer| gradient_dict(py, layer)).collect()
    }

    /// What marks the network as training by a thread, while it is entered.
    fn claim(slf: Py<Self>, thread: u64) -> Claim {
        Claim::new(slf, thread)
    }

    /// The thread that trains the network; None where none does.
    fn trained_by(&self) -> Option<u64> {
        self.trainer()
    }

    /// The text and the arrays that were kept with the state of the last training.
    fn notes(&self, py: Python<'_>) -> PyResult<(String, Py<PyDict>)> {
        let notes = self.read()?.notes().clone();
        let arrays = PyDict::new(py);
        for (name, tensor) in notes.tensors {
            arrays.set_item(name, to_numpy(py, tensor)?)?;
        }
        Ok((notes.text, arrays.unbind()))
    }

    /// Keeps text, and float32 or float64 arrays, with the state of the last training.
    fn set_notes(&self, text: String, arrays: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut tensors = BTreeMap::new();
        for (name, array) in arrays {
            let array = RealArray::borrow(&array)?;
            tensors.insert(name.extract()?, array.view()?.to_tensor().map_err(exception)?);
        }
        self.write()?.set_notes(Notes { text, tensors });
        Ok(())
    }

    /// What the loss is scaled by, in a mixed network on a GPU.
    fn loss_scale(&self) -> PyResult<Option<f32>> {
        Ok(self.read()?.loss_scale().map(|now| now.scale))
    }

    /// Epoch, batch, step and updates of the last training, and its optimizer as JSON.
    fn training_state(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        training_dict(py, self.read()?.optimizer_state())
    }
}
