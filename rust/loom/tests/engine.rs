//! Engines of one's own: networks, layers and trainers run on them as on loom's.

use loom::cpu::Processor;
use loom::layers::{Conv2D, Dense, Flatten, Gru, LayerNorm};
use loom::ops::StepValues;
use loom::ops::pointwise::Activation;
use loom::program::{Access, Engine, Phase, Run, Step};
use loom::train::{Examples, LossConfig, Metric, TrainingConfig, train};
use loom::{Device, Error, Network, Result, Tensor, tensor_view};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

/// Computes on the processor, and writes down what.
#[derive(Debug, Default)]
struct Recording {
    steps: Mutex<Vec<(Phase, String)>>,
}

impl Engine for Recording {
    fn name(&self) -> String {
        "recording".into()
    }

    /// Refuses what the test below has it refuse.
    fn supports(&self, step: &Step) -> Result<()> {
        match step.op.to_string().starts_with("dropout") {
            true => Err(Error::Device("it cannot draw".into())),
            false => Ok(()),
        }
    }

    fn execute(
        &self,
        run: &mut Run,
        access: Access<'_>,
        phases: RangeInclusive<Phase>,
        values: &StepValues,
    ) -> Result<()> {
        let steps = run.program().steps().iter().filter(|step| phases.contains(&step.phase));
        let described = steps.map(|step| (step.phase, step.op.to_string()));
        self.steps.lock().expect("the list").extend(described);
        Processor.execute(run, access, phases, values)
    }
}

fn network() -> Result<Network> {
    let mut network = Network::sequential([1, 6, 6])?;
    network.add([0, 0, 0], Conv2D::new(3, [3, 3]).activation(Activation::Tanh))?;
    network.add([0, 0, 0], Flatten {})?;
    network.add([0, 0, 0], Dense::new(8).activation(Activation::Tanh))?;
    network.add([0, 0, 0], LayerNorm::default())?;
    network.add([0, 0, 0], Dense::new(3))?;
    network.build()?;
    Ok(network)
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37).sin()).collect()
}

#[test]
fn a_network_learns_on_an_engine_of_ones_own() -> Result<()> {
    let input = numbers(12 * 36);
    let labels: Vec<i32> = (0..12).map(|i| i % 3).collect();
    let examples = Examples::classified(tensor_view(&[12, 1, 6, 6], &input)?, &labels);
    let config = TrainingConfig {
        epochs: 3,
        batch_size: 5,
        learning_rate: 0.05,
        gradient_clip: Some(1.0),
        loss: LossConfig::parse("cross_entropy")?,
        metrics: vec![Metric::Accuracy],
        ..TrainingConfig::default()
    };
    let engine = Arc::new(Recording::default());
    let mut plain = network()?;
    let mut recorded = network()?;
    recorded.to_device(Device::new(engine.clone()))?;
    assert_eq!(recorded.device().to_string(), "recording");
    let [one, other] = [train(&mut plain, &examples, &config)?, train(&mut recorded, &examples, &config)?];
    assert_eq!(one.final_loss.to_bits(), other.final_loss.to_bits());
    let view = || tensor_view(&[12, 1, 6, 6], &input);
    assert_eq!(plain.predict(view()?)?, recorded.predict(view()?)?);
    let steps = engine.steps.lock().expect("the list");
    for phase in [Phase::Forward, Phase::Loss, Phase::Backward, Phase::Verdict, Phase::Update] {
        assert!(steps.iter().any(|(known, _)| *known == phase), "nothing ran in {phase:?}");
    }
    assert!(steps.iter().any(|(_, op)| op.starts_with("convolution")));
    Ok(())
}

