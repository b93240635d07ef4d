//! What training allocates: nothing inside a step, and at its peak little more than what it must hold; and what
//! loading a packed network does.

use loom::dtype::{Calibration, DType, Granularity, Kind, Recipe};
use loom::io::SaveOptions;
use loom::layers::{Conv2D, Dense, Dropout, Flatten, MaxPool2D};
use loom::network::{Morph, Numerics};
use loom::ops::pointwise::Activation;
use loom::train::{Examples, LossConfig, Metric, Rows, Trainer, TrainingConfig};
use loom::{Network, Result, tensor_view};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counting.
struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(size: usize) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    let held = HELD.fetch_add(size, Ordering::SeqCst) + size;
    PEAK.fetch_max(held, Ordering::SeqCst);
}

// SAFETY: everything is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        HELD.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counters are the whole process's, so one measurement runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * 0.618_034).fract() * 2.0 - 1.0).collect()
}

/// Allocations in ten steps, at the least.
fn allocations_of_steps(mut network: Network, config: &TrainingConfig) -> Result<usize> {
    let batch = config.batch_size;
    let shape = [&[batch], &network.input_shape()[..]].concat();
    let input = noise(shape.iter().product());
    let labels: Vec<i32> = (0..batch as i32).map(|i| i % 3).collect();
    let examples = Examples::classified(tensor_view(&shape, &input)?, &labels);
    let mut trainer = Trainer::new(&mut network, config, &examples, 100)?;
    let order: Vec<u32> = (0..batch as u32).rev().collect();
    // Threads keep scratch memory that grows to what they need, which thread takes which task is
    // not fixed, and the test runner's own threads allocate now and then: both come to an end,
    // while a step that allocates does so every time.
    let mut fewest = usize::MAX;
    for _ in 0..40 {
        let before = CALLS.load(Ordering::SeqCst);
        for _ in 0..10 {
            trainer.step(&mut network, &[(&examples, Rows::At(&order))])?;
        }
        fewest = fewest.min(CALLS.load(Ordering::SeqCst) - before);
        if fewest == 0 {
            break;
        }
    }
    Ok(fewest)
}

#[test]
fn a_step_allocates_nothing() -> Result<()> {
    let _alone = ALONE.lock();
    let config = TrainingConfig {
        batch_size: 16,
        loss: LossConfig::parse("cross_entropy")?,
        gradient_clip: Some(1.0),
        metrics: vec![Metric::Accuracy],
        class_weight: Some(vec![1.0, 2.0, 3.0]),
        ..TrainingConfig::default()
    };
    let mut dense = Network::sequential([40])?;
    dense.add([0, 0, 0], Dense::new(64).activation(Activation::Gelu))?;
    dense.add([0, 0, 0], Dropout { rate: 0.5 })?;
    dense.add([0, 0, 0], Dense::new(3))?;
    let again = Network::from_config(&dense.config())?;
    assert_eq!(allocations_of_steps(dense, &config)?, 0);
    // Without clipping, gradients go straight into their updates.
    assert_eq!(allocations_of_steps(again, &TrainingConfig { gradient_clip: None, ..config.clone() })?, 0);

    let mut images = Network::sequential([1, 12, 12])?;
    images.add([0, 0, 0], Conv2D::new(8, [3, 3]).activation(Activation::Relu))?;
    images.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
    images.add([0, 0, 0], Conv2D::new(8, [3, 3]).groups(2))?;
    images.add([0, 0, 0], Flatten {})?;
    images.add([0, 0, 0], Dense::new(3))?;
    images.morph(DType::Int8)?;
    assert_eq!(allocations_of_steps(images, &config)?, 0);

    let mut packed = Network::sequential([40])?;
    packed.add([0, 0, 0], Dense::new(64).activation(Activation::Gelu))?;
    packed.add([0, 0, 0], Dense::new(3))?;
    let recipe = Recipe { calibration: Calibration::Percentile(99.0), ..Recipe::default() };
    packed.morph_layers(Morph::new(DType::Int4).by(recipe), |_| true)?;
    let numerics = Numerics { recipe, activations: None };
    packed.morph_layers(Morph { dtype: DType::Int8, numerics, parameters: Some(&["bias"]) }, |_| true)?;
    assert_eq!(allocations_of_steps(packed, &config)?, 0);
    Ok(())
}

