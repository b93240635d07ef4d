//! A network without its full-precision masters: it infers as before, and refuses the rest.

use loom::dtype::DType;
use loom::io::SaveOptions;
use loom::layers::Dense;
use loom::ops::pointwise::Activation;
use loom::train::{Examples, LossConfig, TrainingConfig, train};
use loom::{Error, Network, Result, TensorView, tensor_view};

const INPUT: [f32; 8] = [0.0, 1.0, -1.0, 0.5, 0.25, 2.0, -3.0, 0.125];

fn input() -> Result<TensorView<'static>> {
    tensor_view(&[2, 4], &INPUT)
}

fn network() -> Result<Network> {
    let mut network = Network::with_options([4], [1, 1, 2], Default::default(), 5)?;
    network.add([0, 0, 0], Dense::new(8).activation(Activation::Tanh))?;
    network.add([0, 0, 1], Dense::new(3))?;
    network.build()?;
    Ok(network)
}

#[test]
fn masters_are_kept_while_they_are_read() -> Result<()> {
    let mut network = network()?;
    let before = network.predict(input()?)?;
    let error = network.drop_masters().unwrap_err();
    assert!(matches!(error, Error::State(_)) && error.to_string().contains("cell (0, 0, 0)"), "{error}");
    // One layer packed is not enough, and the refusal drops nothing.
    network.morph_where(DType::Int8, |placed| placed.path().indices()[2] == 0)?;
    assert!(matches!(network.drop_masters(), Err(Error::State(_))));
    network.morph(DType::Float32)?;
    assert_eq!(network.predict(input()?)?, before);
    Ok(())
}

#[test]
fn inference_goes_on_and_training_is_refused() -> Result<()> {
    for dtype in [DType::Int8, DType::BFloat16] {
        let mut network = network()?;
        network.morph(dtype)?;
        let before = network.predict(input()?)?;
        network.drop_masters()?;
        assert_eq!(network.predict(input()?)?, before);
        let examples = Examples::classified(input()?, &[0, 2]);
        let config =
            TrainingConfig { loss: LossConfig::parse("cross_entropy")?, ..TrainingConfig::default() };
        for refused in [
            train(&mut network, &examples, &config).map(|_| ()),
            network.morph(DType::Float32),
            network.morph(DType::Float16),
            network.parameter([0, 0, 0], 0, "weight").map(|_| ()),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::State(_)) && error.to_string().contains("dropped"), "{error}");
        }
        assert_eq!(network.predict(input()?)?, before);
        assert_eq!(network.active_parameter([0, 0, 0], 0, "weight")?.shape(), [8, 4]);
    }
    Ok(())
}

#[test]
fn a_file_without_masters_is_smaller_and_infers_the_same() -> Result<()> {
    let mut network = network()?;
    network.morph(DType::Int8)?;
    let whole = network.to_bytes(SaveOptions::default())?;
    let before = network.predict(input()?)?;
    network.drop_masters()?;
    let packed = network.to_bytes(SaveOptions::default())?;
    let masters = (4 * 8 + 8 * 3) * size_of::<f32>();
    assert!(packed.len() + masters <= whole.len(), "{} bytes, {} with masters", packed.len(), whole.len());
    let mut loaded = Network::from_bytes(&packed)?;
    assert_eq!(loaded.predict(input()?)?, before);
    assert!(matches!(loaded.morph(DType::Float32), Err(Error::State(_))));
    Ok(())
}
