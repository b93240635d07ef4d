//! Images on their way into a network.

use crate::error::{detached, exception};
use loom::images::{Change, Extents, change};
use numpy::{
    PyArrayDyn, PyArrayMethods, PyReadonlyArray1, PyReadonlyArrayDyn, PyReadwriteArrayDyn,
    PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Borrows an array of this type, or says that it is of another.
fn read<'py, T: numpy::Element>(array: &Bound<'py, PyAny>) -> Option<PyResult<PyReadonlyArrayDyn<'py, T>>> {
    array.cast::<PyArrayDyn<T>>().ok().map(|array| Ok(array.try_readonly()?))
}

fn write<'py, T: numpy::Element>(array: &Bound<'py, PyAny>) -> Option<PyResult<PyReadwriteArrayDyn<'py, T>>> {
    array.cast::<PyArrayDyn<T>>().ok().map(|array| Ok(array.try_readwrite()?))
}

/// Changes images, (rows, channels, height, width), into `out`, of the same extents.
///
/// `moves` has for each image whether it is mirrored, whether it is upside down, and by how many pixels it moves down and
/// right; `turns` sine and cosine; `colours` factors of brightness, contrast and saturation; `erased` top, left, height
/// and width of what becomes zeros, nothing where the height is 0.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "what is done in one call is said in one")]
pub fn change_images(
    py: Python<'_>,
    images: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    moves: PyReadonlyArray1<'_, i64>,
    turns: Option<PyReadonlyArray1<'_, f32>>,
    colours: Option<PyReadonlyArray1<'_, f32>>,
    erased: Option<PyReadonlyArray1<'_, i64>>,
    scale: f64,
) -> PyResult<()> {
    let shape: Vec<usize> = images.getattr("shape")?.extract()?;
    let [_, channels, height, width] = shape[..] else {
        return Err(PyValueError::new_err("images are (rows, channels, height, width)"));
    };
    let extents = Extents { channels, height, width };
    let part =
        |array: &Option<PyReadonlyArray1<'_, f32>>, row: usize, width: usize| -> PyResult<Option<Vec<f32>>> {
            let Some(array) = array else { return Ok(None) };
            let part = array.as_slice()?.get(row * width..(row + 1) * width);
            Ok(Some(part.ok_or_else(short)?.to_vec()))
        };
    let mut changes = Vec::new();
    let (steps, _) = moves.as_slice()?.as_chunks::<4>();
    for (row, [mirrored, upside_down, down, right]) in steps.iter().enumerate() {
        let turn = part(&turns, row, 2)?.map(|turn| [turn[0], turn[1]]);
        let colours = part(&colours, row, 3)?.map(|colours| [colours[0], colours[1], colours[2]]);
        let erased = match &erased {
            None => None,
            Some(array) => {
                let part = array.as_slice()?.get(row * 4..(row + 1) * 4).ok_or_else(short)?;
                let extent = |number: i64| usize::try_from(number).unwrap_or(0);
                (part[2] > 0).then(|| [extent(part[0]), extent(part[1]), extent(part[2]), extent(part[3])])
            }
        };
        changes.push(Change {
            mirrored: *mirrored != 0,
            upside_down: *upside_down != 0,
            down: *down,
            right: *right,
            turn,
            colours,
            erased,
        });
    }
    macro_rules! between {
        ($($from:ty => $to:ty),*) => {$(
            if let (Some(images), Some(out)) = (read::<$from>(images), write::<$to>(out)) {
                let (images, mut out) = (images?, out?);
                if images.shape() != out.shape() {
                    return Err(PyValueError::new_err("images and what comes out must have the same shape"));
                }
                let (images, out) = (images.as_slice()?, out.as_slice_mut()?);
                return detached(py, || change(images, out, extents, &changes, scale));
            }
        )*};
    }
    between!(u8 => u8, u8 => f32, f32 => f32, f64 => f64);
    Err(PyTypeError::new_err("images are uint8, float32 or float64 arrays, and come out as such"))
}

fn short() -> PyErr {
    exception(loom::Error::Shape("there are fewer changes of one sort than images".into()))
}
