//! Lowers the targets of every layer, by mode, and the local losses that follow from them.

use super::config::{TargetMode, TweenConfig};
use super::feedback;
use crate::layers::{Forward, Want};
use crate::network::{FeedbackMap, Lowered, Network, PlacedLayer, at_layer};
use crate::ops::{Combination, GaussianNoise, Term};
use crate::program::{Builder, Value};
use crate::train::Watching;
use crate::{Error, Result};

/// What all parts of a lowering share.
pub(super) struct Lowering<'a> {
    pub(super) network: &'a Network,
    pub(super) config: &'a TweenConfig,
    pub(super) lowered: &'a Lowered,
    pub(super) placed: Vec<&'a PlacedLayer>,
    /// The first layer that learns from the loss itself; how many layers there are where links arrive behind
    /// the last, and none does.
    pub(super) top: usize,
    /// Whether gradients of the loss are scaled, and local ones with them.
    pub(super) scaled: bool,
}

impl<'a> Lowering<'a> {
    fn same_shape(&self, b: &mut Builder, op: Combination, reads: &[Value], label: &'static str) -> Value {
        let shape = b.shape(reads[0]).clone();
        b.apply(op, reads, label, shape)
    }

    /// The output of a layer.
    pub(super) fn output(&self, layer: usize) -> Value {
        self.lowered.layers[layer].forward.output
    }

    /// The target of the layer below the output: against the gradient of the loss by `target_rate`.
    pub(super) fn first_target(&self, b: &mut Builder, layer: usize, gradient: Value) -> Value {
        let terms = [Term::fixed(1.0), Term::fixed(-self.config.target_rate).over_scale(self.scaled)];
        self.same_shape(b, Combination::new(terms), &[self.output(layer), gradient], "target")
    }

    /// The output plus `term` times a gradient, as a value.
    pub(super) fn moved(&self, b: &mut Builder, layer: usize, gradient: Value, term: Term) -> Value {
        let op = Combination::new([Term::fixed(1.0), term]);
        self.same_shape(b, op, &[self.output(layer), gradient], "target")
    }

    /// The target of what a layer reads, by difference target propagation.
    pub(super) fn difference(&self, b: &mut Builder, layer: usize, target: Value) -> Result<Value> {
        let lowered = &self.lowered.layers[layer];
        let (input, output) = (lowered.inputs[0], lowered.forward.output);
        let placed = self.placed[layer];
        b.set_layer(Some(placed.path.clone()));
        let one = Term::fixed(1.0);
        match self.network.feedback.of(layer) {
            Some(map) => {
                let of_target = self.feed_back(b, map, target)?.output;
                let of_output = self.feed_back(b, map, output)?.output;
                let terms = [one, one, Term::fixed(-1.0)];
                Ok(self.same_shape(b, Combination::new(terms), &[input, of_target, of_output], "target"))
            }
            None => {
                let op = Combination::new([one, Term::fixed(-1.0)]);
                let difference = self.same_shape(b, op, &[target, output], "difference");
                let back = self.back(b, layer, difference)?;
                let back = back.ok_or_else(|| at_layer(placed, no_way_back()))?;
                Ok(self.same_shape(b, Combination::new([one, one]), &[input, back], "target"))
            }
        }
    }

    /// The target of what a layer reads, by weighted means of the target of its output; the output of the
    /// layer below where there is no way back.
    pub(super) fn layerwise(&self, b: &mut Builder, layer: usize, target: Value) -> Result<Value> {
        let lowered = &self.lowered.layers[layer];
        let (placed, below) = (self.placed[layer], self.placed[layer - 1]);
        b.set_layer(Some(placed.path.clone()));
        let own = placed
            .layer
            .target_rules()
            .target(b, &lowered.context, &lowered.inputs, &lowered.forward, target)
            .map_err(|error| at_layer(placed, error))?;
        let shape = b.shape(lowered.inputs[0]).clone();
        let value = match own {
            Some(value) => value,
            None if b.shape(target).len() == shape.len() => b.reshape(target, shape),
            None => return Ok(lowered.inputs[0]),
        };
        let clamp = self.config.activation_clamp;
        let (least, greatest) = below.layer.target_rules().target_range().unwrap_or((-clamp, clamp));
        Ok(self.same_shape(b, Combination::clamp(least, greatest), &[value], "target"))
    }

