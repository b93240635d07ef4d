//! Functions of single elements that are given as text: `x * tanh(softplus(a * x))`.
//!
//! Text becomes a graph in which nothing stands twice ([`Expression`]); the derivatives are made from the graph,
//! by rule; either becomes code for a small machine of registers ([`Program`]), each holding a block of elements
//! in cache, or WGSL. Sums and means over axes lie between such programs: over rows of known extents ([`Shaped`]) an
//! expression is computed in [stages](Stage).

mod cpu;
mod derivative;
mod gpu;
mod graph;
mod parse;
mod shaped;
#[cfg(test)]
mod tests;

pub use parse::{MOST_CHARACTERS, MOST_LEVELS, functions};
pub use shaped::{Operand, Plan, Shaped, Stage, Total};

use super::pointwise::Activation;
use crate::{Error, Result};
use graph::{Graph, Id, Node};
use std::fmt;
use std::sync::Arc;

/// The most inputs an expression may have: x and parameters.
pub const MOST_INPUTS: usize = 5;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expression {
    graph: Graph,
    root: Id,
}

impl Expression {
    /// Reads an expression in which these names stand for what is read.
    ///
    /// # Errors
    /// [`Error::Value`] pointing at the place in the text; for a name that the expression does not use, and for
    /// too many of them.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self> {
        if names.len() > MOST_INPUTS {
            let most = MOST_INPUTS - 1;
            return Err(Error::Value(format!(
                "an expression has at most {most} parameters, got {}",
                names.len() - 1
            )));
        }
        let mut graph = Graph::default();
        let root = parse::parse(text, names, &mut graph)?;
        let needed = graph.needed(&[root]);
        for (number, name) in names.iter().enumerate() {
            let used =
                graph.nodes.iter().zip(&needed).any(|(node, used)| *used && *node == Node::Input(number));
            if !used {
                return Err(Error::Value(format!("the expression \"{text}\" does not depend on {name}")));
            }
        }
        Ok(Self { graph, root })
    }

    /// The activation that it is, where it is just one of the first input.
    pub fn activation(&self) -> Option<Activation> {
        match self.graph.nodes[self.root] {
            Node::Apply(number, a) if self.graph.nodes[a] == Node::Input(0) => {
                Some(self.graph.activations[number])
            }
            Node::Input(0) => Some(Activation::Linear),
            _ => None,
        }
    }

    /// Whether it adds up over other axes than the last.
    pub fn sums_over_more_than_the_last_axis(&self) -> bool {
        let last = graph::Axes { front: 0, back: 1 };
        let other = |node: &Node| matches!(node, Node::Sum(axes, _) | Node::Mean(axes, _) if *axes != last);
        self.graph
            .nodes
            .iter()
            .zip(self.graph.needed(&[self.root]))
            .any(|(node, needed)| needed && other(node))
    }
}

/// Code for some results of the same inputs: every node once, operands before what uses them.
#[derive(Clone, Debug)]
pub struct Program {
    graph: Graph,
    roots: Vec<Id>,
    /// The numbers of the inputs that are read, in order; they are in the first registers.
    reads: Vec<usize>,
    /// What stands in the registers after those.
    constants: Vec<f64>,
    code: Vec<Instruction>,
    /// Where results are.
    results: Vec<usize>,
    registers: usize,
}

/// What a node does, between registers.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    node: Node,
    operands: [usize; 3],
    to: usize,
}

impl Program {
    fn new(graph: &Graph, roots: &[Id]) -> Self {
        let (graph, roots) = graph.without_powers(roots);
        let needed = graph.needed(&roots);
        let nodes = || graph.nodes.iter().enumerate().filter(|(id, _)| needed[*id]);
        let mut reads: Vec<(usize, Id)> = nodes()
            .filter_map(|(id, node)| if let Node::Input(number) = node { Some((*number, id)) } else { None })
            .collect();
        reads.sort_unstable();
        // Who reads a node last; results are read when all is done.
        let mut last = vec![0; graph.nodes.len()];
        nodes().for_each(|(id, node)| node.operands().for_each(|operand| last[operand] = id));
        roots.iter().for_each(|root| last[*root] = usize::MAX);

        let mut place = vec![0; graph.nodes.len()];
        reads.iter().enumerate().for_each(|(register, (_, id))| place[*id] = register);
        let mut constants = Vec::new();
        for (id, _) in nodes() {
            if let Some(value) = graph.number(id) {
                place[id] = reads.len() + constants.len();
                constants.push(value);
            }
        }
        let (mut registers, mut free, mut code) = (reads.len() + constants.len(), Vec::new(), Vec::new());
        for (id, node) in nodes() {
            if matches!(node, Node::Input(_) | Node::Constant(_)) {
                continue;
            }
            // Before its operands' registers are free, so that it never overwrites what it reads.
            let to = free.pop().unwrap_or_else(|| {
                registers += 1;
                registers - 1
            });
            place[id] = to;
            let mut operands = [0; 3];
            let mut dead: Vec<Id> = Vec::new();
            for (slot, operand) in operands.iter_mut().zip(node.operands()) {
                *slot = place[operand];
                let leaf = matches!(graph.nodes[operand], Node::Input(_) | Node::Constant(_));
                if last[operand] == id && !leaf && !dead.contains(&operand) {
                    dead.push(operand);
                }
            }
            free.extend(dead.iter().map(|operand| place[*operand]));
            code.push(Instruction { node: *node, operands, to });
        }
        let results = roots.iter().map(|root| place[*root]).collect();
        let reads = reads.into_iter().map(|(number, _)| number).collect();
        Self { graph, roots, reads, constants, code, results, registers }
    }

    /// The numbers of the inputs that it reads, in order.
    pub fn reads(&self) -> &[usize] {
        &self.reads
    }
}

/// Where the element of an operand is that belongs to element `i`: `i / block * count + i / inner % count`, where it is
/// not as large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Elements, a multiple of `count * inner`, that share `count` of its own; 0 where all do.
    pub block: usize,
    /// Its elements of a block.
    pub count: usize,
    /// Elements side by side that share one.
    pub inner: usize,
}

/// Results of an expression, all of one size, element by element.
///
/// Reads the operands that [`Program::reads`] names, in that order; writes a result for each that the program was
/// made for.
#[derive(Clone, Debug)]
pub struct Evaluate {
    /// The code.
    pub program: Arc<Program>,
    /// For each operand how it is repeated; `None` where it is as large as the results.
    pub repeated: Vec<Option<Repeated>>,
    /// A name for dumps: the text.
    pub text: Arc<str>,
}

impl fmt::Display for Evaluate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expression {}x{} \"{}\"", self.program.reads.len(), self.program.results.len(), self.text)
    }
}
