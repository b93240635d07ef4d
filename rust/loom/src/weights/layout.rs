//! How parameters are laid out inside and outside.

use crate::tensor::Shape;
use crate::{Result, extents};

/// How a parameter is stored and how the outside sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Stored as it is seen.
    Plain(Shape),
    /// Seen as (out, ...), stored as (product of the rest, out): one sample and a batch then
    /// sum in the same order at full speed, and output channels are columns.
    InputMajor(Shape),
    /// Seen as (groups, out, in), stored as (in, groups x out): the weights of several products side by side,
    /// each of whose output channels is a column.
    Grouped(Shape),
    /// Stored as it is seen, (rows, columns), each column a channel: rows are looked up one by one, and
    /// as the weight of a product that has columns for inputs it is read from the other side.
    Table(Shape),
}

impl Layout {
    /// Stored as it is seen.
    pub fn plain(shape: impl Into<Shape>) -> Self {
        Layout::Plain(shape.into())
    }

    /// Seen as (out, ...), stored with the outputs last.
    pub fn input_major(outside: impl Into<Shape>) -> Self {
        Layout::InputMajor(outside.into())
    }

    /// Seen as (groups, out, in), stored with the inputs first.
    pub fn grouped(groups: usize, outputs: usize, inputs: usize) -> Self {
        Layout::Grouped(Shape::from([groups, outputs, inputs]))
    }

    /// Stored as seen, rows of a table.
    pub fn table(rows: usize, columns: usize) -> Self {
        Layout::Table(Shape::from([rows, columns]))
    }

    /// Extents as the outside sees them.
    pub fn outside_shape(&self) -> Vec<usize> {
        match self {
            Layout::Plain(shape)
            | Layout::InputMajor(shape)
            | Layout::Grouped(shape)
            | Layout::Table(shape) => shape.to_vec(),
        }
    }

    /// Rows and columns as stored; columns are output channels.
    pub fn storage_matrix(&self) -> (usize, usize) {
        match self {
            Layout::Plain(shape) => (1, shape.len()),
            Layout::Table(shape) => {
                let columns = shape.last().copied().unwrap_or(1);
                (shape.len() / columns.max(1), columns)
            }
            Layout::Grouped(shape) => {
                let inputs = shape.last().copied().unwrap_or(1);
                (inputs, shape.len() / inputs.max(1))
            }
            Layout::InputMajor(shape) => {
                let outputs = shape.first().copied().unwrap_or(1);
                (shape.len() / outputs.max(1), outputs)
            }
        }
    }

    /// Extents as stored.
    pub fn storage_shape(&self) -> Shape {
        match self {
            Layout::Plain(shape) | Layout::Table(shape) => shape.clone(),
            Layout::InputMajor(_) | Layout::Grouped(_) => {
                let (rows, columns) = self.storage_matrix();
                Shape::from([rows, columns])
            }
        }
    }

    /// Elements in storage order, put into the outside's order.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) where there is no memory for them.
    pub fn to_outside<T: Copy>(&self, stored: &[T]) -> Result<Vec<T>> {
        match self {
            Layout::Plain(_) | Layout::Table(_) => extents::copied(stored),
            Layout::InputMajor(_) | Layout::Grouped(_) => {
                let (rows, columns) = self.storage_matrix();
                let mut outside = extents::copied(stored)?;
                turn(stored, rows, columns, &mut outside);
                Ok(outside)
            }
        }
    }

    /// Elements in the outside's order, put into storage order.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) where there is no memory for them.
    pub fn to_storage<T: Copy>(&self, outside: &[T]) -> Result<Vec<T>> {
        let mut stored = extents::copied(outside)?;
        self.store(outside, &mut stored);
        Ok(stored)
    }

    /// Whether what is stored is in the outside's order.
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self, Layout::Plain(_) | Layout::Table(_))
    }

    /// [`to_storage`](Self::to_storage) into as many elements that are there.
    pub(crate) fn store<T: Copy>(&self, outside: &[T], stored: &mut [T]) {
        if self.is_outside() {
            stored.copy_from_slice(outside);
        } else {
            let (rows, columns) = self.storage_matrix();
            turn(outside, columns, rows, stored);
        }
    }
}

/// A (rows, columns) matrix as (columns, rows), tile by tile, so that whole cache lines are read and written.
fn turn<T: Copy>(matrix: &[T], rows: usize, columns: usize, turned: &mut [T]) {
    const TILE: usize = 16;
    for top in (0..rows).step_by(TILE) {
        for left in (0..columns).step_by(TILE) {
            for column in left..columns.min(left + TILE) {
                for row in top..rows.min(top + TILE) {
                    turned[column * rows + row] = matrix[row * columns + column];
                }
            }
        }
    }
}
