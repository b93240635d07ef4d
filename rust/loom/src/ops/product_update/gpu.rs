//! On a GPU: the weight's gradient goes to where the store keeps it, and the update reads it there.

use super::ProductUpdate;
use crate::Result;
use crate::gpu::{GpuOperation, Recorder};

impl GpuOperation for ProductUpdate {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (x, dy, gradient) = (recorder.read(0)?, recorder.read(1)?, recorder.read(2)?);
        let weight = gradient.slice(self.offset, self.product.inputs * self.product.outputs)?;
        self.product.record_weight_gradient(recorder, [&x, &dy], &weight, false)?;
        recorder.nested(&self.update, vec![gradient])
    }
}
