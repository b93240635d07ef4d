//! What was measured of the layers' inputs, in a file: `z.y.x.l@range` (the largest magnitude, a percentage, and
//! that percentile of the magnitudes) and `z.y.x.l@mean_squares` (of each feature).

use super::source::Source;
use super::tensor_file::ElementType;
use super::tensors::{Entries, Entry};
use crate::network::{InputRange, Network};
use crate::{Error, Result};

pub(super) fn collect_ranges<'a>(network: &'a Network, entries: &mut Entries<'a>) {
    for placed in network.layers() {
        if let Some(range) = &placed.range {
            let figures = [range.largest, range.percent, range.percentile];
            let figures = bytemuck::cast_slice(&figures).to_vec();
            entries
                .push((format!("{}@range", placed.path), Entry::bytes(ElementType::F64, vec![3], figures)));
            entries.push((
                format!("{}@mean_squares", placed.path),
                Entry::list(ElementType::F64, &range.mean_squares),
            ));
        }
    }
}

pub(super) fn restore_ranges(network: &mut Network, source: &Source<'_>) -> Result<()> {
    for placed in network.cells.iter_mut().flatten() {
        let [range, mean_squares] = ["range", "mean_squares"].map(|what| format!("{}@{what}", placed.path));
        if !source.has(&range) || !source.has(&mean_squares) {
            continue;
        }
        let [largest, percent, percentile] = source.list::<f64>(&range, ElementType::F64)?[..] else {
            return Err(Error::Serialization(format!("\"{range}\" is damaged")));
        };
        let mean_squares = source.list(&mean_squares, ElementType::F64)?;
        placed.range = Some(InputRange { largest, percent, percentile, mean_squares });
    }
    Ok(())
}
