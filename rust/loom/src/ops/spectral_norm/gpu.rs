//! Weights by their largest singular value on a GPU: a thread a row or a column, and one workgroup for a length.

use super::{LEAST, SpectralNorm};
use crate::Result;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Operand, Recorder, Shader};

impl GpuOperation for SpectralNorm {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        match self.direction {
            Direction::Forward => self.record_forward(recorder),
            _ => self.record_backward(recorder),
        }
    }
}

/// A length in the memory of several numbers: its place.
type Size = (Operand, usize);

impl SpectralNorm {
    /// For each row the sum of its products with a vector, or with the same row of another matrix.
    fn rows(&self, recorder: &mut Recorder<'_>, a: Operand, b: Operand, (to, at): Size) -> Result<()> {
        let other =
            if b.elements == self.columns { "b[column]" } else { "b[i * constants.columns + column]" };
        Shader::new("spectral_norm rows", include_str!("rows.wgsl"))
            .section("OTHER", other)
            .read("a", "f32", a)
            .read("b", "f32", b)
            .write("sums", "f32", to)
            .number("rows", self.rows)
            .number("columns", self.columns)
            .number("first", at)
            .elements(recorder, self.rows)
    }

    /// The length of `x`, which is divided by it.
    fn unit(&self, recorder: &mut Recorder<'_>, x: Operand, (to, at): Size) -> Result<()> {
        let elements = x.elements;
        Shader::new("spectral_norm length", include_str!("length.wgsl"))
            .float("LEAST", LEAST)
            .write("x", "f32", x)
            .write("sizes", "f32", to)
            .number("elements", elements)
            .number("place", at)
            .groups(recorder, 1)
    }

    fn record_forward(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (w, u) = (recorder.read(0)?, recorder.read(1)?);
        let (y, next, v, sizes) =
            (recorder.write(0)?, recorder.write(1)?, recorder.write(2)?, recorder.write(3)?);
        self.rows(recorder, w.clone(), u, (v.clone(), 0))?;
        self.unit(recorder, v.clone(), (sizes.clone(), 1))?;
        Shader::new("spectral_norm columns", include_str!("columns.wgsl"))
            .read("w", "f32", w.clone())
            .read("v", "f32", v)
            .write("sums", "f32", next.clone())
            .number("rows", self.rows)
            .number("columns", self.columns)
            .elements(recorder, self.columns)?;
        self.unit(recorder, next, (sizes.clone(), 0))?;
        let elements = self.rows * self.columns;
        Shader::new("spectral_norm", include_str!("divided.wgsl"))
            .float("LEAST", LEAST)
            .read("w", "f32", w)
            .read("sizes", "f32", sizes)
            .write("y", "f32", y)
            .number("elements", elements)
            .elements(recorder, elements)
    }

    fn record_backward(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let read: Vec<Operand> = (0..6).map(|i| recorder.read(i)).collect::<Result<_>>()?;
        let [w, u, next, v, sizes, dy] = [0, 1, 2, 3, 4, 5].map(|i| read[i].clone());
        let (dw, working) = (recorder.write(0)?, recorder.write(1)?);
        self.rows(recorder, w.clone(), next.clone(), (working.clone(), 0))?;
        self.rows(recorder, dy.clone(), w, (working.clone(), self.rows))?;
        let factor = recorder.scratch(1)?;
        Shader::new("spectral_norm factor", include_str!("factor.wgsl"))
            .float("LEAST", LEAST)
            .read("working", "f32", working.clone())
            .read("sizes", "f32", sizes.clone())
            .write("factor", "f32", factor.clone())
            .number("rows", self.rows)
            .groups(recorder, 1)?;
        let elements = self.rows * self.columns;
        Shader::new("spectral_norm gradient", include_str!("gradient.wgsl"))
            .float("LEAST", LEAST)
            .read("working", "f32", working)
            .read("sizes", "f32", sizes)
            .read("factor", "f32", factor)
            .read("u", "f32", u)
            .read("next", "f32", next)
            .read("v", "f32", v)
            .read("dy", "f32", dy)
            .write("dw", "f32", dw)
            .number("elements", elements)
            .number("columns", self.columns)
            .elements(recorder, elements)
    }
}
