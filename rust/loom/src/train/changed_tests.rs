//! A network that is changed between two calls of whoever trains, evaluates or goes on through it: the next call takes
//! it as it is, or says that it has changed.

use super::landing_tests::saved;
use super::*;
use crate::dtype::DType;
use crate::io::SaveOptions;
use crate::layers::{Dense, Lstm};
use crate::network::Incoming;
use crate::ops::pointwise::Activation;
use crate::tensor::{Precision, Tensor};
use crate::tensor_view;
use crate::{Error, Network, Result};

const AT: [usize; 3] = [0, 0, 0];
const ROWS: usize = 4;
const INPUT: [usize; 3] = [ROWS, 3, 4];

type Change = fn(&mut Network) -> Result<()>;

/// What others may do to a network while it is being trained.
const CHANGES: [(&str, Change); 6] = [
    ("bfloat16", |network| network.morph(DType::BFloat16)),
    ("int8", |network| network.morph(DType::Int8)),
    ("float32", |network| network.morph(DType::Float32)),
    ("kept from training", |network| network.set_trainable(AT, 0, false)),
    ("another optimizer", |network| network.set_optimizer(Optimizer::adam())),
    ("another layer", |network| network.insert(AT, 1, Incoming::fresh(Dense::new(6)))),
];

fn batch() -> (Vec<f32>, Vec<i32>) {
    let input =
        (0..INPUT.iter().product()).map(|i: usize| ((i as f32 + 1.0) * 0.618).fract() - 0.5).collect();
    (input, vec![0, 2, 1, 2])
}

fn network() -> Result<Network> {
    let mut network = Network::with_options([3, 4], [1, 1, 1], Precision::Float32, 5)?;
    network.add(AT, Lstm::new(6))?;
    network.add(AT, Dense::new(5).activation(Activation::Tanh))?;
    network.add(AT, Dense::new(3))?;
    network.build()?;
    Ok(network)
}

fn config(optimizer: Optimizer) -> Result<TrainingConfig> {
    Ok(TrainingConfig {
        loss: LossConfig::parse("cross_entropy")?,
        batch_size: ROWS,
        learning_rate: 0.05,
        optimizer,
        ..TrainingConfig::default()
    })
}

fn momentum() -> Optimizer {
    Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, decay_exempt: false }
}

/// A copy of all that a network saves.
fn copy(network: &mut Network) -> Result<Network> {
    Network::from_bytes(&network.to_bytes(SaveOptions::resumable())?)
}

