//! Examples to learn from: borrowed arrays, and which of their rows make a batch.

use super::LossConfig;
use super::weighing::Weighing;
use crate::layers::class_extents;
use crate::network::check_rows;
use crate::simd::Real;
use crate::tensor::{Elements, Shape, TensorView, check_finite};
use crate::{Error, Result};

/// What outputs are compared with.
#[derive(Clone, Debug)]
pub enum Targets<'a> {
    /// Class indices, or integers standing for numbers, in row-major order.
    Classes {
        /// The extents, the batch axis first.
        shape: Vec<usize>,
        /// The indices.
        labels: &'a [i32],
    },
    /// Numbers like the output.
    Real(TensorView<'a>),
}

/// Inputs with their targets and, where given, a weight for each row.
#[derive(Clone, Debug)]
pub struct Examples<'a> {
    /// (rows, input shape).
    pub input: TensorView<'a>,
    /// (rows, ...).
    pub target: Targets<'a>,
    /// (rows,), or (rows, places) for each place of an output to have its own: steps of (steps, features), pixels of
    /// (channels, height, width), row by row. Where outputs have names (rows, outputs), or a number for each place of
    /// each output, one output behind the other. Finite and at least 0.
    pub weight: Option<TensorView<'a>>,
}

/// Which rows of the examples.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// From the first up to this many.
    First(usize),
    /// These, in this order.
    At(&'a [u32]),
}

impl Rows<'_> {
    /// How many rows.
    pub fn len(&self) -> usize {
        match self {
            Rows::First(count) => *count,
            Rows::At(indices) => indices.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows there must be for these to be among them.
    pub(crate) fn most(&self) -> usize {
        match self {
            Rows::First(count) => *count,
            Rows::At(indices) => indices.iter().max().map_or(0, |last| *last as usize + 1),
        }
    }

    fn get(&self, position: usize) -> usize {
        match self {
            Rows::First(_) => position,
            Rows::At(indices) => indices[position] as usize,
        }
    }
}

impl<'a> Targets<'a> {
    /// Class labels, one a row.
    pub fn classes(labels: &'a [i32]) -> Self {
        Targets::Classes { shape: vec![labels.len()], labels }
    }

    /// The extents, the batch axis first.
    pub fn shape(&self) -> &[usize] {
        match self {
            Targets::Classes { shape, .. } => shape,
            Targets::Real(view) => view.shape(),
        }
    }

    /// Rows `range` of these targets.
    pub fn slice_rows(&self, range: std::ops::Range<usize>) -> Targets<'a> {
        match self {
            Targets::Real(view) => Targets::Real(view.slice_rows(range)),
            Targets::Classes { shape, labels } => {
                let row: usize = shape[1..].iter().product();
                let mut shape = shape.clone();
                shape[0] = range.len();
                Targets::Classes { shape, labels: &labels[range.start * row..range.end * row] }
            }
        }
    }

    /// Whether these are class indices for this loss and output: integers with the class axis
    /// left out. Integers shaped like the output stand for numbers.
    pub(crate) fn are_classes_for(&self, loss: &LossConfig, output: &Shape) -> Result<bool> {
        let Targets::Classes { shape, .. } = self else { return Ok(false) };
        let row = &shape[1.min(shape.len())..];
        if row == &output[..] && !(loss.takes_classes() && output.is_empty()) {
            return Ok(false);
        }
        if loss.takes_classes() {
            return Ok(true);
        }
        Err(Error::Shape(format!(
            "{} compares numbers: targets of shape {} do not fit an output of shape (batch, {}; \
             give targets shaped like the output, or use cross_entropy for class indices",
            loss.name(),
            Shape::from(&shape[..]),
            output.to_string().trim_start_matches('(')
        )))
    }

    /// Checks that there are `rows` targets fit for an output of this shape.
    pub(crate) fn check_rows(&self, rows: usize, output: &Shape, as_classes: bool) -> Result<()> {
        let (outer, _, inner) = class_extents(output);
        let found = self.shape();
        let row: usize = found.iter().skip(1).product();
        let wanted = if as_classes { outer * inner } else { output.len() };
        if found.first() != Some(&rows) {
            return Err(Error::Shape(format!(
                "there are {rows} rows of input but {} of targets",
                found.first().copied().unwrap_or(0)
            )));
        }
        let squeezed = !as_classes && row == output.len();
        if row != wanted || (!as_classes && found[1..] != output[..] && !squeezed) {
            let what = if as_classes { "class indices" } else { "targets" };
            return Err(Error::Shape(format!(
                "{what} have shape {}, expected {wanted} for each of the {rows} rows (the output is (batch, {})",
                Shape::from(found),
                output.to_string().trim_start_matches('(')
            )));
        }
        Ok(())
    }

    /// Copies the numbers of these rows.
    pub(crate) fn copy_real<T: Real>(&self, rows: Option<Rows<'_>>, out: &mut [T]) {
        match self {
            Targets::Real(view) => gather(view, rows, out),
            Targets::Classes { labels, shape } => {
                let rows = rows.unwrap_or(Rows::First(shape[0]));
                let width = out.len() / rows.len().max(1);
                for (position, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
                    let row = rows.get(position);
                    for (out, label) in out.iter_mut().zip(&labels[row * width..][..width]) {
                        *out = T::from_f64(f64::from(*label));
                    }
                }
            }
        }
    }

    /// Copies the class indices of these rows.
    pub(crate) fn copy_labels(&self, rows: Rows<'_>, out: &mut [i32]) {
        if let Targets::Classes { labels, .. } = self {
            let width = out.len() / rows.len().max(1);
            for (position, out) in out.chunks_exact_mut(width.max(1)).enumerate() {
                out.copy_from_slice(&labels[rows.get(position) * width..][..width]);
            }
        }
    }
}

