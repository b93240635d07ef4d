//! What an expression is made of: nodes, each different from all before it, so that nothing is computed twice.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use crate::ops::pointwise::Activation;
use crate::simd::Math;
use std::collections::HashMap;

/// A node's place among the nodes.
pub(super) type Id = usize;

/// A function of one number that is no activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Negative,
    Exp,
    ExpM1,
    Ln,
    Ln1p,
    Sqrt,
    Abs,
    Sign,
    Erf,
    Sin,
    Cos,
}

/// A function of two numbers; comparisons are 1 where they hold and 0 elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
    Maximum,
    Minimum,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

/// Axes of a row, a bit each.
pub(super) type Mask = u32;

/// Axes as a text names them: from the first on, and from the last back. None of either are all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Axes {
    pub(super) front: Mask,
    pub(super) back: Mask,
}

/// One operation on earlier nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// What is read, by number.
    Input(usize),
    /// The bits of a number.
    Constant(u64),
    Unary(Unary, Id),
    Binary(Binary, Id, Id),
    /// The second where the first is not 0, else the third.
    Select(Id, Id, Id),
    /// An activation, by its number in the graph.
    Apply(usize, Id),
    /// A gradient times an activation's derivative: the activation, what that is made from, the gradient.
    Derive(usize, Id, Id),
    /// The sum over axes, which have one element each from then on.
    Sum(Axes, Id),
    /// The mean over axes, likewise.
    Mean(Axes, Id),
}

impl Node {
    /// The nodes it uses.
    pub(super) fn operands(self) -> impl Iterator<Item = Id> {
        let operands = match self {
            Node::Input(_) | Node::Constant(_) => [None; 3],
            Node::Unary(_, a) | Node::Apply(_, a) | Node::Sum(_, a) | Node::Mean(_, a) => {
                [Some(a), None, None]
            }
            Node::Binary(_, a, b) | Node::Derive(_, a, b) => [Some(a), Some(b), None],
            Node::Select(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        operands.into_iter().flatten()
    }
}

/// The nodes of one or several expressions; operands come before what uses them.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) activations: Vec<Activation>,
    known: HashMap<Node, Id>,
}

impl Graph {
    /// This node, which is found again if it is there already.
    fn node(&mut self, node: Node) -> Id {
        let nodes = &mut self.nodes;
        *self.known.entry(node).or_insert_with(|| {
            nodes.push(node);
            nodes.len().saturating_sub(1)
        })
    }

    pub(super) fn input(&mut self, number: usize) -> Id {
        self.node(Node::Input(number))
    }

    pub(super) fn constant(&mut self, value: f64) -> Id {
        self.node(Node::Constant(value.to_bits()))
    }

