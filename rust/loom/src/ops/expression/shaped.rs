//! Expressions over rows of known extents: along which axes values differ, and in which order sums over axes and what
//! lies between them are computed.

use super::graph::{Axes, Binary, Graph, Id, Mask, Node};
use super::{Evaluate, Expression, MOST_INPUTS, Program, Repeated};
use crate::ops::{AxisSum, MAX_READS};
use crate::tensor::Shape;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most operands and results of one program, for the sake of devices.
const MOST_OPERANDS: usize = 15;

/// An input of an expression.
#[derive(Clone, Debug)]
pub enum Operand {
    /// As large as a row, and another for each.
    Rows,
    /// The same for all rows: its extents, aligned with the last axes of a row.
    Shared(Vec<usize>),
}

/// Along which axes nodes have one element.
pub(super) struct Masks<'a> {
    extents: &'a [usize],
    /// Of inputs.
    inputs: Vec<Mask>,
    known: Vec<Mask>,
}

impl Masks<'_> {
    pub(super) fn of(&mut self, graph: &Graph, id: Id) -> Mask {
        while self.known.len() <= id {
            let node = graph.nodes[self.known.len()];
            self.known.push(match node {
                Node::Input(number) => self.inputs[number],
                Node::Sum(axes, a) => self.known[a] | axes.front,
                _ => node.operands().fold(self.all(), |mask, operand| mask & self.known[operand]),
            });
        }
        self.known[id]
    }

    /// How many elements these axes have together.
    pub(super) fn elements(&self, axes: Mask) -> f64 {
        self.extents
            .iter()
            .enumerate()
            .filter(|(axis, _)| axes >> axis & 1 == 1)
            .map(|(_, e)| *e as f64)
            .product()
    }

    fn all(&self) -> Mask {
        (1 << self.extents.len()) - 1
    }
}

/// An expression over rows of known extents.
pub struct Shaped {
    graph: Graph,
    root: Id,
    extents: Vec<usize>,
    operands: Vec<Operand>,
    /// Of the inputs, then of the value and its gradient.
    masks: Vec<Mask>,
    text: Arc<str>,
}

/// One step of a [`Plan`].
#[derive(Clone, Debug)]
pub enum Stage {
    /// Element by element: the operation, what it reads, what it writes, the results' extents.
    Evaluate(Evaluate, Vec<usize>, Vec<usize>, Shape),
    /// A sum: the operation, what it reads, what it writes, the result's extents.
    Sum(AxisSum, usize, usize, Shape),
}

/// What is computed in turn. What is read and written has numbers: the inputs, their value, its gradient, the sums that
/// were kept, and what the stages write.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The steps.
    pub stages: Vec<Stage>,
    /// Where the results are.
    pub results: Vec<usize>,
    /// Where sums over axes are that gradients need again.
    pub sums: Vec<usize>,
    /// How many numbers there are.
    pub count: usize,
}

/// How the gradient of a parameter is added up from what a plan makes of it: [`BiasGradient`](crate::ops::BiasGradient)
/// has fields of these names.
#[derive(Clone, Copy, Debug)]
pub struct Total {
    /// Repetitions of the parameter for each row.
    pub outer: usize,
    /// Its elements.
    pub channels: usize,
    /// Elements that share one.
    pub inner: usize,
}

