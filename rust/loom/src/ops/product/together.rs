//! Products of one value with several weights, with what comes before and after them, as a GPU makes them at once.

use super::Product;
use super::gpu::{Extent, limits};
use crate::ops::attention::{Attention, Spans};
use crate::ops::pointwise::{Activation, WGSL_PRELUDE};
use crate::shader::product::{Finish, LeftForm, Operands, Problem, Together};
use crate::shader::{GpuOperation, Operand, Recorder};
use crate::{Error, Result};

/// What is made for products alone, by the operation that it replaces.
#[derive(Clone, Debug)]
pub enum LeftSide {
    /// Nothing: they read it as it lies.
    Plain,
    /// The root-mean-square norm of whole rows.
    MeanSquare {
        /// Whether there is a gain.
        gain: bool,
        /// Added to the mean of the squares.
        epsilon: f64,
    },
    /// A gated unit, by the function of its gate.
    Gated(Activation),
    /// What queries gather, head by head.
    Attention(Box<Attention>),
}

/// Forward products of one left operand, of as many rows and inputs each.
///
/// Reads what the left side is made of (x; x and the gain, where there is one; the gate's value and the other one; or
/// what attention reads), then for each product its weight and its bias, where it has one, and last the residual, where
/// there is one; writes a result for each product, and last those of attention, which hold something only where that
/// is made whole.
#[derive(Clone, Debug)]
pub struct Products {
    /// What the left operand is made of.
    pub left: LeftSide,
    /// The products.
    pub products: Vec<Product>,
    /// Whether a value is added to the result of the last product, after its activation.
    pub residual: bool,
}

impl Products {
    /// The most products that one kernel has the bindings for.
    pub const MOST: usize = 3;

    /// Records them as one dispatch, behind that of attention, where the device can make them so; says whether it
    /// could, and has recorded nothing where not.
    ///
    /// # Errors
    /// As [`Problem::record`].
    pub fn record_together(&self, recorder: &mut Recorder<'_>) -> Result<bool> {
        let before = recorder.recorded.len();
        let done = self.record_all(recorder)?;
        if !done {
            recorder.recorded.truncate(before);
        }
        Ok(done)
    }

    fn record_all(&self, recorder: &mut Recorder<'_>) -> Result<bool> {
        let mut operands = Vec::with_capacity(recorder.reads());
        for number in 0..recorder.reads() {
            operands.push(recorder.read(number)?);
        }
        let (gathered, read) = match &self.left {
            // They read what that has made of its operands.
            LeftSide::Attention(attention) => (Some(self.gather(attention, recorder)?), attention.reads()),
            _ => (None, 0),
        };
        let mut operands = operands.iter().skip(read);
        let mut next = || operands.next().ok_or_else(|| Error::Internal("products lack an operand".into()));
        let x = match &gathered {
            Some(Gathered { left, .. }) => left,
            None => next()?,
        };
        let gate = match self.left {
            LeftSide::Gated(activation) => format!("{WGSL_PRELUDE}{}", activation.wgsl_value("gate")),
            _ => String::new(),
        };
        let form = match (&self.left, &gathered) {
            (LeftSide::Attention(attention), Some(Gathered { spans: Some((weights, spans)), .. })) => {
                LeftForm::Spans { weights, spans: *spans, head_dim: attention.head_dim }
            }
            (LeftSide::Plain | LeftSide::Attention(_), _) => LeftForm::Plain,
            (&LeftSide::MeanSquare { gain, epsilon }, _) => {
                LeftForm::MeanSquare { gain: if gain { Some(next()?) } else { None }, epsilon }
            }
            (LeftSide::Gated(_), _) => LeftForm::Gated { up: next()?, gate: &gate },
        };
        let finishes: Vec<Option<String>> = self.products.iter().map(Product::finish_text).collect();
        let mut together = Together { form, products: Vec::with_capacity(self.products.len()) };
        let mut parts: Vec<(&Operand, Option<&Operand>)> = Vec::new();
        for product in &self.products {
            parts.push((next()?, if product.bias { Some(next()?) } else { None }));
        }
        let residual = if self.residual { Some(next()?) } else { None };
        let mut outputs = Vec::with_capacity(self.products.len());
        for number in 0..self.products.len() {
            outputs.push(recorder.write(number)?);
        }
        let max_binding = recorder.capabilities().max_binding;
        for (number, product) in self.products.iter().enumerate() {
            let (weight, bias) = parts[number];
            let finish = finishes[number].as_deref().map_or(Finish::None, Finish::Activate);
            if weight.bytes() > max_binding as u64 {
                return Ok(false);
            }
            let extent = Extent::whole(product, recorder.rows());
            let problem = product.forward_problem(extent, weight, false, finish);
            let problem = Problem { mixed: false, ..problem };
            let residual = residual.filter(|_| number + 1 == self.products.len());
            let output = &outputs[number];
            together
                .products
                .push((problem, Operands { left: x, right: weight, bias, saved: None, residual, output }));
        }
        let limits = limits(recorder);
        if !together.fits(&limits) {
            return Ok(false);
        }
        together.record(recorder, &limits)?;
        Ok(true)
    }

    /// Records the attention that makes the left operand, but for what its products may do themselves.
    fn gather(&self, attention: &Attention, recorder: &mut Recorder<'_>) -> Result<Gathered> {
        if let Some(Spans { gathered, weights, spans }) = attention.record_spans(recorder)? {
            return Ok(Gathered { left: gathered, spans: Some((weights, spans)) });
        }
        let results = [self.products.len(), self.products.len() + 1].map(|number| recorder.write(number));
        let [y, logarithms] = results;
        let (y, logarithms) = (y?, logarithms?);
        let outer = std::mem::replace(&mut recorder.writes, vec![y.clone(), logarithms]);
        let recorded = attention.record(recorder);
        recorder.writes = outer;
        recorded.map(|()| Gathered { left: y, spans: None })
    }
}

/// A left operand that attention has made.
struct Gathered {
    left: Operand,
    /// The weights of its spans and their number, where it is still in parts.
    spans: Option<(Operand, usize)>,
}

#[cfg(all(test, feature = "gpu"))]
mod tests;
