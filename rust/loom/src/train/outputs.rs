//! The losses of several named outputs, which add up to one.
//!
//! Targets come as one row of numbers, an output's behind the one before: like the outputs, or with a class index, as
//! a number, wherever a loss takes classes.
//! Rows may have a weight, or one for each output, and for each step or place of one. The latter, like weights of
//! classes, do not count in what a sum is divided by: the outputs of a step have one divisor, that of its rows.

use super::loss::{LossOptions, loss_op};
use super::loss_gradient::loss_and_gradient;
use super::own_loss::{Wanted, own_loss_and_gradient};
use super::weighing::Weighing;
use super::{OutputLoss, OwnLossConfig, Targets, TrainingConfig};
use crate::error::in_context;
use crate::layers::class_extents;
use crate::network::{Lowered, NamedOutput, Network};
use crate::ops::loss::validate_targets;
use crate::ops::{Labels, Loss, LossFunction, OneHot, Scale};
use crate::program::{Builder, Kind, Phase, Value};
use crate::simd::Real;
use crate::tensor::{Elements, Shape, Tensor, TensorView};
use crate::{Error, Result, extents};
use std::collections::BTreeMap;
use std::ops::Range;

/// How the targets of all outputs lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TargetRow {
    /// Numbers of a row.
    pub(super) total: usize,
    /// Whether losses that take classes are told their indices.
    pub(super) labelled: bool,
}

impl TargetRow {
    /// What targets of named outputs are like; none of a network with a single output.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows that are neither.
    pub(super) fn of(
        network: &Network,
        config: &TrainingConfig,
        targets: &Targets<'_>,
    ) -> Result<Option<Self>> {
        if network.named_outputs().is_empty() {
            return Ok(None);
        }
        let (numbers, labels) = (Self::with(network, config, false)?, Self::with(network, config, true)?);
        let row: usize = targets.shape().iter().skip(1).product();
        match row {
            row if row == numbers.total => Ok(Some(numbers)),
            row if row == labels.total => Ok(Some(labels)),
            row => Err(Error::Shape(format!(
                "a row of targets for all outputs holds {} numbers, or {} with class indices; got {row}",
                numbers.total, labels.total
            ))),
        }
    }

    /// Those of class indices, or of a number for each class.
    ///
    /// # Errors
    /// [`Error::Value`] for settings that several outputs cannot have.
    pub(crate) fn with(network: &Network, config: &TrainingConfig, labelled: bool) -> Result<Self> {
        let all = losses(network, config, Weighing::None, (labelled, false))?;
        Ok(Self { total: row_length(&all), labelled })
    }
}

/// A named output whose loss is computed from the input of the layer that makes it.
pub(super) struct Absorbed {
    /// The layer, by number.
    pub(super) layer: usize,
    output: Value,
    target: Value,
    class_targets: bool,
}

impl Absorbed {
    /// What the output means, and its target in the same space.
    pub(super) fn meaning(&self, b: &mut Builder) -> [Value; 2] {
        let shape = b.shape(self.output).clone();
        [self.output, whole_target(b, self.target, &shape, self.class_targets)]
    }
}

/// The target of an output of this shape, with ones and zeros where it is of classes.
pub(in crate::train) fn whole_target(
    b: &mut Builder,
    target: Value,
    shape: &Shape,
    of_classes: bool,
) -> Value {
    let (outer, classes, inner) = class_extents(shape);
    match of_classes {
        true => b.apply(OneHot { outer, classes, inner }, &[target], "target", shape.clone()),
        false => target,
    }
}

/// Which layers have absorbed the loss that comes after them.
#[derive(Default)]
pub(super) struct AbsorbedBy {
    /// Whether the last layer has, whose own backward is then left out.
    pub(super) last: bool,
    /// Of each named output, whether the layer that makes it has.
    pub(super) outputs: Vec<Option<Absorbed>>,
}

impl AbsorbedBy {
    /// For each named output the layer that has absorbed its loss, by number.
    pub(super) fn layers(&self) -> Vec<Option<usize>> {
        self.outputs.iter().map(|taken| Some(taken.as_ref()?.layer)).collect()
    }

