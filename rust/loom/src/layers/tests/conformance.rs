//! Every registered layer, on every sample that it names, proved the same way: shapes, gradients in
//! f64 with the layer in the middle of a network, agreement of instruction sets, devices and batch
//! sizes, configs, and files.

#[cfg(feature = "gpu")]
use super::setup::on_device;
use super::setup::{
    Place, ROWS, assert_close, for_every_sample, inputs, numbers, place, places, shaped, single,
};
use crate::cpu::execute;
use crate::io::SaveOptions;
use crate::layers::{Layer, Sample};
use crate::network::{Mode, ProgramKey, Watch};
use crate::ops::StepValues;
use crate::ops::update::Optimizer;
use crate::program::{Access, Phase, Run};
use crate::simd::Cpu;
use crate::tensor::{Precision, Shape};
use crate::train::{
    Callback, DepthScale, Examples, StepReport, TargetMode, TrainingConfig, TweenConfig, train, train_with,
};
use crate::{Network, Result, tensor_view};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The most elements of one tensor whose gradients are compared.
const MOST_COMPARED: usize = 24;

/// The weighted sum of outputs, whose gradient is the weights, in training or in inference.
fn objective(
    network: &mut Network,
    training: bool,
    input: &[f64],
    shape: &[usize],
    weights: &[f64],
) -> Result<f64> {
    network.zero_gradients();
    network.reset_states();
    // Every pass is to draw the same, and to find what layers keep as it was.
    network.optimizer_state.forwards = 0;
    for state in network.registry.states.iter_mut().filter(|_| training) {
        let (shape, start) = (state.spec.shape.clone(), vec![state.spec.initial; state.spec.shape.len()]);
        state.set(&tensor_view(&shape, &start)?)?;
    }
    let input = tensor_view(shape, input)?;
    let output = if training { network.forward(input) } else { network.forward_inference(input) }?;
    let output = output.output.to_f64();
    Ok(output.iter().zip(weights).map(|(output, weight)| output * weight).sum())
}

/// Elements spread over a tensor of this length.
fn spread(len: usize) -> impl Iterator<Item = usize> {
    let step = len.div_ceil(MOST_COMPARED).max(1);
    (0..len).step_by(step)
}

fn gradients_are_right(name: &str, sample: &Sample, training: bool) -> Result<()> {
    const STEP: f64 = 1e-5;
    const TOLERANCE: f64 = 1e-6;
    let Place { mut network, .. } = place(sample, Precision::Float64)?;
    let shape = shaped(ROWS, &sample.input);
    let mut input = inputs(sample);
    if !training {
        // Running statistics that are not those which networks start with.
        network.forward(tensor_view(&shape, &input)?)?;
    }
    let weights = numbers(ROWS * network.output_shape().len(), 0.7);
    objective(&mut network, training, &input, &shape, &weights)?;
    let output = shaped(ROWS, network.output_shape());
    let to_input = network.backward(tensor_view(&output, &weights)?)?.to_f64();
    let mut parameters = Vec::new();
    for (cell, layer) in places(&network) {
        for parameter in network.parameter_names(cell, layer)? {
            let gradient = network.gradient(cell, layer, &parameter)?.to_f64();
            parameters.push((cell, layer, parameter, gradient));
        }
    }
    if sample.layer.index_limit().is_none() {
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        let width = sample.input.len() / sample.input[0];
        for index in spread(input.len()) {
            let kept = input[index];
            // Padding that is moved is no padding any more.
            if sample.masked && input[index / width * width..][..width].iter().all(|x| *x == 0.0) {
                continue;
            }
            input[index] = kept + STEP;
            let above = objective(&mut network, training, &input, &shape, &weights)?;
            input[index] = kept - STEP;
            let below = objective(&mut network, training, &input, &shape, &weights)?;
            input[index] = kept;
            found.push(to_input[index]);
            expected.push((above - below) / (2.0 * STEP));
        }
        assert_close(&format!("{name}: gradient of the input"), &found, &expected, TOLERANCE);
    }
    for (cell, layer, parameter, gradient) in parameters {
        let master = network.parameter(cell, layer, &parameter)?;
        let extents = master.shape().to_vec();
        let mut values = master.to_f64();
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for index in spread(values.len()) {
            let kept = values[index];
            values[index] = kept + STEP;
            network.set_parameter(cell, layer, &parameter, tensor_view(&extents, &values)?)?;
            let above = objective(&mut network, training, &input, &shape, &weights)?;
            values[index] = kept - STEP;
            network.set_parameter(cell, layer, &parameter, tensor_view(&extents, &values)?)?;
            let below = objective(&mut network, training, &input, &shape, &weights)?;
            values[index] = kept;
            found.push(gradient[index]);
            expected.push((above - below) / (2.0 * STEP));
        }
        network.set_parameter(cell, layer, &parameter, tensor_view(&extents, &values)?)?;
        assert_close(&format!("{name}: gradient of {parameter}"), &found, &expected, TOLERANCE);
    }
    Ok(())
}

