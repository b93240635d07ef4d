//! Programs as layers and trainers lower them, and the same programs fused.

use crate::random::{self, Choices, Drawn, WIDTH};
use loom::layers::Sample;
use loom::program::Rewrites;
use loom::train::{Examples, Rows, Trainer, TrainingConfig};
use loom::{Network, Precision, Result, tensor_view};

/// How many random networks there are; more with `LOOM_RANDOM_NETWORKS`.
fn how_many(usual: u64) -> u64 {
    std::env::var("LOOM_RANDOM_NETWORKS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// One random network with all that is drawn about it.
struct Case {
    drawn: Drawn,
    config: TrainingConfig,
    rows: usize,
    input: Vec<f64>,
    target: Vec<f64>,
    labels: Vec<i32>,
}

impl Case {
    /// The case of this seed, for a network that follows these rewrites.
    fn new(
        seed: u64,
        rewrites: Rewrites,
        precision: Option<Precision>,
        admit: &dyn Fn(&Sample) -> bool,
    ) -> Result<Self> {
        let mut choices = Choices::new(seed);
        let any = choices.one_of(&[Precision::Float32, Precision::Float64, Precision::Mixed]);
        let precision = precision.unwrap_or(any);
        let mut drawn = random::network(&mut choices, precision, admit)?;
        let packed = choices.once_in(4) && precision != Precision::Float64;
        random::settle(&mut choices, &mut drawn.network, packed)?;
        drawn.network.set_rewrites(rewrites);
        let rows = choices.one_of(&[1, 2, 5, 130]);
        let config = random::config(&mut choices, rows)?;
        let elements = rows * drawn.network.input_shape().len();
        let input = (0..elements).map(|_| match drawn.limit {
            Some(limit) => choices.below(limit) as f64,
            None => choices.number(),
        });
        let input = input.collect();
        let target = (0..rows * WIDTH).map(|_| 0.5 + 0.4 * choices.number()).collect();
        let labels = (0..rows).map(|_| choices.below(WIDTH) as i32).collect();
        Ok(Self { drawn, config, rows, input, target, labels })
    }

    fn examples_shapes(&self) -> ([Vec<usize>; 2], bool) {
        let input = [&[self.rows], &self.drawn.network.input_shape()[..]].concat();
        ([input, vec![self.rows, WIDTH]], self.config.loss.takes_classes())
    }

    /// Trains for some steps; what came of it, number by number, and how many steps the program had.
    fn train(mut self) -> Result<(Vec<f64>, usize)> {
        let ([input_shape, target_shape], classes) = self.examples_shapes();
        let view = tensor_view(&input_shape, &self.input)?;
        let examples = match classes {
            true => Examples::classified(view.clone(), &self.labels),
            false => Examples::regression(view.clone(), tensor_view(&target_shape, &self.target)?),
        };
        let network = &mut self.drawn.network;
        let mut seen = Vec::new();
        let mut trainer = Trainer::new(network, &self.config, &examples, 10)?;
        for _ in 0..3 {
            let batch = (&examples, Rows::First(self.rows));
            let batches = vec![batch; self.config.accumulate];
            let report = trainer.step(network, &batches)?;
            seen.extend([report.loss, report.gradient_norm.unwrap_or(0.0)]);
        }
        let steps = trainer.run().program().steps().len();
        seen.extend(held(network)?);
        seen.extend(network.predict(view)?.to_f64());
        Ok((seen, steps))
    }

    /// Goes forward and back by hand; output, gradients of the input and of all parameters.
    fn gradients(mut self) -> Result<Vec<f64>> {
        let ([input_shape, target_shape], _) = self.examples_shapes();
        let network = &mut self.drawn.network;
        let mut seen = network.forward(tensor_view(&input_shape, &self.input)?)?.output.to_f64();
        let gradient = network.backward(tensor_view(&target_shape, &self.target)?)?;
        seen.extend(gradient.to_f64());
        for [depth, row, column, layer] in random::places(network) {
            let cell = [depth, row, column];
            for name in network.parameter_names(cell, layer)? {
                seen.extend(network.gradient(cell, layer, &name)?.to_f64());
            }
        }
        Ok(seen)
    }
}

/// All parameters and all that layers keep.
fn held(network: &mut Network) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for [depth, row, column, layer] in random::places(network) {
        let cell = [depth, row, column];
        for name in network.parameter_names(cell, layer)? {
            all.extend(network.parameter(cell, layer, &name)?.to_f64());
        }
        for name in network.state_names(cell, layer)? {
            all.extend(network.state(cell, layer, &name)?.to_f64());
        }
    }
    Ok(all)
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// What becomes of it, or the error's text.
fn outcome<T>(result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Results of two programs are the same, or fail alike.
#[track_caller]
fn assert_same(
    what: &str,
    found: &std::result::Result<Vec<f64>, String>,
    expected: &std::result::Result<Vec<f64>, String>,
) {
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            let first =
                bits(found).iter().zip(bits(expected)).position(|(found, expected)| *found != expected);
            assert_eq!(found.len(), expected.len(), "{what}");
            if let Some(first) = first {
                panic!("{what}: number {first} is {} for {}", found[first], expected[first]);
            }
        }
        (found, expected) => assert_eq!(found.as_ref().err(), expected.as_ref().err(), "{what}"),
    }
}

#[test]
fn fused_programs_give_the_bits_of_unfused_ones() -> Result<()> {
    let only = [
        Rewrites { bias: true, ..Rewrites::none() },
        Rewrites { activation: true, ..Rewrites::none() },
        Rewrites { derivative: true, ..Rewrites::none() },
        Rewrites { update: true, ..Rewrites::none() },
    ];
    let mut trained = 0;
    let mut shared = 0;
    // How often each rewrite alone has made a program shorter.
    let mut applied = [0; 4];
    let mut refused: Vec<String> = Vec::new();
    for seed in 0..how_many(60) {
        let case = |rewrites: Rewrites| Case::new(seed, rewrites, None, &|_| true);
        let expected = match outcome(case(Rewrites::none()).and_then(Case::train)) {
            Ok((expected, steps)) => {
                trained += 1;
                shared += case(Rewrites::none())?.drawn.shared;
                let number = (seed % 4) as usize;
                let (found, fewer) = case(only[number])?.train()?;
                assert_same(&format!("case {seed}, {:?}", only[number]), &Ok(found), &Ok(expected.clone()));
                applied[number] += usize::from(fewer < steps);
                Ok(expected)
            }
            // What cannot be trained so is refused whatever is fused.
            Err(error) => {
                refused.push(format!("{seed}: {error}"));
                Err(error)
            }
        };
        let any = random::rewrites(&mut Choices::new(seed + 1_000_000));
        for rewrites in [Rewrites::default(), any] {
            let found = outcome(case(rewrites).and_then(Case::train)).map(|(found, _)| found);
            let kinds = case(rewrites).map_or(Vec::new(), |case| case.drawn.kinds);
            assert_same(&format!("case {seed} ({kinds:?}), {rewrites:?}"), &found, &expected);
        }
        let by_hand = |rewrites: Rewrites| outcome(case(rewrites).and_then(Case::gradients));
        let what = format!("gradients of case {seed}");
        assert_same(&what, &by_hand(Rewrites::default()), &by_hand(Rewrites::none()));
    }
    assert!(refused.len() * 3 < trained, "{trained} were trained; {refused:#?}");
    assert!(applied.iter().all(|count| *count * 40 >= trained), "{applied:?} of {trained}");
    assert!(shared * 3 >= trained, "{shared} of {trained}");
    Ok(())
}

/// On a GPU a fused step may round otherwise.
#[cfg(feature = "gpu")]
#[test]
fn fused_programs_agree_with_unfused_ones_on_a_gpu() -> Result<()> {
    if !crate::has_gpu() {
        return Ok(());
    }
    let (count, mut compared) = (how_many(4), 0);
    for seed in 0..count {
        let seen = |rewrites: Rewrites, device: &str| -> Result<Vec<f64>> {
            let mut case = Case::new(seed, rewrites, Some(Precision::Float32), &|_| true)?;
            case.drawn.network.to(device)?;
            case.gradients()
        };
        let expected = outcome(seen(Rewrites::none(), "gpu"));
        let Ok(expected) = expected else {
            // What cannot be trained so is refused alike, whatever is fused and wherever.
            for device in ["gpu", "cpu"] {
                assert_eq!(outcome(seen(Rewrites::default(), device)), expected, "case {seed} on {device}");
            }
            continue;
        };
        compared += 1;
        let largest = expected.iter().fold(1e-3f64, |largest, x| largest.max(x.abs()));
        for (rewrites, device) in [(Rewrites::default(), "gpu"), (Rewrites::default(), "cpu")] {
            let found = seen(rewrites, device)?;
            assert_eq!(found.len(), expected.len());
            for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let error = (found - expected).abs() / largest;
                assert!(error < 1e-3, "case {seed} on {device}, number {number}: {found} for {expected}");
            }
        }
    }
    assert!(compared * 4 > count * 3, "{compared} of {count}");
    Ok(())
}
