//! Branches side by side.

use super::chain::{Chain, Part, PartGradients, specs_of};
use super::kind_registry::Configured;
use super::settings::{forms, kind_and_config, names, settings};
use super::{
    ActivationLayer, AdaptiveAvgPool2D, Context, Conv2D, Dense, Flatten, Forward, Layer, ParameterSpec,
    Residual, Sample, Steps, Want,
};
use crate::ops::pointwise::Activation;
use crate::ops::{
    self, Concat, Direction, Gate, MAX_READS, Mix, MixPart, Resample, Resampling, Scale, Slice,
};
use crate::program::{Builder, Value};
use crate::state::{CarriedSpec, StateSpec};
use crate::tensor::Shape;
use crate::{Error, Result, error, extents};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What becomes of the branches' outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CombineMode {
    /// Side by side along one axis.
    #[default]
    Concat,
    /// Their sum.
    Add,
    /// Their mean.
    Average,
    /// Their product; where one has an extent of 1 it is repeated along that axis.
    Multiply,
    /// Each at a place of its own on a grid: (rows, columns, ...), zeros where no branch writes.
    GridScatter,
    /// Their sum weighted by a trained gate, for every row of the batch by itself.
    Filter,
}

impl CombineMode {
    /// Whether a step of the result is made of that step of each output alone.
    fn is_of_steps(self) -> bool {
        matches!(self, Self::Concat | Self::Add | Self::Average | Self::Multiply)
    }
}

forms! {
    CombineMode => names(&[
        Self::Concat,
        Self::Add,
        Self::Average,
        Self::Multiply,
        Self::GridScatter,
        Self::Filter,
    ]),
}

settings! {
    /// Branches that read the same input, and what becomes of their outputs.
    #[derive(Clone, Debug)]
    pub struct Parallel "parallel" {
        /// Each a row of layers; one without layers hands the input on.
        branches: Vec<Chain>,
    } optional {
        /// What becomes of the outputs.
        combine: CombineMode = CombineMode::Concat,
        /// For concat: the axis; the last, or the channels of images and volumes, unless given.
        axis: Option<usize> = None,
        /// For grid_scatter: rows and columns of the grid.
        grid: Option<[usize; 2]> [least 1] = None,
        /// For grid_scatter: row and column of each branch; row by row unless given.
        places: Option<Vec<[usize; 2]>> = None,
        /// For filter: layers that make one score a branch of the input, of which a softmax makes weights;
        /// Flatten and Dense unless given.
        gate: Chain = Chain::default(); unwritten,
    }
}

impl Parallel {
    /// Branches whose outputs are combined like this.
    pub fn new(branches: Vec<Chain>, combine: CombineMode) -> Self {
        Self { combine, ..Self::with_defaults(branches) }
    }