/// Output, gradient of the input and of every parameter, as bits.
fn bits_on(network: &mut Network, cpu: &Cpu, input: &[f32], rows: usize) -> Result<Vec<Vec<u32>>> {
    let mode = Mode { training: true, ..Mode::default() };
    let key = ProgramKey { backward: true, ..ProgramKey::forward(mode, rows) };
    let mut run = Run::new(crate::Device::cpu().engine().clone(), Arc::new(network.compile(&key)?))?;
    run.rows = rows;
    network.reset_states();
    network.prepare_carried([rows])?;
    network.registry.prepare_gradients(4).unwrap();
    let ports = run.program().ports().clone();
    if let Some(port) = ports.input {
        run.write::<f32>(port).copy_from_slice(input);
    }
    if let Some(port) = ports.output_gradient {
        let len = run.write::<f32>(port).len();
        let gradient: Vec<f32> = numbers(len, 0.3).into_iter().map(|x| x as f32).collect();
        run.write::<f32>(port).copy_from_slice(&gradient);
    }
    let values = StepValues { seed: network.seed(), gradients_zeroed: true, ..StepValues::default() };
    let access = Access::Exclusive(&mut network.registry);
    execute::<f32>(cpu, &mut run, access, Phase::Forward..=Phase::Backward, &values)?;
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let mut made: Vec<Vec<u32>> = Vec::new();
    for port in [ports.output, ports.input_gradient].into_iter().flatten() {
        made.push(bits(run.read::<f32>(port)));
    }
    for (store, gradient) in network.registry.stores.iter().zip(&network.registry.gradients) {
        for info in store.parameters() {
            made.push(bits(&gradient.as_slice::<f32>()[info.offset..info.offset + info.len()]));
        }
    }
    Ok(made)
}

fn same_bits_everywhere(name: &str, sample: &Sample) -> Result<()> {
    let Place { mut network, .. } = place(sample, Precision::Float32)?;
    let input = single(sample);
    let cpus = crate::ops::testing::cpus();
    let expected = bits_on(&mut network, &cpus[0], &input, ROWS)?;
    for cpu in &cpus[1..] {
        let found = bits_on(&mut network, cpu, &input, ROWS)?;
        assert!(found == expected, "{name}: other bits on {cpu:?}");
    }
    // At inference, one row by itself is what it is among others.
    let predict = |input: &[f32], rows: usize| -> Result<Vec<f64>> {
        Ok(network.predict(tensor_view(&shaped(rows, &sample.input), input)?)?.to_f64())
    };
    let together = predict(&input, ROWS)?;
    let row = sample.input.len();
    let apart: Vec<f64> =
        (0..ROWS).map(|i| predict(&input[i * row..(i + 1) * row], 1)).collect::<Result<Vec<_>>>()?.concat();
    assert!(together == apart, "{name}: a row by itself differs from one among others");
    Ok(())
}

#[cfg(feature = "gpu")]
fn devices_agree(name: &str, sample: &Sample) -> Result<()> {
    if crate::gpu::testing::gpu().is_none() {
        return Ok(());
    }
    let input = single(sample);
    let Place { mut network, .. } = place(sample, Precision::Float32)?;
    let expected = on_device(&mut network, sample, &input)?;
    let Place { mut network, .. } = place(sample, Precision::Float32)?;
    network.to("gpu:0")?;
    let found = on_device(&mut network, sample, &input)?;
    assert_eq!(found.len(), expected.len(), "{name}");
    for ((what, found), (_, expected)) in found.iter().zip(&expected) {
        let scale = expected.iter().fold(1f64, |scale, x| scale.max(x.abs()));
        let tolerance = sample.tolerance * scale;
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            let error = (f - e).abs();
            assert!(error <= tolerance, "{name}: {what}, element {i}: {f} on the GPU, {e} on the CPU");
        }
    }
    Ok(())
}

