//! Functions of a user's own, written in Python, as layers: called by the engine in the middle of a pass.

use loom::layers::{Configured, Context, Forward, Layer, ParameterSpec, Sample, Want};
use loom::ops::{Args, Custom, CustomOperation};
use loom::program::{Builder, Value};
use loom::simd::Real;
use loom::weights::{Initializer, Layout};
use loom::{Error, Result, Shape};
use numpy::{Element, PyArray1, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The kind of the layer in configs.
pub const KIND: &str = "function";

/// A layer whose values and gradients Python computes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// The name that its class was given.
    name: String,
    /// What it is made from.
    #[serde(default)]
    settings: serde_json::Map<String, serde_json::Value>,
    #[serde(skip)]
    made: OnceLock<Arc<Made>>,
}

/// The Python object.
struct Made {
    name: String,
    object: Py<PyAny>,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function \"{}\"", self.name)
    }
}

/// A parameter that the function asks for: name, extents, and how it starts, as JSON.
type Asked = (String, Vec<usize>, String);

/// What Python raised, on its way through the engine.
pub fn raised(error: PyErr) -> Error {
    Error::Callback(Box::new(error))
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Function {
    /// The Python object, made when first needed.
    fn made(&self) -> Result<Arc<Made>> {
        if let Some(made) = self.made.get() {
            return Ok(made.clone());
        }
        let settings = serde_json::Value::Object(self.settings.clone()).to_string();
        let object = Python::attach(|py| -> PyResult<Py<PyAny>> {
            let make = py.import("loom.nn.function")?.getattr("made")?;
            Ok(make.call1((&self.name, settings))?.unbind())
        });
        let made = Arc::new(Made { name: self.name.clone(), object: object.map_err(raised)? });
        Ok(self.made.get_or_init(|| made).clone())
    }

    fn asked(&self, input: &Shape) -> Result<Vec<Asked>> {
        let made = self.made()?;
        Python::attach(|py| {
            let shape = PyTuple::new(py, input.iter())?;
            made.object.bind(py).call_method1("_asked", (shape,))?.extract()
        })
        .map_err(raised)
    }

    fn only<'a>(&self, inputs: &'a [Shape]) -> Result<&'a Shape> {
        match inputs {
            [input] => Ok(input),
            _ => Err(Error::Shape(format!("{}: takes one input", self.name))),
        }
    }
}

impl Configured for Function {
    fn validate(&self) -> Result<()> {
        self.made().map(drop)
    }

    fn samples() -> Vec<Sample> {
        // Only whoever writes one knows what it reads.
        Vec::new()
    }
}

impl Layer for Function {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn config(&self) -> serde_json::Value {
        serde_json::json!({ "type": KIND, "name": self.name, "settings": self.settings })
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = self.only(inputs)?;
        for (name, _, initializer) in self.asked(input)? {
            let parsed: std::result::Result<Initializer, _> = serde_json::from_str(&initializer);
            parsed.map_err(|error| Error::Value(format!("{}: parameter \"{name}\": {error}", self.name)))?;
        }
        let made = self.made()?;
        let extents: Vec<usize> = Python::attach(|py| {
            let shape = PyTuple::new(py, input.iter())?;
            made.object.bind(py).call_method1("_shape", (shape,))?.extract()
        })
        .map_err(raised)?;
        Ok(Shape::new(extents))
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        // What cannot be asked for was refused with the shape.
        let asked = self.only(inputs).and_then(|input| self.asked(input)).unwrap_or_default();
        let spec = |(name, shape, initializer): Asked| {
            let outputs = shape.first().copied().unwrap_or(1);
            Some(ParameterSpec {
                fan_in: shape.iter().skip(1).product(),
                fan_out: outputs,
                decay_exempt: shape.len() < 2,
                adaptable: false,
                layout: Layout::plain(&shape[..]),
                name: name.into(),
                initializer: serde_json::from_str(&initializer).ok()?,
                morphable: false,
            })
        };
        asked.into_iter().filter_map(spec).collect()
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let input = b.shape(inputs[0]).clone();
        let output = self.output_shape(std::slice::from_ref(&input))?;
        let asked = self.asked(&input)?;
        let mut reads = vec![inputs[0]];
        for (name, ..) in &asked {
            reads.push(cx.read(b, name)?);
        }
        let pass = Arc::new(Pass {
            made: self.made()?,
            input,
            output: output.clone(),
            parameters: asked.into_iter().map(|(_, shape, _)| shape).collect(),
            is_learned: AtomicBool::new(false),
            context: Mutex::default(),
            gradients: Mutex::default(),
        });
        let value =
            b.apply(Custom(Arc::new(Call { pass: pass.clone(), what: What::Value })), &reads, "y", output);
        Ok(Forward { note: Some(pass), ..Forward::new(value) })
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let lost = || Error::Internal("a function's backward pass has lost its forward one".into());
        let note = forward.note.clone().ok_or_else(lost)?;
        let pass: Arc<Pass> = note.downcast().map_err(|_| lost())?;
        pass.is_learned.store(true, Ordering::Relaxed);
        let shape = b.shape(inputs[0]).clone();
        let call = |what| Custom(Arc::new(Call { pass: pass.clone(), what }));
        let input_gradient = b.apply(call(What::Gradient), &[gradient], "dx", shape.clone());
        if want.parameters {
            // They come from the same call, and so after it.
            for (number, (name, ..)) in self.asked(&shape)?.iter().enumerate() {
                cx.contribute(b, name, call(What::ParameterGradient(number)), &[input_gradient])?;
            }
        }
        Ok(vec![want.inputs.then_some(input_gradient)])
    }
}

