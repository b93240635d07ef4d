//! Derivatives, made symbolically: from the result back to what was read, each node once.

use super::graph::{Axes, Binary, Graph, Id, Mask, Node, Unary};
use super::shaped::Masks;
use crate::ops::pointwise::Saved;
use std::collections::BTreeMap;
use std::f64::consts::FRAC_2_SQRT_PI;

/// Gradients of one node by the axes along which there is no more of each: to be added up along those along which
/// the node has one element, and not they.
type Adjoint = BTreeMap<Mask, Id>;

impl Graph {
    /// What `gradient` of `root` makes of the gradients of these inputs; `output` stands for the root's value,
    /// which is there already.
    ///
    /// Where a function has a corner its derivative is the table's: 0 for `abs` and `sign` at 0. Of two that are
    /// equal, `max` and `min` give each half of the gradient, but a number all of it, so that `max(x, 0)` is relu.
    pub(super) fn gradients(
        &mut self,
        masks: &mut Masks<'_>,
        root: Id,
        [output, gradient]: [Id; 2],
        inputs: &[usize],
    ) -> Vec<Adjoint> {
        let mut adjoints: Vec<Adjoint> = vec![Adjoint::new(); root + 1];
        let mask = masks.of(self, root);
        adjoints[root].insert(mask, gradient);
        let before = self.needed(&[root]);
        let zero = self.constant(0.0);
        for id in (0..=root).rev().filter(|id| before[*id]) {
            let y = if id == root { output } else { id };
            if let Node::Sum(_, a) = self.nodes[id] {
                if let Some(dy) = self.summed(masks, &adjoints[id], id) {
                    let mask = masks.of(self, a);
                    self.add(&mut adjoints, a, mask, dy);
                }
                continue;
            }
            for (mask, dy) in adjoints[id].clone() {
                match self.nodes[id] {
                    Node::Input(_)
                    | Node::Constant(_)
                    | Node::Derive(..)
                    | Node::Sum(..)
                    | Node::Mean(..) => {}
                    Node::Unary(function, a) => {
                        if let Some(da) = self.unary_gradient(function, a, y, dy) {
                            self.add(&mut adjoints, a, mask, da);
                        }
                    }
                    Node::Binary(function, a, b) => {
                        let [da, db] = self.binary_gradients(function, [a, b], y, dy);
                        da.into_iter().for_each(|da| self.add(&mut adjoints, a, mask, da));
                        db.into_iter().for_each(|db| self.add(&mut adjoints, b, mask, db));
                    }
                    Node::Select(condition, yes, no) => {
                        let (dyes, dno) =
                            (self.select(condition, dy, zero), self.select(condition, zero, dy));
                        self.add(&mut adjoints, yes, mask, dyes);
                        self.add(&mut adjoints, no, mask, dno);
                    }
                    Node::Apply(number, a) => {
                        let from = match self.activations[number].saved() {
                            Saved::Output => y,
                            Saved::Input => a,
                        };
                        let da = self.derive(number, from, dy);
                        self.add(&mut adjoints, a, mask, da);
                    }
                }
            }
        }
        let nothing = self.binary(Binary::Multiply, gradient, zero);
        let mut of = |number: &usize| {
            let place = self.nodes[..=root].iter().position(|node| *node == Node::Input(*number));
            let found = place.map(|place| std::mem::take(&mut adjoints[place])).unwrap_or_default();
            if found.is_empty() { Adjoint::from([(mask, nothing)]) } else { found }
        };
        inputs.iter().map(&mut of).collect()
    }

    fn add(&mut self, adjoints: &mut [Adjoint], to: Id, mask: Mask, part: Id) {
        if self.number(to).is_none() {
            let so_far = adjoints[to].get(&mask).copied();
            let all = so_far.map_or(part, |so_far| self.binary(Binary::Add, so_far, part));
            adjoints[to].insert(mask, all);
        }
    }

    /// The gradient of a node in its own extents.
    fn summed(&mut self, masks: &mut Masks<'_>, adjoint: &Adjoint, of: Id) -> Option<Id> {
        let own = masks.of(self, of);
        let mut total = None;
        for (mask, part) in adjoint {
            let axes = own & !mask;
            // Along some of these axes it may be the same already.
            let same = axes & masks.of(self, *part);
            let count = self.constant(masks.elements(same));
            let mut part = self.binary(Binary::Multiply, *part, count);
            if axes != same {
                part = self.reduce(false, Axes { front: axes & !same, back: 0 }, part);
            }
            total = Some(total.map_or(part, |so_far| self.binary(Binary::Add, so_far, part)));
        }
        total
    }