    /// The branches and, where there is a gate, the layers that make its scores.
    fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::with_capacity(self.branches.len() + 1);
        for (number, branch) in self.branches.iter().enumerate() {
            parts.push(Part { number, name: format!("branches.{number}"), layers: Cow::Borrowed(branch) });
        }
        if self.combine == CombineMode::Filter {
            let layers = match self.gate.is_empty() {
                true => Cow::Owned(Chain::from(Flatten {}).then(Dense::new(self.branches.len()))),
                false => Cow::Borrowed(&self.gate),
            };
            parts.push(Part { number: self.branches.len(), name: "gate".into(), layers });
        }
        parts
    }

    /// The places of the branches on the grid.
    fn scatter_places(&self) -> Result<([usize; 2], Vec<[usize; 2]>)> {
        let grid =
            self.grid.ok_or_else(|| Error::Value("grid_scatter needs a grid, (rows, columns)".into()))?;
        let [rows, columns] = grid;
        let count = self.branches.len();
        let places = match &self.places {
            Some(places) => places.clone(),
            None => (0..count).map(|i| [i / columns.max(1), i % columns.max(1)]).collect(),
        };
        let outside = places.iter().any(|place| place[0] >= rows || place[1] >= columns);
        let twice = places.iter().enumerate().any(|(i, place)| places[..i].contains(place));
        if places.len() != count || outside || twice {
            return Err(Error::Value(format!(
                "grid_scatter needs for each of {count} branches a place of its own on a grid of {rows} x \
                 {columns}, got {places:?}"
            )));
        }
        Ok((grid, places))
    }

    /// Branches in the order in which their elements lie in a joined result, and what joins them.
    fn joined(&self, shapes: &[Shape]) -> Result<(Vec<usize>, Concat, Shape)> {
        let first = &shapes[0];
        match self.combine {
            CombineMode::Concat => {
                let all: Vec<&Shape> = shapes.iter().collect();
                let (op, shape) =
                    Concat::along(&all, self.axis).map_err(|why| Error::Shape(format!("parallel: {why}")))?;
                Ok(((0..shapes.len()).collect(), op, shape))
            }
            CombineMode::GridScatter => {
                let ([rows, columns], places) = self.scatter_places()?;
                let len = first.len();
                let mut order: Vec<usize> = (0..places.len()).collect();
                order.sort_by_key(|branch| places[*branch]);
                let start = |branch: &usize| {
                    let [row, column] = places[*branch];
                    row.saturating_mul(columns).saturating_add(column).saturating_mul(len)
                };
                let parts = order.iter().map(|branch| (start(branch), len)).collect();
                let shape = Shape::new([&[rows, columns], &first[..]].concat());
                Ok((order, Concat { outer: 1, total: extents::product(&[rows, columns, len]), parts }, shape))
            }
            CombineMode::Add | CombineMode::Average | CombineMode::Multiply | CombineMode::Filter => {
                // One behind the other, as a weighted sum reads them.
                let len = first.len();
                let parts = (0..shapes.len()).map(|branch| (branch * len, len)).collect();
                let op = Concat { outer: 1, total: shapes.len() * len, parts };
                Ok(((0..shapes.len()).collect(), op, Shape::from([shapes.len(), len])))
            }
        }
    }

    fn product(&self, direction: Direction) -> Gate {
        Gate { direction, activation: Activation::Linear }
    }

    fn scale(&self) -> Scale {
        Scale { factor: 1.0 / self.branches.len() as f64 }
    }

    fn mix(&self, part: MixPart, len: usize) -> Mix {
        Mix { part, branches: self.branches.len(), len }
    }

    fn gate_softmax(&self, direction: Direction) -> ops::Softmax {
        ops::Softmax { direction, outer: 1, classes: self.branches.len(), inner: 1, temperature: 1.0 }
    }
}

/// The extents of a product: along each axis the largest, where the others have the same or 1.
fn product_shape(shapes: &[Shape]) -> Result<Shape> {
    let mut extents: Vec<usize> = shapes.first().map(|shape| shape.to_vec()).unwrap_or_default();
    for (number, shape) in shapes.iter().enumerate() {
        let fits = |whole: usize, own: usize| own == whole || own == 1 || whole == 1;
        if shape.is_empty()
            || shape.rank() != extents.len()
            || !extents.iter().zip(shape.iter()).all(|(whole, own)| fits(*whole, *own))
        {
            return Err(Error::Shape(format!(
                "parallel: branch 0 makes {} and branch {number} makes {shape}; the factors of a product have \
                 as many axes, and along each the same extent or 1",
                shapes[0]
            )));
        }
        extents.iter_mut().zip(shape.iter()).for_each(|(whole, own)| *whole = (*whole).max(*own));
    }
    Ok(Shape::new(extents))
}

/// What repeats a factor along the axes where it has an extent of 1 and the product more, one after the other,
/// each with the shape that it makes.
fn repetitions(factor: &Shape, product: &Shape) -> Vec<(Resample, Shape)> {
    let mut extents = factor.to_vec();
    let mut found = Vec::new();
    let mut axis = 0;
    while axis < extents.len() {
        let start = axis;
        while axis < extents.len() && extents[axis] == 1 && product[axis] > 1 {
            axis += 1;
        }
        if axis == start {
            axis += 1;
            continue;
        }
        let output = extents::product(&product[start..axis]);
        let (outer, inner) = (extents::product(&extents[..start]), extents::product(&extents[axis..]));
        let (direction, resampling) = (Direction::Forward, Resampling::Nearest);
        extents[start..axis].copy_from_slice(&product[start..axis]);
        let op = Resample { direction, resampling, outer, input: 1, output, inner };
        found.push((op, Shape::new(extents.clone())));
    }
    found
}

