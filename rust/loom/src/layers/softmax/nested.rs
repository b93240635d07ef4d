//! Softmaxes that share out the probabilities of a softmax above them: hierarchical, adaptive, mixture.

use crate::layers::kind_registry::Configured;
use crate::layers::one_input::{Backward, OneInput, one_input};
use crate::layers::settings::{Form, forms, kind_and_config, settings};
use crate::layers::{Context, Forward, Layer, Sample, shape_error, single};
use crate::ops::{Direction, NestedSoftmax};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How leaves are spread over groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Leaves {
    /// So many in all, each group having as many.
    All(usize),
    /// Those of each group.
    Each(Vec<usize>),
}

settings! {
    /// `p(leaf) = p(group) p(leaf in group)` over the last axis: (..., groups + leaves) logits, the groups' first
    /// and then each group's leaves, to (..., leaves) probabilities, which sum to one (Morin and Bengio 2005, two
    /// levels deep).
    #[derive(Clone, Debug, PartialEq)]
    pub struct HierarchicalSoftmax "hierarchical_softmax" {
        /// How many groups.
        groups: usize [least 1, most MOST],
        /// How many leaves there are in all, a multiple of the groups, or a list of each group's.
        leaves: Leaves [least 1],
    }
}

settings! {
    /// A hierarchical softmax for long lists of words, frequent ones first (Grave et al. 2017): the head holds
    /// the logits of the first `cutoffs[0]` words and one for each cluster of rarer words, which the cutoffs part;
    /// the clusters' logits follow. (..., words + clusters) logits, there being a cluster for each cutoff, to
    /// (..., words) probabilities, which sum to one.
    #[derive(Clone, Debug, PartialEq)]
    pub struct AdaptiveSoftmax "adaptive_softmax" {
        /// Where the shortlist ends and where the clusters but the last end; rising.
        cutoffs: Vec<usize> [least 1],
    }
}

settings! {
    /// `sum over k of pi_k softmax(l_k)` over the last axis: K gate logits, whose softmax is pi, and then K times n
    /// logits, to n probabilities, which sum to one (Yang et al. 2018). (..., K + K n) to (..., n).
    #[derive(Clone, Debug, PartialEq)]
    pub struct MixtureSoftmax "mixture_softmax" {
        /// How many softmaxes are mixed: K.
        components: usize [least 1, most MOST],
    }
}

forms! { Leaves => Form::Other }

/// The most softmaxes that one shares out: each is an entry of a list.
const MOST: usize = 1 << 24;

impl Configured for HierarchicalSoftmax {
    fn validate(&self) -> Result<()> {
        let groups = self.groups;
        match &self.leaves {
            Leaves::All(leaves) if leaves % groups != 0 => {
                Err(Error::Value(format!("leaves must be a multiple of {groups} groups, got {leaves}")))
            }
            Leaves::Each(leaves) if leaves.len() != groups => Err(Error::Value(format!(
                "leaves must name a number for each of {groups} groups, got {leaves:?}"
            ))),
            _ => Ok(()),
        }
    }

    fn samples() -> Vec<Sample> {
        let even = |groups, leaves| Self { groups, leaves: Leaves::All(leaves) };
        let uneven = Self { groups: 3, leaves: Leaves::Each(vec![4, 1, 19]) };
        vec![
            Sample::new(even(1, 1), [2]),
            Sample::new(even(3, 6), [9]),
            Sample::new(uneven, [2, 27]),
            Sample::new(even(5, 5), [10]),
        ]
    }
}

impl Configured for AdaptiveSoftmax {
    fn validate(&self) -> Result<()> {
        let rising = self.cutoffs.windows(2).all(|pair| pair[0] < pair[1]);
        if self.cutoffs.is_empty() || !rising {
            return Err(Error::Value(format!(
                "cutoffs must be whole numbers above 0 that rise, got {:?}",
                self.cutoffs
            )));
        }
        Ok(())
    }

    fn samples() -> Vec<Sample> {
        let cutoffs = |cutoffs: &[usize]| Self { cutoffs: cutoffs.to_vec() };
        vec![
            Sample::new(cutoffs(&[1]), [3]),
            Sample::new(cutoffs(&[4, 9]), [2, 22]),
            Sample::new(cutoffs(&[17, 18, 40]), [63]),
        ]
    }
}

