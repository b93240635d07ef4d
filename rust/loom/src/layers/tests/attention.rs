//! Sessions, places and tied tables of a small language model.

use crate::layers::{
    Embedding, MultiHeadAttention, PositionalEmbedding, RotaryConfig, SinusoidalPositions, SwiGLU, TiedHead,
};
use crate::tensor::Precision;
use crate::{Network, Result, tensor_view};

/// A small language model of everything that places matter to.
fn model(time: usize) -> Result<Network> {
    let (vocabulary, width) = (13, 8);
    let attention = MultiHeadAttention::new(4).key_value_heads(2).causal().rotary(RotaryConfig::default());
    let mut network = Network::sequential([time])?;
    let cell = [0, 0, 0];
    network.add(cell, Embedding::new(vocabulary, width))?;
    network.add(cell, PositionalEmbedding::new(200))?;
    network.add(cell, SinusoidalPositions { max_time: 200, ..SinusoidalPositions::default() })?;
    network.add(cell, attention.clone())?;
    network.add(cell, SwiGLU::new(11))?;
    network.add(cell, MultiHeadAttention { window: Some(5), ..attention })?;
    network.add(cell, TiedHead::new(vocabulary, [0, 0, 0, 0]))?;
    network.build()?;
    Ok(network)
}

#[test]
fn sessions_have_the_bits_of_the_whole() -> Result<()> {
    let time = 150;
    let mut network = model(time)?;
    let tokens: Vec<f32> = (0..2 * time).map(|i| ((i * i + i / 7) % 13) as f32).collect();
    let whole = network.predict(tensor_view(&[2, time], &tokens)?)?.to_f32();
    let mut session = network.session(2, time)?;
    let mut start = 0;
    for steps in [1, 1, 5, 70, 1, 72] {
        let part: Vec<f32> = (0..2).flat_map(|row| tokens[row * time + start..][..steps].to_vec()).collect();
        let found = session.advance(&network, tensor_view(&[2, steps], &part)?)?.to_f32();
        for row in 0..2 {
            let expected = &whole[(row * time + start) * 13..][..steps * 13];
            let found = &found[row * steps * 13..][..steps * 13];
            let same = found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "steps {start} to {} of row {row}", start + steps);
        }
        start += steps;
    }
    assert_eq!(start, time);
    Ok(())
}

#[cfg(feature = "gpu")]
#[test]
fn sessions_on_a_gpu_agree_with_the_whole() -> Result<()> {
    if crate::gpu::testing::gpu().is_none() {
        return Ok(());
    }
    let time = 20;
    let mut network = model(time)?;
    let tokens: Vec<f32> = (0..time).map(|i| ((i * i + 3) % 13) as f32).collect();
    let whole = network.predict(tensor_view(&[1, time], &tokens)?)?.to_f32();
    network.to("gpu")?;
    let mut session = network.session(1, 30)?;
    let mut found = Vec::new();
    for part in [&tokens[..9], &tokens[9..10], &tokens[10..]] {
        found.extend(session.advance(&network, tensor_view(&[1, part.len()], part)?)?.to_f32());
    }
    for (i, (found, expected)) in found.iter().zip(&whole).enumerate() {
        assert!((found - expected).abs() < 1e-4, "score {i}: {found} for {expected}");
    }
    Ok(())
}

#[test]
fn sessions_are_no_longer_than_there_are_places() -> Result<()> {
    let mut network = model(10)?;
    let mut session = network.session(1, 201)?;
    let error = session.advance(&network, tensor_view(&[1, 1], &[3.0f32])?).unwrap_err();
    assert!(error.to_string().contains("places for 200 steps"), "{error}");
    let mut network = Network::sequential([2, 4])?;
    let mask = Some(vec![vec![1; 3]; 3]);
    network.add([0, 0, 0], MultiHeadAttention { mask, ..MultiHeadAttention::new(2).causal() })?;
    let mut session = network.session(1, 4)?;
    let error = session.advance(&network, tensor_view(&[1, 1, 4], &[0.5f32; 4])?).unwrap_err();
    assert!(error.to_string().contains("a mask of 3 by 3"), "{error}");
    Ok(())
}

#[test]
fn tied_tables_gather_both_gradients() -> Result<()> {
    let (vocabulary, width) = (5, 3);
    let mut network = Network::with_options([2], [1, 1, 1], Precision::Float64, 3)?;
    let cell = [0, 0, 0];
    network.add(cell, Embedding::new(vocabulary, width))?;
    network.add(cell, TiedHead::new(vocabulary, [0, 0, 0, 0]))?;
    network.build()?;
    let tokens = [1.0, 4.0];
    let weights: Vec<f64> = (0..10).map(|i| f64::from(i % 4) - 1.5).collect();
    let table = network.parameter(cell, 0, "weight")?.to_f64();
    network.forward(tensor_view(&[1, 2], &tokens)?)?;
    network.backward(tensor_view(&[1, 2, 5], &weights)?)?;
    let found = network.gradient(cell, 0, "weight")?.to_f64();
    let mut objective = |table: &[f64]| -> Result<f64> {
        network.set_parameter(cell, 0, "weight", tensor_view(&[vocabulary, width], table)?)?;
        let y = network.predict(tensor_view(&[1, 2], &tokens)?)?.to_f64();
        Ok(y.iter().zip(&weights).map(|(y, w)| y * w).sum())
    };
    for i in 0..table.len() {
        let mut moved = [table.clone(), table.clone()];
        moved[0][i] += 1e-5;
        moved[1][i] -= 1e-5;
        let expected = (objective(&moved[0])? - objective(&moved[1])?) / 2e-5;
        assert!((found[i] - expected).abs() < 1e-8, "element {i}: {} for {expected}", found[i]);
    }
    Ok(())
}
