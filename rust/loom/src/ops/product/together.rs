//! Products of one value with several weights, with what comes before and after them, as a GPU makes them at once.

use super::Product;
use super::gpu::{Extent, limits};
use crate::ops::pointwise::{Activation, WGSL_PRELUDE};
use crate::shader::product::{Finish, LeftForm, Operands, Problem, Together};
use crate::shader::{Operand, Recorder};
use crate::{Error, Result};

/// What is made for products alone, by the operation that it replaces.
#[derive(Clone, Copy, Debug)]
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
}

/// Forward products of one left operand, of as many rows and inputs each.
///
/// Reads what the left side is made of (x; x and the gain, where there is one; or the gate's value and the other
/// one), then for each product its weight and its bias, where it has one, and last the residual, where there is one;
/// writes a result for each product.
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

    /// Records them as one dispatch where the device can make them so; says whether it could.
    ///
    /// # Errors
    /// As [`Problem::record`].
    pub fn record_together(&self, recorder: &mut Recorder<'_>) -> Result<bool> {
        let mut operands = Vec::with_capacity(recorder.reads());
        for number in 0..recorder.reads() {
            operands.push(recorder.read(number)?);
        }
        let mut operands = operands.iter();
        let mut next = || operands.next().ok_or_else(|| Error::Internal("products lack an operand".into()));
        let x = next()?;
        let gate = match self.left {
            LeftSide::Gated(activation) => format!("{WGSL_PRELUDE}{}", activation.wgsl_value("gate")),
            _ => String::new(),
        };
        let form = match self.left {
            LeftSide::Plain => LeftForm::Plain,
            LeftSide::MeanSquare { gain, epsilon } => {
                LeftForm::MeanSquare { gain: if gain { Some(next()?) } else { None }, epsilon }
            }
            LeftSide::Gated(_) => LeftForm::Gated { up: next()?, gate: &gate },
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
            let problem: Problem<'_> = product.forward_problem(extent, weight, false, finish);
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
}
