//! Every layer with weights in every numeric type: what it computes forward and back from packed weights is
//! what it computes with the decoded weights for masters, on either device, and files keep the bytes.

use super::setup::{
    Made, Place, ROWS, assert_close, for_every_kind, for_every_sample, on_device, place, single,
};
use crate::dtype::{DType, Granularity};
use crate::layers::Sample;
use crate::network::{Morph, Network, Numerics, PlacedLayer};
use crate::tensor::{Precision, Tensor};
use crate::{Result, tensor_view};

/// Loss of accuracy in a layer's output that a type may cost; below 8 bits, any.
fn most_lost(dtype: DType) -> f64 {
    match dtype.row().bits {
        0..8 => f64::INFINITY,
        8 => 0.2,
        _ => 0.05,
    }
}

/// The tried layer packed, with how it is packed. Where all that it has stays float unless it is named, such as
/// centroids, gains and positions, it is named.
fn packed(sample: &Sample, dtype: DType, granularity: Option<Granularity>) -> Result<Place> {
    let Place { mut network, cell, layer } = place(sample, Precision::Float32)?;
    let at = [cell[0], cell[1], cell[2], layer];
    let here = |placed: &PlacedLayer| placed.path().indices() == at;
    let named = named_alone(&network, cell, layer)?;
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let numerics = Numerics { recipe: granularity.into(), activations: None };
    network
        .morph_layers(Morph { dtype, numerics, parameters: (!named.is_empty()).then_some(&named) }, here)?;
    Ok(Place { network, cell, layer })
}

/// The parameters of a layer none of which takes on its numeric type.
pub(super) fn named_alone(network: &Network, cell: [usize; 3], layer: usize) -> Result<Vec<String>> {
    let Some(store) = network.weights(cell, layer)? else { return Ok(Vec::new()) };
    if store.parameters().iter().any(|info| info.morphable) {
        return Ok(Vec::new());
    }
    network.parameter_names(cell, layer)
}

/// The same network with the decoded weights for masters.
pub(super) fn unpacked(sample: &Sample, packed: &Place) -> Result<Network> {
    let Place { network, cell, layer } = packed;
    let (cell, layer) = (*cell, *layer);
    let mut decoded: Vec<(String, Tensor)> = Vec::new();
    for parameter in network.parameter_names(cell, layer)? {
        decoded.push((parameter.clone(), network.active_parameter(cell, layer, &parameter)?));
    }
    let Place { network: mut plain, .. } = place(sample, Precision::Float32)?;
    for (parameter, values) in &decoded {
        plain.set_parameter(cell, layer, parameter, values.view())?;
    }
    Ok(plain)
}

pub(super) fn compare(name: &str, found: &Made, expected: &Made, tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for ((what, found), (_, expected)) in found.iter().zip(expected) {
        // What is small in all is compared with what it is made of.
        let scale = expected.iter().fold(1e-3f64, |scale, x| scale.max(x.abs()));
        let tolerance = tolerance * (1.0 / scale).max(1.0);
        assert_close(&format!("{name}: {what}"), found, expected, tolerance);
    }
}

/// Packed weights compute what they hold, forward and back.
fn computes_what_it_holds(name: &str, sample: &Sample, dtype: DType) -> Result<()> {
    let input = single(sample);
    let mut packed = packed(sample, dtype, None)?;
    let mut plain = unpacked(sample, &packed)?;
    let name = format!("{name} in {dtype}");
    let found = on_device(&mut packed.network, sample, &input)?;
    let expected = on_device(&mut plain, sample, &input)?;
    compare(&name, &found, &expected, 1e-5);
    let Place { network: mut exact, .. } = place(sample, Precision::Float32)?;
    let exact = on_device(&mut exact, sample, &input)?;
    assert_close(&format!("{name}, against full precision"), &found[0].1, &exact[0].1, most_lost(dtype));
    Ok(())
}

/// A file keeps the packed bytes, and what is computed from them.
fn files_keep_bytes(
    name: &str,
    sample: &Sample,
    dtype: DType,
    granularity: Option<Granularity>,
) -> Result<()> {
    let Place { network, .. } = packed(sample, dtype, granularity)?;
    files_keep(name, sample, network)
}

