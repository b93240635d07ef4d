//! Softmax over the rows of a grid.

use super::Distribution;
use crate::layers::kind_registry::Configured;
use crate::layers::one_input::one_input;
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Layer, Sample, shape_error, single};
use crate::ops::Direction;
use crate::tensor::Shape;
use crate::{Result, ops};

settings! {
    /// Reads the last axis as (rows, columns) and takes a softmax over each row: several choices, independent of
    /// each other, in one layer. (..., rows x columns) to the same; every row sums to one.
    #[derive(Clone, Debug, PartialEq)]
    pub struct GridSoftmax "grid_softmax" {
        /// How many softmaxes.
        rows: usize [least 1],
        /// Classes of each.
        columns: usize [least 1],
    }
}

impl Configured for GridSoftmax {
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
    kind_and_config!();

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