    fn times(&mut self, a: Id, b: Id) -> Id {
        self.binary(Binary::Multiply, a, b)
    }

    fn unary_gradient(&mut self, function: Unary, a: Id, y: Id, dy: Id) -> Option<Id> {
        Some(match function {
            Unary::Negative => self.unary(Unary::Negative, dy),
            Unary::Exp => self.times(dy, y),
            Unary::ExpM1 => {
                let one = self.constant(1.0);
                let slope = self.binary(Binary::Add, y, one);
                self.times(dy, slope)
            }
            Unary::Ln => self.binary(Binary::Divide, dy, a),
            Unary::Ln1p => {
                let one = self.constant(1.0);
                let below = self.binary(Binary::Add, a, one);
                self.binary(Binary::Divide, dy, below)
            }
            Unary::Sqrt => {
                let below = self.binary(Binary::Add, y, y);
                self.binary(Binary::Divide, dy, below)
            }
            Unary::Abs => {
                let sign = self.unary(Unary::Sign, a);
                self.times(dy, sign)
            }
            Unary::Sign => return None,
            Unary::Erf => {
                let (square, factor) = (self.times(a, a), self.constant(FRAC_2_SQRT_PI));
                let negative = self.unary(Unary::Negative, square);
                let density = self.unary(Unary::Exp, negative);
                let slope = self.times(factor, density);
                self.times(dy, slope)
            }
            Unary::Sin => {
                let cos = self.unary(Unary::Cos, a);
                self.times(dy, cos)
            }
            Unary::Cos => {
                let sin = self.unary(Unary::Sin, a);
                let part = self.times(dy, sin);
                self.unary(Unary::Negative, part)
            }
        })
    }

    fn binary_gradients(&mut self, function: Binary, [a, b]: [Id; 2], y: Id, dy: Id) -> [Option<Id>; 2] {
        let variable = [a, b].map(|operand| self.number(operand).is_none());
        match function {
            Binary::Add => [Some(dy), Some(dy)],
            Binary::Subtract => [Some(dy), Some(self.unary(Unary::Negative, dy))],
            Binary::Multiply => [Some(self.times(dy, b)), Some(self.times(dy, a))],
            Binary::Divide => {
                let da = self.binary(Binary::Divide, dy, b);
                let part = self.times(da, y);
                [Some(da), Some(self.unary(Unary::Negative, part))]
            }
            Binary::Power => {
                let da = variable[0].then(|| {
                    let one = self.constant(1.0);
                    let exponent = self.binary(Binary::Subtract, b, one);
                    let lower = self.binary(Binary::Power, a, exponent);
                    let slope = self.times(b, lower);
                    self.times(dy, slope)
                });
                // At 0, where the logarithm is infinite, the power does not change with its exponent.
                let db = variable[1].then(|| {
                    let (ln, zero) = (self.unary(Unary::Ln, a), self.constant(0.0));
                    let slope = self.times(y, ln);
                    let part = self.times(dy, slope);
                    let at_zero = self.binary(Binary::Equal, a, zero);
                    self.select(at_zero, zero, part)
                });
                [da, db]
            }
            Binary::Maximum | Binary::Minimum => {
                let wins = |graph: &mut Self, first: Id, second: Id, both: bool| {
                    let (zero, half) = (graph.constant(0.0), graph.constant(0.5));
                    let otherwise = if both {
                        let (equal, part) =
                            (graph.binary(Binary::Equal, first, second), graph.times(dy, half));
                        graph.select(equal, part, zero)
                    } else {
                        zero
                    };
                    let more = match function {
                        Binary::Maximum => graph.binary(Binary::Greater, first, second),
                        _ => graph.binary(Binary::Greater, second, first),
                    };
                    graph.select(more, dy, otherwise)
                };
                let both = variable == [true; 2];
                [variable[0].then(|| wins(self, a, b, both)), variable[1].then(|| wins(self, b, a, both))]
            }
            Binary::Greater | Binary::GreaterEqual | Binary::Equal | Binary::NotEqual => [None, None],
        }
    }
}
