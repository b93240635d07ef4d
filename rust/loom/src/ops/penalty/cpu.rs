//! Kernel of penalties.

use super::{NOISE_DECAY, Penalty};
use crate::Result;
use crate::ops::element_loops::{PASS, load, store};
use crate::ops::pointwise::Arithmetic;
use crate::ops::{Args, Operation};
use crate::simd::{Kernel, LANES, Real, Vector};

impl Operation for Penalty {
    fn run<T: Real>(&self, args: &mut Args<'_>) -> Result<()> {
        let isa = args.cpu.isa();
        let (master, gradient) = (args.read::<T>(0), args.write::<T>(0));
        let noise = self.noise.map(|variance| {
            let deviation = (variance / libm::pow(args.values.optimizer_step as f64, NOISE_DECAY)).sqrt();
            (deviation, args.read::<T>(1))
        });
        let scale = if self.scaled { f64::from(args.values.loss_scale) } else { 1.0 };
        for part in &self.parts {
            let (l1, l2) = (part.l1 * scale, 2.0 * part.l2 * scale);
            let (master, gradient) = (&master[part.range.clone()], &mut gradient[part.range.clone()]);
            let noise = noise.map(|(deviation, noise)| (deviation * scale, &noise[part.range.clone()]));
            args.cpu.pool().for_each_chunk(gradient, PASS, |task, gradient| {
                let piece = task * PASS..task * PASS + gradient.len();
                let noise = noise.map(|(deviation, noise)| (deviation, &noise[piece.clone()]));
                T::dispatch(isa, Add { master: &master[piece], gradient, noise, l1, l2 });
            });
        }
        Ok(())
    }
}

/// A piece of a part.
struct Add<'a, T> {
    master: &'a [T],
    gradient: &'a mut [T],
    noise: Option<(f64, &'a [T])>,
    l1: f64,
    l2: f64,
}

impl<T: Real> Kernel<T> for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = T>>(self) {
        let (l1, l2) = (V::constant(self.l1), V::constant(self.l2));
        for (at, (w, g)) in self.master.chunks(LANES).zip(self.gradient.chunks_mut(LANES)).enumerate() {
            let w = load::<V>(w);
            let mut added = w.sign() * l1 + w * l2;
            if let Some((deviation, noise)) = self.noise {
                let noise = &noise[at * LANES..at * LANES + g.len()];
                added = added + load::<V>(noise) * V::constant(deviation);
            }
            store(load::<V>(g) + added, g);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Penalized;
    use super::*;
    use crate::ops::testing::{Data, Setting, numbers};

    #[test]
    fn what_is_added_is_the_gradient_of_the_penalty() {
        for len in [1, 40, 50_000] {
            let (w, g, noise) = (numbers::<f64>(1, len), numbers::<f64>(2, len), numbers::<f64>(3, len));
            let middle = len / 3;
            let parts = vec![
                Penalized { range: 0..middle, l1: 0.3, l2: 0.0 },
                Penalized { range: middle..len - len / 4, l1: 0.1, l2: 0.7 },
            ];
            for (drawn, scaled) in [(None, false), (Some(0.5), true)] {
                let op = Penalty { len, parts: parts.clone(), noise: drawn, scaled };
                let mut setting = Setting::new(1, &[&w, &noise], &[len]);
                setting.writes = vec![Data::Real(g.clone())];
                (setting.values.optimizer_step, setting.values.loss_scale) = (9, 8.0);
                let found = setting.result(&op);
                for i in 0..len {
                    let part = parts.iter().find(|part| part.range.contains(&i));
                    let sign = if w[i] > 0.0 {
                        1.0
                    } else if w[i] < 0.0 {
                        -1.0
                    } else {
                        0.0
                    };
                    let added = part.map_or(0.0, |part| {
                        let noise = drawn.map_or(0.0, |drawn| noise[i] * (drawn / 9f64.powf(0.55)).sqrt());
                        part.l1 * sign + 2.0 * part.l2 * w[i] + noise
                    });
                    let expected = g[i] + added * if scaled { 8.0 } else { 1.0 };
                    assert!((found[i] - expected).abs() < 1e-12 * (1.0 + expected.abs()), "{i}");
                }
            }
        }
    }
}
