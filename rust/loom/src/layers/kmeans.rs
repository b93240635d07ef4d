//! Soft assignment to trained centroids.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
use crate::Result;
use crate::ops::{Direction, Distance, Softmax};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};

settings! {
    /// How near each centroid is: `softmax over k of -|x - c_k|^2 / (2 temperature^2)` over the last axis,
    /// (..., features) to (..., clusters): the responsibilities of a mixture of equal Gaussians whose standard
    /// deviation is the temperature, and k-means where it goes to 0. The centroids are trained like any weight.
    ///
    /// The outside sees `centroids` as (clusters, features). They are positions, and stay float when the layer
    /// takes on another numeric type.
    #[derive(Clone, Debug, PartialEq)]
    pub struct KMeans "kmeans" {
        /// How many centroids.
        clusters: usize [least 1],
    } optional {
        /// The distance that counts as near; above zero.
        temperature: f64 [above 0.0] = 1.0,
        /// How the centroids start; normal with standard deviation 1 unless named, which spreads them like
        /// standardised features.
        centroid_initializer: Option<Initializer> = None,
    }
}

impl KMeans {
    /// At temperature 1.
    pub fn new(clusters: usize) -> Self {
        Self::with_defaults(clusters)
    }

    fn op(&self, shape: &Shape, direction: Direction) -> Distance {
        let features = shape.last().copied().unwrap_or(1);
        let factor = 0.5 / (self.temperature * self.temperature);
        Distance { direction, outer: shape.len() / features, features, centroids: self.clusters, factor }
    }
}

impl Configured for KMeans {
    fn samples() -> Vec<Sample> {
        let uniform = Some(Initializer::Uniform { low: -0.5, high: 0.5 });
        vec![
            Sample::new(Self::new(1), [1]),
            Sample::new(Self::new(3), [5]),
            Sample::new(Self { temperature: 2.5, ..Self::new(17) }, [4, 33]),
            Sample::new(Self { centroid_initializer: uniform, ..Self::new(4) }, [2, 3, 2]),
        ]
    }
}

impl Layer for KMeans {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        match input.split_last() {
            Some((_, outer)) if !input.is_empty() => Ok(Shape::new([outer, &[self.clusters]].concat())),
            _ => Err(shape_error("KMeans", "at least one feature", input)),
        }
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let features = inputs[0].last().copied().unwrap_or(1);
        vec![ParameterSpec {
            name: "centroids".into(),
            layout: Layout::plain([self.clusters, features]),
            initializer: self.centroid_initializer.unwrap_or(Initializer::Normal { std: 1.0 }),
            fan_in: features,
            fan_out: self.clusters,
            morphable: false,
            decay_exempt: false,
            adaptable: false,
        }]
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl OneInput for KMeans {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let input = b.shape(x).clone();
        let shape = self.output_shape(std::slice::from_ref(&input))?;
        let centroids = cx.read(b, "centroids")?;
        let distance = self.op(&input, Direction::Forward);
        let softmax = self.softmax(&shape, Direction::Forward);
        let logits = b.apply(distance, &[x, centroids], "logits", shape.clone());
        let y = b.apply(softmax, &[logits], "y", shape);
        Ok(Forward::saving(y, vec![y]))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, want, .. } = *back;
        let (input, shape) = (b.shape(x).clone(), b.shape(back.gradient).clone());
        let softmax = self.softmax(&shape, Direction::InputGradient);
        let logits = b.apply(softmax, &[back.forward.saved[0], back.gradient], "dlogits", shape);
        let centroids = cx.read(b, "centroids")?;
        let reads = [logits, x, centroids];
        if want.parameters {
            cx.contribute(b, "centroids", self.op(&input, Direction::WeightGradient), &reads)?;
        }
        let op = self.op(&input, Direction::InputGradient);
        Ok(want.inputs.then(|| b.apply(op, &reads, "dx", input)))
    }
}

impl KMeans {
    fn softmax(&self, shape: &Shape, direction: Direction) -> Softmax {
        let outer = shape.len() / self.clusters;
        Softmax { direction, outer, classes: self.clusters, inner: 1, temperature: 1.0 }
    }
}