    /// What named outputs that layers make who have absorbed their losses mean, and their targets; by layer.
    pub(super) fn meanings(&self, b: &mut Builder) -> BTreeMap<usize, [Value; 2]> {
        let mut found = BTreeMap::new();
        for taken in self.outputs.iter().flatten() {
            found.entry(taken.layer).or_insert_with(|| taken.meaning(b));
        }
        found
    }
}

/// Lowers the loss of every output, and their weighted sum. Returns what the sum is divided by, as the loss of a
/// whole row of outputs, and for each output whether a layer has absorbed its loss.
pub(super) fn lower(
    network: &Network,
    b: &mut Builder,
    lowered: &Lowered,
    config: &TrainingConfig,
    weighing: Weighing,
    (labelled, gradient): (bool, bool),
) -> Result<(Loss, Vec<Option<Absorbed>>)> {
    b.set_phase(Phase::Loss);
    let all = losses(network, config, weighing, (labelled, gradient))?;
    let total = row_length(&all);
    let targets = b.input("target", Shape::from(total), Kind::Real);
    b.ports.target = Some(targets);
    let places = weights_of_outputs(network, weighing);
    let count = weighing.count();
    let mut start = 0;
    let weights = (count > 0).then(|| b.input("weight", Shape::from(count), Kind::Real));
    b.ports.sample_weight = weights;
    let (mut rows, mut gradients, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    for ((output, of), places) in lowered.outputs.iter().zip(all).zip(places) {
        let OutputOp { op, own, absorbed, target: place, shape, factor } = of;
        let target = match op.class_targets {
            true => {
                let labels = Labels { total, start: place.start, length: place.len() };
                b.apply_to_indices(labels, &[targets], "labels", place.len())
            }
            false => crate::network::slice(b, targets, total, &place, shape.clone()),
        };
        let class_targets = op.class_targets;
        taken.push(absorbed.map(|layer| Absorbed { layer, output: *output, target, class_targets }));
        let weight = weights.map(|weights| match weighing {
            Weighing::Places(count) if count > 1 => {
                start += places;
                crate::network::slice(b, weights, count, &(start - places..start), Shape::from(places))
            }
            _ => weights,
        });
        let (losses, gradient, counted) = match own {
            Some(own) => {
                let of_places = if op.by_place { Weighing::Places(places) } else { Weighing::Rows };
                let weighing = if weight.is_some() { of_places } else { Weighing::None };
                let wanted = Wanted { weight, weighing, gradient, scaled: op.scaled };
                let made = own.lower(b, *output, target, wanted)?;
                (made.row_losses, made.output_gradient, counted(&made.op))
            }
            None => {
                let scores = absorbed.map_or(*output, |layer| lowered.layers[layer].inputs[0]);
                let reads: Vec<Value> = [scores, target].into_iter().chain(weight).collect();
                let counted = counted(&op);
                let (losses, gradient) = b.apply_loss(op, &reads, shape.clone());
                (losses, gradient, counted)
            }
        };
        // Divided as that of a whole row of outputs, the sum is the mean, times the weight.
        let factor = factor * terms(network).len() as f64 / counted as f64;
        rows.push(b.apply(Scale { factor }, &[losses], "row losses", Shape::from(1)));
        if let Some(gradient) = gradient {
            gradients.push(b.apply(Scale { factor }, &[gradient], "gradient", shape));
        }
    }
    let sum = b.sum(&rows).ok_or_else(|| Error::Internal("a network has no output".into()))?;
    b.ports.row_losses = Some(sum);
    b.ports.output_gradient = gradients.first().copied();
    b.ports.output_gradients = gradients;
    Ok((whole(network, weighing, gradient)?, taken))
}

/// How many weights of a row are of each output.
fn weights_of_outputs(network: &Network, weighing: Weighing) -> Vec<usize> {
    let steps = network.output_steps();
    match weighing {
        Weighing::Places(count) if count != steps.iter().sum::<usize>() => network.output_weights(),
        _ => steps,
    }
}

/// One output's loss.
struct OutputOp {
    op: Loss,
    /// What is minimised in its place; the loss then says what targets are.
    own: Option<OwnLossConfig>,
    /// The layer that has absorbed it, and whose input it is then computed from.
    absorbed: Option<usize>,
    /// Where its targets lie in a row.
    target: Range<usize>,
    shape: Shape,
    /// How much its mean loss counts.
    factor: f64,
}

/// The loss of an output that is computed from the input of the layer that makes it, with that layer's number.
fn absorb(network: &Network, named: &NamedOutput, given: &OutputLoss) -> Option<(usize, LossFunction)> {
    network.absorb_loss_of(named, &given.loss.0).filter(|_| given.own_loss.is_none())
}

/// How many numbers a row of targets for all of them has.
fn row_length(all: &[OutputOp]) -> usize {
    all.iter().map(|output| output.target.len()).sum()
}

/// How many terms a row's loss is the sum of.
fn counted(op: &Loss) -> usize {
    let of_classes = op.outer * op.inner;
    if op.function.is_over_classes() { of_classes } else { of_classes * op.classes }
}

fn losses(
    network: &Network,
    config: &TrainingConfig,
    weighing: Weighing,
    (labelled, gradient): (bool, bool),
) -> Result<Vec<OutputOp>> {
    let names = network.named_outputs();
    if config.outputs.len() != names.len() {
        return Err(Error::Value(format!(
            "the network has {} named outputs; give each a loss, got {}",
            names.len(),
            config.outputs.len()
        )));
    }
    if config.class_weight.is_some() {
        return Err(Error::Value(
            "class_weight is of one output's classes, and the network has named outputs; give it by output"
                .into(),
        ));
    }
    let mut start = 0;
    type Given<'a> = ((((&'a OutputLoss, Shape), &'a NamedOutput), Option<usize>), usize);
    let one = |((((given, shape), named), length), places): Given<'_>| {
        // One for each output without steps is one for each row of what it is compared with.
        let weighing = match (weighing, length) {
            (Weighing::Places(_), None) if places == 1 => Weighing::Rows,
            (Weighing::Places(_), _) => Weighing::Places(places),
            (weighing, _) => weighing,
        };
        let OutputLoss { loss, own_loss, weight: factor, class_weight } = given;
        let smooths = loss.takes_classes() && own_loss.is_none();
        let label_smoothing = if smooths { config.label_smoothing } else { 0.0 };
        let options = LossOptions { label_smoothing, class_weight: class_weight.clone() };
        let classes = given.is_told_classes(labelled);
        let absorbed = absorb(network, named, given);
        let function = absorbed.map_or(loss.0, |(_, function)| function);
        let mut op = loss_op(function, &shape, classes, weighing, &options, gradient)
            .map_err(|error| in_context(&format!("output \"{}\"", named.name), error))?;
        if length.is_some() && Some(&op.outer) != shape.first() {
            return Err(Error::Value(format!(
                "output \"{}\" has steps of extents {}; a loss by step takes one vector for each, so let the features lie \
                 along one axis, and a layer that keeps steps come last, such as Dense",
                named.name,
                Shape::from(&shape[1..])
            )));
        }
        op.scaled = gradient && network.scales_loss();
        let length = if classes { op.outer * op.inner } else { shape.len() };
        start += length;
        let own = own_loss.clone();
        let absorbed = absorbed.map(|(layer, _)| layer);
        Ok(OutputOp { op, own, absorbed, target: start - length..start, shape, factor: *factor })
    };
    let shapes = network.named_output_shapes();
    let places = weights_of_outputs(network, weighing);
    config.outputs.iter().zip(shapes).zip(names).zip(network.output_lengths()).zip(places).map(one).collect()
}

