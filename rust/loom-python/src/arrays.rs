//! NumPy arrays in and out.

use loom::train::{Examples, OwnedTargets, Targets};
use loom::{Elements, Tensor, TensorView};
use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// A borrowed array of real numbers in either precision.
pub enum RealArray<'py> {
    Float32(PyReadonlyArrayDyn<'py, f32>),
    Float64(PyReadonlyArrayDyn<'py, f64>),
}

impl<'py> RealArray<'py> {
    /// Borrows a C-contiguous float32 or float64 array; the package has converted others.
    pub fn borrow(array: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            return Ok(Self::Float32(array.try_readonly()?));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            return Ok(Self::Float64(array.try_readonly()?));
        }
        Err(PyTypeError::new_err("expected a float32 or float64 array"))
    }

    /// The array as the engine sees it.
    pub fn view(&self) -> PyResult<TensorView<'_>> {
        let (shape, elements) = match self {
            Self::Float32(array) => (array.shape().to_vec(), Elements::Float32(array.as_slice()?)),
            Self::Float64(array) => (array.shape().to_vec(), Elements::Float64(array.as_slice()?)),
        };
        TensorView::new(shape, elements).map_err(crate::error::exception)
    }
}

/// Borrowed targets: class indices or real numbers.
pub enum TargetArray<'py> {
    Classes(PyReadonlyArrayDyn<'py, i32>),
    Real(RealArray<'py>),
}

impl<'py> TargetArray<'py> {
    /// Borrows an int32 array as class indices, a float one as numbers.
    pub fn borrow(array: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = array.cast::<PyArrayDyn<i32>>() {
            return Ok(Self::Classes(array.try_readonly()?));
        }
        RealArray::borrow(array).map(Self::Real)
    }

    /// The targets as the engine sees them.
    pub fn view(&self) -> PyResult<Targets<'_>> {
        Ok(match self {
            Self::Classes(array) => {
                Targets::Classes { shape: array.shape().to_vec(), labels: array.as_slice()? }
            }
            Self::Real(array) => Targets::Real(array.view()?),
        })
    }
}

/// Borrowed inputs, targets and weights.
pub struct ExampleArrays<'py> {
    input: RealArray<'py>,
    target: TargetArray<'py>,
    weight: Option<RealArray<'py>>,
}

impl<'py> ExampleArrays<'py> {
    /// Borrows an (input, target, weight or None) tuple of converted arrays.
    pub fn borrow(
        input: &Bound<'py, PyAny>,
        target: &Bound<'py, PyAny>,
        weight: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            input: RealArray::borrow(input)?,
            target: TargetArray::borrow(target)?,
            weight: weight.map(RealArray::borrow).transpose()?,
        })
    }

    /// The examples as the engine sees them.
    pub fn view(&self) -> PyResult<Examples<'_>> {
        Ok(Examples {
            input: self.input.view()?,
            target: self.target.view()?,
            weight: self.weight.as_ref().map(RealArray::view).transpose()?,
        })
    }
}

/// An engine's array as a NumPy array, its memory handed over.
pub fn to_numpy(py: Python<'_>, tensor: Tensor) -> PyResult<Py<PyAny>> {
    match tensor {
        Tensor::Float32(shape, elements) => Ok(elements.into_pyarray(py).reshape(shape)?.into_any().unbind()),
        Tensor::Float64(shape, elements) => Ok(elements.into_pyarray(py).reshape(shape)?.into_any().unbind()),
    }
}

/// Targets as a NumPy array: class indices as int32.
pub fn targets_to_numpy(py: Python<'_>, targets: OwnedTargets) -> PyResult<Py<PyAny>> {
    match targets {
        OwnedTargets::Real(tensor) => to_numpy(py, tensor),
        OwnedTargets::Classes(shape, labels) => {
            Ok(labels.into_pyarray(py).reshape(shape)?.into_any().unbind())
        }
    }
}