impl Expression {
    /// The expression over rows of these extents.
    ///
    /// # Errors
    /// [`Error::Shape`] for an axis that is not there, and for sums over axes with others between and beside them.
    pub fn shaped(&self, text: &str, extents: &[usize], operands: Vec<Operand>) -> Result<Shaped> {
        if extents.len() >= Mask::BITS as usize {
            return Err(Error::Shape(format!("an expression takes fewer than {} axes", Mask::BITS)));
        }
        let of = |operand: &Operand| match operand {
            Operand::Rows => 0,
            Operand::Shared(own) => {
                let lead = extents.len().saturating_sub(own.len());
                let differs = |axis: usize| axis >= lead && own.get(axis - lead).is_some_and(|own| *own != 1);
                (0..extents.len()).filter(|axis| !differs(*axis)).map(|axis| 1 << axis).sum()
            }
        };
        let inputs: Vec<Mask> = operands.iter().map(of).collect();
        let mut masks = Masks { extents, inputs: inputs.clone(), known: Vec::new() };
        let mut failed = None;
        let (graph, roots) = self.graph.rebuilt(&[self.root], |made, node| {
            let (axes, a, mean) = match node {
                Node::Sum(axes, a) => (axes, a, false),
                Node::Mean(axes, a) => (axes, a, true),
                _ => return None,
            };
            let named = axes.over(extents).unwrap_or_else(|error| {
                failed = Some(error);
                0
            });
            // Along what has one element there is nothing to add up.
            let single =
                (0..extents.len()).filter(|axis| extents[*axis] == 1).map(|axis| 1 << axis).sum::<Mask>();
            let axes = named & !single & !masks.of(made, a);
            if axes == 0 {
                return Some(a);
            }
            let sum = made.reduce(false, Axes { front: axes, back: 0 }, a);
            let count = made.constant(if mean { masks.elements(axes) } else { 1.0 });
            Some(made.binary(Binary::Divide, sum, count))
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let root = roots[0];
        let value = masks.of(&graph, root);
        let masks = inputs.into_iter().chain([value, value]).collect();
        let (extents, text) = (extents.to_vec(), text.into());
        let shaped = Shaped { graph, root, extents, operands, masks, text };
        // What is refused is refused before anything is computed.
        shaped.value()?;
        shaped.gradients(&(0..shaped.operands.len()).collect::<Vec<_>>())?;
        Ok(shaped)
    }
}

impl Axes {
    /// These axes among so many.
    fn over(self, extents: &[usize]) -> Result<Mask> {
        let rank = extents.len();
        let all = (1 << rank) - 1;
        if self == Self::default() {
            return Ok(all);
        }
        let back = (0..rank).filter(|axis| self.back >> axis & 1 == 1).map(|axis| 1 << (rank - 1 - axis));
        if self.front & !all != 0 || self.back & !all != 0 {
            let missing = match self.front & !all {
                0 => format!("-{}", Mask::BITS - self.back.leading_zeros()),
                _ => format!("{}", Mask::BITS - 1 - self.front.leading_zeros()),
            };
            let shape = Shape::from(extents);
            return Err(Error::Shape(format!("there is no axis {missing} in {shape}, the extents of a row")));
        }
        Ok(self.front | back.sum::<Mask>())
    }
}

impl Shaped {
    /// The extents of the value: axes that all of it is added up over have one element.
    pub fn output(&self) -> Shape {
        self.shape(self.masks[self.operands.len()])
    }

    /// How the value is computed.
    ///
    /// # Errors
    /// [`Error::Value`] for more sums than can be held at once.
    pub fn value(&self) -> Result<Plan> {
        let mask = self.masks[self.operands.len()];
        Planner::new(self, &self.graph, Vec::new()).plan(&[(mask, self.root)])
    }

    /// How the gradients of these inputs are computed, where sums of the value were kept; and for each result the
    /// input that it is of. A parameter's gradient is the [`total`](Self::total) of all its results.
    ///
    /// # Errors
    /// [`Error::Value`] for more sums than can be held at once.
    pub fn gradients(&self, inputs: &[usize]) -> Result<(Plan, Vec<(usize, Mask)>)> {
        let mut graph = self.graph.clone();
        let count = self.operands.len();
        let (output, gradient) = (graph.input(count), graph.input(count + 1));
        let mut masks = Masks { extents: &self.extents, inputs: self.masks.clone(), known: Vec::new() };
        let found = graph.gradients(&mut masks, self.root, [output, gradient], inputs);
        let (mut roots, mut of) = (Vec::new(), Vec::new());
        for (input, parts) in inputs.iter().zip(found) {
            for (mask, id) in parts {
                let rows = matches!(self.operands[*input], Operand::Rows);
                // A parameter is not added up along its own axes.
                let mask = if rows { 0 } else { mask & self.masks[*input] };
                roots.push((mask, id));
                of.push((*input, mask));
            }
        }
        let kept = Planner::new(self, &self.graph, Vec::new()).sums_of(&[self.root]);
        Ok((Planner::new(self, &graph, kept).plan(&roots)?, of))
    }

    /// How what a result makes of a parameter is added up.
    ///
    /// # Errors
    /// [`Error::Shape`] as for operands.
    pub fn total(&self, (input, mask): (usize, Mask)) -> Result<Total> {
        let elements: usize = self.shape(mask).iter().product();
        let known = Known { mask: self.masks[input], rows: false };
        Ok(match self.repeated(known, mask)? {
            Some(Repeated { count, inner, .. }) if count > 1 => {
                Total { outer: elements / (count * inner), channels: count, inner }
            }
            _ => Total { outer: 1, channels: 1, inner: elements },
        })
    }

    fn shape(&self, mask: Mask) -> Shape {
        let extent = |(axis, extent): (usize, &usize)| if mask >> axis & 1 == 1 { 1 } else { *extent };
        Shape::from(&self.extents.iter().enumerate().map(extent).collect::<Vec<_>>()[..])
    }

    /// Where the elements of an operand are for a result that has one element along the axes of `mask`.
    fn repeated(&self, operand: Known, mask: Mask) -> Result<Option<Repeated>> {
        // Runs of axes along which it has an element each, or one for all; rows come first.
        let mut runs: Vec<(bool, usize)> = vec![(operand.rows, 1)];
        for (axis, extent) in self.extents.iter().enumerate() {
            if mask >> axis & 1 == 1 || *extent == 1 {
                continue;
            }
            let own = operand.mask >> axis & 1 == 0;
            match runs.last_mut() {
                Some((last, elements)) if *last == own => *elements *= extent,
                _ => runs.push((own, *extent)),
            }
        }
        Ok(match runs[..] {
            [(true, _)] => None,
            [(true, _), (false, inner)] => Some(Repeated { block: inner, count: 1, inner }),
            [(true, _), (false, outer), (true, count)] => {
                Some(Repeated { block: outer * count, count, inner: 1 })
            }
            [(true, _), (false, outer), (true, count), (false, inner)] => {
                Some(Repeated { block: outer * count * inner, count, inner })
            }
            [(false, _)] => Some(Repeated { block: 0, count: 1, inner: 1 }),
            [(false, _), (true, count)] => Some(Repeated { block: 0, count, inner: 1 }),
            [(false, _), (true, count), (false, inner)] => Some(Repeated { block: 0, count, inner }),
            _ => {
                let shape = Shape::from(&self.extents[..]);
                return Err(Error::Shape(format!(
                    "\"{}\": sums over axes of {shape} with others between and behind them are not supported; \
                     bring the axes together with Permute",
                    self.text
                )));
            }
        })
    }
}

/// What a number of a plan stands for.
#[derive(Clone, Copy)]
struct Known {
    mask: Mask,
    /// Whether it is another for each row.
    rows: bool,
}

/// A plan in the making.
struct Planner<'a> {
    shaped: &'a Shaped,
    graph: Graph,
    masks: Vec<Mask>,
    /// By number.
    known: Vec<Known>,
    stages: Vec<Stage>,
    /// The numbers of sums.
    sums: BTreeMap<Id, usize>,
}

impl<'a> Planner<'a> {
    /// A planner that has these sums already.
    fn new(shaped: &'a Shaped, graph: &Graph, kept: Vec<Id>) -> Self {
        let rows = |number: usize| !matches!(shaped.operands.get(number), Some(Operand::Shared(_)));
        let known =
            shaped.masks.iter().enumerate().map(|(number, mask)| Known { mask: *mask, rows: rows(number) });
        let mut masks = Masks { extents: &shaped.extents, inputs: shaped.masks.clone(), known: Vec::new() };
        let masks = (0..graph.nodes.len()).map(|id| masks.of(graph, id)).collect();
        let (known, graph) = (known.collect(), graph.clone());
        let mut planner = Self { shaped, graph, masks, known, stages: Vec::new(), sums: BTreeMap::new() };
        for id in kept {
            let number = planner.number(planner.masks[id]);
            planner.sums.insert(id, number);
        }
        planner
    }

