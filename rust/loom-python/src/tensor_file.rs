//! `loom._native.TensorFile`: tensors by name, in files of other programs.

use crate::error::{detached, exception};
use loom::io::{ElementType, FileRows, NumberType, TensorFile as Engine, TensorSpec, Value, Values};
use numpy::ndarray::ArrayView1;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};
use pyo3::{IntoPyObjectExt, intern};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Name, type, extents and bytes of a tensor.
type Described = (String, &'static str, Vec<usize>, usize);

/// Name, type and extents of a tensor that is to be written.
type Specified = (String, String, Vec<usize>);

/// An open file, or several that are one.
#[pyclass(frozen, module = "loom._native")]
pub struct TensorFile(pub Arc<Engine>);

#[pymethods]
impl TensorFile {
    /// Opens a file, an index of several, or a folder.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        detached(py, move || Engine::open(path)).map(|file| Self(Arc::new(file)))
    }

    /// Reads the bytes of a file, without a copy.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: PyBackedBytes) -> PyResult<Self> {
        detached(py, move || Engine::from_bytes(data)).map(|file| Self(Arc::new(file)))
    }

    /// What the file is: "safetensors" or "gguf".
    fn format(&self) -> &'static str {
        self.0.format().name()
    }

    /// What the file says beside its tensors.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in self.0.metadata() {
            dict.set_item(key, value_object(py, value)?)?;
        }
        Ok(dict)
    }

    /// What tensors there are.
    fn tensors(&self) -> Vec<Described> {
        let tensors = self.0.tensors().iter();
        tensors.map(|it| (it.name.clone(), it.element.name(), it.shape.clone(), it.bytes())).collect()
    }

    /// A tensor's bytes: an array that looks at the file, and keeps it open.
    fn bytes<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let bytes = slf.get().0.bytes(name).map_err(exception)?;
        // SAFETY: the bytes stay where they are as long as this object lives, which the array holds; it is made
        // read-only before anybody has it.
        let array = unsafe { PyArray1::borrow_from_array(&ArrayView1::from(bytes), slf.clone().into_any()) };
        let _ = array.try_readwrite()?.make_nonwriteable();
        Ok(array.into_any())
    }

    /// Reads everything and compares it with the file's checksums; False where it brings none.
    fn verify(&self, py: Python<'_>) -> PyResult<bool> {
        detached(py, || self.0.verify())
    }

    /// A tensor's elements as float32, in one row.
    fn numbers<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let numbers = detached(py, || self.0.to_f32(&name))?;
        Ok(PyArray1::from_vec(py, numbers))
    }
}

/// A value of metadata as Python has it.
fn value_object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::U8(it) => it.into_bound_py_any(py),
        Value::I8(it) => it.into_bound_py_any(py),
        Value::U16(it) => it.into_bound_py_any(py),
        Value::I16(it) => it.into_bound_py_any(py),
        Value::U32(it) => it.into_bound_py_any(py),
        Value::I32(it) => it.into_bound_py_any(py),
        Value::F32(it) => it.into_bound_py_any(py),
        Value::Bool(it) => it.into_bound_py_any(py),
        Value::U64(it) => it.into_bound_py_any(py),
        Value::I64(it) => it.into_bound_py_any(py),
        Value::F64(it) => it.into_bound_py_any(py),
        Value::String(it) => it.into_bound_py_any(py),
        Value::Array(values) => values_list(py, values),
    }
}

fn values_list<'py>(py: Python<'py>, values: &Values) -> PyResult<Bound<'py, PyAny>> {
    match values {
        Values::Strings(strings) => strings.into_bound_py_any(py),
        Values::Arrays(arrays) => {
            let list = PyList::empty(py);
            for array in arrays {
                list.append(values_list(py, array)?)?;
            }
            Ok(list.into_any())
        }
        Values::Numbers(number, bytes) => {
            let numpy = py.import(intern!(py, "numpy"))?;
            let array =
                numpy.call_method1(intern!(py, "frombuffer"), (PyBytes::new(py, bytes), number.name()))?;
            array.call_method0(intern!(py, "tolist"))
        }
    }
}

/// A value of metadata from its type's name and bytes, texts, or arrays.
#[derive(FromPyObject)]
pub enum GivenValue {
    /// A text.
    Text(String),
    /// Numbers: whether they are an array, their type and their bytes.
    Numbers(bool, String, PyBackedBytes),
    /// An array of texts.
    Texts(Vec<String>),
}