#[test]
fn what_an_engine_cannot_run_is_refused_with_its_layer() -> Result<()> {
    let mut network = Network::sequential([4])?;
    network.add([0, 0, 0], Dense::new(2))?;
    network.add([0, 0, 0], loom::layers::Dropout { rate: 0.5 })?;
    network.to_device(Device::new(Arc::new(Recording::default())))?;
    let error = network.forward(tensor_view(&[2, 4], &numbers(8))?).expect_err("a refusal");
    let said = error.to_string();
    assert!(
        matches!(error, Error::Device(_)) && said.contains("0.0.0.1") && said.contains("it cannot draw"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_mesh_and_a_session_run_on_it() -> Result<()> {
    let mut network = Network::sequential([5, 3])?;
    network.add([0, 0, 0], Gru::new(4))?;
    let engine = Arc::new(Recording::default());
    network.to_device(Device::new(engine.clone()))?;
    let mut session = network.session(2, 5)?;
    let found: Tensor = session.advance(&network, tensor_view(&[2, 5, 3], &numbers(30))?)?;
    network.to("cpu")?;
    assert_eq!(found, network.predict(tensor_view(&[2, 5, 3], &numbers(30))?)?);
    assert!(!engine.steps.lock().expect("the list").is_empty());
    Ok(())
}

#[cfg(feature = "gpu")]
mod both {
    use super::*;
    use loom::gpu::{Gpu, GpuEngine};
    use loom::program::{Frames, Program, RunMemory};
    use loom::shader::Accelerator;
    use loom::state::Mirror;

    /// Runs forward passes on a GPU and on the processor, and compares what every layer makes.
    #[derive(Debug)]
    struct Both {
        gpu: GpuEngine,
        /// How many values were compared.
        compared: Mutex<usize>,
    }

    impl Both {
        fn compare(&self, run: &mut Run, twin: &Run) -> Result<()> {
            let ports = run.program().ports().clone();
            let layers = ports.layers.iter().map(|(path, layer)| (path.to_string(), layer.output));
            let values: Vec<_> = layers.chain(ports.output.map(|output| ("output".into(), output))).collect();
            run.fetch(&values.iter().map(|(_, value)| *value).collect::<Vec<_>>())?;
            for (what, value) in values {
                let (found, expected) = (run.read::<f32>(value), twin.read::<f32>(value));
                let off = found.iter().zip(expected).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
                assert!(off < 1e-4, "{what}: off by {off}");
                *self.compared.lock().expect("the count") += 1;
            }
            Ok(())
        }
    }

    impl Engine for Both {
        fn name(&self) -> String {
            "both".into()
        }

        fn accelerator(&self) -> Option<Arc<dyn Accelerator>> {
            self.gpu.accelerator()
        }

        fn mirror(&self) -> Option<Box<dyn Mirror>> {
            self.gpu.mirror()
        }

        fn lease(&self, program: &Program) -> Result<Option<Box<dyn RunMemory>>> {
            self.gpu.lease(program)
        }

        fn execute(
            &self,
            run: &mut Run,
            access: Access<'_>,
            phases: RangeInclusive<Phase>,
            values: &StepValues,
        ) -> Result<()> {
            let mut twin = Run::new(Arc::new(Processor), run.program().clone())?;
            twin.rows = run.rows;
            if let Some(input) = run.program().ports().input {
                twin.write::<f32>(input).copy_from_slice(run.read::<f32>(input));
            }
            if let Access::Shared(registry) = &access {
                Processor.execute(&mut twin, Access::Shared(registry), phases.clone(), values)?;
            }
            let compares = matches!(access, Access::Shared(_));
            self.gpu.execute(run, access, phases, values)?;
            if compares { self.compare(run, &twin) } else { Ok(()) }
        }

        fn frames(&self) -> Option<&dyn Frames> {
            self.gpu.frames()
        }
    }

    #[test]
    fn every_layer_makes_the_same_on_a_gpu_and_on_the_processor() -> Result<()> {
        let gpu = match Device::open("gpu", loom::Precision::Float32) {
            Ok(device) => Gpu::of(device.engine()).expect("a GPU"),
            Err(error) if std::env::var("LOOM_REQUIRE_GPU").is_ok_and(|value| value == "1") => {
                panic!("LOOM_REQUIRE_GPU is set, and {error}")
            }
            Err(_) => return Ok(()),
        };
        let engine = Arc::new(Both { gpu: GpuEngine::new(gpu), compared: Mutex::default() });
        let mut network = network()?;
        network.to_device(Device::new(engine.clone()))?;
        let input = numbers(7 * 36);
        network.predict(tensor_view(&[7, 1, 6, 6], &input)?)?;
        assert!(*engine.compared.lock().expect("the count") >= 1);
        // Training goes by frames of the same engine.
        let labels: Vec<i32> = (0..7).map(|i| i % 3).collect();
        let examples = Examples::classified(tensor_view(&[7, 1, 6, 6], &input)?, &labels);
        let config = TrainingConfig {
            epochs: 2,
            batch_size: 4,
            loss: LossConfig::parse("cross_entropy")?,
            ..TrainingConfig::default()
        };
        train(&mut network, &examples, &config)?;
        // What was learned there comes back before the processor reads it.
        network.synchronize()?;
        network.predict(tensor_view(&[7, 1, 6, 6], &input)?)?;
        assert!(*engine.compared.lock().expect("the count") >= 2);
        Ok(())
    }
}
