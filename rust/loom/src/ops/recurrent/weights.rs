//! Hidden-to-hidden weights as the steps of a recurrence multiply them: packed once for all steps.

use super::Recurrent;
use crate::matrix::{IntegerRight, IntegerWeight, PackedRight, QuantizedRows, Route, Start, Strided};
use crate::ops::product::{with_decoded, with_right};
use crate::ops::{Direction, View};
use crate::simd::{Cpu, Real};
use crate::tensor::{Buffer, Precision};
use crate::{Error, Result};
use std::cell::Cell;
use std::ops::Range;

thread_local! {
    /// Where a task keeps the codes of its rows' states.
    static CODES: Cell<Buffer> = Cell::new(Buffer::default());
}

/// The right operand of the forward or of the backward product.
#[derive(Clone, Copy)]
pub(super) enum Weight<'a, T> {
    /// Multiplied by numbers.
    Real(PackedRight<'a, T>),
    /// Multiplied by codes.
    Codes(Route, IntegerRight<'a>),
}

fn codes<'a, T: Real>(op: &Recurrent, view: View<'a>) -> Result<IntegerWeight<'a>> {
    match view.packed {
        Some(packing) if T::PRECISION != Precision::Float64 => {
            IntegerWeight::new(packing, view.bytes, view.scales)
        }
        _ => Err(Error::Internal(format!("{op}: quantised states need packed weights in single precision"))),
    }
}

impl<'a, T: Real> Weight<'a, T> {
    /// The memory that packing needs, for so many rows of a task.
    pub fn elements(
        op: &Recurrent,
        cpu: &Cpu,
        rows: usize,
        direction: usize,
        view: View<'_>,
    ) -> Result<usize> {
        if op.is_quantized(direction) {
            return Ok(IntegerRight::words(Route::best(cpu.isa()), &codes::<T>(op, view)?));
        }
        let (units, gates) = (op.units, op.cell.gates() * op.units);
        let (depth, columns) =
            if op.direction == Direction::Forward { (units, gates) } else { (gates, units) };
        Ok(PackedRight::<T>::elements(cpu, rows, depth, columns))
    }

    /// Packs a direction's weight into so much memory.
    pub fn pack(
        op: &Recurrent,
        cpu: &Cpu,
        rows: usize,
        direction: usize,
        view: View<'a>,
        memory: &'a mut [T],
    ) -> Result<Self> {
        if op.is_quantized(direction) {
            let route = Route::best(cpu.isa());
            let memory = bytemuck::cast_slice_mut(memory);
            return Ok(Self::Codes(route, IntegerRight::pack(cpu, route, codes::<T>(op, view)?, memory)));
        }
        let (units, gates) = (op.units, op.cell.gates() * op.units);
        let packed = match op.direction {
            Direction::Forward => with_right(cpu, false, view, units, gates, |source| {
                PackedRight::pack(cpu, rows, source, memory)
            }),
            _ => with_decoded(cpu.isa(), view, units * gates, |plain: &[T]| {
                PackedRight::pack(cpu, rows, &Strided::right_transposed(plain, gates, units), memory)
            }),
        };
        packed.map(Self::Real)
    }

    /// C += A B on the calling thread: `rows` rows of A begin `a.1` elements apart, those of C `c.1`.
    pub fn multiply(&self, cpu: &Cpu, (rows, depth): (usize, usize), a: (&[T], usize), c: (&mut [T], usize)) {
        match self {
            Self::Real(weight) => weight.multiply(cpu, rows, a, Start::Continue, c),
            Self::Codes(..) => self.multiply_part(cpu, (rows, depth), (0..depth, 0..0), a, c),
        }
    }

    /// The same by the rows `part.0` and the columns `part.1` of B. What C has in other columns is arbitrary
    /// afterwards.
    pub fn multiply_part(
        &self,
        cpu: &Cpu,
        (rows, depth): (usize, usize),
        part: (Range<usize>, Range<usize>),
        a: (&[T], usize),
        c: (&mut [T], usize),
    ) {
        match self {
            Self::Real(weight) => weight.multiply_part(cpu, rows, part, a, Start::Continue, c),
            // Codes are multiplied forward alone, where all rows count, and by all columns.
            Self::Codes(route, weight) => {
                let mut memory = CODES.take();
                let a = (bytemuck::cast_slice(a.0), a.1);
                let states = QuantizedRows::alone(*route, (rows, depth), a, &mut memory);
                weight.multiply(&states, (bytemuck::cast_slice_mut(c.0), c.1));
                CODES.set(memory);
            }
        }
    }
}