/// Copies rows of an array, converting them to `T` where they are not yet.
pub(crate) fn gather<T: Real>(from: &TensorView<'_>, rows: Option<Rows<'_>>, out: &mut [T]) {
    let Some(Rows::At(indices)) = rows else {
        let count = rows.map_or(from.rows(), |rows| rows.len());
        from.slice_rows(0..count).copy_to(out);
        return;
    };
    let width = (out.len() / indices.len().max(1)).max(1);
    match from.elements() {
        Elements::Float32(elements) => gather_rows(elements, indices, width, out),
        Elements::Float64(elements) => gather_rows(elements, indices, width, out),
    }
}

fn gather_rows<S: Real, T: Real>(from: &[S], indices: &[u32], width: usize, out: &mut [T]) {
    for (row, out) in indices.iter().zip(out.chunks_exact_mut(width)) {
        let from = &from[*row as usize * width..][..width];
        if S::PRECISION == T::PRECISION {
            out.copy_from_slice(bytemuck::cast_slice(from));
        } else {
            for (out, from) in out.iter_mut().zip(from) {
                *out = T::from_f64(from.to_f64());
            }
        }
    }
}

impl<'a> Examples<'a> {
    /// Inputs with class labels, one a row.
    pub fn classified(input: TensorView<'a>, labels: &'a [i32]) -> Self {
        Self { input, target: Targets::classes(labels), weight: None }
    }

    /// Inputs with numbers to reach.
    pub fn regression(input: TensorView<'a>, target: TensorView<'a>) -> Self {
        Self { input, target: Targets::Real(target), weight: None }
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.input.rows()
    }

    /// What weights there are.
    pub(crate) fn weighing(&self) -> Weighing {
        match &self.weight {
            None => Weighing::None,
            Some(weight) if weight.shape().len() > 1 => {
                Weighing::Places(weight.shape()[1..].iter().product())
            }
            Some(_) => Weighing::Rows,
        }
    }

    /// Rows `range` of these examples.
    pub fn slice_rows(&self, range: std::ops::Range<usize>) -> Examples<'a> {
        Examples {
            input: self.input.slice_rows(range.clone()),
            target: self.target.slice_rows(range.clone()),
            weight: self.weight.as_ref().map(|weight| weight.slice_rows(range)),
        }
    }

    /// An error about targets that are not finite; where the row at fault has no weight, with what to do.
    fn with_hint(&self, error: Error, target: &TensorView<'_>) -> Error {
        let width = target.shape().iter().skip(1).product::<usize>().max(1);
        let unweighed = |weight: &TensorView<'_>| {
            let row = target.first_non_finite()? / width;
            let mut weights = vec![0.0f64; weight.elements().len()];
            weight.copy_to(&mut weights);
            let each = weights.len() / self.rows().max(1);
            Some(weights.get(row * each..(row + 1) * each)?.contains(&0.0))
        };
        match error {
            Error::NonFinite(message) if self.weight.as_ref().and_then(unweighed) == Some(true) => {
                Error::NonFinite(format!(
                    "{message}: what has a weight of 0 takes any finite target, such as 0.5"
                ))
            }
            error => error,
        }
    }

    /// Checks extents, and with `finite` that all numbers are finite; `named` are how many weights a row may have, where
    /// outputs have names: one for each, or for each step or place of one.
    pub(crate) fn check(
        &self,
        input: &Shape,
        output: &Shape,
        named: &[usize],
        as_classes: bool,
        finite: bool,
    ) -> Result<()> {
        check_rows(&self.input, input, "input")?;
        self.target.check_rows(self.rows(), output, as_classes)?;
        if finite {
            check_finite(&self.input, "input")?;
            if let Targets::Real(target) = &self.target {
                check_finite(target, "target").map_err(|error| self.with_hint(error, target))?;
            }
        }
        if let Some(weight) = &self.weight {
            let (outer, _, inner) = class_extents(output);
            let of_places = if output.rank() > 1 { &[outer * inner][..] } else { &[] };
            let several = if named.is_empty() { of_places } else { named };
            let found = weight.shape();
            let by_place = found.len() > 1 && several.contains(&found[1..].iter().product());
            if found.first() != Some(&self.rows()) || (found.len() > 1 && !by_place) {
                let also: String =
                    several.iter().map(|count| format!(", or ({}, {count})", self.rows())).collect();
                return Err(Error::Shape(format!(
                    "sample weights have shape {}, expected ({},){also}",
                    Shape::from(found),
                    self.rows()
                )));
            }
            let mut weights = vec![0.0f64; weight.elements().len()];
            weight.copy_to(&mut weights);
            if let Some(place) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
                return Err(Error::Value(format!(
                    "sample weights must be finite and at least 0, but that of row {} is {}",
                    place * self.rows() / weights.len(),
                    weights[place]
                )));
            }
        }
        Ok(())
    }
}
