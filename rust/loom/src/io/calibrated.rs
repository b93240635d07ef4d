//! What was measured of the layers' inputs, in a file: `z.y.x.l@range` (the largest magnitude, a percentage, and
//! that percentile of the magnitudes) and `z.y.x.l@mean_squares` (of each feature).

use super::tensors::{Entries, Entry};
use crate::network::{InputRange, Network};
use crate::tensor::Buffer;
use crate::{Error, Result};
use safetensors::{Dtype, SafeTensors};

pub(super) fn collect_ranges(network: &Network, entries: &mut Entries) {
    for placed in network.layers() {
        if let Some(range) = &placed.range {
            let figures = [range.largest, range.percent, range.percentile];
            entries.push((format!("{}@range", placed.path), Entry::list(Dtype::F64, &figures)));
            entries.push((
                format!("{}@mean_squares", placed.path),
                Entry::list(Dtype::F64, &range.mean_squares),
            ));
        }
    }
}

pub(super) fn restore_ranges(network: &mut Network, tensors: &SafeTensors<'_>) -> Result<()> {
    for placed in network.cells.iter_mut().flatten() {
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