/// A file of this network keeps the packed bytes, and what is computed from them.
pub(super) fn files_keep(name: &str, sample: &Sample, mut network: Network) -> Result<()> {
    let input = single(sample);
    let shape = [&[ROWS][..], &sample.input].concat();
    let loaded = Network::from_bytes(&network.to_bytes(Default::default())?)?;
    let stores = network.registry.stores().iter().zip(loaded.registry.stores());
    for (saved, loaded) in stores {
        for (index, info) in saved.parameters().iter().enumerate() {
            assert_eq!(saved.choice(index), loaded.choice(index), "{name}");
            let Some(dtype) = saved.dtype_of(index) else { continue };
            let (packing, bytes, scales) = saved.version(dtype, index)?;
            let (same, kept, kept_scales) = loaded.version(dtype, index)?;
            assert_eq!(packing, same, "{name}: {}", info.name);
            assert!(bytes == kept, "{name}: other codes of {} in {dtype}", info.name);
            let bits = |scales: &[f32]| scales.iter().map(|scale| scale.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(scales), bits(kept_scales), "{name}: other scales of {} in {dtype}", info.name);
            assert_eq!(packing.nbytes(), bytes.len() + scales.len() * 4, "{name}");
        }
    }
    let before = network.predict(tensor_view(&shape, &input)?)?;
    let after = loaded.predict(tensor_view(&shape, &input)?)?;
    assert!(before.to_f64() == after.to_f64(), "{name}: a loaded network differs");
    Ok(())
}

/// Whether the layer has anything to pack.
pub(super) fn has_weights(sample: &Sample) -> Result<bool> {
    let place = packed(sample, DType::Int8, None)?;
    let store = place.network.weights(place.cell, place.layer)?;
    let packed =
        store.is_some_and(|store| (0..store.parameters().len()).any(|i| store.dtype_of(i).is_some()));
    assert!(packed || place.network.parameter_names(place.cell, place.layer)?.is_empty());
    Ok(packed)
}

#[test]
fn packed_weights_compute_what_they_hold() {
    for dtype in [DType::BFloat16, DType::Int8] {
        for_every_sample(|name, sample| computes_what_it_holds(name, sample, dtype));
    }
    for_every_kind(|name, sample| {
        if has_weights(sample)? {
            for dtype in DType::all() {
                computes_what_it_holds(name, sample, dtype)?;
            }
        }
        Ok(())
    });
}

#[test]
fn files_keep_packed_weights() {
    for_every_kind(|name, sample| {
        if has_weights(sample)? {
            for dtype in DType::all() {
                files_keep_bytes(name, sample, dtype, None)?;
            }
            for granularity in [Granularity::Tensor, Granularity::Block(2)] {
                files_keep_bytes(name, sample, DType::Uint4, Some(granularity))?;
            }
        }
        Ok(())
    });
}

/// The same on a GPU, within what the layer's sums may differ by. Of a layer's types only every `nth` is tried,
/// of the next layer's the ones after those.
#[cfg(feature = "gpu")]
fn gpus_decode_types(nth: usize) {
    if crate::gpu::testing::gpu().is_none() {
        return;
    }
    let layers = std::cell::Cell::new(0);
    for_every_kind(|name, sample| {
        if !has_weights(sample)? {
            return Ok(());
        }
        let layer = layers.replace(layers.get() + 1);
        let input = single(sample);
        let own = DType::all().map(|dtype| (dtype, None));
        let others = [Granularity::Tensor, Granularity::Block(2)].map(|asked| (DType::Uint4, Some(asked)));
        for (dtype, granularity) in own.chain(others).skip(layer % nth).step_by(nth) {
            let mut host = packed(sample, dtype, granularity)?;
            let expected = on_device(&mut host.network, sample, &input)?;
            let mut device = packed(sample, dtype, granularity)?;
            device.network.to("gpu:0")?;
            let found = on_device(&mut device.network, sample, &input)?;
            compare(&format!("{name} in {dtype} on a GPU"), &found, &expected, sample.tolerance);
        }
        Ok(())
    });
}

#[cfg(feature = "gpu")]
#[test]
fn gpus_decode_types_in_turn_in_every_layer() {
    gpus_decode_types(13);
}

#[cfg(feature = "gpu")]
#[test]
#[ignore = "a soak: make soak"]
fn gpus_decode_every_type_in_every_layer() {
    gpus_decode_types(1);
}

