//! Jordan 2024: momentum whose singular values are all made about 1, for matrices; Adam for all else.

use super::memory::{Memory, squares};
use super::part::Part;
use crate::matrix::{NoEpilogue, Output, Start, Strided, product};
use crate::ops::element_loops::PASS;
use crate::ops::pointwise::Arithmetic;
use crate::simd::{Cpu, Real};

/// Steps of the iteration.
pub(super) const STEPS: usize = 5;
/// What a step makes of a singular value s: `a s + b s^3 + c s^5`.
pub(super) const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
/// The root mean square of Adam's directions, as Liu et al. 2025 found it.
const ADAMS_LENGTH: f64 = 0.2;

/// The rule at one step.
pub(super) struct Rule {
    pub(super) momentum: f64,
    pub(super) nesterov: bool,
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    pub(super) epsilon: f64,
    pub(super) match_adam: bool,
    /// Which update it is, from 1.
    pub(super) number: f64,
}

/// What an orthogonalised matrix is multiplied by.
pub(super) fn scale(part: &Part, match_adam: bool) -> f64 {
    let (inputs, outputs) = (part.rows as f64, part.columns as f64);
    match match_adam {
        true => ADAMS_LENGTH * inputs.max(outputs).sqrt(),
        false => (outputs / inputs).max(1.0).sqrt(),
    }
}

impl Rule {
    pub(super) fn run<T: Real>(&self, cpu: &Cpu, part: &Part, memory: &mut Memory<'_, T>) {
        if part.matrix { self.of_matrix(cpu, part, memory) } else { self.adam(cpu, part, memory) }
    }

    fn adam<T: Real>(&self, cpu: &Cpu, part: &Part, memory: &mut Memory<'_, T>) {
        let Self { beta1, beta2, epsilon, number, .. } = *self;
        let mean_scale = T::from_f64(1.0 / (1.0 - libm::pow(beta1, number)));
        let root_scale = T::from_f64(1.0 / (1.0 - libm::pow(beta2, number)).sqrt());
        for row in 0..part.rows {
            let start = part.start + row * part.stride;
            let range = start..start + part.columns;
            let g = &memory.gradient[range.clone()];
            let (mean, square) = (&memory.moments[0][range.clone()], &memory.moments[1][range.clone()]);
            let [next_mean, next_square] = &mut memory.next[..] else { return };
            cpu.pool().for_each_chunk3(
                (&mut memory.direction[range.clone()], PASS),
                (&mut next_mean[range.clone()], PASS),
                (&mut next_square[range], PASS),
                |task, d, next_mean, next_square| {
                    let first = task * PASS;
                    for (place, d) in d.iter_mut().enumerate() {
                        let g = g[first + place];
                        let mean = mean[first + place].toward(g, 1.0 - beta1).flush();
                        let square = square[first + place].times(beta2) + g.squared().times(1.0 - beta2);
                        let square = square.flush();
                        *d = mean * mean_scale / square.sqrt().mul_add(root_scale, g.constant(epsilon));
                        (next_mean[place], next_square[place]) = (mean, square);
                    }
                },
            );
        }
    }

    fn of_matrix<T: Real>(&self, cpu: &Cpu, part: &Part, memory: &mut Memory<'_, T>) {
        let (rows, columns) = (part.rows, part.columns);
        let (short, long) = (rows.min(columns), rows.max(columns));
        let (x, rest) = memory.scratch.split_at_mut(short * long);
        let (y, rest) = rest.split_at_mut(short * long);
        let (a, rest) = rest.split_at_mut(short * short);
        let b = &mut rest[..short * short];
        // Where a row of the matrix lies in x, whose rows are the shorter ones.
        let place = |row: usize, column: usize| {
            if rows <= columns { row * long + column } else { column * long + row }
        };
        for row in 0..rows {
            let start = part.start + row * part.stride;
            for column in 0..columns {
                let g = memory.gradient[start + column];
                let mean = memory.moments[0][start + column].toward(g, 1.0 - self.momentum).flush();
                memory.next[0][start + column] = mean;
                x[place(row, column)] = if self.nesterov { g.toward(mean, self.momentum) } else { mean };
            }
        }
        let norm = squares(cpu, x, 0.0).sqrt() + self.epsilon;
        let inverse = T::from_f64(1.0 / norm);
        x.iter_mut().for_each(|x| *x *= inverse);
        let [first, second, third] = COEFFICIENTS.map(T::from_f64);
        for _ in 0..STEPS {
            let output = Output::new(a, short, short);
            let (left, right) = (Strided::left(x, short, long), Strided::right_transposed(x, long, short));
            product(cpu, &left, &right, Start::Zero, &NoEpilogue, output);
            let (left, right) = (Strided::left(a, short, short), Strided::right(a, short, short));
            product(cpu, &left, &right, Start::Zero, &NoEpilogue, Output::new(b, short, short));
            for (b, a) in b.iter_mut().zip(&*a) {
                *b = *b * third + *a * second;
            }
            let (left, right) = (Strided::left(b, short, short), Strided::right(x, short, long));
            product(cpu, &left, &right, Start::Zero, &NoEpilogue, Output::new(y, short, long));
            for (x, y) in x.iter_mut().zip(&*y) {
                *x = *x * first + *y;
            }
        }
        let scale = T::from_f64(scale(part, self.match_adam));
        for row in 0..rows {
            let start = part.start + row * part.stride;
            for column in 0..columns {
                memory.direction[start + column] = x[place(row, column)] * scale;
            }
        }
    }
}
