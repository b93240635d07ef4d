//! A packed parameter decoded for operations that read plain numbers: biases, gains, positions.

mod gpu;

use super::Operation;
use crate::Result;
use crate::ops::Args;
use crate::ops::element_loops::{PASS, rows_per_task};
use crate::simd::Real;
use std::fmt;

/// What the codes of a packed parameter stand for, element by element.
///
/// Reads the packed parameter; writes its elements in storage order.
#[derive(Clone, Debug)]
pub struct Decode;

impl Operation for Decode {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let (view, out) = (args.view(0), args.write::<T>(0));
        let Some(packing) = view.packed else {
            out.copy_from_slice(view.elements());
            return Ok(());
        };
        let (isa, width) = (args.cpu.isa(), packing.channels);
        let rows = rows_per_task(width, PASS);
        args.cpu.pool().for_each_chunk(out, rows * width, |task, out| {
            let rows = task * rows..task * rows + out.len() / width;
            packing.decode_tile(isa, (view.bytes, view.scales), rows, 0..width, out, width);
        });
        Ok(())
    }
}

impl fmt::Display for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("decode")
    }
}