    /// What output less target is multiplied by in the gradient of a local loss.
    fn local_factor(&self) -> f64 {
        match self.config.mode {
            // Half the square, over what the target was moved by.
            TargetMode::ChainRule => 1.0 / self.config.watch.gradient_scale,
            TargetMode::Layerwise => 1.0,
            // The whole square.
            TargetMode::Difference | TargetMode::DifferenceReconstruction => 2.0,
        }
    }

    /// A cell state's target is the state plus this many times the gradient of the layer's local loss: the
    /// target that half the squared distance of the output from its own gives the cell.
    pub(super) fn cell_term(&self) -> Term {
        Term::fixed(-1.0 / self.local_factor()).times_rows().over_scale(self.scaled)
    }

    /// The gradient, with respect to a layer's output, of its local loss toward a fixed target.
    pub(super) fn local_gradient(&self, b: &mut Builder, output: Value, target: Value) -> Value {
        let factor = self.local_factor();
        let terms = [factor, -factor].map(|x| Term::fixed(x).over_rows().times_scale(self.scaled));
        self.same_shape(b, Combination::new(terms), &[output, target], "local gradient")
    }

    /// Contributes to a layer's parameters from the gradient of its local loss.
    pub(super) fn learn(
        &self,
        b: &mut Builder,
        layer: usize,
        forward: &Forward,
        gradient: Value,
    ) -> Result<()> {
        let (placed, lowered) = (self.placed[layer], &self.lowered.layers[layer]);
        b.set_layer(Some(placed.path.clone()));
        // Layerwise learning knows no derivatives.
        let linear = match self.config.mode {
            TargetMode::Layerwise if layer < self.top => placed.layer.target_rules().without_activation(),
            _ => None,
        };
        let rule = linear.as_deref().unwrap_or(&*placed.layer);
        let want = Want { inputs: false, parameters: true };
        rule.backward(b, &lowered.context, &lowered.inputs, forward, gradient, want)
            .map_err(|error| at_layer(placed, error))?;
        Ok(())
    }

    /// The gradient of a layer's first input from that of its output, without its parameters'.
    pub(super) fn back(&self, b: &mut Builder, layer: usize, gradient: Value) -> Result<Option<Value>> {
        let (placed, lowered) = (self.placed[layer], &self.lowered.layers[layer]);
        b.set_layer(Some(placed.path.clone()));
        let want = Want { inputs: true, parameters: false };
        let made = placed
            .layer
            .backward(b, &lowered.context, &lowered.inputs, &lowered.forward, gradient, want)
            .map_err(|error| at_layer(placed, error))?;
        Ok(made.into_iter().next().flatten())
    }

    /// Runs a layer forward once more, on the same input or another; nothing that it keeps moves.
    pub(super) fn again(&self, b: &mut Builder, layer: usize, input: Option<Value>) -> Result<Forward> {
        let (placed, lowered) = (self.placed[layer], &self.lowered.layers[layer]);
        b.set_layer(Some(placed.path.clone()));
        let mut inputs = lowered.inputs.clone();
        inputs[0] = input.unwrap_or(inputs[0]);
        b.suppress_commits(true);
        let forward = placed.layer.forward(b, &lowered.context, &inputs);
        b.suppress_commits(false);
        forward.map_err(|error| at_layer(placed, error))
    }

    /// What a feedback map makes of a value.
    fn feed_back(&self, b: &mut Builder, map: &FeedbackMap, value: Value) -> Result<Forward> {
        let context = feedback::context(self.network, map);
        map.layer.forward(b, &context, &[value]).map_err(|error| at_layer(self.placed[map.of], error))
    }

    /// Contributes to a feedback map's parameters from the gradient of what it has made.
    fn teach(
        &self,
        b: &mut Builder,
        map: &FeedbackMap,
        (value, forward): (Value, &Forward),
        gradient: Value,
    ) -> Result<()> {
        let context = feedback::context(self.network, map);
        let want = Want { inputs: false, parameters: true };
        map.layer
            .backward(b, &context, &[value], forward, gradient, want)
            .map_err(|error| at_layer(self.placed[map.of], error))?;
        Ok(())
    }