fn config_comes_back(name: &str, sample: &Sample) -> Result<()> {
    let config = sample.layer.config();
    let again: Arc<dyn Layer> = crate::layers::from_config(&config)?.into();
    assert_eq!(again.config(), config, "{name}");
    let Place { network, cell, layer } = place(sample, Precision::Float32)?;
    let json = network.to_json()?;
    let mut copy = Network::from_json(&json)?;
    copy.build()?;
    assert_eq!(copy.to_json()?, json, "{name}");
    let inferred = network.layer(cell, layer)?;
    let inputs: Vec<Shape> = std::iter::once(&sample.input).chain(&sample.context).cloned().collect();
    assert_eq!(inferred.output_shape(), Some(&sample.layer.output_shape(&inputs)?), "{name}");
    Ok(())
}

fn files_keep_everything(name: &str, sample: &Sample) -> Result<()> {
    let Place { mut network, .. } = place(sample, Precision::Float32)?;
    let input = single(sample);
    let view = || tensor_view(&shaped(ROWS, &sample.input), &input);
    // A training pass moves what layers keep.
    network.forward(view()?)?;
    let before = network.predict(view()?)?;
    let loaded = Network::from_bytes(&network.to_bytes(Default::default())?)?;
    assert!(loaded.predict(view()?)?.to_f64() == before.to_f64(), "{name}: a loaded network differs");
    Ok(())
}

/// Stops after so many steps.
struct StopAfter(usize);

