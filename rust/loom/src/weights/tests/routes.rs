//! Every way in which a master changes, on every device: what is read afterwards is packed from the new one.

use super::*;
use crate::dtype::{DType, Recipe};
use crate::layers::Dense;
use crate::mesh::{Mesh, Sample, Stepper, SteppingConfig};
use crate::network::{Morph, Watch};
use crate::ops::pointwise::Activation;
use crate::ops::update::Optimizer;
use crate::program::LayerPath;
use crate::tensor::{Precision, Tensor, TensorView};
use crate::train::{Examples, Rows, Targets, Trainer, TrainingConfig, TweenConfig, TweenState, train};
use crate::{Error, Network, tensor_view};

const ROWS: usize = 12;
const LAYERS: usize = 2;
const AT: [usize; 3] = [0, 0, 0];

fn noise(count: usize, seed: f64) -> Vec<f32> {
    (0..count).map(|i| (((i as f64 + 1.0) * 0.754_877_666 + seed).fract() * 2.0 - 1.0) as f32).collect()
}

struct Data {
    input: Vec<f32>,
    target: Vec<f32>,
    wild: Vec<f32>,
}

impl Data {
    fn new() -> Self {
        let target = noise(ROWS * 3, 0.7);
        let wild = target.iter().map(|x| x * 1e4).collect();
        Self { input: noise(ROWS * 5, 0.2), target, wild }
    }

    fn examples(&self, wild: bool) -> Result<Examples<'_>> {
        let target = if wild { &self.wild } else { &self.target };
        Ok(Examples::regression(self.view()?, tensor_view(&[ROWS, 3], target)?))
    }

    fn view(&self) -> Result<TensorView<'_>> {
        tensor_view(&[ROWS, 5], &self.input)
    }
}

fn network(precision: Precision) -> Result<Network> {
    let mut network = Network::with_options([5], [1, 1, 1], precision, 3)?;
    network.add(AT, Dense::new(6).activation(Activation::Tanh))?;
    network.add(AT, Dense::new(3))?;
    network.build()?;
    Ok(network)
}

fn training() -> TrainingConfig {
    TrainingConfig { batch_size: 4, learning_rate: 0.3, optimizer: Optimizer::sgd(), ..Default::default() }
}

fn recovering() -> TrainingConfig {
    let tween = TweenConfig { watch: Watch::tween(), ..TweenConfig::tween() };
    TrainingConfig { batch_size: ROWS, learning_rate: 0.05, ..tween.training() }
}

/// Codes, the bits of scales, and what they stand for.
type Read = (Vec<u8>, Vec<u32>, Tensor);

/// What the version of a parameter must be: packed anew from the newest master.
fn anew(network: &Network, layer: usize, name: &str) -> Result<Option<Read>> {
    let (store, index) = network.find_parameter(AT, layer, name)?;
    let mut store = network.registry.store(store)?.into_owned();
    let choices: Vec<_> = (0..store.parameters().len()).map(|index| store.choice(index)).collect();
    let Some((dtype, _)) = choices[index] else { return Ok(None) };
    store.choose(&vec![None; choices.len()])?;
    store.choose(&choices)?;
    let (_, bytes, scales) = store.version(dtype, index)?;
    let scales = scales.iter().map(|scale| scale.to_bits()).collect();
    Ok(Some((bytes.to_vec(), scales, store.decoded(index)?)))
}

type Codes = Vec<(Vec<u8>, Vec<u32>)>;

/// Reads the weights in every way there is and compares; returns the codes.
fn check(route: &str, network: &mut Network, data: &Data) -> Result<Codes> {
    // The forward pass first: nobody has looked at the version since the master moved.
    let found = network.predict(data.view()?)?.to_f64();
    let manual = network.forward(data.view()?)?.output.to_f64();
    let mut plain = self::network(network.precision())?;
    let mut codes = Vec::new();
    for (layer, name) in (0..LAYERS).flat_map(|layer| [(layer, "weight"), (layer, "bias")]) {
        let read = network.active_parameter(AT, layer, name)?;
        plain.set_parameter(AT, layer, name, read.view())?;
        let packed = network.packed_parameter(AT, layer, name)?;
        let Some((bytes, scales, decoded)) = anew(network, layer, name)? else {
            assert!(packed.is_none() && name == "bias", "{route}: layer {layer} is not packed");
            continue;
        };
        assert_eq!(read, decoded, "{route}: {name} of layer {layer}");
        let Some(packed) = packed else { return Err(Error::State(format!("{route}: {name} is not packed"))) };
        assert_eq!(packed.bytes, bytes, "{route}: codes of layer {layer}");
        let bits: Vec<u32> = packed.scales.iter().map(|scale| scale.to_bits()).collect();
        assert_eq!(bits, scales, "{route}: scales of layer {layer}");
        let Some(store) = network.weights(AT, layer)? else { continue };
        assert!(store.versions().all(|version| version.current), "{route}: layer {layer}");
        codes.push((bytes, scales));
    }
    let expected = plain.predict(data.view()?)?.to_f64();
    let scale = expected.iter().fold(1.0f64, |scale, x| scale.max(x.abs()));
    for made in [found, manual] {
        for (made, expected) in made.iter().zip(&expected) {
            let tolerance = if network.precision() == Precision::Mixed { 1e-2 } else { 2e-5 };
            assert!((made - expected).abs() < tolerance * scale, "{route}: {made} {expected}");
        }
    }
    Ok(codes)
}