    /// A new number.
    fn number(&mut self, mask: Mask) -> usize {
        self.known.push(Known { mask, rows: true });
        self.known.len() - 1
    }

    /// The sums that these need and that are not there yet, those first that others need.
    fn sums_of(&self, roots: &[Id]) -> Vec<Id> {
        let mut needed = vec![false; self.graph.nodes.len()];
        roots.iter().for_each(|root| needed[*root] = true);
        for id in (0..needed.len()).rev() {
            if needed[id] && !self.sums.contains_key(&id) {
                self.graph.nodes[id].operands().for_each(|operand| needed[operand] = true);
            }
        }
        let is_sum =
            |id: &usize| matches!(self.graph.nodes[*id], Node::Sum(..)) && !self.sums.contains_key(id);
        (0..needed.len()).filter(|id| needed[*id]).filter(is_sum).collect()
    }

    fn plan(mut self, roots: &[(Mask, Id)]) -> Result<Plan> {
        let mut waiting = self.sums_of(&roots.iter().map(|(_, root)| *root).collect::<Vec<_>>());
        let made = waiting.clone();
        while !waiting.is_empty() {
            // All whose own sums are there, in as few passes as there are extents of what is added up.
            let (ready, later): (Vec<Id>, Vec<Id>) = waiting.iter().partition(|id| {
                let Node::Sum(_, a) = self.graph.nodes[**id] else { return false };
                self.sums_of(&[a]).is_empty()
            });
            let mut parts = Vec::new();
            for id in &ready {
                let Node::Sum(axes, a) = self.graph.nodes[*id] else { continue };
                parts.push((*id, axes.front, a));
            }
            let wanted: Vec<(Mask, Id)> = parts.iter().map(|(_, _, a)| (self.masks[*a], *a)).collect();
            let numbers = self.evaluated(&wanted, true)?;
            for ((id, axes, a), number) in parts.into_iter().zip(numbers) {
                let sum = self.sum(number, self.masks[a], axes);
                self.sums.insert(id, sum);
            }
            waiting = later;
        }
        let results = self.evaluated(roots, false)?;
        let sums = made.iter().filter_map(|id| self.sums.get(id).copied()).collect();
        Ok(Plan { stages: self.stages, results, sums, count: self.known.len() })
    }