    /// Contributes to the parameters of all feedback maps, from the noise of try number `number`; shows
    /// how well they do.
    pub(super) fn learn_feedback(
        &self,
        b: &mut Builder,
        number: usize,
        mut watching: Option<&mut Watching<'_>>,
    ) -> Result<()> {
        for map in &self.network.feedback.maps {
            b.set_layer(Some(self.placed[map.of].path.clone()));
            let input = self.lowered.layers[map.of].inputs[0];
            let purpose = 2 * number as u32;
            let noise = self.noise(b, input, purpose);
            let one = Term::fixed(1.0);
            let disturbed = self.same_shape(b, Combination::new([one, one]), &[input, noise], "disturbed");
            let output = self.again(b, map.of, Some(disturbed))?.output;
            let [made, wanted] = match self.config.mode {
                TargetMode::DifferenceReconstruction => {
                    self.learn_jacobian(b, map, output, noise, purpose)?
                }
                _ => {
                    let made = self.feed_back(b, map, output)?;
                    let gradient = self.over_rows(b, &[(made.output, 2.0), (disturbed, -2.0)]);
                    self.teach(b, map, (output, &made), gradient)?;
                    [made.output, disturbed]
                }
            };
            if let Some(watching) = &mut watching {
                watching.reconstruction(b, map.of, input, [made, wanted]);
            }
        }
        b.set_layer(None);
        Ok(())
    }

    /// `-2 <e, G(f(h + e)) - G(y)> + |G(y + e') - G(y)|^2` with y = f(h). Returns the difference that e
    /// makes, which is to become e.
    fn learn_jacobian(
        &self,
        b: &mut Builder,
        map: &FeedbackMap,
        disturbed: Value,
        noise: Value,
        purpose: u32,
    ) -> Result<[Value; 2]> {
        let output = self.output(map.of);
        let other = self.noise(b, output, purpose + 1);
        let one = Term::fixed(1.0);
        let near = self.same_shape(b, Combination::new([one, one]), &[output, other], "disturbed");
        let of_output = self.feed_back(b, map, output)?;
        let of_disturbed = self.feed_back(b, map, disturbed)?;
        let of_near = self.feed_back(b, map, near)?;
        let [plain, moved, nearby] = [&of_output, &of_disturbed, &of_near].map(|forward| forward.output);
        let gradient = self.over_rows(b, &[(noise, -2.0)]);
        self.teach(b, map, (disturbed, &of_disturbed), gradient)?;
        let gradient = self.over_rows(b, &[(nearby, 2.0), (plain, -2.0)]);
        self.teach(b, map, (near, &of_near), gradient)?;
        let gradient = self.over_rows(b, &[(noise, 2.0), (nearby, -2.0), (plain, 2.0)]);
        self.teach(b, map, (output, &of_output), gradient)?;
        let minus = Term::fixed(-1.0);
        let difference = self.same_shape(b, Combination::new([one, minus]), &[moved, plain], "difference");
        Ok([difference, noise])
    }

    /// A sum of values with factors, over the rows of the batch.
    fn over_rows(&self, b: &mut Builder, terms: &[(Value, f64)]) -> Value {
        let (values, factors): (Vec<Value>, Vec<f64>) = terms.iter().copied().unzip();
        let factors: Vec<Term> =
            factors.into_iter().map(|x| Term::fixed(x).over_rows().times_scale(self.scaled)).collect();
        self.same_shape(b, Combination::new(factors), &values, "gradient")
    }

    fn noise(&self, b: &mut Builder, like: Value, purpose: u32) -> Value {
        let shape = b.shape(like).clone();
        let op = GaussianNoise { scale: self.config.feedback.noise, purpose, features: shape.len() };
        b.apply(op, &[], "noise", shape)
    }
}

fn no_way_back() -> Error {
    Error::Internal("a layer that is its own feedback map made no gradient of its input".into())
}
