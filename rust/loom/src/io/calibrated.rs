//! What was measured of the layers' inputs, in a file: `z.y.x.l@range` (the largest magnitude, a percentage, and
//! that percentile of the magnitudes) and `z.y.x.l@mean_squares` (of each feature).

use super::checkpoint::Entry;
use crate::network::{InputRange, Network};
use crate::tensor::Buffer;
use crate::{Error, Result};
use safetensors::{Dtype, SafeTensors};

fn entry(values: &[f64]) -> Entry {
    Entry { dtype: Dtype::F64, shape: vec![values.len()], bytes: bytemuck::cast_slice(values).to_vec() }
}

impl Network {
    pub(super) fn collect_ranges(&self, entries: &mut Vec<(String, Entry)>) {
        for placed in self.layers() {
            if let Some(range) = &placed.range {
                let figures = [range.largest, range.percent, range.percentile];
                entries.push((format!("{}@range", placed.path), entry(&figures)));
                entries.push((format!("{}@mean_squares", placed.path), entry(&range.mean_squares)));
            }
        }
    }

    pub(super) fn restore_ranges(&mut self, tensors: &SafeTensors<'_>) -> Result<()> {
        for placed in self.cells.iter_mut().flatten() {
            let read = |what: &str| {
                let saved = tensors.tensor(&format!("{}@{what}", placed.path)).ok();
                let saved = saved.filter(|saved| saved.dtype() == Dtype::F64);
                saved.map(|saved| Buffer::from_slice(saved.data())).transpose()
            };
            let (Some(figures), Some(mean_squares)) = (read("range")?, read("mean_squares")?) else {
                continue;
            };
            let [largest, percent, percentile] = *figures.as_slice::<f64>() else {
                return Err(Error::Serialization(format!("\"{}@range\" is damaged", placed.path)));
            };
            let mean_squares = mean_squares.as_slice::<f64>().to_vec();
            placed.range = Some(InputRange { largest, percent, percentile, mean_squares });
        }
        Ok(())
    }
}