/// The loss whose divisor counts as that of a whole row does.
pub(super) fn whole(network: &Network, weighing: Weighing, gradient: bool) -> Result<Loss> {
    let shape = terms(network);
    let weighing = if weighing == Weighing::Rows { weighing } else { Weighing::None };
    loss_op(LossFunction::MeanSquaredError, &shape, false, weighing, &LossOptions::default(), gradient)
}

/// As how many elements a row of outputs counts: all of them, or where a row has other extents in each call, one, so that
/// rows of several calls count the same.
fn terms(network: &Network) -> Shape {
    if network.has_open_extents() { Shape::from(1) } else { network.output_shape().clone() }
}

/// The loss of what all outputs have made at once, and its gradient by each of them, like the output.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Value`] for targets that do not fit the outputs.
pub(crate) fn losses_and_gradients(
    network: &Network,
    config: &TrainingConfig,
    outputs: &[Tensor],
    targets: &Targets<'_>,
) -> Result<(f64, Vec<Tensor>)> {
    let (Targets::Real(view), Some(row)) = (targets, TargetRow::of(network, config, targets)?) else {
        return Err(Error::Shape("targets of several outputs come as rows of numbers".into()));
    };
    check(network, config, row, targets)?;
    let mut elements: Vec<f64> = extents::zeros(view.elements().len())?;
    view.copy_to(&mut elements);
    let all = losses(network, config, Weighing::None, (row.labelled, true))?;
    let (mut sum, mut gradients) = (0.0, Vec::with_capacity(outputs.len()));
    for ((of, given), output) in all.iter().zip(&config.outputs).zip(outputs) {
        let part: Vec<f64> =
            elements.chunks_exact(row.total).flat_map(|row| row[of.target.clone()].to_vec()).collect();
        let labels: Vec<i32> =
            if of.op.class_targets { part.iter().map(|label| *label as i32).collect() } else { Vec::new() };
        let target = match of.op.class_targets {
            true if of.shape.rank() == 1 => Targets::classes(&labels),
            true => Targets::Classes { shape: vec![view.rows(), of.target.len()], labels: &labels },
            false => {
                Targets::Real(TensorView::new([&[view.rows()], &of.shape[..]].concat(), Elements::of(&part))?)
            }
        };
        if let Some(own) = &of.own {
            let (loss, mut gradient) = own_loss_and_gradient(own, output.view(), &target)?;
            sum += given.weight * loss;
            scale(&mut gradient, given.weight);
            gradients.push(gradient);
            continue;
        }
        let smoothing = if given.loss.takes_classes() { config.label_smoothing } else { 0.0 };
        let options = LossOptions { label_smoothing: smoothing, class_weight: given.class_weight.clone() };
        let (loss, mut gradient) = loss_and_gradient(given.loss, output.view(), &target, None, &options)?;
        // By itself a loss is divided by the weights of its labels; here by how many there are.
        let counted = match given.class_weight.as_ref().filter(|_| of.op.class_targets) {
            Some(weights) => {
                let of_labels = labels.iter().filter_map(|label| weights.get(*label as usize));
                of_labels.sum::<f64>() / labels.len().max(1) as f64
            }
            None => 1.0,
        };
        let factor = given.weight * counted;
        sum += factor * loss;
        scale(&mut gradient, factor);
        gradients.push(gradient);
    }
    Ok((sum, gradients))
}