impl Configured for MixtureSoftmax {
    fn samples() -> Vec<Sample> {
        let mixture = |components| Self { components };
        vec![
            Sample::new(mixture(1), [2]),
            Sample::new(mixture(3), [18]),
            Sample::new(mixture(2), [3, 40]),
            Sample::new(mixture(4), [2, 2, 12]),
        ]
    }
}

/// What the three layers have in common: how they read their last axis.
trait Nested {
    const NAME: &'static str;

    /// The softmaxes of a last axis of this extent; what would fit, where it does not.
    fn parts(&self, logits: usize) -> std::result::Result<NestedSoftmax, String>;

    fn op(&self, shape: &Shape, direction: Direction) -> Result<NestedSoftmax> {
        let logits = shape.last().copied().unwrap_or(0);
        let op = self.parts(logits).map_err(|expected| shape_error(Self::NAME, &expected, shape))?;
        Ok(NestedSoftmax { direction, outer: shape.len() / logits, ..op })
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(Self::NAME, inputs)?;
        let op = self.op(input, Direction::Forward)?;
        let outer = &input[..input.rank() - 1];
        Ok(Shape::new([outer, &[op.outputs()]].concat()))
    }
}

fn nested(shortlist: usize, parts: Vec<usize>, shared: bool) -> NestedSoftmax {
    NestedSoftmax { direction: Direction::Forward, outer: 1, shortlist, parts, shared }
}

impl Nested for HierarchicalSoftmax {
    const NAME: &'static str = "HierarchicalSoftmax";

    fn parts(&self, logits: usize) -> std::result::Result<NestedSoftmax, String> {
        let leaves = match &self.leaves {
            Leaves::All(leaves) if self.groups.saturating_add(*leaves) != logits => {
                let (groups, inputs) = (self.groups, self.groups.saturating_add(*leaves));
                return Err(format!("(..., {inputs}), {groups} groups and {leaves} leaves"));
            }
            Leaves::All(leaves) => vec![leaves / self.groups; self.groups],
            Leaves::Each(leaves) => leaves.clone(),
        };
        let op = nested(0, leaves, false);
        if op.inputs() == logits {
            return Ok(op);
        }
        Err(format!("(..., {}), {} groups and {} leaves", op.inputs(), self.groups, op.outputs()))
    }
}

impl Nested for AdaptiveSoftmax {
    const NAME: &'static str = "AdaptiveSoftmax";

    fn parts(&self, logits: usize) -> std::result::Result<NestedSoftmax, String> {
        let clusters = self.cutoffs.len();
        let (first, last) = (self.cutoffs[0], self.cutoffs[clusters - 1]);
        let words = logits.saturating_sub(clusters);
        if words <= last {
            return Err(format!("(..., words + {clusters}) with more than {last} words"));
        }
        let ends = self.cutoffs.iter().copied().skip(1).chain([words]);
        Ok(nested(first, self.cutoffs.iter().zip(ends).map(|(start, end)| end - start).collect(), false))
    }
}

impl Nested for MixtureSoftmax {
    const NAME: &'static str = "MixtureSoftmax";

    fn parts(&self, logits: usize) -> std::result::Result<NestedSoftmax, String> {
        let components = self.components;
        if logits <= components || !logits.is_multiple_of(components) {
            return Err(format!("(..., {components} + {components} n) with n above 0"));
        }
        Ok(nested(0, vec![logits / components - 1; components], true))
    }
}

macro_rules! layer {
    ($layer:ident) => {
        impl Layer for $layer {
            kind_and_config!();

            fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
                self.shape(inputs)
            }

            fn is_stepwise(&self) -> bool {
                true
            }

            one_input!();
        }

        impl OneInput for $layer {
            fn lower(&self, b: &mut Builder, _cx: &Context, x: Value) -> Result<Forward> {
                let shape = b.shape(x).clone();
                let output = self.shape(std::slice::from_ref(&shape))?;
                Ok(Forward::new(b.apply(self.op(&shape, Direction::Forward)?, &[x], "y", output)))
            }

            fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
                let shape = b.shape(back.x).clone();
                let op = self.op(&shape, Direction::InputGradient)?;
                Ok(Some(b.apply(op, &[back.x, back.gradient], "dx", shape)))
            }
        }
    };
}

layer!(HierarchicalSoftmax);
layer!(AdaptiveSoftmax);
layer!(MixtureSoftmax);
