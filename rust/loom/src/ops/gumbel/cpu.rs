//! Kernel of the Gumbel noise.

use super::GumbelNoise;
use crate::Result;
use crate::ops::element_loops::{TRANSCENDENTAL, map_inline, map2};
use crate::ops::{Args, Operation};
use crate::random::{Stream, Use};
use crate::simd::{Kernel, LANES, Real, Vector};

/// Elements whose words are drawn together: 16 blocks of the generator.
const DRAW: usize = 4 * LANES;

impl Operation for GumbelNoise {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let x = args.read::<T>(0);
        let y = args.write::<T>(0);
        let isa = args.cpu.isa();
        let stream = Stream::new(args.values.seed, args.values.pass_number(), args.path, Use::Gumbel);
        let before = args.values.row_offset * self.features as u64;
        args.cpu.pool().for_each_chunk(y, TRANSCENDENTAL, |task, y| {
            let start = task * TRANSCENDENTAL;
            let x = &x[start..][..y.len()];
            T::dispatch(isa, Noise { x, y, stream, index: before + start as u64 });
        });
        Ok(())
    }
}

/// Some elements, the first of them element `index` of the batch.
struct Noise<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    stream: Stream,
    index: u64,
}

impl<T: Real> Kernel<T> for Noise<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (mut x, mut y) = (self.x, self.y);
        let mut block = (self.index / 4) as u32;
        let mut skip = (self.index % 4) as usize;
        let spacing = 1.0 / f64::from(1 << 24);
        while !y.is_empty() {
            let drawn = self.stream.blocks::<{ DRAW / 4 }>(block);
            let mut noise = [T::ZERO; DRAW];
            for (word, drawn) in drawn.iter().enumerate() {
                for (j, drawn) in drawn.iter().enumerate() {
                    noise[4 * j + word] = T::from_f64(f64::from((drawn >> 9) * 2 + 1) * spacing);
                }
            }
            map_inline!(noise, |u: V| -(-u.ln()).ln());
            let count = (DRAW - skip).min(y.len());
            let (y_now, y_later) = y.split_at_mut(count);
            let (x_now, x_later) = x.split_at(count);
            map2(x_now, &noise[skip..skip + count], y_now, |x: V, noise| x + noise);
            (x, y) = (x_later, y_later);
            block = block.wrapping_add((DRAW / 4) as u32);
            skip = 0;
        }
    }
}