fn scale(gradient: &mut Tensor, factor: f64) {
    match gradient {
        Tensor::Float32(_, elements) => elements.iter_mut().for_each(|x| *x *= factor as f32),
        Tensor::Float64(_, elements) => elements.iter_mut().for_each(|x| *x *= factor),
    }
}

/// Checks that every output's part of the targets is what its loss takes.
pub(super) fn check(
    network: &Network,
    config: &TrainingConfig,
    row: TargetRow,
    targets: &Targets<'_>,
) -> Result<()> {
    let Targets::Real(view) = targets else { return Ok(()) };
    let all = losses(network, config, Weighing::None, (row.labelled, false))?;
    for (output, named) in all.iter().zip(network.named_outputs()) {
        match view.elements() {
            Elements::Float32(x) => check_part(x, row.total, output),
            Elements::Float64(x) => check_part(x, row.total, output),
        }
        .map_err(|error| in_context(&format!("output \"{}\"", named.name), error))?;
    }
    Ok(())
}

fn check_part<T: Real>(rows: &[T], total: usize, output: &OutputOp) -> Result<()> {
    let OutputOp { op, own, target, .. } = output;
    let part: Vec<T> = rows.chunks_exact(total).flat_map(|row| row[target.clone()].to_vec()).collect();
    if !op.class_targets {
        return validate_targets(op, &[], &part, &[]);
    }
    if let Some(place) = part.iter().position(|label| label.to_f64().fract() != 0.0) {
        return Err(Error::Value(format!(
            "class index {} of row {} is not a whole number",
            part[place],
            place / target.len()
        )));
    }
    if matches!(own, Some(OwnLossConfig::Labelled(_))) {
        return Ok(());
    }
    let labels: Vec<i32> = part.iter().map(|label| label.to_f64() as i32).collect();
    validate_targets::<T>(op, &[], &[], &labels)
}
