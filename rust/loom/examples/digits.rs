//! A convolutional network learns to read digits, from Rust alone: train, evaluate, save, load, morph.
//!
//! `cargo run --release --example digits` draws its own digits. With the four files of a data set in
//! the IDX format in a folder (MNIST's names, unpacked),
//! `cargo run --release --example digits -- FOLDER` reads those.

use loom::dtype::DType;
use loom::io::SaveOptions;
use loom::layers::{Conv2D, Dense, Flatten, MaxPool2D, Padding};
use loom::ops::pointwise::Activation;
use loom::train::{
    Callback, EpochReport, Examples, LossConfig, Metric, Schedule, TrainingConfig, evaluate, train_with,
};
use loom::{Error, Network, Result, tensor_view};
use std::ops::ControlFlow;
use std::path::Path;

/// Images of one channel with values from 0 to 1, and which digit each shows.
struct Digits {
    side: usize,
    pixels: Vec<f32>,
    labels: Vec<i32>,
}

impl Digits {
    fn examples(&self) -> Result<Examples<'_>> {
        let shape = [self.labels.len(), 1, self.side, self.side];
        Ok(Examples::classified(tensor_view(&shape, &self.pixels)?, &self.labels))
    }
}

/// The digits 0 to 9 on a grid of 5 x 7, a row a line.
const GLYPHS: [[&str; 7]; 10] = [
    [".###.", "#...#", "#..##", "#.#.#", "##..#", "#...#", ".###."],
    ["..#..", ".##..", "..#..", "..#..", "..#..", "..#..", ".###."],
    [".###.", "#...#", "....#", "...#.", "..#..", ".#...", "#####"],
    [".###.", "#...#", "....#", "..##.", "....#", "#...#", ".###."],
    ["...#.", "..##.", ".#.#.", "#..#.", "#####", "...#.", "...#."],
    ["#####", "#....", "####.", "....#", "....#", "#...#", ".###."],
    ["..##.", ".#...", "#....", "####.", "#...#", "#...#", ".###."],
    ["#####", "....#", "...#.", "..#..", ".#...", ".#...", ".#..."],
    [".###.", "#...#", "#...#", ".###.", "#...#", "#...#", ".###."],
    [".###.", "#...#", "#...#", ".####", "....#", "...#.", ".##.."],
];

/// Draws digits at random places, slants and strengths, with noise.
fn draw(count: usize, seed: u64) -> Digits {
    const SIDE: usize = 12;
    let mut state = seed;
    // A linear congruential generator is random enough to place a glyph (Knuth's MMIX constants).
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut digits = Digits { side: SIDE, pixels: Vec::new(), labels: Vec::new() };
    for index in 0..count {
        let glyph = &GLYPHS[index % 10];
        let (down, right, slant, strength) =
            (random() * 4.0, random() * 6.0, random() - 0.5, 0.5 + 0.5 * random());
        for y in 0..SIDE {
            for x in 0..SIDE {
                let (row, column) = (y as f32 - down, x as f32 - right - slant * (y as f32 - 6.0) / 3.0);
                let inside = (0.0..7.0).contains(&row) && (0.0..5.0).contains(&column);
                let ink = inside && glyph[row as usize].as_bytes()[column as usize] == b'#';
                digits.pixels.push((if ink { strength } else { 0.0 } + 0.25 * random()).min(1.0));
            }
        }
        digits.labels.push((index % 10) as i32);
    }
    digits
}

/// Reads images and labels in the IDX format, unpacked.
fn read(folder: &Path, images: &str, labels: &str) -> Result<Digits> {
    let load = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path)
            .map_err(|source| Error::Io { context: format!("could not read {}", path.display()), source })
    };
    let (images, labels) = (load(images)?, load(labels)?);
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
    };
    let (Some(count), Some(side)) = (number(&images, 4), number(&images, 8)) else {
        return Err(Error::Serialization("an IDX file is cut short".into()));
    };
    if images.len() != 16 + count * side * side || labels.len() != 8 + count {
        return Err(Error::Serialization("the IDX files do not hold as many images as labels".into()));
    }
    Ok(Digits {
        side,
        pixels: images[16..].iter().map(|pixel| f32::from(*pixel) / 255.0).collect(),
        labels: labels[8..].iter().map(|label| i32::from(*label)).collect(),
    })
}

/// Prints a line an epoch.
struct Progress;

impl Callback for Progress {
    fn on_epoch_end(&mut self, _network: &Network, report: &EpochReport) -> ControlFlow<()> {
        let held_out = report.validation.as_ref().map_or(f64::NAN, |found| found.metrics[0].1);
        println!(
            "epoch {:>2}  loss {:.4}  held-out accuracy {:.2} %  {:.2} s",
            report.epoch + 1,
            report.loss,
            100.0 * held_out,
            report.duration
        );
        ControlFlow::Continue(())
    }
}

fn main() -> Result<()> {
    let (train, test) = match std::env::args().nth(1) {
        Some(folder) => (
            read(Path::new(&folder), "train-images-idx3-ubyte", "train-labels-idx1-ubyte")?,
            read(Path::new(&folder), "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")?,
        ),
        None => (draw(4000, 1), draw(1000, 2)),
    };

    let mut network = Network::new([1, train.side, train.side], [1, 1, 2])?;
    for filters in [16, 32] {
        let convolution = Conv2D::new(filters, [3, 3]).padding(Padding::Explicit([1, 1]));
        network.add([0, 0, 0], convolution.activation(Activation::Relu))?;
        network.add([0, 0, 0], MaxPool2D::new([2, 2]))?;
    }
    network.add([0, 0, 1], Flatten {})?;
    network.add([0, 0, 1], Dense::new(64).activation(Activation::Relu))?;
    network.add([0, 0, 1], Dense::new(10))?;
    println!("{}\n", network.summary()?);

    let config = TrainingConfig {
        epochs: 5,
        batch_size: 64,
        learning_rate: 3e-3,
        loss: LossConfig::parse("cross_entropy")?,
        schedule: Schedule::Cosine { end_factor: 0.05, steps: None },
        metrics: vec![Metric::Accuracy],
        ..TrainingConfig::default()
    };
    let held_out = test.examples()?;
    train_with(&mut network, &train.examples()?, Some(&held_out), &config, false, &mut Progress)?;

    let path = std::env::temp_dir().join("digits.loom");
    network.save(&path, SaveOptions::default())?;
    let mut loaded = Network::load(&path)?;
    for dtype in [DType::Float32, DType::BFloat16, DType::Int8] {
        loaded.morph(dtype)?;
        let found = evaluate(&loaded, &held_out, &config)?;
        let (accuracy, bytes) = (100.0 * found.metrics[0].1, loaded.weight_bytes());
        println!("{dtype:<9} {bytes:>9} bytes of weights, held-out accuracy {accuracy:.2} %");
    }
    Ok(())
}