/// One lowering of a function: what a forward pass leaves for the backward one that follows it.
struct Pass {
    made: Arc<Made>,
    input: Shape,
    output: Shape,
    parameters: Vec<Vec<usize>>,
    /// Whether a backward pass will ask for what the forward pass has left.
    is_learned: AtomicBool,
    context: Mutex<Option<Py<PyAny>>>,
    gradients: Mutex<Vec<Py<PyAny>>>,
}

/// What a call computes.
#[derive(Clone, Copy, Debug)]
enum What {
    /// The output, from the input and the parameters.
    Value,
    /// The input's gradient, from the output's.
    Gradient,
    /// The gradient of a parameter, which was computed with the input's.
    ParameterGradient(usize),
}

/// A call of a function as an operation.
struct Call {
    pass: Arc<Pass>,
    what: What,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.what, self.pass.made)
    }
}

/// A copy as an array of these extents a row.
pub fn array<'py, T: Element + Copy>(
    py: Python<'py>,
    elements: &[T],
    lead: Option<usize>,
    extents: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    let shape: Vec<usize> = lead.into_iter().chain(extents.iter().copied()).collect();
    PyArray1::from_slice(py, elements).reshape(shape)
}

impl Call {
    fn run<T: Real + Element>(&self, args: &mut Args<'_>) -> Result<()> {
        Python::attach(|py| self.call::<T>(py, args)).map_err(raised)
    }

    fn call<T: Real + Element>(&self, py: Python<'_>, args: &mut Args<'_>) -> PyResult<()> {
        let Pass { made, input, output, parameters, is_learned, context, gradients } = &*self.pass;
        let (object, rows) = (made.object.bind(py), args.rows);
        match self.what {
            What::Value => {
                let given = PyList::empty(py);
                for (number, shape) in parameters.iter().enumerate() {
                    given.append(array(py, args.read::<T>(1 + number), None, shape)?)?;
                }
                let x = array(py, args.read::<T>(0), Some(rows), input)?;
                let wanted = PyTuple::new(py, output.iter())?;
                let (value, left): (Bound<'_, PyArrayDyn<T>>, Py<PyAny>) =
                    object.call_method1("_forward", (x, given, wanted))?.extract()?;
                args.write::<T>(0).copy_from_slice(value.try_readonly()?.as_slice()?);
                if is_learned.load(Ordering::Relaxed) {
                    *lock(context) = Some(left);
                }
            }
            What::Gradient => {
                let left = lock(context).take();
                let gradient = array(py, args.read::<T>(0), Some(rows), output)?;
                let wanted = PyTuple::new(py, input.iter())?;
                let (value, made): (Bound<'_, PyArrayDyn<T>>, Vec<Py<PyAny>>) = object
                    .call_method1("_backward", (left, gradient, wanted, parameters.clone()))?
                    .extract()?;
                args.write::<T>(0).copy_from_slice(value.try_readonly()?.as_slice()?);
                *lock(gradients) = made;
            }
            What::ParameterGradient(number) => {
                let found = lock(gradients).get(number).map(|found| found.clone_ref(py));
                let Some(found) = found else { return Ok(()) };
                let found = found.bind(py).cast::<PyArrayDyn<T>>()?.try_readonly()?;
                let (found, adds) = (found.as_slice()?, args.accumulate);
                for (into, from) in args.write::<T>(0).iter_mut().zip(found) {
                    if adds {
                        *into += *from;
                    } else {
                        *into = *from;
                    }
                }
            }
        }
        Ok(())
    }
}

impl CustomOperation for Call {
    fn name(&self) -> &str {
        &self.pass.made.name
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
        let said = Python::attach(|py| self.pass.made.object.bind(py).call_method0("_cut").map(drop));
        said.map_err(raised)
    }
}
