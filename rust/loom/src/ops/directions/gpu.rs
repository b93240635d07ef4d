//! The directions on a GPU: a few dispatches a parameter.

use super::{Directions, Part};
use crate::ops::segment;
use crate::ops::update::Optimizer;
use crate::shader::{GpuOperation, OFFSET_ELEMENTS, Operand, Recorder, Shader, THREADS};
use crate::{Error, Result};

/// Elements that one thread squares before there is another workgroup.
const SHARE: usize = 16;

/// What there is on a device.
pub(super) struct Operands {
    pub(super) gradient: Operand,
    pub(super) master: Operand,
    pub(super) moments: Vec<Operand>,
    pub(super) direction: Operand,
    pub(super) next: Vec<Operand>,
    pub(super) scratch: Operand,
}

impl Part {
    /// The elements of an operand that lie from its first weight to its last.
    pub(super) fn of_operand(&self, operand: &Operand) -> Result<Operand> {
        // Groups may start anywhere; what they start in is bound from where that can be.
        let first = self.start / OFFSET_ELEMENTS * OFFSET_ELEMENTS;
        operand.slice(first, self.start - first + self.span())
    }

    /// Where the first weight lies in what [`of_operand`](Self::of_operand) gives.
    pub(super) fn first(&self) -> usize {
        self.start % OFFSET_ELEMENTS
    }

    /// From the first weight to the one after the last.
    pub(super) fn span(&self) -> usize {
        (self.rows - 1) * self.stride + self.columns
    }
}

impl GpuOperation for Directions {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let slots = self.update.optimizer.slots().len();
        let operands = Operands {
            gradient: recorder.read(0)?,
            master: recorder.read(1)?,
            moments: (0..slots).map(|slot| recorder.read(2 + slot)).collect::<Result<_>>()?,
            direction: recorder.write(0)?,
            next: (0..slots).map(|slot| recorder.write(1 + slot)).collect::<Result<_>>()?,
            scratch: recorder.write(1 + slots)?,
        };
        for written in std::iter::once(&operands.direction).chain(&operands.next) {
            clear(recorder, written, self.update.len)?;
        }
        for part in self.moving() {
            match self.update.optimizer {
                Optimizer::Adafactor { .. } => self.record_adafactor(recorder, part, &operands)?,
                Optimizer::Muon { .. } => self.record_muon(recorder, part, &operands)?,
                _ => return Err(Error::Internal(format!("{self}: its rule has no directions"))),
            }
        }
        Ok(())
    }
}

fn clear(recorder: &mut Recorder<'_>, written: &Operand, len: usize) -> Result<()> {
    for part in recorder.parts(len, OFFSET_ELEMENTS)? {
        Shader::new("directions.clear", include_str!("clear.wgsl"))
            .write("values", "f32", written.slice(part.start, part.len())?)
            .number("elements", part.len())
            .elements(recorder, part.len())?;
    }
    Ok(())
}

/// The sum of the squares of these elements in shares, each of one number.
pub(super) fn shares(
    recorder: &mut Recorder<'_>,
    values: &Operand,
    elements: usize,
) -> Result<(Operand, usize)> {
    let workgroups = elements.div_ceil(THREADS * SHARE).clamp(1, THREADS);
    let sums = recorder.table(&vec![0; workgroups])?;
    Shader::new("directions.squares", include_str!("squares.wgsl"))
        .section("JOIN", segment::join("join", "f32", THREADS, "a + b"))
        .read("values", "f32", values.slice(0, elements)?)
        .write("sums", "f32", sums.clone())
        .number("elements", elements)
        .number("workgroups", workgroups)
        .groups(recorder, workgroups)?;
    Ok((sums, workgroups))
}

/// Multiplies these elements by a number that is there.
pub(super) fn scale(
    recorder: &mut Recorder<'_>,
    values: Operand,
    factor: Operand,
    elements: usize,
) -> Result<()> {
    Shader::new("directions.scale", include_str!("scale.wgsl"))
        .read("factor", "f32", factor)
        .write("values", "f32", values)
        .number("elements", elements)
        .elements(recorder, elements)
}