    /// Adds stages that sum what has a number over axes, run by run from the last; the sum's number.
    fn sum(&mut self, from: usize, mut mask: Mask, mut axes: Mask) -> usize {
        let mut number = from;
        while axes != 0 {
            let last = Mask::BITS - 1 - axes.leading_zeros();
            let first = (0..=last).rev().take_while(|axis| axes >> axis & 1 == 1).last().unwrap_or(last);
            let run = (first..=last).map(|axis| 1 << axis).sum::<Mask>();
            let extents = self.shaped.shape(mask);
            let (first, last) = (first as usize, last as usize);
            let op = AxisSum {
                outer: extents[..first].iter().product(),
                count: extents[first..=last].iter().product(),
                inner: extents[last + 1..].iter().product(),
            };
            (mask, axes) = (mask | run, axes & !run);
            let to = self.number(mask);
            self.stages.push(Stage::Sum(op, number, to, self.shaped.shape(mask)));
            number = to;
        }
        number
    }

    /// The numbers of these nodes with as many elements as asked for, whose sums are there. What is `there` already is
    /// not computed again where it may be read in its place.
    fn evaluated(&mut self, wanted: &[(Mask, Id)], reading: bool) -> Result<Vec<usize>> {
        let mut stage = self.graph.clone();
        for (id, number) in &self.sums {
            stage.nodes[*id] = Node::Input(*number);
        }
        let mut found: BTreeMap<(Mask, Id), usize> = BTreeMap::new();
        let mut by_mask: BTreeMap<Mask, Vec<Id>> = BTreeMap::new();
        for (mask, id) in wanted {
            let there = match stage.nodes[*id] {
                // What was read is left to its owner.
                Node::Input(number) if reading || self.sums.contains_key(id) => Some(number),
                _ => None,
            };
            let there = there.filter(|number| self.known[*number].rows && self.known[*number].mask == *mask);
            match there {
                Some(number) => drop(found.insert((*mask, *id), number)),
                None => {
                    let ids = by_mask.entry(*mask).or_default();
                    if !ids.contains(id) {
                        ids.push(*id);
                    }
                }
            }
        }
        for (mask, ids) in by_mask {
            for ids in ids.chunks(MOST_INPUTS) {
                let program = Program::new(&stage, ids);
                let reads = program.reads().to_vec();
                if reads.len() > MAX_READS || reads.len() + ids.len() > MOST_OPERANDS {
                    return Err(Error::Value(format!(
                        "\"{}\" has more sums and means than can be held at once; make two layers of it",
                        self.shaped.text
                    )));
                }
                let repeated = reads.iter().map(|number| self.shaped.repeated(self.known[*number], mask));
                let repeated = repeated.collect::<Result<Vec<_>>>()?;
                let op =
                    Evaluate { program: Arc::new(program), repeated, text: Arc::clone(&self.shaped.text) };
                let writes: Vec<usize> = ids.iter().map(|_| self.number(mask)).collect();
                found.extend(ids.iter().zip(&writes).map(|(id, number)| ((mask, *id), *number)));
                self.stages.push(Stage::Evaluate(op, reads, writes, self.shaped.shape(mask)));
            }
        }
        Ok(wanted.iter().map(|wanted| found[wanted]).collect())
    }
}
