//! Threads that share networks: several look at one at once, one at a time changes it, and all of them share one thread
//! pool. Whatever each comes to is what comes of the same calls made alone, in the order of the changes: the same bits,
//! or the same refusal.

use loom::dtype::DType;
use loom::io::SaveOptions;
use loom::layers::{Conv2D, Dense, Dropout, Flatten, LayerNorm, Lstm};
use loom::network::LayerValue;
use loom::ops::pointwise::Activation;
use loom::program::LayerPath;
use loom::train::{Examples, LossConfig, Optimizer, TrainingConfig, evaluate, train};
use loom::{Network, Precision, Result, Tensor, tensor_view};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const CLASSES: usize = 3;
const MOST_ROWS: usize = 40;
const TYPES: [DType; 5] = [DType::Float32, DType::BFloat16, DType::Int8, DType::Int4, DType::Nf4];

/// SplitMix64.
#[derive(Clone)]
struct Draw(u64);

impl Draw {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.word() % bound as u64) as usize
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.word() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }
}

/// A network of one of several kinds, small and large enough for work to be shared out to threads.
fn network(kind: usize, precision: Precision) -> Result<Network> {
    let shape: &[usize] = [&[12][..], &[2, 6, 6], &[5, 8]][kind % 3];
    let mut network = Network::with_options(shape, [1, 1, 1], precision, 7)?;
    let at = [0, 0, 0];
    match kind % 3 {
        0 => {
            network.add(at, Dense::new(256).activation(Activation::Relu))?;
            network.add(at, Dropout { rate: 0.2 })?;
            network.add(at, LayerNorm::default())?;
        }
        1 => {
            network.add(at, Conv2D::new(8, [3, 3]).activation(Activation::Gelu))?;
            network.add(at, Flatten {})?;
        }
        _ => {
            network.add(at, Lstm::new(16))?;
            network.add(at, Dense::new(16).activation(Activation::Tanh))?;
        }
    }
    network.add(at, Dense::new(CLASSES))?;
    network.build()?;
    Ok(network)
}

/// Rows for a network, and labels.
fn rows(network: &Network, seed: u64) -> (Vec<usize>, Vec<f32>, Vec<i32>) {
    let mut draw = Draw(seed);
    let count = 1 + draw.below(MOST_ROWS);
    let shape = [&[count], &network.input_shape()[..]].concat();
    let input = draw.numbers(shape.iter().product());
    (shape, input, (0..count).map(|_| draw.below(CLASSES) as i32).collect())
}

fn config(draw: &mut Draw) -> Result<TrainingConfig> {
    let optimizers = [Optimizer::default(), Optimizer::adam(), Optimizer::rms_prop()];
    Ok(TrainingConfig {
        epochs: 1,
        batch_size: 1 + draw.below(MOST_ROWS),
        learning_rate: 0.01,
        loss: LossConfig::parse("cross_entropy")?,
        optimizer: optimizers[draw.below(optimizers.len())].clone(),
        seed: draw.word(),
        ..TrainingConfig::default()
    })
}

fn bits(tensor: &Tensor) -> String {
    let bits: Vec<String> = tensor.to_f64().iter().map(|value| format!("{:x}", value.to_bits())).collect();
    format!("{:?} {}", tensor.shape(), bits.join(" "))
}

/// What several threads may do at once. All that it draws comes from the seed, so that it can be done again.
fn look(network: &Network, seed: u64) -> Result<String> {
    let mut draw = Draw(seed);
    let (shape, input, labels) = rows(network, draw.word());
    let view = tensor_view(&shape, &input)?;
    Ok(match draw.below(7) {
        0..=2 => bits(&network.predict(view)?),
        3 => bits(&network.predict_batched(view, 1 + draw.below(8))?),
        4 => {
            let examples = Examples::classified(view, &labels);
            format!("{:x}", evaluate(network, &examples, &config(&mut draw)?)?.loss.to_bits())
        }
        5 => {
            let gradient = draw.numbers(shape[0] * network.output_shape().len());
            let extents = [&[shape[0]], &network.output_shape()[..]].concat();
            bits(&network.input_gradient(view, tensor_view(&extents, &gradient)?, 16)?)
        }
        _ => {
            let layers: Vec<LayerPath> = network.layers().map(|placed| placed.path().clone()).collect();
            let asked = layers[draw.below(layers.len())].clone();
            let found = network.layer_values(view, 16, &[(asked, LayerValue::Output)])?;
            found.iter().map(bits).collect()
        }
    })
}

/// What one thread does while no other looks.
fn change(network: &mut Network, seed: u64) -> Result<String> {
    let mut draw = Draw(seed);
    let at = [0, 0, 0];
    let layer = draw.below(network.cell_len(at)?);
    match draw.below(10) {
        0..=2 => {
            let (shape, input, labels) = rows(network, draw.word());
            let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
            let result = train(network, &examples, &config(&mut draw)?)?;
            return Ok(format!("{:x}", result.final_loss.to_bits()));
        }
        3..=4 => network.morph(TYPES[draw.below(TYPES.len())])?,
        5 => network.drop_masters()?,
        6 => network.unpack_where(|_| true)?,
        7 => network.set_trainable(at, layer, draw.below(2) == 0)?,
        8 => {
            let name = network.parameter_names(at, layer)?.first().cloned().unwrap_or_default();
            let shape = network.parameter_shape(at, layer, &name)?.to_vec();
            let values = draw.numbers(shape.iter().product());
            network.set_parameter(at, layer, &name, tensor_view(&shape, &values)?)?;
        }
        _ => {
            let options = SaveOptions { optimizer: draw.below(2) == 0, ..SaveOptions::default() };
            let bytes = network.to_bytes(options)?;
            *network = Network::from_bytes(&bytes)?;
            return Ok(format!("{} bytes, {:x}", bytes.len(), digest(&bytes)));
        }
    }
    Ok("done".into())
}

