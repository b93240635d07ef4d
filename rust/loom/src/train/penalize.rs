//! Lowers what joins gradients beside the loss's: penalties on weights, noise.

use super::TrainingConfig;
use super::config::Regularizer;
use crate::network::{Network, PlacedLayer};
use crate::ops::penalty::NOISE_PURPOSE;
use crate::ops::{GaussianNoise, Penalized, Penalty};
use crate::program::{Builder, ParameterRef, Phase, Place, Value};
use crate::tensor::Shape;
use crate::{Error, Result, network::at_layer};

/// Lowers penalties and noise, of the gradients as they are of the whole batch.
pub(super) fn lower_penalties(network: &Network, b: &mut Builder, config: &TrainingConfig) -> Result<()> {
    if config.regularizers.is_empty() && config.gradient_noise == 0.0 {
        return Ok(());
    }
    check_named(network, &config.regularizers)?;
    let noise = (config.gradient_noise > 0.0).then_some(config.gradient_noise);
    b.set_phase(Phase::Verdict);
    for placed in network.layers() {
        for store in placed.trained_stores() {
            let parts = parts(network, placed, store, &config.regularizers, noise.is_some());
            if parts.is_empty() {
                continue;
            }
            let weights = &network.registry.stores[store];
            weights.check_master().map_err(|error| at_layer(placed, error))?;
            let len = weights.len();
            b.set_layer(Some(placed.path.clone()));
            let whole = ParameterRef { store, parameter: None };
            let mut reads = vec![b.stored("master", Shape::from(len), Place::Master(whole))];
            if noise.is_some() {
                // Adapters stand beside a layer and have its path.
                let purpose = NOISE_PURPOSE.wrapping_add(if placed.store == Some(store) {
                    0
                } else {
                    store as u32 + 1
                });
                let drawn = GaussianNoise { scale: 1.0, purpose, features: 0 };
                reads.push(b.apply_fixed(drawn, &[], "noise", Shape::from(len)));
            }
            let gradient: Value = b.stored("gradient", Shape::from(len), Place::Gradient(whole));
            let scaled = network.scales_loss();
            b.effect(Penalty { len, parts, noise, scaled }, &reads, &[gradient]);
        }
    }
    b.set_layer(None);
    Ok(())
}

/// The parts of a store that something is added to.
fn parts(
    network: &Network,
    placed: &PlacedLayer,
    store: usize,
    regularizers: &[Regularizer],
    noisy: bool,
) -> Vec<Penalized> {
    let trained = |name: &str| !placed.frozen.iter().any(|frozen| frozen == name);
    let parameters = network.registry.stores[store].parameters().iter();
    let part = parameters.filter(|info| trained(&info.name)).filter_map(|info| {
        let mut part = Penalized { range: info.offset..info.offset + info.len(), l1: 0.0, l2: 0.0 };
        for of in regularizers.iter().filter(|of| names(&of.on, placed, &info.name)) {
            (part.l1, part.l2) = (part.l1 + of.l1, part.l2 + of.l2);
        }
        (noisy || part.l1 > 0.0 || part.l2 > 0.0).then_some(part)
    });
    part.collect()
}

/// Whether a pattern names a parameter of a layer.
fn names(pattern: &str, placed: &PlacedLayer, parameter: &str) -> bool {
    let path = placed.path.to_string();
    matches(pattern, &path)
        || matches(pattern, placed.layer.kind())
        || matches(pattern, &format!("{path}.{parameter}"))
}

/// Refuses patterns that name nothing.
fn check_named(network: &Network, regularizers: &[Regularizer]) -> Result<()> {
    for Regularizer { on, .. } in regularizers {
        let named = network.layers().any(|placed| {
            let stores = placed.store.into_iter();
            let mut infos = stores.flat_map(|store| network.registry.stores[store].parameters());
            infos.any(|info| names(on, placed, &info.name))
        });
        if !named {
            return Err(Error::Value(format!(
                "the regularizer on \"{on}\" names no parameter; a pattern is of paths such as \"0.0.0.1.weight\" or \
                 \"*.weight\", or of kinds of layers such as \"dense\""
            )));
        }
    }
    Ok(())
}

/// Whether a text is as a pattern says, in which `*` stands for any characters and `?` for one.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Where the last star stands, and how much of the text it has taken.
    let (mut at, mut place, mut star) = (0, 0, None);
    while place < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(c) if *c == '?' || *c == text[place] => {
                at += 1;
                place += 1;
            }
            _ => {
                let Some((before, taken)) = star else { return false };
                star = Some((before, taken + 1));
                (at, place) = (before + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_are_those_of_file_names() {
        for (pattern, text, expected) in [
            ("*.weight", "0.0.0.1.weight", true),
            ("*.weight", "0.0.0.1.weight_hh_l0", false),
            ("*weight*", "0.0.0.1.weight_hh_l0", true),
            ("0.0.?.1", "0.0.7.1", true),
            ("0.0.?.1", "0.0.77.1", false),
            ("dense", "dense", true),
            ("d*n*e", "dense", true),
            ("d*n*x", "dense", false),
            ("*", "", true),
            ("", "a", false),
            ("a*b*c", "aXbXbXc", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