impl Callback for StopAfter {
    fn on_step_end(&mut self, _network: &Network, _report: &StepReport) -> ControlFlow<()> {
        self.0 -= 1;
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A run that is stopped in the middle of its second epoch, saved, loaded and resumed ends as one that never
/// stopped: the same bytes of everything that a file holds, and those same bytes each time it is saved.
fn resumes_on(name: &str, sample: &Sample, device: &str) -> Result<()> {
    for shuffle in [false, true] {
        let config = TrainingConfig { epochs: 2, batch_size: ROWS, shuffle, seed: 4, ..Default::default() };
        // Two steps an epoch, each of as many rows as what normalises over them needs.
        let input = inputs(sample).repeat(2);
        let train = |network: &mut Network, resume: bool, steps: usize| -> Result<()> {
            let output = shaped(2 * ROWS, network.output_shape());
            let target = numbers(2 * ROWS * network.output_shape().len(), 0.7);
            let examples = Examples::regression(
                tensor_view(&shaped(2 * ROWS, &sample.input), &input)?,
                tensor_view(&output, &target)?,
            );
            train_with(network, &examples, None, &config, resume, &mut StopAfter(steps)).map(drop)
        };
        let everything = SaveOptions::resumable();
        let Place { network: mut whole, .. } = place(sample, Precision::Float32)?;
        whole.to(device)?;
        train(&mut whole, false, usize::MAX)?;
        let Place { network: mut part, .. } = place(sample, Precision::Float32)?;
        part.to(device)?;
        train(&mut part, false, 3)?;
        let bytes = part.to_bytes(everything)?;
        let mut resumed = Network::from_bytes(&bytes)?;
        assert!(resumed.to_bytes(everything)? == bytes, "{name}: what was loaded is saved as other bytes");
        resumed.to(device)?;
        train(&mut resumed, true, usize::MAX)?;
        let expected = whole.to_bytes(everything)?;
        assert!(
            resumed.to_bytes(everything)? == expected,
            "{name}: a resumed run differs (shuffle: {shuffle})"
        );
        // Without a file in between, too.
        train(&mut part, true, usize::MAX)?;
        assert!(part.to_bytes(everything)? == expected, "{name}: a run that goes on differs");
    }
    Ok(())
}

fn resumes(name: &str, sample: &Sample) -> Result<()> {
    resumes_on(name, sample, "cpu")
}

/// A few steps of learning on these examples: weights, and all figures of all steps.
fn learned(
    sample: &Sample,
    precision: Precision,
    device: &str,
    config: &TrainingConfig,
) -> Result<[Vec<f64>; 2]> {
    let Place { mut network, .. } = place(sample, precision)?;
    network.to(device)?;
    let input = inputs(sample);
    let target = numbers(ROWS * network.output_shape().len(), 0.7);
    let output = shaped(ROWS, network.output_shape());
    let examples = Examples::regression(
        tensor_view(&shaped(ROWS, &sample.input), &input)?,
        tensor_view(&output, &target)?,
    );
    train(&mut network, &examples, config)?;
    network.synchronize()?;
    let mut weights = Vec::new();
    for store in network.registry.stores() {
        for index in 0..store.parameters().len() {
            weights.extend(store.get(index)?.to_f64());
        }
    }
    Ok([weights, network.measures().history.records.clone()])
}

/// Chain-rule targets teach every layer what backpropagation teaches it, on either device, and every layer
/// takes part in layerwise learning, by a rule of its own or by handing targets on.
fn targets_teach(name: &str, sample: &Sample, on_gpu: bool) -> Result<()> {
    let watch = Watch { history: Some(1), ..Watch::tween() };
    let tween = TweenConfig { depth_scale: DepthScale::None, watch, ..TweenConfig::tween() };
    let config = TrainingConfig { epochs: 3, batch_size: ROWS, ..tween.clone().training() };
    let [found, figures] = learned(sample, Precision::Float64, "cpu", &config)?;
    let optimizer = Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0, decay_exempt: false };
    let plain = TrainingConfig { tween: None, optimizer, ..config.clone() };
    let [expected, _] = learned(sample, Precision::Float64, "cpu", &plain)?;
    assert_close(&format!("{name}: weights taught by targets"), &found, &expected, 1e-10);
    assert!(figures.len() > 16, "{name}: nothing was measured");
    let mut modes = vec![config];
    if sample.context.is_none() {
        let tween = TweenConfig { mode: TargetMode::Layerwise, ..tween };
        modes.push(TrainingConfig { epochs: 3, batch_size: ROWS, ..tween.training() });
    }
    for config in modes {
        let [expected, known] = learned(sample, Precision::Float32, "cpu", &config)?;
        assert!(expected.iter().all(|weight| weight.is_finite()), "{name}");
        if on_gpu && crate::device::testing::gpu().is_some() {
            let [found, figures] = learned(sample, Precision::Float32, "gpu:0", &config)?;
            let mode = config.tween.map(|tween| tween.mode.name()).unwrap_or_default();
            let tolerance = 10.0 * sample.tolerance;
            assert_close(&format!("{name}: {mode} weights on a GPU"), &found, &expected, tolerance);
            let measured = |figures: &[f64]| -> Vec<f64> {
                figures.iter().map(|x| if x.is_nan() { -1.0 } else { *x }).collect()
            };
            let what = format!("{name}: {mode} figures on a GPU");
            assert_close(&what, &measured(&figures), &measured(&known), tolerance);
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_central_differences() {
    for_every_sample(|name, sample| gradients_are_right(name, sample, true));
}

#[test]
fn gradients_of_inference_equal_central_differences() {
    for_every_sample(|name, sample| gradients_are_right(name, sample, false));
}

#[test]
fn instruction_sets_threads_and_batches_give_the_same_bits() {
    for_every_sample(same_bits_everywhere);
}

#[cfg(feature = "gpu")]
#[test]
fn gpus_agree_with_the_cpu() {
    super::setup::for_samples_in_part(4, devices_agree);
}

#[test]
fn every_layer_learns_by_targets() {
    let number = std::cell::Cell::new(0);
    for_every_sample(|name, sample| {
        let number = number.replace(number.get() + 1);
        targets_teach(name, sample, crate::device::testing::in_part(number, 3))
    });
}

#[test]
fn configs_come_back_and_shapes_are_inferred() {
    for_every_sample(config_comes_back);
}

#[test]
fn a_resumed_training_equals_one_that_never_stopped() {
    for_every_sample(resumes);
}

/// Those that carry or keep something, and one that does not.
#[cfg(feature = "gpu")]
#[test]
fn a_training_resumes_on_a_gpu() {
    if crate::gpu::testing::gpu().is_none() {
        return;
    }
    for_every_sample(|name, sample| {
        let Place { network, .. } = place(sample, Precision::Float32)?;
        match network.carries || sample.layer.kind() == "dropout" || !network.registry.states.is_empty() {
            true => resumes_on(name, sample, "gpu:0"),
            false => Ok(()),
        }
    });
}

#[test]
fn files_keep_weights_and_states() {
    for_every_sample(files_keep_everything);
}