#[test]
fn a_step_is_that_of_the_network_as_it_is_now() -> Result<()> {
    let (input, labels) = batch();
    let examples = Examples::classified(tensor_view(&INPUT, &input)?, &labels);
    let step = [(&examples, Rows::First(ROWS))];
    // Each change comes after each other one.
    for (first, change) in CHANGES {
        for (second, again) in CHANGES {
            let mut network = network()?;
            let mut trainer = Trainer::new(&mut network, &config(momentum())?, &examples, 100)?;
            trainer.step(&mut network, &step)?;
            for change in [change, again] {
                change(&mut network)?;
                let mut other = copy(&mut network)?;
                let options = TrainerOptions { total_steps: 100, resume: true, ..TrainerOptions::default() };
                let mut anew = Trainer::with_options(&mut other, &config(momentum())?, &examples, options)?;
                let (found, wanted) = (trainer.step(&mut network, &step)?, anew.step(&mut other, &step)?);
                assert_eq!(found, wanted, "{first}, {second}");
                assert_eq!(saved(&mut network, true)?, saved(&mut other, true)?, "{first}, {second}");
                assert_eq!(
                    network.predict(tensor_view(&INPUT, &input)?)?,
                    other.predict(tensor_view(&INPUT, &input)?)?,
                    "{first}, {second}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn trainings_that_take_turns_go_on_or_say_whose_moments_there_are() -> Result<()> {
    let (input, labels) = batch();
    let examples = Examples::classified(tensor_view(&INPUT, &input)?, &labels);
    let step = [(&examples, Rows::First(ROWS))];
    for (of_other, works) in [(momentum(), true), (Optimizer::adam(), false), (Optimizer::sgd(), false)] {
        let mut network = network()?;
        let mut trainer = Trainer::new(&mut network, &config(momentum())?, &examples, 100)?;
        trainer.step(&mut network, &step)?;
        let mut other = Trainer::new(&mut network, &config(of_other)?, &examples, 100)?;
        other.step(&mut network, &step)?;
        match (trainer.step(&mut network, &step), works) {
            (Ok(_), true) => {}
            (Err(Error::State(message)), false) => assert!(message.contains("optimizer state"), "{message}"),
            (found, _) => panic!("{found:?}"),
        }
        network.predict(tensor_view(&INPUT, &input)?)?;
        other.step(&mut network, &step)?;
    }
    Ok(())
}

#[test]
fn learning_by_targets_says_that_its_step_is_of_another_network() -> Result<()> {
    let (input, labels) = batch();
    let target = || Targets::Classes { shape: vec![ROWS], labels: &labels };
    for (name, change) in CHANGES {
        let mut network = network()?;
        let settings = TrainingConfig { tween: Some(TweenConfig::tween()), ..config(Optimizer::sgd())? };
        let mut state = TweenState::new(&mut network, &settings, false)?;
        let view = || tensor_view(&INPUT, &input);
        state.step(&mut network, view()?, target(), None)?;
        for changed_before in 0..3 {
            state.forward(&mut network, view()?)?;
            if changed_before > 0 {
                state.backward(&mut network, target(), None)?;
            }
            if changed_before > 1 {
                state.measure(&mut network)?;
            }
            change(&mut network)?;
            let refused = match changed_before {
                0 => state.backward(&mut network, target(), None).map(|_| ()),
                1 => state.measure(&mut network),
                _ => state.apply(&mut network, None).map(|_| ()),
            };
            assert!(matches!(refused, Err(Error::State(_))), "{name}: {refused:?}");
            state.step(&mut network, view()?, target(), None)?;
            network.predict(view()?)?;
        }
    }
    Ok(())
}

#[test]
fn an_evaluation_goes_on_with_the_network_as_it_is_now() -> Result<()> {
    let (input, labels) = batch();
    let examples = Examples::classified(tensor_view(&INPUT, &input)?, &labels);
    for (name, change) in CHANGES {
        let mut network = network()?;
        let settings = config(Optimizer::sgd())?;
        let mut evaluator = Evaluator::new(&network, &settings)?;
        evaluator.update(&network, &examples, ROWS)?;
        let before = evaluator.finish()?.loss;
        change(&mut network)?;
        if !network.is_built() {
            assert!(matches!(evaluator.update(&network, &examples, ROWS), Err(Error::State(_))), "{name}");
            network.build()?;
        }
        evaluator.update(&network, &examples, ROWS)?;
        let after = evaluate(&network, &examples, &settings)?.loss;
        assert_eq!(evaluator.finish()?.loss, (before * 4.0 + after * 4.0) / 8.0, "{name}");
    }
    Ok(())
}

#[test]
fn a_session_says_that_it_has_begun_with_other_weights() -> Result<()> {
    let sequence = |network: &mut Network| -> Result<()> {
        network.add(AT, Lstm::new(6).return_sequences())?;
        network.add(AT, Dense::new(3))?;
        network.build()
    };
    let steps: Vec<f32> = batch().0[..8].to_vec();
    let view = || tensor_view(&[1, 2, 4], &steps);
    for first in [DType::Float32, DType::BFloat16, DType::Int8] {
        for then in [DType::Float32, DType::BFloat16, DType::Int8] {
            let mut network = Network::with_options([3, 4], [1, 1, 1], Precision::Float32, 5)?;
            sequence(&mut network)?;
            network.morph(first)?;
            let mut session = network.session(1, 8)?;
            session.advance(&network, view()?)?;
            network.morph(then)?;
            let refused = session.advance(&network, view()?);
            assert!(matches!(refused, Err(Error::State(_))), "{first} {then}: {refused:?}");
            session.reset(&network)?;
            let anew = network.session(1, 8)?.advance(&network, view()?)?;
            assert_eq!(session.advance(&network, view()?)?, anew);
        }
    }
    Ok(())
}

#[test]
fn what_is_older_than_its_master_is_packed_anew_or_says_so() -> Result<()> {
    let (input, _) = batch();
    let predicted = |network: &Network| -> Result<Tensor> { network.predict(tensor_view(&INPUT, &input)?) };
    let mut network = network()?;
    network.morph(DType::Float16)?;
    let before = predicted(&network)?;
    // As an update leaves it that has failed half way.
    network.registry.stores[0].master_buffer_mut()?;
    assert!(matches!(predicted(&network), Err(Error::State(message)) if message.contains("half way")));
    network.mend();
    assert_eq!(predicted(&network)?, before);
    // One weight is beyond what its type holds; the others are packed all the same.
    let weights = network.registry.stores[0].master_buffer_mut()?.as_mut_slice::<f32>();
    let was = std::mem::replace(&mut weights[0], 1e30);
    network.mend();
    assert!(matches!(predicted(&network), Err(Error::State(message)) if message.contains("float16")));
    network.registry.stores[0].master_buffer_mut()?.as_mut_slice::<f32>()[0] = was;
    network.mend();
    assert_eq!(predicted(&network)?, before);
    Ok(())
}
