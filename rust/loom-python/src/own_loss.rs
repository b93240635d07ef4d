//! Losses of a user's own, written in Python.

use crate::function::{array, lock, raised};
use loom::ops::{Args, Custom, CustomOperation};
use loom::program::{Builder, Value};
use loom::simd::Real;
use loom::train::OwnLoss;
use loom::{Result, Shape};
use numpy::{Element, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex};

/// A loss that Python computes.
struct Provided {
    object: Py<PyAny>,
    name: String,
    /// Whether its targets are class indices.
    classes: bool,
}

impl fmt::Debug for Provided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss \"{}\"", self.name)
    }
}

/// The loss that `loom.losses.own` keeps under this number.
///
/// # Errors
/// What Python raises for one that is not there.
pub fn provided(number: u64) -> Result<Arc<dyn OwnLoss>> {
    let found = Python::attach(|py| -> PyResult<Loss> {
        let object = py.import("loom.losses.own")?.getattr("kept")?.call1((number,))?;
        let (name, classes) = (object.getattr("name")?.extract()?, object.getattr("classes")?.extract()?);
        Ok(Loss(Arc::new(Provided { object: object.unbind(), name, classes })))
    });
    Ok(Arc::new(found.map_err(raised)?))
}

/// A loss as the engine knows it.
#[derive(Debug)]
struct Loss(Arc<Provided>);

/// What one call of the loss has made: the output's gradient.
struct Pass {
    loss: Arc<Provided>,
    output: Shape,
    gradient: Mutex<Option<Py<PyAny>>>,
}

impl OwnLoss for Loss {
    fn lower(
        &self,
        b: &mut Builder,
        output: Value,
        target: Value,
    ) -> Result<(Value, Arc<dyn Any + Send + Sync>)> {
        let shape = b.shape(output).clone();
        let pass = Arc::new(Pass { loss: self.0.clone(), output: shape, gradient: Mutex::default() });
        let call = Custom(Arc::new(Call { pass: pass.clone(), gradient: false }));
        let shape = b.shape(output).clone();
        Ok((b.apply(call, &[output, target], "loss", shape), pass))
    }

    fn lower_backward(
        &self,
        b: &mut Builder,
        output: Value,
        note: &Arc<dyn Any + Send + Sync>,
        gradient: Value,
    ) -> Result<Value> {
        let pass: Arc<Pass> = note
            .clone()
            .downcast()
            .map_err(|_| loom::Error::Internal("a loss has lost its forward pass".into()))?;
        let shape = b.shape(output).clone();
        Ok(b.apply(Custom(Arc::new(Call { pass, gradient: true })), &[gradient], "gradient", shape))
    }
}

/// A call of a loss as an operation.
struct Call {
    pass: Arc<Pass>,
    /// Whether it hands on the gradient that the call before it has made.
    gradient: bool,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, gradient {}", self.pass.loss, self.gradient)
    }
}

impl Call {
    fn run<T: Real + Element>(&self, args: &mut Args<'_>) -> Result<()> {
        Python::attach(|py| self.call::<T>(py, args)).map_err(raised)
    }

    fn call<T: Real + Element>(&self, py: Python<'_>, args: &mut Args<'_>) -> PyResult<()> {
        let Pass { loss, output, gradient } = &*self.pass;
        let (object, rows) = (loss.object.bind(py), args.rows);
        if self.gradient {
            let Some(made) = lock(gradient).take() else { return Ok(()) };
            let made = made.bind(py).cast::<PyArrayDyn<T>>()?.try_readonly()?;
            let width = output.len();
            let shares = args.read::<T>(0);
            let result = args.write::<T>(0).chunks_exact_mut(width).zip(made.as_slice()?.chunks_exact(width));
            for ((into, from), shares) in result.zip(shares.chunks_exact(width)) {
                // Every element stands for its row's loss, and has an equal share of it.
                let share = shares[0] * T::from_f64(width as f64);
                for (into, from) in into.iter_mut().zip(from) {
                    *into = *from * share;
                }
            }
            return Ok(());
        }
        let given = array(py, args.read::<T>(0), Some(rows), output)?;
        let target = if loss.classes {
            let labels = args.read::<i32>(1);
            array(py, labels, Some(rows), &[labels.len() / rows.max(1)])?.into_any()
        } else {
            array(py, args.read::<T>(1), Some(rows), output)?.into_any()
        };
        let wanted = PyTuple::new(py, output.iter())?;
        let (values, made): (Bound<'_, PyArrayDyn<T>>, Py<PyAny>) =
            object.call_method1("_call", (given, target, wanted))?.extract()?;
        let values = values.try_readonly()?;
        for (into, value) in args.write::<T>(0).chunks_exact_mut(output.len()).zip(values.as_slice()?) {
            into.fill(*value);
        }
        *lock(gradient) = Some(made);
        Ok(())
    }
}

impl CustomOperation for Call {
    fn name(&self) -> &str {
        &self.pass.loss.name
    }

    fn run_f32(&self, args: &mut Args<'_>) -> Result<()> {
        self.run::<f32>(args)
    }

    fn run_f64(&self, args: &mut Args<'_>) -> Result<()> {
        self.run::<f64>(args)
    }

    fn on_host(&self) -> bool {
        true
    }

    fn cuts(&self) -> Result<()> {
        let said = Python::attach(|py| self.pass.loss.object.bind(py).call_method0("_cut").map(drop));
        said.map_err(raised)
    }
}
