//! Kernel of the normal noise.

use super::GaussianNoise;
use crate::Result;
use crate::ops::element_loops::TRANSCENDENTAL;
use crate::ops::{Args, Operation};
use crate::random::{Stream, Use, path_within};
use crate::simd::{Kernel, LANES, Real, Vector};

/// Elements whose words are drawn together: 16 blocks of the generator.
const DRAW: usize = 4 * LANES;

impl Operation for GaussianNoise {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let y = args.write::<T>(0);
        let isa = args.cpu.isa();
        let path = path_within(args.path, self.purpose);
        let stream = Stream::new(args.values.seed, args.values.pass_number(), path, Use::Noise);
        let before = args.values.row_offset * self.features as u64;
        let scale = T::from_f64(self.scale);
        args.cpu.pool().for_each_chunk(y, TRANSCENDENTAL, |task, y| {
            let index = before + (task * TRANSCENDENTAL) as u64;
            T::dispatch(isa, Noise { y, stream, index, scale });
        });
        Ok(())
    }
}

/// Some elements, the first of them element `index` of the batch.
struct Noise<'a, T> {
    y: &'a mut [T],
    stream: Stream,
    index: u64,
    scale: T,
}

impl<T: Real> Kernel<T> for Noise<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let mut y = self.y;
        let mut block = (self.index / 4) as u32;
        let mut skip = (self.index % 4) as usize;
        let spacing = 1.0 / f64::from(1 << 24);
        let scale = V::splat(self.scale);
        while !y.is_empty() {
            let drawn = self.stream.blocks::<LANES>(block);
            let mut noise = [T::ZERO; DRAW];
            for pair in 0..2 {
                let (mut u, mut turns) = ([T::ZERO; LANES], [T::ZERO; LANES]);
                for j in 0..LANES {
                    u[j] = T::from_f64(f64::from((drawn[2 * pair][j] >> 9) * 2 + 1) * spacing);
                    turns[j] = T::from_f64(f64::from(drawn[2 * pair + 1][j] >> 8) * spacing);
                }
                let radius = (V::constant(-2.0) * V::load(&u).ln()).sqrt() * scale;
                let (sine, cosine) = V::load(&turns).sin_cos_turns();
                for (at, numbers) in [radius * cosine, radius * sine].into_iter().enumerate() {
                    for (j, number) in numbers.to_array().into_iter().enumerate() {
                        noise[4 * j + 2 * pair + at] = number;
                    }
                }
            }
            let count = (DRAW - skip).min(y.len());
            let (now, later) = y.split_at_mut(count);
            now.copy_from_slice(&noise[skip..skip + count]);
            y = later;
            block = block.wrapping_add((DRAW / 4) as u32);
            skip = 0;
        }
    }
}
