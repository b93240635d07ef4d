//! Every parameter of every layer in a numeric type of its own: what is computed forward and back is what the
//! decoded parameters make, on either device; files keep the bytes, and a dropped master is made again.

use super::numeric_types::{compare, files_keep, unpacked};
use super::setup::{Made, Place, for_every_kind, on_device, place, single};
use crate::dtype::{DType, Recipe};
use crate::layers::{Dense, Sample, samples};
use crate::network::{Morph, Network, Numerics};
use crate::tensor::Precision;
use crate::{Error, Result};

/// Types that are dealt to the parameters, one after the other: such as are encoded on a GPU, and such as are not.
const DEALS: [&[DType]; 3] = [
    &[DType::Int4, DType::Int8, DType::BFloat16],
    &[DType::Q8_0, DType::Uint4, DType::Float8E4M3, DType::Int16, DType::MxFp4],
    &[DType::Int8],
];

fn only(dtype: DType, name: &str, network: &mut Network, at: [usize; 4]) -> Result<()> {
    let chosen = |placed: &crate::network::PlacedLayer| placed.path().indices() == at;
    network.morph_layers(Morph { dtype, numerics: Numerics::default(), parameters: Some(&[name]) }, chosen)
}

/// The tried layer with its parameters in these types, biases, gains and positions too.
fn dealt(sample: &Sample, types: &[DType]) -> Result<Place> {
    let Place { mut network, cell, layer } = place(sample, Precision::Float32)?;
    let at = [cell[0], cell[1], cell[2], layer];
    for (name, dtype) in network.parameter_names(cell, layer)?.iter().zip(types.iter().cycle()) {
        only(*dtype, name, &mut network, at)?;
    }
    Ok(Place { network, cell, layer })
}

fn made(network: &mut Network, sample: &Sample) -> Result<Made> {
    let input = single(sample);
    on_device(network, sample, &input)
}

#[test]
fn parameters_compute_what_they_hold() {
    for_every_kind(|name, sample| {
        for types in DEALS {
            let mut packed = dealt(sample, types)?;
            let expected = made(&mut unpacked(sample, &packed)?, sample)?;
            let found = made(&mut packed.network, sample)?;
            compare(&format!("{name} in {types:?}"), &found, &expected, 1e-5);
        }
        Ok(())
    });
}

#[test]
fn files_keep_parameters() {
    for_every_kind(|name, sample| {
        for types in DEALS {
            files_keep(&format!("{name} in {types:?}"), sample, dealt(sample, types)?.network)?;
            let Place { mut network, .. } = dealt(sample, types)?;
            let config = Network::from_json(&network.to_json()?)?;
            assert_eq!(config.config(), network.config(), "{name}");
            let all = network.layers().all(|placed| placed.store.is_none() || placed.numerics.is_packed());
            if all {
                network.drop_masters()?;
                files_keep(&format!("{name} in {types:?}, dropped"), sample, network)?;
            }
        }
        Ok(())
    });
}

#[cfg(feature = "gpu")]
#[test]
fn gpus_read_parameters() {
    if crate::gpu::testing::gpu().is_none() {
        return;
    }
    let number = std::cell::Cell::new(0);
    for_every_kind(|name, sample| {
        for types in DEALS {
            // Another deal for every layer in turn.
            let number = number.replace(number.get() + 1);
            if !crate::gpu::testing::in_part(number + number / DEALS.len(), DEALS.len()) {
                continue;
            }
            let expected = made(&mut dealt(sample, types)?.network, sample)?;
            let mut device = dealt(sample, types)?;
            device.network.to("gpu:0")?;
            let found = made(&mut device.network, sample)?;
            compare(&format!("{name} in {types:?} on a GPU"), &found, &expected, sample.tolerance);
        }
        Ok(())
    });
}

/// What is chosen by name is told, forgotten with the next choice for the layer, and refused where it is not
/// there.
#[test]
fn names_are_kept_and_checked() {
    let of = |kind: &str| samples().into_iter().find(|(known, _)| *known == kind).unwrap().1[0].clone();
    let mut place = place(&of("lstm"), Precision::Float32).unwrap();
    let (network, at) = (&mut place.network, [place.cell[0], place.cell[1], place.cell[2], place.layer]);
    let here = |placed: &crate::network::PlacedLayer| placed.path().indices() == at;
    let types = |network: &Network| -> Vec<Option<DType>> {
        let store = network.weights(place.cell, place.layer).unwrap().unwrap();
        (0..store.parameters().len()).map(|index| store.dtype_of(index)).collect()
    };
    network.morph_where(DType::Int4, here).unwrap();
    let whole = types(network);
    only(DType::Int8, "weight_hh_l0", network, at).unwrap();
    only(DType::Int8, "bias_ih_l0", network, at).unwrap();
    only(DType::Float32, "weight_ih_l0", network, at).unwrap();
    assert_eq!(types(network)[..3], [None, Some(DType::Int8), Some(DType::Int8)]);
    let settings = network.config().settings;
    assert_eq!(settings[0].parameters.len(), 3);
    assert_eq!(settings[0].parameters["weight_ih_l0"].dtype, DType::Float32);
    let text = network.summary().unwrap();
    let held = "float32: weight_ih_l0, bias_hh_l0; int8: weight_hh_l0, bias_ih_l0";
    assert!(text.contains(held), "{text}");
    // What holds for the layer anyway is not kept by name.
    only(DType::Int4, "weight_ih_l0", network, at).unwrap();
    assert_eq!(network.config().settings[0].parameters.len(), 2);

    let before = network.config();
    let refused = only(DType::Int2, "weight_h_l0", network, at).unwrap_err().to_string();
    assert!(refused.contains("did you mean \"weight_hh_l0\"") && refused.contains("bias_ih_l0"), "{refused}");
    let int8 = Numerics { activations: Some(DType::Int8), recipe: Recipe::default() };
    let refused = network
        .morph_layers(Morph { dtype: DType::Int8, numerics: int8, parameters: Some(&["bias_ih_l0"]) }, here)
        .unwrap_err();
    assert!(refused.to_string().contains("\"bias_ih_l0\" is no weight of a product"), "{refused}");
    assert_eq!(network.config(), before);

    network.morph_where(DType::Int4, here).unwrap();
    assert_eq!(types(network), whole);
    assert!(network.config().settings[0].parameters.is_empty());
}

/// Names in configs are checked once layers know their parameters.
#[test]
fn configs_name_what_there_is() {
    let mut network = Network::new([3], [1, 1, 1]).unwrap();
    network.add([0, 0, 0], Dense::new(2)).unwrap();
    network.set_trainable([0, 0, 0], 0, false).unwrap();
    let config = network.to_json().unwrap();
    for (key, wrong) in [("frozen", "[\"wieght\"]"), ("parameters", "{\"wieght\": {\"dtype\": \"int8\"}}")] {
        let text = config.replace("\"trainable\":false", &format!("\"trainable\":false,\"{key}\":{wrong}"));
        let text = if key == "frozen" { text.replace("\"frozen\":[],", "") } else { text };
        let error = Network::from_json(&text).unwrap().build().unwrap_err();
        assert!(matches!(error, Error::Value(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains("did you mean \"weight\"") && message.contains("bias"), "{message}");
    }
}