    /// The number that a node is, where it is one.
    pub(super) fn number(&self, id: Id) -> Option<f64> {
        match self.nodes.get(id) {
            Some(Node::Constant(bits)) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }

    pub(super) fn unary(&mut self, function: Unary, a: Id) -> Id {
        if let Some(a) = self.number(a) {
            return self.constant(function.value(a));
        }
        match (function, self.nodes.get(a)) {
            (Unary::Negative, Some(Node::Unary(Unary::Negative, inner))) => *inner,
            _ => self.node(Node::Unary(function, a)),
        }
    }

    pub(super) fn binary(&mut self, function: Binary, a: Id, b: Id) -> Id {
        let (left, right) = (self.number(a), self.number(b));
        if let (Some(left), Some(right)) = (left, right) {
            return self.constant(function.value(left, right));
        }
        match (function, left, right) {
            (Binary::Add, Some(0.0), _) | (Binary::Multiply, Some(1.0), _) => return b,
            (Binary::Add | Binary::Subtract, _, Some(0.0)) => return a,
            (Binary::Multiply | Binary::Divide | Binary::Power, _, Some(1.0)) => return a,
            (Binary::Multiply, Some(-1.0), _) | (Binary::Subtract, Some(0.0), _) => {
                return self.unary(Unary::Negative, b);
            }
            (Binary::Multiply | Binary::Divide, _, Some(-1.0)) => return self.unary(Unary::Negative, a),
            (Binary::Power, _, Some(2.0)) => return self.binary(Binary::Multiply, a, a),
            _ => {}
        }
        // Sums and products of two are the same either way round.
        let (a, b) = match function {
            Binary::Add | Binary::Multiply | Binary::Equal | Binary::NotEqual => (a.min(b), a.max(b)),
            _ => (a, b),
        };
        if function == Binary::Multiply
            && let Some(known) = self.known_product(a, b).or_else(|| self.known_product(b, a))
        {
            return known;
        }
        self.node(Node::Binary(function, a, b))
    }

    /// The activation that `a` times `b` is: silu, mish.
    fn known_product(&mut self, a: Id, b: Id) -> Option<Id> {
        let (activation, inner) = self.applied(b)?;
        if activation == Activation::Sigmoid && inner == a {
            return Some(self.apply(Activation::Silu, a));
        }
        let of_softplus = activation == Activation::Tanh && self.applied(inner)? == (Activation::Softplus, a);
        of_softplus.then(|| self.apply(Activation::Mish, a))
    }

    /// The activation that a node is, and of which one.
    fn applied(&self, id: Id) -> Option<(Activation, Id)> {
        match self.nodes.get(id) {
            Some(Node::Apply(number, inner)) => Some((*self.activations.get(*number)?, *inner)),
            _ => None,
        }
    }

    pub(super) fn select(&mut self, condition: Id, yes: Id, no: Id) -> Id {
        match self.number(condition) {
            Some(condition) => {
                if condition == 0.0 {
                    no
                } else {
                    yes
                }
            }
            None if yes == no => yes,
            None => self.node(Node::Select(condition, yes, no)),
        }
    }

    pub(super) fn apply(&mut self, activation: Activation, a: Id) -> Id {
        if let Some(a) = self.number(a) {
            return self.constant(activation.value::<f64>(a));
        }
        if activation == Activation::Linear {
            return a;
        }
        let number = self.activation(activation);
        self.node(Node::Apply(number, a))
    }

    /// The number of an activation.
    pub(super) fn activation(&mut self, activation: Activation) -> usize {
        self.activations.iter().position(|known| *known == activation).unwrap_or_else(|| {
            self.activations.push(activation);
            self.activations.len().saturating_sub(1)
        })
    }

    pub(super) fn derive(&mut self, activation: usize, saved: Id, gradient: Id) -> Id {
        self.node(Node::Derive(activation, saved, gradient))
    }

    pub(super) fn reduce(&mut self, mean: bool, axes: Axes, a: Id) -> Id {
        match self.number(a) {
            // A number has one element along every axis.
            Some(_) => a,
            None if mean => self.node(Node::Mean(axes, a)),
            None => self.node(Node::Sum(axes, a)),
        }
    }

    /// Which nodes these need, themselves among them.
    #[allow(clippy::indexing_slicing, reason = "nodes and their operands are those of this graph")]
    pub(super) fn needed(&self, roots: &[Id]) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        roots.iter().for_each(|root| needed[*root] = true);
        for id in (0..self.nodes.len()).rev() {
            if needed[id] {
                self.nodes[id].operands().for_each(|operand| needed[operand] = true);
            }
        }
        needed
    }

    /// The same with powers by halves and whole numbers made of products and roots; and where the roots are.
    pub(super) fn without_powers(&self, roots: &[Id]) -> (Graph, Vec<Id>) {
        self.rebuilt(roots, |made, node| match node {
            Node::Binary(Binary::Power, a, b) => Some(made.power(a, b)),
            _ => None,
        })
    }

