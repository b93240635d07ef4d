//! On a GPU: as matrix products whose operands are gathered from images, or directly where
//! these would be too thin.

mod correlate;
mod quantized;
mod sweep;
#[cfg(all(test, feature = "gpu"))]
mod tests;
mod windows;

use super::{Convolution, Direction};
use crate::Result;
use crate::shader::{GpuOperation, Recorder};

impl GpuOperation for Convolution {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let rows = recorder.rows();
        let [first, second, result] =
            [recorder.read(0)?, recorder.read(1)?, recorder.write(0)?].map(|o| o.elements);
        match self.direction {
            Direction::Forward => self.check(rows, first, second, result)?,
            Direction::InputGradient => self.check(rows, result, second, first)?,
            Direction::WeightGradient => self.check(rows, first, result, second)?,
        }
        match self.direction {
            Direction::Forward if self.quantized => self.record_quantized(recorder, false),
            Direction::Forward | Direction::InputGradient => {
                let sweep = sweep::Sweep::new(self);
                sweep.record(recorder, sweep.choose(recorder))
            }
            Direction::WeightGradient => correlate::record(self, recorder, correlate::choose(self, recorder)),
        }
    }
}
