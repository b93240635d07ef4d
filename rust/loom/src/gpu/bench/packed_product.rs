//! Products of packed weights by themselves, for measuring them.

use super::product::timed;
use crate::dtype::Packing;
use crate::gpu::Gpu;
use crate::ops::product::{Operands, limits};
use crate::ops::{Direction, Product};
use crate::shader::product::{Cut, Finish, Limits, Matrix, Problem, Storage, Stream};
use crate::shader::{Accelerator, GpuOperation, Operand, Recorder};
use crate::{Error, Result};

/// How a product is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// As a network makes it.
    Chosen,
    /// By the kernel that reads weights as they lie, with the depth cut into so many parts.
    Stream(Stream, usize),
    /// By the kernel for few rows that decodes one element or four at a time, likewise.
    FewRows(usize),
    /// With activations quantised to int8.
    Quantized,
}

/// Copies of one packed weight, used in turn, so that none need be in a cache when its turn comes.
#[derive(Debug)]
pub struct Rotation<'a> {
    gpu: &'a Gpu,
    packing: Packing,
    weights: Vec<Operand>,
}

impl<'a> Rotation<'a> {
    /// So many copies of a weight.
    ///
    /// # Errors
    /// [`Error::Device`] where the device has no memory left.
    pub fn new(gpu: &'a Gpu, packing: Packing, bytes: &[u8], scales: &[f32], copies: usize) -> Result<Self> {
        let held = gpu.storage("scales", scales.len() as u64 * 4)?;
        gpu.upload(&held, 0, bytemuck::cast_slice(scales));
        let scales = (!scales.is_empty()).then_some((&held, scales.len()));
        let copy = |_| -> Result<Operand> {
            let codes = gpu.storage("packed weights", bytes.len() as u64)?;
            gpu.upload(&codes, 0, bytes);
            Ok(Operand::packed(&codes, packing, scales))
        };
        let weights = (0..copies.max(1)).map(copy).collect::<Result<_>>()?;
        Ok(Self { gpu, packing, weights })
    }

    fn problem(&self, rows: usize) -> Problem<'static> {
        let (depth, columns) = (self.packing.rows, self.packing.channels);
        Problem {
            rows,
            columns,
            depth,
            left: Matrix::plain(depth),
            right: Matrix::plain(columns),
            storage: Storage::of(Some(self.packing)),
            output: Matrix::plain(columns),
            accumulate: false,
            bias: false,
            finish: Finish::None,
            mixed: false,
        }
    }

    fn limits(&self) -> Result<Limits> {
        Ok(limits(&Recorder::new(self.gpu, 1, Operand::allocate(self.gpu, "a product", 1)?)))
    }

    /// The shape of the kernel that reads weights as they lie, for so many rows, where it can.
    ///
    /// # Errors
    /// [`Error::Device`] where the device has no memory left.
    pub fn stream(&self, rows: usize) -> Result<Option<(Stream, usize)>> {
        Ok(match self.problem(rows).stream_cut(&self.limits()?) {
            Some(Cut::Stream(shape, _, parts)) => Some((shape, parts)),
            _ => None,
        })
    }

    /// The products of `x` with each copy in turn, `times` over. Returns the product, and the device's seconds
    /// for one.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` has rows of the weight's inputs, [`Error::Value`] where the product cannot
    /// be made like this.
    pub fn product(&self, x: &[f32], how: How, times: usize) -> Result<(Vec<f32>, f64)> {
        let (depth, columns) = (self.packing.rows, self.packing.channels);
        let rows = x.len() / depth.max(1);
        if rows == 0 || rows * depth != x.len() {
            return Err(Error::Shape(format!("{} elements are no rows of {depth}", x.len())));
        }
        let left = Operand::allocate(self.gpu, "a product", x.len())?;
        self.gpu.upload(left.allocation(), 0, bytemuck::cast_slice(x));
        let output = Operand::allocate(self.gpu, "a product", rows * columns)?;
        let mut recorder = Recorder::new(self.gpu, rows, output.clone());
        recorder.writes = vec![output.clone()];
        let problem = self.problem(rows);
        let refused = || Error::Value(format!("{how:?} cannot make {rows} rows of {:?}", self.packing));
        for weight in &self.weights {
            let operands = Operands {
                left: &left,
                right: weight,
                bias: None,
                saved: None,
                residual: None,
                output: &output,
            };
            let cut = match how {
                How::Chosen | How::Quantized => {
                    recorder.reads = vec![left.clone(), weight.clone()];
                    let product = Product::new(Direction::Forward, 1, depth, columns);
                    Product { quantized: how == How::Quantized, ..product }.record(&mut recorder)?;
                    continue;
                }
                How::Stream(shape, parts) => {
                    problem.stream_with(shape, parts, &self.limits()?).ok_or_else(refused)?
                }
                How::FewRows(parts) if rows <= crate::shader::product::MAX_ROWS => Cut::FewRows(parts),
                How::FewRows(_) => return Err(refused()),
            };
            problem.record(&mut recorder, cut, None, &operands)?;
        }
        let (result, seconds) = timed(self.gpu, recorder, output, times)?;
        Ok((result, seconds / self.weights.len() as f64))
    }
}
