//! Softmax over the rows of a grid.

use crate::layers::registry::Configured;
use crate::layers::settings::{kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, Sample, Want, shape_error, single};
use crate::ops::Direction;
use crate::program::{Builder, Value};
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

impl GridSoftmax {
    fn op(&self, shape: &Shape, direction: Direction) -> ops::Softmax {
        let outer = shape.len() / self.columns;
        ops::Softmax { direction, outer, classes: self.columns, inner: 1, temperature: 1.0 }
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

    fn forward(&self, b: &mut Builder, _cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let x = *single(self.kind(), inputs)?;
        let shape = b.shape(x).clone();
        let y = b.apply(self.op(&shape, Direction::Forward), &[x], "y", shape);
        Ok(Forward::saving(y, vec![y]))
    }

    fn backward(
        &self,
        b: &mut Builder,
        _cx: &Context,
        _inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        if !want.inputs {
            return Ok(vec![None]);
        }
        let shape = b.shape(gradient).clone();
        let op = self.op(&shape, Direction::InputGradient);
        Ok(vec![Some(b.apply(op, &[forward.saved[0], gradient], "dx", shape))])
    }
}