/// Joins any number of values, as many at a time as an operation reads.
fn join(b: &mut Builder, op: &Concat, values: &[Value], shape: &Shape) -> Value {
    if values.len() <= MAX_READS {
        return b.apply(op.clone(), values, "joined", shape.clone());
    }
    // Neighbours first: each group becomes one operand, gaps between its parts included.
    let (mut parts, mut groups) = (Vec::new(), Vec::new());
    for (places, values) in op.parts.chunks(MAX_READS).zip(values.chunks(MAX_READS)) {
        let start = places[0].0;
        let end = places[places.len() - 1].0 + places[places.len() - 1].1;
        let inner = Concat {
            outer: op.outer,
            total: end - start,
            parts: places.iter().map(|(at, len)| (at - start, *len)).collect(),
        };
        let whole = Shape::from([op.outer, end - start]);
        groups.push(join(b, &inner, values, &whole));
        parts.push((start, end - start));
    }
    join(b, &Concat { outer: op.outer, total: op.total, parts }, &groups, shape)
}

impl Configured for Parallel {
    fn validate(&self) -> Result<()> {
        if self.branches.is_empty() {
            return Err(Error::Value("branches must be at least one".into()));
        }
        if self.axis.is_some() && self.combine != CombineMode::Concat {
            return Err(Error::Value("axis is for combine \"concat\" alone".into()));
        }
        if self.combine == CombineMode::GridScatter {
            self.scatter_places()?;
        } else if self.grid.is_some() || self.places.is_some() {
            return Err(Error::Value("grid and places are for combine \"grid_scatter\" alone".into()));
        }
        if !self.gate.is_empty() && self.combine != CombineMode::Filter {
            return Err(Error::Value("gate is for combine \"filter\" alone".into()));
        }
        self.gate.validate()?;
        self.branches.iter().enumerate().try_for_each(|(number, branch)| {
            branch.validate().map_err(|e| error::in_context(&format!("branch {number}"), e))
        })
    }

    fn samples() -> Vec<Sample> {
        let dense = |units| Chain::from(Dense::new(units).activation(Activation::Tanh));
        let two = |units| vec![dense(units), Chain::default(), dense(units).then(Dense::new(units))];
        let nested = Self::new(two(4), CombineMode::Add);
        let deep = Self::new(
            vec![Chain::from(Residual::new(nested.clone())), dense(3), Chain::default()],
            CombineMode::Concat,
        );
        let places = Some(vec![[1, 1], [0, 2], [0, 0]]);
        let scattered = Self { grid: Some([2, 3]), places, ..Self::new(two(2), CombineMode::GridScatter) };
        let gate = dense(5).then(Dense::new(3));
        let filter = Self { gate, ..Self::new(two(4), CombineMode::Filter) };
        let two_levels = Self::new(vec![Chain::from(filter.clone()), dense(4)], CombineMode::Filter);
        let images =
            Self::new(vec![Chain::from(Conv2D::new(2, [1, 1])), Chain::default()], CombineMode::Concat);
        let many = Self::new((1..12).map(dense).collect(), CombineMode::Concat);
        let tanh = ActivationLayer { function: Activation::Tanh };
        // Channels, and places of the axes around them, that factors have one number for.
        let pooled = |size: [usize; 2]| Chain::from(AdaptiveAvgPool2D::new(size));
        let gate = pooled([1, 1]).then(Conv2D::new(4, [1, 1]));
        let excited = Self::new(vec![Chain::default(), gate], CombineMode::Multiply);
        let plane = Chain::from(Conv2D::new(1, [1, 1])).then(tanh.clone());
        let planes = vec![pooled([3, 1]), plane, Chain::from(Conv2D::new(2, [1, 1])), pooled([1, 4])];
        let planes = Self::new(planes, CombineMode::Multiply);
        vec![
            Sample::new(Self::new(two(2), CombineMode::Concat), [2]),
            Sample::new(Self { axis: Some(0), ..Self::new(two(3), CombineMode::Concat) }, [4, 3]),
            Sample::new(many, [3]),
            Sample::new(images, [3, 4, 5]),
            Sample::new(nested, [4]),
            Sample::new(deep, [4]),
            Sample::new(Self::new(two(3), CombineMode::Average), [2, 3]),
            Sample::new(Self::new(two(3), CombineMode::Multiply), [2, 3]),
            Sample::new(Self::new(vec![dense(3)], CombineMode::Multiply), [2]),
            Sample::new(excited, [4, 3, 2]),
            Sample::new(planes, [2, 3, 4]),
            Sample::new(scattered, [2]),
            Sample::new(filter, [4]),
            Sample::new(two_levels, [4]),
            Sample::new(Self::new(vec![Chain::from(tanh), Chain::default()], CombineMode::Filter), [2, 3]),
        ]
    }
}

