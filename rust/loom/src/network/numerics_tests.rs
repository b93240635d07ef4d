//! Activations quantised for inference, from the network's side.

use super::{Morph, Network, Numerics};
use crate::dtype::DType;
use crate::io::SaveOptions;
use crate::layers::{Conv2D, ConvTranspose2D, Dense, Flatten, Lstm, Reshape};
use crate::matrix::{Bias, IntegerWeight, Output, Start, integer_product};
use crate::ops::pointwise::Activation;
use crate::simd::Cpu;
use crate::tensor::{Precision, Tensor};
use crate::{Error, tensor_view};

fn int8() -> Numerics {
    Numerics { activations: Some(DType::Int8), ..Numerics::default() }
}

const INPUTS: usize = 12;

fn network(precision: Precision) -> Network {
    let mut network = Network::with_options([INPUTS], [1, 1, 1], precision, 5).unwrap();
    network.add([0, 0, 0], Dense::new(40).activation(Activation::Tanh)).unwrap();
    network.add([0, 0, 0], Dense::new(7)).unwrap();
    network.build().unwrap();
    network
}

fn x(rows: usize) -> Vec<f32> {
    (0..rows * INPUTS).map(|i| ((i * 37) % 23) as f32 / 11.0 - 1.0).collect()
}

fn predict(network: &Network, x: &[f32]) -> Vec<f32> {
    match network.predict(tensor_view(&[x.len() / INPUTS, INPUTS], x).unwrap()).unwrap() {
        Tensor::Float32(_, elements) => elements,
        Tensor::Float64(..) => panic!("a network in single precision"),
    }
}

/// One layer's product as the kernel computes it from its packed weight.
fn layer(network: &mut Network, number: usize, x: &[f32], outputs: usize) -> Vec<f32> {
    let packed = network.packed_parameter([0, 0, 0], number, "weight").unwrap().unwrap();
    let weight = IntegerWeight::new(packed.packing, &packed.bytes, &packed.scales).unwrap();
    let bias = match network.active_parameter([0, 0, 0], number, "bias").unwrap() {
        Tensor::Float32(_, elements) => elements,
        Tensor::Float64(..) => panic!("a network in single precision"),
    };
    let rows = x.len() / packed.packing.rows;
    let mut y = vec![0.0; rows * outputs];
    let out = Output::new(&mut y, rows, outputs);
    integer_product(Cpu::global().unwrap(), x, &weight, Start::Zero, &Bias::Columns(&bias), out);
    y
}

#[test]
fn inference_computes_quantised_products_and_a_row_alone_has_its_bits() {
    for dtype in IntegerWeight::TYPES {
        let mut network = network(Precision::Float32);
        network.morph_layers(Morph { numerics: int8(), ..Morph::new(dtype) }, |_| true).unwrap();
        let x = x(5);
        let mut hidden = layer(&mut network, 0, &x, 40);
        Activation::Tanh.apply(Cpu::global().unwrap().isa(), &mut hidden);
        let expected = layer(&mut network, 1, &hidden, 7);
        let found = predict(&network, &x);
        assert_eq!(found, expected, "{dtype}");
        for (row, expected) in x.chunks_exact(INPUTS).zip(expected.chunks_exact(7)) {
            assert_eq!(predict(&network, row), expected, "{dtype}");
        }
        // Without, activations are in float: near, but not the same.
        network.morph(dtype).unwrap();
        let float = predict(&network, &x);
        assert_ne!(float, found, "{dtype}");
        assert!(float.iter().zip(&found).all(|(a, b)| (a - b).abs() < 0.05), "{dtype}");
    }
}

#[test]
fn files_and_configs_keep_it() {
    let mut network = network(Precision::Float32);
    network
        .morph_layers(Morph { numerics: int8(), ..Morph::new(DType::Int4) }, |placed| {
            placed.path().indices()[3] == 1
        })
        .unwrap();
    let expected = predict(&network, &x(3));
    let kept: Vec<_> = network.config().settings.iter().map(|layer| layer.activations).collect();
    assert_eq!(kept, [Some(DType::Int8)]);
    let bytes = network.to_bytes(SaveOptions::default()).unwrap();
    let loaded = Network::from_bytes(&bytes).unwrap();
    assert_eq!(predict(&loaded, &x(3)), expected);
    let mut again = Network::from_json(&network.to_json().unwrap()).unwrap();
    again.build().unwrap();
    assert_eq!(predict(&again, &x(3)), expected);
    // The masters have no codes to multiply.
    network.morph(DType::Float32).unwrap();
    assert!(network.config().settings.is_empty());
}