impl GivenValue {
    fn read(self) -> PyResult<Value> {
        Ok(match self {
            Self::Text(text) => Value::String(text),
            Self::Texts(texts) => Value::Array(Values::Strings(texts)),
            Self::Numbers(true, name, bytes) => {
                Value::Array(Values::Numbers(number_named(&name)?, bytes.to_vec()))
            }
            Self::Numbers(false, name, bytes) => number(number_named(&name)?, &bytes)?,
        })
    }
}

fn number_named(name: &str) -> PyResult<NumberType> {
    let found = NumberType::ALL.into_iter().find(|it| it.name() == name);
    found.ok_or_else(|| exception(loom::Error::DType(format!("metadata cannot hold {name}"))))
}

fn number(of: NumberType, bytes: &[u8]) -> PyResult<Value> {
    let wrong = |_| exception(loom::Error::Value(format!("{} is not {} bytes", of.name(), bytes.len())));
    Ok(match of {
        NumberType::U8 => Value::U8(u8::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::I8 => Value::I8(i8::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::U16 => Value::U16(u16::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::I16 => Value::I16(i16::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::U32 => Value::U32(u32::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::I32 => Value::I32(i32::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::F32 => Value::F32(f32::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::Bool => Value::Bool(bytes != [0]),
        NumberType::U64 => Value::U64(u64::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::I64 => Value::I64(i64::from_le_bytes(bytes.try_into().map_err(wrong)?)),
        NumberType::F64 => Value::F64(f64::from_le_bytes(bytes.try_into().map_err(wrong)?)),
    })
}

pub fn element_named(name: &str) -> PyResult<ElementType> {
    let unknown = || exception(loom::Error::DType(format!("no file has tensors of type {name}")));
    ElementType::named(name).ok_or_else(unknown)
}

fn specs(tensors: Vec<Specified>) -> PyResult<Vec<TensorSpec>> {
    let spec =
        |(name, element, shape): Specified| Ok(TensorSpec { name, shape, element: element_named(&element)? });
    tensors.into_iter().map(spec).collect()
}

/// Asks Python for the bytes of one tensor.
fn asked(bytes_of: &Py<PyAny>, index: usize) -> loom::Result<Cow<'static, [u8]>> {
    let ask = |py: Python<'_>| -> PyResult<Vec<u8>> {
        let array: PyReadonlyArray1<'_, u8> = bytes_of.call1(py, (index,))?.extract(py)?;
        Ok(array.as_slice()?.to_vec())
    };
    Python::attach(ask).map(Cow::Owned).map_err(|raised| loom::Error::Callback(Box::new(raised)))
}

/// Writes safetensors; `bytes_of` is called with the place of one tensor after the other, for its bytes.
#[pyfunction]
pub fn write_safetensors(
    py: Python<'_>,
    path: PathBuf,
    metadata: BTreeMap<String, String>,
    tensors: Vec<Specified>,
    bytes_of: Py<PyAny>,
) -> PyResult<()> {
    let specs = specs(tensors)?;
    detached(py, move || {
        loom::io::write_safetensors(path, &metadata, &specs, |index| asked(&bytes_of, index))
    })
}

/// Writes GGUF, as `write_safetensors`.
#[pyfunction]
pub fn write_gguf(
    py: Python<'_>,
    path: PathBuf,
    metadata: Vec<(String, GivenValue)>,
    tensors: Vec<Specified>,
    bytes_of: Py<PyAny>,
) -> PyResult<()> {
    let specs = specs(tensors)?;
    let metadata: Vec<(String, Value)> =
        metadata.into_iter().map(|(key, value)| Ok((key, value.read()?))).collect::<PyResult<_>>()?;
    detached(py, move || loom::io::write_gguf(path, &metadata, &specs, |index| asked(&bytes_of, index)))
}

/// Whether layers can compute from elements of this type as a file has them.
#[pyfunction]
pub fn is_lent(dtype: &str) -> PyResult<bool> {
    Ok(FileRows::serves(element_named(dtype)?))
}

/// What the bytes of some rows of a tensor stand for, as float32.
#[pyfunction]
pub fn decode_tensor<'py>(
    py: Python<'py>,
    dtype: &str,
    raw: PyReadonlyArray1<'py, u8>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let (element, bytes) = (element_named(dtype)?, raw.as_slice()?);
    let numbers = detached(py, || loom::io::decode(element, bytes))?;
    Ok(PyArray1::from_vec(py, numbers))
}

/// The bytes of float32 numbers as elements of a type.
#[pyfunction]
pub fn encode_tensor<'py>(
    py: Python<'py>,
    dtype: &str,
    numbers: PyReadonlyArray1<'py, f32>,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let (element, numbers) = (element_named(dtype)?, numbers.as_slice()?);
    let bytes = detached(py, || loom::io::encode(element, numbers))?;
    Ok(PyArray1::from_vec(py, bytes))
}