/// Quantisation-aware training through every type: the masters that a few steps leave, on either device.
#[cfg(feature = "gpu")]
#[test]
fn gpus_train_through_every_type() {
    use crate::layers::Dense;
    use crate::ops::pointwise::Activation;
    use crate::train::{Examples, TrainingConfig, train};
    if crate::gpu::testing::gpu().is_none() {
        return;
    }
    let input: Vec<f32> = (0..40 * 7).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let target: Vec<f32> = (0..40 * 3).map(|i| (i * 53 % 89) as f32 / 44.0 - 1.0).collect();
    let trained = |dtype: DType, device: &str| -> Result<(Network, Vec<f64>)> {
        let mut network = Network::with_options([7], [1, 1, 1], Precision::Float32, 3)?;
        network.add([0, 0, 0], Dense::new(9).activation(Activation::Tanh))?;
        network.add([0, 0, 0], Dense::new(3))?;
        network.morph(dtype)?;
        network.to(device)?;
        let examples = Examples::regression(tensor_view(&[40, 7], &input)?, tensor_view(&[40, 3], &target)?);
        train(&mut network, &examples, &TrainingConfig { epochs: 3, batch_size: 8, ..Default::default() })?;
        let made = network.predict(tensor_view(&[40, 7], &input)?)?.to_f64();
        Ok((network, made))
    };
    for (number, dtype) in DType::all().enumerate() {
        if !crate::gpu::testing::in_part(number, 2) {
            continue;
        }
        let (_, expected) = trained(dtype, "cpu").unwrap();
        let (network, found) = trained(dtype, "gpu:0").unwrap();
        // A master at a tie may be encoded as the next code.
        let tolerance = if dtype.row().bits < 8 { 0.3 } else { 0.02 };
        assert_close(&format!("trained through {dtype}"), &found, &expected, tolerance);
        // What the GPU reads is what its masters are encoded as.
        let mut again = network;
        again.to("cpu").unwrap();
        let read = again.predict(tensor_view(&[40, 7], &input).unwrap()).unwrap().to_f64();
        assert_close(&format!("{dtype} brought back"), &read, &found, 1e-5);
    }
}

/// What is told of a layer is what it holds.
#[test]
fn layers_tell_the_types_that_they_hold() {
    for_every_kind(|name, sample| {
        let Place { mut network, cell, layer } = place(sample, Precision::Float32)?;
        let named = named_alone(&network, cell, layer)?;
        let at = [cell[0], cell[1], cell[2], layer];
        let told = |network: &mut Network| -> Result<(Option<String>, String)> {
            let row = network.summary_rows()?.into_iter().find(|row| row.at == at);
            Ok((network.layer_dtype(cell, layer)?, row.map(|row| row.dtype).unwrap_or_default()))
        };
        let parameters = network.parameter_names(cell, layer)?;
        if parameters.is_empty() {
            assert_eq!(told(&mut network)?, (None, "-".into()), "{name}");
            return Ok(());
        }
        assert_eq!(told(&mut network)?, (Some("float32".into()), "float32".into()), "{name}");
        network.morph(DType::Int4)?;
        let expected = if named.is_empty() { "int4" } else { "float32" };
        assert_eq!(told(&mut network)?, (Some(expected.into()), expected.into()), "{name}");
        // Every parameter by name, and then the first in a type of its own.
        let here = |placed: &PlacedLayer| placed.path().indices() == at;
        let all: Vec<&str> = parameters.iter().map(String::as_str).collect();
        network.morph_layers(
            Morph { dtype: DType::Int8, numerics: Numerics::default(), parameters: Some(&all) },
            here,
        )?;
        assert_eq!(told(&mut network)?, (Some("int8".into()), "int8".into()), "{name}");
        network.morph_layers(
            Morph { dtype: DType::Uint4, numerics: Numerics::default(), parameters: Some(&all[..1]) },
            here,
        )?;
        let (_, row) = told(&mut network)?;
        let expected = match all.split_first() {
            Some((first, rest)) if !rest.is_empty() => format!("uint4: {first}; int8: {}", rest.join(", ")),
            _ => "uint4".into(),
        };
        assert_eq!(row, expected, "{name}");
        Ok(())
    });
}