/// FNV-1a.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn told(outcome: Result<String>) -> String {
    outcome.unwrap_or_else(|error| format!("refused: {error}"))
}

struct Shared {
    network: Network,
    /// Seeds of the changes, and what came of them, in order.
    changes: Vec<(u64, String)>,
}

/// What a thread has seen: of which network, after how many changes, by which seed, and what.
type Seen = (usize, usize, u64, String);

/// Races threads through so many calls each; how many were made, and how many refused.
fn race(seed: u64, threads: usize, calls: usize) -> Result<(usize, usize)> {
    let kinds: Vec<(usize, Precision)> =
        [Precision::Float32, Precision::Float64, Precision::Mixed].into_iter().enumerate().collect();
    let shared: Vec<RwLock<Shared>> = kinds
        .iter()
        .map(|(kind, precision)| {
            let network = network(kind + seed as usize, *precision)?;
            Ok(RwLock::new(Shared { network, changes: Vec::new() }))
        })
        .collect::<Result<_>>()?;
    let work = |number: usize| {
        let mut draw = Draw(seed.wrapping_mul(1000).wrapping_add(number as u64));
        let mut seen: Vec<Seen> = Vec::new();
        for _ in 0..calls {
            let (of, own) = (draw.below(shared.len()), draw.word());
            if draw.below(4) == 0 {
                let mut held = shared[of].write().expect("no thread panics");
                let outcome = told(change(&mut held.network, own));
                held.changes.push((own, outcome));
            } else {
                let held = shared[of].read().expect("no thread panics");
                seen.push((of, held.changes.len(), own, told(look(&held.network, own))));
            }
        }
        seen
    };
    let mut seen: Vec<Seen> = thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
    });
    seen.sort();

    // The same alone.
    let mut refused = 0;
    let mut count = |outcome: &str| refused += usize::from(outcome.starts_with("refused"));
    for (of, ((kind, precision), shared)) in kinds.into_iter().zip(shared).enumerate() {
        let shared = shared.into_inner().expect("no thread panics");
        let mut alone = network(kind + seed as usize, precision)?;
        for after in 0..=shared.changes.len() {
            for (.., own, outcome) in seen.iter().filter(|(which, when, ..)| (*which, *when) == (of, after)) {
                assert_eq!(
                    told(look(&alone, *own)),
                    *outcome,
                    "race {seed}, network {of}, after change {after}"
                );
                count(outcome);
            }
            if let Some((own, outcome)) = shared.changes.get(after) {
                assert_eq!(
                    told(change(&mut alone, *own)),
                    *outcome,
                    "race {seed}, network {of}, change {after}"
                );
                count(outcome);
            }
        }
    }
    Ok((threads * calls, refused))
}

#[test]
fn what_threads_do_with_shared_networks_is_what_each_call_does_alone() -> Result<()> {
    for seed in 0..3 {
        let (calls, refused) = race(seed, 8, 12)?;
        // Most of it is done: what is refused is training without masters, and masters that are or are not there.
        assert!(refused > 0 && 2 * refused < calls, "{refused} of {calls} were refused");
    }
    Ok(())
}

/// `LOOM_RACES=1000` for more than a hundred.
#[test]
#[ignore = "takes minutes"]
fn many_races_of_shared_networks() -> Result<()> {
    let races = std::env::var("LOOM_RACES").ok().and_then(|races| races.parse().ok()).unwrap_or(100);
    let (mut calls, mut refused) = (0, 0);
    for seed in 100..100 + races {
        let (made, not) = race(seed, 8, 60)?;
        (calls, refused) = (calls + made, refused + not);
    }
    println!("{calls} calls in {races} races, {refused} refused");
    Ok(())
}

#[test]
fn networks_are_made_trained_and_dropped_in_threads_beside_each_other() -> Result<()> {
    let alone = |number: usize| -> Result<String> {
        let mut network = network(number, Precision::Float32)?;
        let mut lines = Vec::new();
        for call in 0..6 {
            let seed = (number * 100 + call) as u64;
            lines.push(told(change(&mut network, seed)));
            lines.push(told(look(&network, seed)));
        }
        Ok(lines.join("\n"))
    };
    let expected = (0..6).map(alone).collect::<Result<Vec<_>>>()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running: Vec<_> = (0..6).map(|number| scope.spawn(move || alone(number))).collect();
        // Beside them one who takes hold of the pool for nothing else.
        let (stop, busy) = (&stop, network(0, Precision::Float32)?);
        let other = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                told(look(&busy, 1));
            }
        });
        let found: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        other.join().expect("no thread panics");
        for (found, expected) in found.into_iter().zip(&expected) {
            assert_eq!(&found.expect("no thread panics")?, expected);
        }
        Ok(())
    })
}