#[test]
fn the_peak_is_close_to_what_training_must_hold() -> Result<()> {
    let _alone = ALONE.lock();
    const BATCH: usize = 1024;
    let sizes = [784usize, 512, 512, 10];
    let input = noise(BATCH * sizes[0]);
    let labels: Vec<i32> = (0..BATCH as i32).map(|i| i % 10).collect();
    let held = HELD.load(Ordering::SeqCst);
    PEAK.store(held, Ordering::SeqCst);

    let mut network = Network::sequential([sizes[0]])?;
    for units in &sizes[1..] {
        network.add([0, 0, 0], Dense::new(*units).activation(Activation::Relu))?;
    }
    let examples = Examples::classified(tensor_view(&[BATCH, sizes[0]], &input)?, &labels);
    let config = TrainingConfig {
        batch_size: BATCH,
        loss: LossConfig::parse("cross_entropy")?,
        ..TrainingConfig::default()
    };
    let mut trainer = Trainer::new(&mut network, &config, &examples, 10)?;
    for _ in 0..3 {
        trainer.step(&mut network, &[(&examples, Rows::First(BATCH))])?;
    }
    let peak = PEAK.load(Ordering::SeqCst) - held;
    let weights: usize = sizes.windows(2).map(|pair| pair[0] * pair[1] + pair[1]).sum();
    let activations = BATCH * sizes.iter().sum::<usize>();
    // Weights, gradients and two moments, and what the layers read and make.
    let needed = 4 * (4 * weights + activations);
    assert!(2 * peak < 3 * needed, "a peak of {peak} bytes for {needed} that are needed");
    Ok(())
}

/// A network without masters is a file of its bits, and is loaded without ever being unpacked.
#[test]
fn packed_networks_are_loaded_as_small_as_they_are() -> Result<()> {
    let _alone = ALONE.lock();
    let (inputs, units) = (768, 512);
    // Names, shapes and the config, and what the system's own threads take.
    let header = 4 << 10;
    for dtype in DType::all().filter(|dtype| *dtype != DType::Float32) {
        let mut network = Network::sequential([inputs])?;
        network.add([0, 0, 0], Dense::new(units))?;
        network.morph(dtype)?;
        let input = noise(inputs);
        let expected = network.predict(tensor_view(&[1, inputs], &input)?)?;
        network.drop_masters()?;
        let weights = network.weight_bytes();
        let groups = match dtype.row().kind {
            Kind::Block => 0,
            _ if dtype.row().granularity == Granularity::Channel => units,
            _ if dtype.row().granularity == Granularity::Tensor => 1,
            _ => 0,
        };
        // A scale, and a zero point of as many words as the codes need.
        let words = match (dtype.row().kind, dtype.row().bits) {
            (Kind::Affine, 64) => 3,
            (Kind::Affine, _) => 2,
            _ => 1,
        };
        let codes = (inputs as f64 * units as f64 * dtype.row().bits_per_weight() / 8.0).ceil() as usize;
        assert_eq!(weights, codes + groups * words * 4 + units * 4, "{dtype}");
        let bytes = network.to_bytes(SaveOptions::default())?;
        assert!(bytes.len() <= weights + header, "{dtype}: {} bytes for {weights}", bytes.len());
        drop(network);
        // The first load also makes what is made once.
        Network::from_bytes(&bytes)?;
        let held = HELD.load(Ordering::SeqCst);
        PEAK.store(held, Ordering::SeqCst);
        let loaded = Network::from_bytes(&bytes)?;
        let peak = PEAK.load(Ordering::SeqCst) - held;
        // Scales and biases are in memory twice while they are read.
        let twice = 2 * units * 4 * words;
        assert!(peak <= weights + twice + 8 * header, "{dtype}: a peak of {peak} bytes for {weights}");
        assert_eq!(loaded.predict(tensor_view(&[1, inputs], &input)?)?, expected, "{dtype}");
    }
    Ok(())
}
