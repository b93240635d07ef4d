//! What an adapter of a layer is, and which parameters it has.

use crate::layers::ParameterSpec;
use crate::weights::{Initializer, Layout, WeightStore};
use crate::{Error, Result, error};
use serde::{Deserialize, Serialize};

/// An adapter of one layer (LoRA, Hu et al. 2022): beside each of the weights that it names, W of (outputs, inputs),
/// stands `scale B A`, with A of (rank, inputs), which starts at random, and B of (outputs, rank), which starts at
/// zero. The layer computes with the sum, which is never made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// What it is called; layers whose adapters have one name are switched and merged together.
    pub name: String,
    /// How many numbers are between A and B.
    pub rank: usize,
    /// The scale is this divided by the rank, or by the rank's square root.
    pub alpha: f64,
    /// The probability that training zeroes what A reads.
    #[serde(default)]
    pub dropout: f64,
    /// Whether alpha is divided by the rank's square root (rsLoRA, Kalajdzievski 2023).
    #[serde(default)]
    pub rank_stabilized: bool,
    /// Whether each output is given a length of its own (DoRA, Liu et al. 2024): what the layer computes with is
    /// `magnitude (W + scale B A) / |W + scale B A|`, row by row, with a magnitude of (outputs,), which starts as the
    /// lengths of W. The length below is taken as a constant in gradients.
    #[serde(default, skip_serializing_if = "is_not")]
    pub decomposed: bool,
    /// The names of the weights in the layer.
    pub parameters: Vec<String>,
    /// Whether the layer computes with it.
    #[serde(default = "yes")]
    pub active: bool,
    /// Whether an optimizer may move it.
    #[serde(default = "yes")]
    pub trainable: bool,
}

fn yes() -> bool {
    true
}

fn is_not(flag: &bool) -> bool {
    !flag
}

/// What A, B and the lengths are called, behind the weight and the adapter: `query_weight.default.lora_a`.
pub(super) const PARTS: [&str; 3] = ["lora_a", "lora_b", "lora_magnitude"];

impl Adapter {
    /// What the product of B and A is multiplied by.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rank_stabilized { rank.sqrt() } else { rank }
    }

    /// Whether it gives outputs lengths as the layer computes.
    pub(super) fn is_decomposing(&self) -> bool {
        self.active && self.decomposed
    }

    /// Refuses settings out of their range.
    ///
    /// # Errors
    /// [`Error::Value`] naming the one.
    pub fn validate(&self) -> Result<()> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(Error::Value(format!(
                "the name of an adapter must be letters, digits, \"_\" and \"-\", got \"{}\"",
                self.name
            )));
        }
        if self.rank == 0 || self.rank > MOST_RANK {
            return Err(Error::Value(format!(
                "the rank of an adapter must be 1 to {MOST_RANK}, got {}",
                self.rank
            )));
        }
        if !self.alpha.is_finite() {
            return Err(Error::Value(format!("the alpha of an adapter must be finite, got {}", self.alpha)));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::Value(format!(
                "the dropout of an adapter must be at least 0 and below 1, got {}",
                self.dropout
            )));
        }
        if self.parameters.is_empty() {
            return Err(Error::Value(format!(
                "adapter \"{}\" names no weight of the layer, so there is nothing for it to stand beside",
                self.name
            )));
        }
        match self.parameters.iter().enumerate().find(|(i, name)| self.parameters[..*i].contains(name)) {
            Some((_, twice)) => {
                Err(Error::Value(format!("adapter \"{}\" names \"{twice}\" twice", self.name)))
            }
            None => Ok(()),
        }
    }

    /// Which of the [`PARTS`] it has beside each weight.
    pub(super) fn parts(&self) -> &'static [&'static str] {
        if self.decomposed { &PARTS } else { &PARTS[..2] }
    }

    /// What a part of it is called that stands beside this weight.
    pub(super) fn part(&self, weight: &str, part: &str) -> String {
        format!("{weight}.{}.{part}", self.name)
    }

    /// Its parameters in a layer of these.
    ///
    /// # Errors
    /// [`Error::Value`] for a weight that the layer does not have, or beside which no adapter can stand.
    pub(super) fn specs(&self, layer: &[ParameterSpec]) -> Result<Vec<ParameterSpec>> {
        let mut specs = Vec::with_capacity(self.parameters.len() * self.parts().len());
        for weight in &self.parameters {
            let Some(spec) = layer.iter().find(|spec| spec.name == **weight) else {
                return Err(error::unknown("parameter", weight, layer.iter().map(|spec| &*spec.name)));
            };
            if !spec.adaptable {
                let known: Vec<&str> =
                    layer.iter().filter(|spec| spec.adaptable).map(|spec| &*spec.name).collect();
                let known = match known.is_empty() {
                    true => "the layer has none".into(),
                    false => format!("here: {}", known.join(", ")),
                };
                return Err(Error::Value(format!(
                    "\"{weight}\" takes no adapter, which stands beside the weight of a plain product; {known}"
                )));
            }
            let [outputs, inputs] = spec.layout.outside_shape()[..] else {
                return Err(Error::Internal(format!("\"{weight}\" is no matrix")));
            };
            // As the initial values of peft: uniform within one over the root of the inputs.
            let reach = 1.0 / (inputs as f64).sqrt();
            let drawn = Initializer::Uniform { low: -reach, high: reach };
            let factor = |part: usize, outputs: usize, inputs: usize, initializer| ParameterSpec {
                name: self.part(weight, PARTS[part]).into(),
                layout: Layout::input_major([outputs, inputs]),
                initializer,
                fan_in: inputs,
                fan_out: outputs,
                morphable: false,
                decay_exempt: false,
                adaptable: false,
            };
            specs.push(factor(0, self.rank, inputs, drawn));
            specs.push(factor(1, outputs, self.rank, Initializer::Zeros));
            if self.decomposed {
                specs.push(ParameterSpec {
                    name: self.part(weight, PARTS[2]).into(),
                    layout: Layout::plain([outputs]),
                    decay_exempt: true,
                    ..factor(2, outputs, inputs, Initializer::Lengths)
                });
            }
        }
        Ok(specs)
    }
}

/// The most that a rank can be: the extents of what lies between A and B are multiplied by it.
const MOST_RANK: usize = 1 << 16;

/// An adapter in its place.
#[derive(Clone, Debug)]
pub(crate) struct PlacedAdapter {
    pub(crate) settings: Adapter,
    /// Its weight store in the registry, once built.
    pub(crate) store: Option<usize>,
    /// What it takes over when it is built.
    pub(crate) brought: Option<WeightStore>,
}

impl PlacedAdapter {
    pub(crate) fn new(settings: Adapter) -> Self {
        Self { settings, store: None, brought: None }
    }

    pub(super) fn is_trained(&self) -> bool {
        self.settings.active && self.settings.trainable
    }
}