#[test]
fn what_cannot_be_is_refused_by_name_and_changes_nothing() {
    let refused = |network: &mut Network, dtype: DType, numerics: Numerics, words: &[&str]| {
        let error = network.morph_layers(Morph { numerics, ..Morph::new(dtype) }, |_| true).unwrap_err();
        let message = error.to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert!(network.config().settings.is_empty());
        error
    };
    let mut dense = network(Precision::Float32);
    for dtype in [DType::Uint8, DType::Float16, DType::Float8E4M3, DType::Int16, DType::Uint2] {
        let error = refused(&mut dense, dtype, int8(), &[dtype.name(), "int8", "q4_0"]);
        assert!(matches!(error, Error::DType(_)));
    }
    refused(&mut dense, DType::Float32, int8(), &["needs packed weights", "ternary"]);
    let int4 = Numerics { activations: Some(DType::Int4), ..int8() };
    refused(&mut dense, DType::Int8, int4, &["int8 only", "int4"]);
    refused(&mut network(Precision::Float64), DType::Int8, int8(), &["float64"]);

    let mut transposed = Network::new([1, 6, 6], [1, 1, 1]).unwrap();
    transposed.add([0, 0, 0], ConvTranspose2D::new(3, [3, 3])).unwrap();
    transposed.add([0, 0, 0], Flatten {}).unwrap();
    transposed.add([0, 0, 0], Dense::new(2)).unwrap();
    transposed.build().unwrap();
    refused(&mut transposed, DType::Int8, int8(), &["transposed convolution", "choose the other"]);
    transposed
        .morph_layers(Morph { numerics: int8(), ..Morph::new(DType::Int8) }, |placed| {
            placed.path().indices()[3] == 2
        })
        .unwrap();
}

/// A network with a convolution and a recurrence, whose inputs and states are quantised, too.
fn of_many_kinds() -> Network {
    let mut network = Network::with_options([1, 6, 8], [1, 1, 1], Precision::Float32, 5).unwrap();
    network.add([0, 0, 0], Conv2D::new(4, [3, 3]).activation(Activation::Tanh)).unwrap();
    network.add([0, 0, 0], Reshape::new([4, 24])).unwrap();
    network.add([0, 0, 0], Lstm::new(9)).unwrap();
    network.add([0, 0, 0], Dense::new(3)).unwrap();
    network.build().unwrap();
    network
}

fn image(rows: usize) -> Vec<f32> {
    (0..rows * 48).map(|i| ((i * 37) % 23) as f32 / 11.0 - 1.0).collect()
}

fn made(network: &Network, x: &[f32]) -> Vec<f32> {
    network.predict(tensor_view(&[x.len() / 48, 1, 6, 8], x).unwrap()).unwrap().to_f32()
}

#[test]
fn convolutions_and_states_are_quantised() {
    let (mut float, mut network) = (of_many_kinds(), of_many_kinds());
    float.morph(DType::Int8).unwrap();
    network.morph_layers(Morph { numerics: int8(), ..Morph::new(DType::Int8) }, |_| true).unwrap();
    let (expected, found) = (made(&float, &image(5)), made(&network, &image(5)));
    assert_ne!(expected, found);
    assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 0.05), "{expected:?} {found:?}");
    for (row, expected) in image(5).chunks_exact(48).zip(found.chunks_exact(3)) {
        assert_eq!(made(&network, row), expected);
    }
    let loaded = Network::from_bytes(&network.to_bytes(SaveOptions::default()).unwrap()).unwrap();
    assert_eq!(made(&loaded, &image(5)), found);
    // By name: the state's product alone.
    let mut one = of_many_kinds();
    one.morph(DType::Int8).unwrap();
    let lstm = |placed: &super::PlacedLayer| placed.path().indices()[3] == 2;
    one.morph_layers(
        Morph { dtype: DType::Int8, numerics: int8(), parameters: Some(&["weight_hh_l0"]) },
        lstm,
    )
    .unwrap();
    let named = made(&one, &image(5));
    assert!(named != expected && named != found);
    if crate::device::testing::gpu().is_some() {
        network.to("gpu:0").unwrap();
        let near = made(&network, &image(5));
        assert!(near.iter().zip(&found).all(|(a, b)| (a - b).abs() < 5e-3), "{near:?} {found:?}");
    }
}

/// Codes of the second layer may differ by one where the first one's activation does in its last bits.
#[cfg(feature = "gpu")]
#[test]
fn a_gpu_computes_the_same() {
    if crate::gpu::testing::gpu().is_none() {
        return;
    }
    let mut network = network(Precision::Float32);
    network.morph_layers(Morph { numerics: int8(), ..Morph::new(DType::Int8) }, |_| true).unwrap();
    let expected = predict(&network, &x(9));
    network.to("gpu:0").unwrap();
    let found = predict(&network, &x(9));
    assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 2e-3), "{found:?} {expected:?}");
}
