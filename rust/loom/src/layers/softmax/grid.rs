//! Softmax over the rows of a grid.

use super::Distribution;
use crate::layers::one_input::one_input;
use crate::layers::registry::{Configured, config_of};
use crate::layers::{Layer, Sample, shape_error, single};
use crate::ops::Direction;
use crate::tensor::Shape;
use crate::{Error, Result, ops};
use serde::{Deserialize, Serialize};

/// Reads the last axis as (rows, columns) and takes a softmax over each row: several choices, independent of
/// each other, in one layer. (..., rows x columns) to the same; every row sums to one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridSoftmax {
    /// How many softmaxes.
    pub rows: usize,
    /// Classes of each.
    pub columns: usize,
}

impl Configured for GridSoftmax {
    fn validate(&self) -> Result<()> {
        if self.rows == 0 || self.columns == 0 {
            return Err(Error::Value("rows and columns must be at least 1".into()));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        let grid = |rows, columns| Self { rows, columns };
        vec![
            Sample::new(grid(1, 1), [1]),
            Sample::new(grid(3, 5), [15]),
            Sample::new(grid(2, 17), [3, 34]),
            Sample::new(grid(4, 1), [4]),
        ]
    }
}

impl Layer for GridSoftmax {
    fn kind(&self) -> &'static str {
        "grid_softmax"
    }

    fn config(&self) -> serde_json::Value {
        config_of(self.kind(), self)
    }

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        let Self { rows, columns } = self;
        let all = rows.saturating_mul(*columns);
        if input.last() != Some(&all) {
            let expected = format!("(..., {all}), {rows} rows of {columns}");
            return Err(shape_error("GridSoftmax", &expected, input));
        }
        Ok(input.clone())
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl Distribution for GridSoftmax {
    type Op = ops::Softmax;

    fn op(&self, shape: &Shape, direction: Direction) -> ops::Softmax {
        let outer = shape.len() / self.columns;
        ops::Softmax { direction, outer, classes: self.columns, inner: 1, temperature: 1.0 }
    }
}
