//! `loom._native`'s view of GPUs: which there are, opening and releasing them, what their frames did.

use crate::error::{detached, exception};
use loom::gpu::{Adapter, Fault, Gpu, Timing};
use loom::{Device, Precision};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// The GPU of this name, opened if it is not yet.
fn open(py: Python<'_>, device: &str) -> PyResult<Arc<Gpu>> {
    detached(py, || {
        let opened = Device::open(device, Precision::Float32)?;
        let gpu = Gpu::of(opened.engine());
        gpu.ok_or_else(|| loom::Error::Device(format!("\"{device}\" is no GPU")))
    })
}

fn adapter_dict(py: Python<'_>, adapter: &Adapter) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", format!("gpu:{}", adapter.index))?;
    dict.set_item("hardware", &adapter.name)?;
    dict.set_item("backend", adapter.backend)?;
    dict.set_item("driver", &adapter.driver)?;
    dict.set_item("software", adapter.software)?;
    dict.set_item("max_buffer", adapter.max_buffer)?;
    dict.set_item("max_binding", adapter.max_binding)?;
    dict.set_item("float16", adapter.float16)?;
    dict.set_item("subgroups", adapter.subgroups)?;
    dict.set_item("cooperative_matrices", adapter.cooperative_matrices)?;
    dict.set_item("timestamps", adapter.timestamps)?;
    Ok(dict.unbind())
}

/// The GPUs of this machine, and why there is none where that is so.
#[pyfunction]
pub fn adapters(py: Python<'_>) -> PyResult<(Vec<Py<PyDict>>, Option<String>)> {
    let found = detached(py, || Ok(loom::gpu::adapters()))?;
    let adapters: PyResult<_> = found.adapters.iter().map(|adapter| adapter_dict(py, adapter)).collect();
    Ok((adapters?, found.reason))
}

/// Opens a GPU; returns its description.
#[pyfunction]
pub fn open_gpu(py: Python<'_>, device: &str) -> PyResult<Py<PyDict>> {
    adapter_dict(py, open(py, device)?.adapter())
}

/// Lets go of every GPU that no network is on.
#[pyfunction]
pub fn release_gpus(py: Python<'_>) -> PyResult<()> {
    detached(py, || {
        loom::gpu::release();
        Ok(())
    })
}

/// Has a GPU meet a fault, for tests of how programs cope: "loss", "allocation" or "hang" after so many submits or
/// allocations, or "memory" of so many bytes.
#[pyfunction]
pub fn meet_fault(py: Python<'_>, device: &str, kind: &str, number: u64) -> PyResult<()> {
    let fault = match kind {
        "loss" => Fault::Loss(number),
        "allocation" => Fault::Allocation(number),
        "memory" => Fault::Memory(number),
        "hang" => Fault::Hang(number),
        _ => return Err(exception(loom::Error::Value(format!("unknown fault \"{kind}\"")))),
    };
    open(py, device)?.meet(fault);
    Ok(())
}

/// What a GPU's frames have done since this was last reset, and the bytes that loom holds there.
#[pyfunction]
pub fn frame_statistics(py: Python<'_>, device: &str) -> PyResult<Py<PyDict>> {
    let gpu = open(py, device)?;
    let found = gpu.statistics();
    let dict = PyDict::new(py);
    dict.set_item("frames", found.frames)?;
    dict.set_item("steps", found.steps)?;
    dict.set_item("dispatches", found.dispatches)?;
    dict.set_item("submits", found.submits)?;
    dict.set_item("bytes_up", found.bytes_up)?;
    dict.set_item("bytes_down", found.bytes_down)?;
    dict.set_item("device_seconds", found.device_seconds)?;
    dict.set_item("memory", gpu.allocated())?;
    let kernels = gpu.kernel_times().into_iter();
    dict.set_item("kernels", kernels.map(|time| (time.label, time.runs, time.seconds)).collect::<Vec<_>>())?;
    Ok(dict.unbind())
}

/// Counts a GPU's frames from zero again.
#[pyfunction]
pub fn reset_frame_statistics(py: Python<'_>, device: &str) -> PyResult<()> {
    open(py, device)?.reset_statistics();
    Ok(())
}

/// Measures from here on the time of frames, of "kernels", or of nothing ("off").
#[pyfunction]
pub fn time_frames(py: Python<'_>, device: &str, what: &str) -> PyResult<()> {
    let timing = match what {
        "frames" => Timing::Frames,
        "kernels" => Timing::Kernels,
        _ => Timing::Off,
    };
    open(py, device)?.set_timing(timing).map_err(exception)
}
