//! A sum to which those who make its operands add their own, on devices where starting a kernel of its own for that
//! takes longer than adding.

use crate::ops::{Direction, Normalize, Op, Product};
use crate::shader::{Operand, Recorder};
use crate::{Error, Result};

/// The most terms of a thin product: ranks of adapters.
const MOST_THIN_TERMS: usize = 64;

/// What the summed extents of products are multiples of whose sum is made as one product: the steps of all tiles.
const JOINT_EXTENT: usize = 64;
/// The most of them, each of which binds two operands.
const MOST_JOINT: usize = 4;

/// What adds its result to a sum instead of handing it on.
#[derive(Clone, Debug)]
pub enum Added {
    /// A product, forwards or for the gradient of its input.
    Product(Product),
    /// The gradient of what a norm of rows has read.
    Normalize(Normalize),
}

impl Added {
    /// What an operation is where it can add to a sum.
    pub fn of(op: &Op) -> Option<Self> {
        match op {
            Op::Product(product) if !product.quantized && product.direction != Direction::WeightGradient => {
                Some(Self::Product(product.clone()))
            }
            Op::Normalize(norm) if norm.direction == Direction::InputGradient => {
                Some(Self::Normalize(norm.clone()))
            }
            _ => None,
        }
    }

    /// Whether it multiplies operands of 16 bits.
    pub fn is_mixed(&self) -> bool {
        matches!(self, Self::Product(product) if product.mixed)
    }

    /// Whether it reads hardly anything beside what it stores: a product of low rank.
    pub fn is_thin(&self) -> bool {
        let Self::Product(product) = self else { return false };
        let (terms, columns) = match product.direction {
            Direction::Forward => (product.inputs, product.outputs),
            _ => (product.outputs, product.inputs),
        };
        terms <= MOST_THIN_TERMS && 8 * terms <= columns
    }

    /// The product that it is, where its sum with others like it may be one product: the gradient of an input.
    fn joint(&self) -> Option<&Product> {
        let Self::Product(product) = self else { return None };
        let plain = product.direction == Direction::InputGradient && product.derivative.is_none();
        (plain && product.outputs.is_multiple_of(JOINT_EXTENT)).then_some(product)
    }

    /// Whether these may be made as one product, where their weights are not packed.
    pub fn join<'a>(parts: impl Iterator<Item = &'a Self>) -> bool {
        joint(parts).is_some()
    }

    /// Whether what is stored is more than a sum, so that nothing can be in it beforehand: it may be added to
    /// another value, but to nothing that is there.
    pub fn changes_sums(&self) -> bool {
        match self {
            Self::Product(product) => product.activation.is_some() || product.derivative.is_some(),
            Self::Normalize(_) => true,
        }
    }
}

/// These parts as products of which the sum may be one.
fn joint<'a>(parts: impl Iterator<Item = &'a Added>) -> Option<Vec<&'a Product>> {
    let products: Vec<&Product> = parts.map(Added::joint).collect::<Option<_>>()?;
    let extents = |product: &Product| (product.inputs, product.multiplier, product.mixed);
    let alike = products.windows(2).all(|pair| extents(pair[0]) == extents(pair[1]));
    (products.len() > 1 && products.len() <= MOST_JOINT && alike).then_some(products)
}

/// `y = x + a + b + ...`, a and b being what operations make: x first, where there is one, then each of them adds its
/// own.
///
/// Reads x, and then the operands of each of them in order; writes y.
#[derive(Clone, Debug)]
pub struct Summed {
    /// What is added, and how many operands it has; what changes sums comes first.
    pub parts: Vec<(Added, usize)>,
    /// Whether the sum begins with a value.
    pub begins: bool,
}

impl Summed {
    /// Records its dispatches.
    ///
    /// # Errors
    /// As [`GpuOperation::record`](crate::shader::GpuOperation::record).
    pub fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut operands = std::mem::take(&mut recorder.reads).into_iter();
        let missing = || Error::Internal("a sum lacks an operand".into());
        let begins = if self.begins { Some(operands.next().ok_or_else(missing)?) } else { None };
        if let Some(products) = joint(self.parts.iter().map(|(part, _)| part)) {
            let factors: Vec<[&Operand; 2]> =
                operands.as_slice().chunks_exact(2).map(|factors| [&factors[0], &factors[1]]).collect();
            if Product::record_joint_gradient(&products, recorder, &factors, begins.as_ref())? {
                return Ok(());
            }
        }
        for (number, (part, count)) in self.parts.iter().enumerate() {
            recorder.reads = operands.by_ref().take(*count).collect();
            recorder.accumulate = number > 0;
            part.record(recorder, begins.as_ref().filter(|_| number == 0))?;
        }
        recorder.accumulate = false;
        Ok(())
    }
}

impl Added {
    fn record(&self, recorder: &mut Recorder<'_>, residual: Option<&Operand>) -> Result<()> {
        match self {
            Self::Product(product) => product.record_with_residual(recorder, residual),
            Self::Normalize(norm) => norm.record_with_residual(recorder, residual),
        }
    }
}