impl Layer for Parallel {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let parts = self.parts();
        let (branches, gate) = parts.split_at(self.branches.len());
        let shape = |branch: &Part<'_>| {
            let name = format!("branch {}", branch.number);
            branch.output_shape(inputs).map_err(|error| error::in_context(&name, error))
        };
        let shapes: Vec<Shape> = branches.iter().map(shape).collect::<Result<_>>()?;
        let (first, rest) = shapes.split_first().ok_or_else(|| Error::Internal("no branches".into()))?;
        if self.combine == CombineMode::Concat {
            return Ok(self.joined(&shapes)?.2);
        }
        if self.combine == CombineMode::Multiply {
            return product_shape(&shapes);
        }
        if let Some(number) = rest.iter().position(|shape| shape != first) {
            return Err(Error::Shape(format!(
                "parallel: branch 0 makes {first} and branch {} makes {}; only combine \"concat\" and \
                 \"multiply\" take outputs of different shapes",
                number + 1,
                rest[number]
            )));
        }
        if let [gate] = gate {
            let scores = gate.output_shape(inputs).map_err(|e| error::in_context("the gate", e))?;
            if scores.len() != self.branches.len() {
                return Err(Error::Shape(format!(
                    "parallel: the gate makes {scores} for {} branches; it must make one score for each",
                    self.branches.len()
                )));
            }
        }
        match self.combine {
            CombineMode::GridScatter => Ok(self.joined(&shapes)?.2),
            _ => Ok(first.clone()),
        }
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        specs_of(&self.parts(), inputs, Chain::parameters)
    }

    fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        specs_of(&self.parts(), inputs, Chain::states)
    }

    fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        specs_of(&self.parts(), inputs, |layers, inputs| layers.carried(inputs, length))
    }

    fn takes_context(&self) -> bool {
        self.parts().iter().any(|part| part.layers.takes_context())
    }

    fn index_limit(&self) -> Option<usize> {
        self.parts().iter().filter_map(|part| part.layers.index_limit()).min()
    }

    fn is_stepwise(&self) -> bool {
        // A gate looks at the whole of its input.
        self.combine.is_of_steps() && self.axis != Some(0) && self.branches.iter().all(Chain::is_stepwise)
    }

    fn steps(&self) -> Steps {
        let mut branches = self.branches.iter().map(Chain::steps);
        let first = branches.next().unwrap_or(Steps::Whole);
        let all = branches.fold(first, Steps::beside);
        let joins_steps = self.axis == Some(0) && all == Steps::Kept;
        if self.combine.is_of_steps() && !joins_steps { all } else { Steps::Whole }
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let parts = self.parts();
        let inner: Vec<Forward> =
            parts.iter().map(|part| part.forward(b, cx, inputs)).collect::<Result<_>>()?;
        let mut outputs: Vec<Value> = inner.iter().map(|forward| forward.output).collect();
        let scores = outputs.split_off(self.branches.len());
        let shapes: Vec<Shape> = outputs.iter().map(|output| b.shape(*output).clone()).collect();
        let shape = shapes[0].clone();
        let mut saved = Vec::new();
        let output = match self.combine {
            CombineMode::Concat | CombineMode::GridScatter => {
                let (order, op, shape) = self.joined(&shapes)?;
                let ordered: Vec<Value> = order.into_iter().map(|branch| outputs[branch]).collect();
                join(b, &op, &ordered, &shape)
            }
            CombineMode::Add | CombineMode::Average => {
                let sum = b.sum(&outputs).ok_or_else(|| Error::Internal("a sum has no operand".into()))?;
                match self.combine {
                    CombineMode::Average => b.apply(self.scale(), &[sum], "mean", shape),
                    _ => sum,
                }
            }
            CombineMode::Multiply => {
                let shape = product_shape(&shapes)?;
                let mut repeat = |value: &Value| {
                    let all = repetitions(b.shape(*value), &shape);
                    all.into_iter().fold(*value, |x, (op, shape)| b.apply(op, &[x], "repeated", shape))
                };
                let factors: Vec<Value> = outputs.iter().map(&mut repeat).collect();
                let gate = self.product(Direction::Forward);
                let mut product = factors[0];
                for factor in &factors[1..] {
                    saved.extend([product, *factor]);
                    product = b.apply(gate.clone(), &[product, *factor], "product", shape.clone());
                }
                product
            }
            CombineMode::Filter => {
                let count = Shape::from(self.branches.len());
                let logits = b.reshape(scores[0], count.clone());
                let weights = b.apply(self.gate_softmax(Direction::Forward), &[logits], "gate", count);
                let (_, op, stacked_shape) = self.joined(&shapes)?;
                let stacked = join(b, &op, &outputs, &stacked_shape);
                saved = vec![weights, stacked];
                b.apply(self.mix(MixPart::Forward, shape.len()), &[weights, stacked], "mixed", shape)
            }
        };
        Ok(Forward { output, saved, preactivation: None, inner, note: None })
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let shapes: Vec<Shape> =
            forward.inner[..self.branches.len()].iter().map(|inner| b.shape(inner.output).clone()).collect();
        let (count, all) = (self.branches.len(), self.parts());
        let mut to_branches = vec![gradient; count];
        let mut made: Vec<PartGradients> = Vec::with_capacity(count + 1);
        let parts = |b: &mut Builder, whole: Value| -> Result<Vec<Value>> {
            let (order, op, _) = self.joined(&shapes)?;
            let mut parts = vec![whole; count];
            for (place, branch) in order.into_iter().enumerate() {
                parts[branch] = b.apply(Slice::of(&op, place), &[whole], "part", shapes[branch].clone());
            }
            Ok(parts)
        };
        match self.combine {
            CombineMode::Concat | CombineMode::GridScatter => to_branches = parts(b, gradient)?,
            CombineMode::Add => {}
            CombineMode::Average => {
                to_branches = vec![b.apply(self.scale(), &[gradient], "part", shapes[0].clone()); count];
            }
            CombineMode::Multiply => {
                let shape = product_shape(&shapes)?;
                let gate = self.product(Direction::InputGradient);
                let mut to_product = gradient;
                for (branch, pair) in forward.saved.chunks_exact(2).enumerate().rev() {
                    let reads = [pair[0], pair[1], to_product];
                    let labels = ["dproduct", "dfactor"].map(|label| (label, shape.clone()));
                    let made = b.apply_list(gate.clone(), &reads, labels);
                    (to_product, to_branches[branch + 1]) = (made[0], made[1]);
                }
                to_branches[0] = to_product;
                for (gradient, factor) in to_branches.iter_mut().zip(&shapes) {
                    let all = repetitions(factor, &shape);
                    let mut before: Vec<&Shape> = all.iter().map(|(_, shape)| shape).collect();
                    before.insert(0, factor);
                    for ((op, _), shape) in all.iter().zip(before).rev() {
                        *gradient = b.apply(op.gradient(), &[*gradient], "dfactor", shape.clone());
                    }
                }
            }
            CombineMode::Filter => {
                let (weights, stacked) = (forward.saved[0], forward.saved[1]);
                let len = shapes[0].len();
                let to_weights = b.apply(
                    self.mix(MixPart::WeightGradient, len),
                    &[stacked, gradient],
                    "dw",
                    Shape::from(count),
                );
                let op = self.gate_softmax(Direction::InputGradient);
                let to_scores = b.apply(op, &[weights, to_weights], "dz", Shape::from(count));
                let scores = &forward.inner[count];
                let to_scores = b.reshape(to_scores, b.shape(scores.output).clone());
                made.push(all[count].backward(b, cx, inputs, scores, to_scores, want)?);
                let stacked_gradient = b.apply(
                    self.mix(MixPart::BranchGradient, len),
                    &[weights, gradient],
                    "dy",
                    Shape::from([count, len]),
                );
                to_branches = parts(b, stacked_gradient)?;
            }
        }
        for ((branch, inner), gradient) in all.iter().zip(&forward.inner).zip(to_branches) {
            made.push(branch.backward(b, cx, inputs, inner, gradient, want)?);
        }
        Ok(PartGradients::summed(b, &made, want))
    }
}