    /// The nodes that these roots need made anew, operands first: by `make`, whose node has its operands among those
    /// that are made already, or where it makes none as they are; and where the roots are.
    #[allow(clippy::indexing_slicing, reason = "nodes and their operands are those of this graph")]
    pub(super) fn rebuilt(
        &self,
        roots: &[Id],
        mut make: impl FnMut(&mut Graph, Node) -> Option<Id>,
    ) -> (Graph, Vec<Id>) {
        let (needed, mut made) = (self.needed(roots), Graph::default());
        let mut places = vec![0; self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate().filter(|(id, _)| needed[*id]) {
            let node = match *node {
                Node::Input(_) | Node::Constant(_) => *node,
                Node::Unary(function, a) => Node::Unary(function, places[a]),
                Node::Binary(function, a, b) => Node::Binary(function, places[a], places[b]),
                Node::Select(a, b, c) => Node::Select(places[a], places[b], places[c]),
                Node::Apply(number, a) => Node::Apply(number, places[a]),
                Node::Derive(number, saved, gradient) => {
                    Node::Derive(number, places[saved], places[gradient])
                }
                Node::Sum(axes, a) => Node::Sum(axes, places[a]),
                Node::Mean(axes, a) => Node::Mean(axes, places[a]),
            };
            places[id] = make(&mut made, node).unwrap_or_else(|| match node {
                Node::Input(_) | Node::Constant(_) => made.node(node),
                Node::Unary(function, a) => made.unary(function, a),
                Node::Binary(function, a, b) => made.binary(function, a, b),
                Node::Select(a, b, c) => made.select(a, b, c),
                Node::Apply(number, a) => made.apply(self.activations[number], a),
                Node::Derive(number, saved, gradient) => {
                    let number = made.activation(self.activations[number]);
                    made.derive(number, saved, gradient)
                }
                Node::Sum(axes, a) => made.reduce(false, axes, a),
                Node::Mean(axes, a) => made.reduce(true, axes, a),
            });
        }
        let roots = roots.iter().map(|root| places[*root]).collect();
        (made, roots)
    }

    /// A power, by products and a root where the exponent is a small number of halves.
    fn power(&mut self, a: Id, b: Id) -> Id {
        let halves = self.number(b).map(|exponent| exponent * 2.0);
        let Some(halves) = halves.filter(|halves| halves.fract() == 0.0 && halves.abs() <= 32.0) else {
            return self.binary(Binary::Power, a, b);
        };
        let (whole, half) = (halves.abs() as u32 / 2, halves.abs() as u32 % 2);
        let mut result = if half == 1 { Some(self.unary(Unary::Sqrt, a)) } else { None };
        let mut square = a;
        for bit in 0..u32::BITS.saturating_sub(whole.leading_zeros()) {
            if bit > 0 {
                square = self.binary(Binary::Multiply, square, square);
            }
            if whole.checked_shr(bit).is_some_and(|rest| rest & 1 == 1) {
                result = Some(result.map_or(square, |so_far| self.binary(Binary::Multiply, so_far, square)));
            }
        }
        let one = self.constant(1.0);
        match result {
            None => one,
            Some(result) if halves < 0.0 => self.binary(Binary::Divide, one, result),
            Some(result) => result,
        }
    }
}

impl Unary {
    fn value(self, a: f64) -> f64 {
        match self {
            Unary::Negative => -a,
            Unary::Exp => Math::exp(a),
            Unary::ExpM1 => Math::exp_m1(a),
            Unary::Ln => Math::ln(a),
            Unary::Ln1p => Math::ln_1p(a),
            Unary::Sqrt => a.sqrt(),
            Unary::Abs => a.abs(),
            Unary::Sign => {
                if a > 0.0 {
                    1.0
                } else if a < 0.0 {
                    -1.0
                } else {
                    a
                }
            }
            Unary::Erf => Math::erf(a),
            Unary::Sin => libm::sin(a),
            Unary::Cos => libm::cos(a),
        }
    }
}

impl Binary {
    fn value(self, a: f64, b: f64) -> f64 {
        let truth = |holds: bool| f64::from(u8::from(holds));
        match self {
            Binary::Add => a + b,
            Binary::Subtract => a - b,
            Binary::Multiply => a * b,
            Binary::Divide => a / b,
            Binary::Power => libm::pow(a, b),
            Binary::Maximum => {
                if a > b {
                    a
                } else if b >= a {
                    b
                } else {
                    a + b
                }
            }
            Binary::Minimum => {
                if a < b {
                    a
                } else if b <= a {
                    b
                } else {
                    a + b
                }
            }
            Binary::Greater => truth(a > b),
            Binary::GreaterEqual => truth(a >= b),
            Binary::Equal => truth(a == b),
            Binary::NotEqual => truth(a != b),
        }
    }
}
