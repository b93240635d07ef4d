//! The Python face of loom: conversion and GIL release, nothing else.

use pyo3::prelude::*;

mod arrays;
mod device;
mod error;
mod figures;
mod mesh;
mod network;
mod session;
mod shared;
mod training;
mod tween;

/// The native half of the `loom` package; users import `loom`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::device::{
        adapters, frame_statistics, open_gpu, release_gpus, reset_frame_statistics, time_frames,
    };
    #[pymodule_export]
    use super::mesh::{Mesh, Stepper};
    #[pymodule_export]
    use super::session::Session;
    #[pymodule_export]
    use super::shared::{Claim, Network};
    #[pymodule_export]
    use super::training::{Evaluator, Report, Trainer, check_examples, loss_and_gradient, schedule_rate};
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

    /// The instruction set that kernels use, and how many threads.
    #[pyfunction]
    fn machine() -> PyResult<(&'static str, usize)> {
        let cpu = loom::simd::Cpu::global().map_err(super::error::PyError::from)?;
        Ok((cpu.isa().level().name(), cpu.pool().threads()))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