type Route = (&'static str, fn(&mut Network, &Data) -> Result<()>);

/// Trains for an epoch.
fn trained(network: &mut Network, data: &Data, config: &TrainingConfig) -> Result<()> {
    train(network, &data.examples(false)?, config).map(|_| ())
}

fn manual_gradient(network: &mut Network, data: &Data) -> Result<()> {
    let output = network.forward(data.view()?)?.output;
    network.backward(output.view()).map(|_| ())
}

fn changed(network: &mut Network, factor: f64) -> Result<()> {
    for layer in 0..LAYERS {
        let weight = network.parameter(AT, layer, "weight")?;
        let other: Vec<f64> = weight.to_f64().iter().rev().map(|x| factor * x).collect();
        network.set_parameter(AT, layer, "weight", tensor_view(weight.shape(), &other)?)?;
    }
    Ok(())
}

/// Calm steps of learning by targets, and then one that is taken back.
fn exploded(network: &mut Network, data: &Data) -> Result<()> {
    let (calm, wild) = (data.examples(false)?, data.examples(true)?);
    let mut trainer = Trainer::new(network, &recovering(), &calm, 100)?;
    let order: Vec<u32> = (0..ROWS as u32).collect();
    for _ in 0..4 {
        assert!(!trainer.step(network, &[(&calm, Rows::At(&order))])?.exploded);
    }
    check("before an explosion", network, data)?;
    let mut taken_back = false;
    for _ in 0..3 {
        taken_back |= trainer.step(network, &[(&wild, Rows::At(&order))])?.exploded;
        check("in an explosion", network, data)?;
    }
    assert!(taken_back, "nothing exploded");
    Ok(())
}

const ROUTES: [Route; 14] = [
    ("steps of an optimizer", |network, data| trained(network, data, &training())),
    ("an optimizer with moments", |network, data| {
        trained(network, data, &TrainingConfig { optimizer: Optimizer::default(), epochs: 3, ..training() })
    }),
    ("clipped steps", |network, data| {
        let config = TrainingConfig { gradient_clip: Some(0.5), clip_value: Some(0.1), ..training() };
        trained(network, data, &config)
    }),
    ("accumulated gradients", |network, data| {
        trained(network, data, &TrainingConfig { accumulate: 3, gradient_clip: Some(0.5), ..training() })
    }),
    ("the manual loop", |network, data| {
        network.set_optimizer(Optimizer::sgd())?;
        manual_gradient(network, data)?;
        manual_gradient(network, data)?;
        network.clip_gradients(0.5)?;
        network.apply_gradients(0.3)?;
        // In mixed precision the first updates are left out until the loss scale fits.
        while network.optimizer_state.updates == 0 {
            manual_gradient(network, data)?;
            network.apply_gradients(0.3)?;
        }
        Ok(())
    }),
    ("an assignment", |network, _| changed(network, 0.7)),
    ("a file", |network, data| {
        let mut other = self::network(network.precision())?;
        changed(&mut other, 1.9)?;
        let store = network.weights(AT, 0)?.map(|store| store.into_owned());
        let Some((dtype, recipe)) = store.and_then(|store| store.choice(0)) else { return Ok(()) };
        other.morph_layers(Morph::new(dtype).by(recipe), |_| true)?;
        let device = network.device().to_string();
        *network = Network::from_bytes(&other.to_bytes(Default::default())?)?;
        network.to(&device)?;
        check("a loaded file", network, data)?;
        changed(network, 0.6)
    }),
    ("going back to a file", |network, data| {
        let device = network.device().to_string();
        let before = network.to_bytes(Default::default())?;
        trained(network, data, &training())?;
        let moved = check("training after saving", network, data)?;
        *network = Network::from_bytes(&before)?;
        network.to(&device)?;
        assert_ne!(check("the file of before", network, data)?, moved);
        trained(network, data, &training())
    }),
    ("learning by targets", |network, data| {
        trained(network, data, &TrainingConfig { epochs: 3, ..recovering() })
    }),
    ("a step of targets by hand", |network, data| {
        let mut state = TweenState::new(network, &recovering(), false)?;
        let target = tensor_view(&[ROWS, 3], &data.target)?;
        for _ in 0..2 {
            state.forward(network, data.view()?)?;
            state.backward(network, Targets::Real(target.clone()), None)?;
            state.measure(network)?;
            state.apply(network, Some(0.2))?;
        }
        Ok(())
    }),
    ("an explosion taken back", exploded),
    ("steps of a mesh", |network, data| {
        let config = SteppingConfig { ticks: 3, training: training(), ..SteppingConfig::default() };
        let mut mesh = Mesh::new(network, ROWS, 3)?;
        let mut stepper = Stepper::new(network, &mesh, &config, false)?;
        for _ in 0..2 {
            let target = Some(Targets::Real(tensor_view(&[ROWS, 3], &data.target)?));
            stepper.step(network, &mut mesh, &Sample { input: data.view()?, target })?;
        }
        Ok(())
    }),
    ("other types in between", |network, data| {
        let Some(store) = network.weights(AT, 0)?.map(|store| store.into_owned()) else { return Ok(()) };
        let Some((dtype, recipe)) = store.choice(0) else { return Ok(()) };
        network.morph(network.precision().dtype())?;
        trained(network, data, &training())?;
        network.morph(DType::Int4)?;
        changed(network, 1.1)?;
        network.morph_layers(Morph::new(dtype).by(recipe), |_| true)
    }),
    ("another device and back", |network, data| {
        let device = network.device().to_string();
        trained(network, data, &training())?;
        network.to("cpu")?;
        check("back on the processor", network, data)?;
        changed(network, 0.9)?;
        network.to(&device)
    }),
];

/// The recipes beside the types' own that versions are kept by here.
fn recipes(dtype: DType) -> Vec<Recipe> {
    let all = [
        Recipe::default(),
        Recipe { rounding: Rounding::Stochastic, ..Recipe::default() },
        Recipe {
            calibration: Calibration::Mse,
            granularity: Some(Granularity::Block(2)),
            ..Recipe::default()
        },
    ];
    all.into_iter().filter(|recipe| recipe.checked(dtype).is_ok()).collect()
}

fn on(device: &str, precision: Precision, dtypes: &[DType]) -> Result<()> {
    let (data, mut number) = (Data::new(), 0);
    for &dtype in dtypes {
        // By other recipes it is the host that packs, whatever the type.
        let all = device == "cpu" || precision == Precision::Float32 && dtype == DType::Uint4;
        for recipe in recipes(dtype).into_iter().take(if all { usize::MAX } else { 1 }) {
            for (route, change) in ROUTES {
                number += 1;
                if device != "cpu" && !crate::device::testing::in_part(number, 3) {
                    continue;
                }
                // Wild steps need more range than the 16 bits of mixed precision.
                if precision == Precision::Mixed && route.contains("explosion") {
                    continue;
                }
                let route = format!("{route}, through {dtype} by {recipe:?} in {precision} on {device}");
                let mut network = network(precision)?;
                network.to(device)?;
                network.morph_layers(Morph::new(dtype).by(recipe), |_| true)?;
                let before = check(&format!("before {route}"), &mut network, &data)?;
                change(&mut network, &data).map_err(|error| Error::State(format!("{route}: {error}")))?;
                let after = check(&route, &mut network, &data)?;
                assert_ne!(before, after, "{route} changed nothing");
            }
        }
    }
    Ok(())
}

/// Types that each device packs in a way of its own, and one that goes by the host.
const TYPES: [DType; 6] =
    [DType::BFloat16, DType::Int8, DType::Uint4, DType::Ternary, DType::Int32, DType::Q4_0];

#[test]
fn every_change_of_a_master_reaches_its_version() -> Result<()> {
    on(
        "cpu",
        Precision::Float32,
        &DType::all().filter(|dtype| *dtype != DType::Float32).collect::<Vec<_>>(),
    )?;
    on("cpu", Precision::Mixed, &TYPES)?;
    on("cpu", Precision::Float64, &TYPES)
}

#[cfg(feature = "gpu")]
#[test]
fn every_change_of_a_master_reaches_its_version_on_a_gpu() -> Result<()> {
    if crate::gpu::testing::gpu().is_none() {
        return Ok(());
    }
    on("gpu:0", Precision::Float32, &TYPES)?;
    on("gpu:0", Precision::Mixed, &[DType::Int8, DType::Q4_0])
}

/// Parameters that are packed by name follow their masters as well, each in its own type.
fn by_name(device: &str) -> Result<()> {
    let data = Data::new();
    let mse = Recipe { calibration: Calibration::Mse, ..Recipe::default() };
    for (bias, weight, recipe) in [
        (DType::Int8, DType::Int4, Recipe::default()),
        (DType::Q8_0, DType::BFloat16, Recipe::default()),
        (DType::Uint4, DType::Int8, mse),
    ] {
        for (route, change) in ROUTES {
            let route = format!("{route}, through a bias in {bias} and a weight in {weight} on {device}");
            let mut network = network(Precision::Float32)?;
            network.to(device)?;
            network.morph(DType::Ternary)?;
            let numerics = |recipe| crate::network::Numerics { recipe, activations: None };
            network.morph_layers(
                Morph { dtype: bias, numerics: numerics(recipe), parameters: Some(&["bias"]) },
                |_| true,
            )?;
            let second = |placed: &crate::network::PlacedLayer| placed.path.indices()[3] == 1;
            network.morph_layers(
                Morph { dtype: weight, numerics: numerics(Recipe::default()), parameters: Some(&["weight"]) },
                second,
            )?;
            let before = check(&format!("before {route}"), &mut network, &data)?;
            change(&mut network, &data).map_err(|error| Error::State(format!("{route}: {error}")))?;
            let after = check(&route, &mut network, &data)?;
            assert_ne!(before, after, "{route} changed nothing");
        }
    }
    Ok(())
}

#[test]
fn parameters_packed_by_name_follow_their_masters() -> Result<()> {
    by_name("cpu")
}

#[cfg(feature = "gpu")]
#[test]
fn parameters_packed_by_name_follow_their_masters_on_a_gpu() -> Result<()> {
    if crate::gpu::testing::gpu().is_none() {
        return Ok(());
    }
    by_name("gpu:0")
}

/// Several local steps of one step pass through what the step before them left.
#[test]
fn local_steps_read_what_the_one_before_left() -> Result<()> {
    let data = Data::new();
    let config = |steps| {
        let tween = TweenConfig { local_steps: steps, watch: Watch::observer(), ..TweenConfig::tween() };
        TrainingConfig { batch_size: ROWS, ..tween.training() }
    };
    let mut network = network(Precision::Float32)?;
    network.morph(DType::Q4_0)?;
    trained(&mut network, &data, &config(3))?;
    check("local steps", &mut network, &data)?;
    if crate::device::testing::gpu().is_some() {
        // The host cannot pack in the middle of a step, and says so before anything is read.
        network.to("gpu:0")?;
        let refused = trained(&mut network, &data, &config(3)).unwrap_err().to_string();
        assert!(refused.contains("local_steps=1"), "{refused}");
        trained(&mut network, &data, &config(1))?;
        network.morph(DType::Int8)?;
        trained(&mut network, &data, &config(3))?;
        check("local steps on a GPU", &mut network, &data)?;
    }
    Ok(())
}

/// A master made again of its version is what was computed from; the next change is followed as ever.
#[test]
fn an_unpacked_master_is_followed_again() -> Result<()> {
    let data = Data::new();
    for dtype in DType::all().filter(|dtype| *dtype != DType::Float32) {
        let mut network = network(Precision::Float32)?;
        let refused = network.unpack_where(|_| true).unwrap_err();
        assert!(matches!(&refused, Error::State(message) if message.contains("nothing to unpack")));
        network.morph(dtype)?;
        assert!(network.unpack_where(|_| true).is_err());
        let before = network.predict(data.view()?)?;
        network.drop_masters()?;
        assert!(trained(&mut network, &data, &training()).unwrap_err().to_string().contains("unpack()"));
        network.unpack_where(|placed| *placed.path() == LayerPath::new(0, 0, 0, 1))?;
        assert!(network.parameter(AT, 0, "weight").is_err() && network.parameter(AT, 1, "weight").is_ok());
        network.unpack_where(|_| true)?;
        assert_eq!(network.predict(data.view()?)?, before, "{dtype}");
        for layer in 0..LAYERS {
            let read = network.active_parameter(AT, layer, "weight")?;
            assert_eq!(network.parameter(AT, layer, "weight")?, read, "{dtype}");
        }
        trained(&mut network, &data, &training())?;
        check("training after unpacking", &mut network, &data)?;
    }
    Ok(())
}

/// Scales of least error follow what the weights were found to multiply.
#[test]
fn measured_inputs_reach_versions_of_least_error() -> Result<()> {
    let data = Data::new();
    let devices = if cfg!(feature = "gpu") { &["cpu", "gpu:0"][..] } else { &["cpu"] };
    for device in devices {
        let mut network = network(Precision::Float32)?;
        if network.to(device).is_err() {
            continue;
        }
        let recipe = Recipe { calibration: Calibration::Mse, ..Recipe::default() };
        network.morph_layers(Morph::new(DType::Int4).by(recipe), |_| true)?;
        let before = check("before measuring", &mut network, &data)?;
        let scaled: Vec<f32> =
            data.input.iter().enumerate().map(|(i, x)| if i % 5 == 0 { 50.0 * x } else { *x }).collect();
        network.calibrate(tensor_view(&[ROWS, 5], &scaled)?, 99.0, 5)?;
        assert_ne!(check("after measuring", &mut network, &data)?, before, "{device}");
        let range = network.layer(AT, 0)?.range().cloned();
        let range = range.ok_or_else(|| Error::State("no range".into()))?;
        let largest = scaled.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        assert_eq!(range.largest, f64::from(largest));
        for (feature, found) in range.mean_squares.iter().enumerate() {
            let own = scaled.iter().skip(feature).step_by(5).map(|x| f64::from(*x).powi(2));
            let expected = own.sum::<f64>() / ROWS as f64;
            assert!((found - expected).abs() < 1e-9 * expected.max(1.0), "{found} {expected}");
        }
        // What was measured is in the file, and so is the rule: the next version is the same.
        let mut loaded = Network::from_bytes(&network.to_bytes(Default::default())?)?;
        assert_eq!(loaded.layer(AT, 0)?.range(), Some(&range));
        for other in [&mut network, &mut loaded] {
            trained(other, &data, &training())?;
        }
        let (found, expected) = (check("loaded", &mut loaded, &data)?, check("kept", &mut network, &data)?);
        // A master that was trained on another device may be encoded otherwise at a tie.
        assert!(*device != "cpu" || found == expected);
        for bad in [0.0, 101.0, f64::NAN] {
            assert!(matches!(network.calibrate(data.view()?, bad, 5), Err(Error::Value(_))));
        }
        assert!(network.calibrate(data.view()?, 99.0, 0).is_err());
    }
    Ok(())
}

/// Draws are keyed by the updates made: the same on any device, and after a resume.
#[test]
fn stochastic_rounding_goes_on_bit_for_bit() -> Result<()> {
    let data = Data::new();
    let recipe = Recipe { rounding: Rounding::Stochastic, ..Recipe::default() };
    let config = |epochs| TrainingConfig {
        epochs,
        optimizer: Optimizer::default(),
        learning_rate: 0.01,
        ..training()
    };
    let save = crate::io::SaveOptions::resumable();
    let resumed = |network: &mut Network, epochs| -> Result<()> {
        let examples = data.examples(false)?;
        crate::train::train_with(network, &examples, None, &config(epochs), true, &mut ()).map(|_| ())
    };
    let devices = if cfg!(feature = "gpu") { &["cpu", "gpu:0"][..] } else { &["cpu"] };
    for dtype in [DType::BFloat16, DType::Int4, DType::Binary, DType::Float8E4M3] {
        for device in devices {
            let mut network = network(Precision::Float32)?;
            if network.to(device).is_err() {
                continue;
            }
            network.morph_layers(Morph::new(dtype).by(recipe), |_| true)?;
            trained(&mut network, &data, &config(2))?;
            let mut copy = Network::from_bytes(&network.to_bytes(save)?)?;
            copy.to(device)?;
            resumed(&mut network, 4)?;
            resumed(&mut copy, 4)?;
            let expected = check("going on", &mut network, &data)?;
            assert_eq!(check("resumed", &mut copy, &data)?, expected, "{dtype} on {device}");
            for layer in 0..LAYERS {
                let weight = |network: &Network| network.parameter(AT, layer, "weight");
                assert_eq!(weight(&network)?, weight(&copy)?, "{dtype} on {device}");
            }
            // Another device draws the same for the same master.
            let here = network.packed_parameter(AT, 0, "weight")?.map(|packed| packed.bytes);
            network.to("cpu")?;
            let master = network.parameter(AT, 0, "weight")?;
            network.set_parameter(AT, 0, "weight", master.view())?;
            assert_eq!(network.packed_parameter(AT, 0, "weight")?.map(|packed| packed.bytes), here);
        }
    }
    Ok(())
}
