//! The Python face of loom: conversion and GIL release, nothing else.

use pyo3::prelude::*;

mod arrays;
mod device;
mod draws;
mod error;
mod exchange;
mod figures;
mod forks;
mod function;
mod mesh;
mod network;
mod own_loss;
mod ranges;
mod session;
mod shared;
mod slots;
mod surgery;
mod tensor_file;
mod training;
mod tween;

/// The native half of the `loom` package; users import `loom`.
///
/// It needs no GIL: every class is frozen, what changes in one is behind a lock that raises instead of waiting, and what
/// is shared by all is atomic or locked.
#[pymodule(gil_used = false)]
mod _native {
    use loom::layers::Sample;
    use loom::ops::pointwise::Activation;
    use pyo3::prelude::*;
    use std::collections::BTreeMap;

    #[pymodule_export]
    use super::device::{
        adapters, frame_statistics, meet_fault, open_gpu, release_gpus, reset_frame_statistics, time_frames,
    };
    #[pymodule_export]
    use super::exchange::Meeting;
    #[pymodule_export]
    use super::forks::{after_fork_in_child, after_fork_in_parent, before_fork};
    #[pymodule_export]
    use super::mesh::{Mesh, Stepper};
    #[pymodule_export]
    use super::ranges::InputRanges;
    #[pymodule_export]
    use super::session::Session;
    #[pymodule_export]
    use super::shared::{Claim, Network};
    #[pymodule_export]
    use super::slots::Slots;
    #[pymodule_export]
    use super::surgery::{LayerCopy, copy_layer, insert_layer, remove_layer, replace_layer};
    #[pymodule_export]
    use super::tensor_file::{
        TensorFile, decode_tensor, encode_tensor, is_lent, write_gguf, write_safetensors,
    };
    #[pymodule_export]
    use super::training::{
        Evaluator, Report, Trainer, check_examples, check_expression, expression_mean, loss_and_gradient,
        schedule_rate,
    };
    #[pymodule_export]
    use super::tween::{
        TweenState, feedback_names, feedback_parameter, measure_history, measures, moment,
        set_feedback_parameter, target_passages,
    };

    /// One numeric type: name, bits of a weight, range, granularity, and rule.
    type NumericType = (&'static str, f64, (f64, f64), String, &'static str);

    /// The numeric types.
    #[pyfunction]
    fn dtypes() -> Vec<NumericType> {
        loom::dtype::DType::all()
            .map(|dtype| {
                let row = dtype.row();
                (row.name, row.bits_per_weight(), row.range, row.granularity.to_string(), row.rule)
            })
            .collect()
    }

    /// The kinds of layers that the engine knows.
    #[pyfunction]
    fn layer_kinds() -> Vec<&'static str> {
        loom::layers::kinds()
    }

    /// The settings of every kind of layer, as JSON.
    #[pyfunction]
    fn layer_schema() -> String {
        let schema: BTreeMap<_, _> = loom::layers::schema().into_iter().collect();
        serde_json::json!(schema).to_string()
    }

    /// Refuses a layer's config, given as JSON, that no input could make right.
    #[pyfunction]
    fn check_layer(config: &str) -> PyResult<()> {
        super::network::parse_layer(config).map(drop)
    }

    /// The configs that every kind of layer is tried on, as JSON; of one's own functions there are none.
    #[pyfunction]
    fn layer_samples() -> String {
        let configs = |samples: Vec<Sample>| samples.iter().map(|it| it.layer.config()).collect::<Vec<_>>();
        let samples = loom::layers::samples().into_iter();
        let samples = samples.filter(|(_, samples)| !samples.is_empty());
        let samples: BTreeMap<_, _> = samples.map(|(kind, samples)| (kind, configs(samples))).collect();
        serde_json::json!(samples).to_string()
    }

    /// The output extents of a layer for inputs of a shape, and of the context's where it reads one.
    #[pyfunction]
    fn layer_output_shape(
        config: &str,
        shape: Vec<usize>,
        context: Option<Vec<usize>>,
    ) -> PyResult<Vec<usize>> {
        let layer = super::network::parse_layer(config)?;
        let context = context.filter(|_| layer.takes_context());
        let inputs: Vec<loom::Shape> =
            [Some(shape), context].into_iter().flatten().map(loom::Shape::new).collect();
        Ok(layer.output_shape(&inputs).map_err(super::error::exception)?.to_vec())
    }

    /// The activations with the names of their parameters.
    #[pyfunction]
    fn activations() -> Vec<(&'static str, Vec<&'static str>)> {
        let names = |it: &Activation| it.parameters().into_iter().map(|(name, _)| name).collect();
        Activation::ALL.iter().map(|it| (it.name(), names(it))).collect()
    }

    /// The instruction set that kernels use, and how many threads.
    #[pyfunction]
    fn machine() -> PyResult<(&'static str, usize)> {
        let cpu = loom::simd::Cpu::global().map_err(super::error::exception)?;
        Ok((cpu.isa().level().name(), cpu.pool().threads()))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::error::note_panics();
        // Once in a process, whichever interpreter comes first.
        if !loom::layers::kinds().contains(&super::function::KIND) {
            let made_known = loom::layers::register::<super::function::Function>(super::function::KIND);
            made_known.map_err(super::error::exception)?;
        }
        loom::train::provide_losses(super::own_loss::provided);
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
