//! Networks, layers and numbers that follow from the bytes of an input. Where the bytes end, every choice is the first
//! one, which is the plainest.

use arbitrary::Unstructured;
use loom::dtype::DType;
use loom::layers::{Form, Setting, samples, schema};
use loom::ops::pointwise::Activation;
use loom::{Network, Result};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Numbers that parsers and products of extents stumble over.
const ODD: [u64; 14] =
    [0, 1, 2, 3, 7, 64, 255, 65_536, 100_000, (1 << 31) - 1, 1 << 32, 1 << 40, (1 << 62) + 1, u64::MAX];

/// How deep layers may be inside layers.
const DEEPEST: usize = 3;

/// A layer as a config, with the extents of an input that fits it.
#[derive(Clone)]
pub struct Fitting {
    pub config: Value,
    pub input: Vec<usize>,
    pub context: Option<Vec<usize>>,
    pub masked: bool,
    pub reads_indices: bool,
}

static FITTING: LazyLock<Vec<Fitting>> = LazyLock::new(|| {
    let all = samples().into_iter().flat_map(|(_, samples)| samples);
    let plain = all.map(|sample| Fitting {
        config: sample.layer.config(),
        input: sample.input.to_vec(),
        context: sample.context.map(|shape| shape.to_vec()),
        masked: sample.masked,
        reads_indices: sample.layer.index_limit().is_some(),
    });
    plain.filter(|fitting| fitting.input.iter().product::<usize>() <= 200).collect()
});

static SCHEMA: LazyLock<HashMap<&str, Vec<Setting>>> = LazyLock::new(|| schema().into_iter().collect());

/// Where choices come from.
pub struct Draws<'a>(Unstructured<'a>);

impl<'a> Draws<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Whether there is anything left to choose by.
    pub fn more(&self) -> bool {
        !self.0.is_empty()
    }

    pub fn below(&mut self, count: usize) -> usize {
        self.0.int_in_range(0..=count.saturating_sub(1)).unwrap_or(0)
    }

    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) + 1 == count
    }

    pub fn one_of<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[self.below(all.len())]
    }

    pub fn name<'b>(&mut self, all: &[&'b str]) -> &'b str {
        all[self.below(all.len())]
    }

    /// A number of any size, mostly small.
    pub fn odd(&mut self) -> u64 {
        match self.below(4) {
            0 | 1 => 1 + self.below(6) as u64,
            2 => *self.one_of(&ODD),
            _ => self.0.arbitrary().unwrap_or(1),
        }
    }

    /// A real number, mostly near 0.
    pub fn real(&mut self) -> f64 {
        match self.below(8) {
            7 => *self.one_of(&[1e-300, 1e300, -1e300, 1e38, -0.0, 1e-8, f64::MAX, -1.0, 2.0, 1e9]),
            _ => self.below(256) as f64 / 128.0 - 0.5,
        }
    }

    /// So many numbers for inputs and gradients.
    pub fn numbers(&mut self, count: usize) -> Vec<f32> {
        let first = self.below(256) as f32;
        let wild = self.once_in(16).then(|| self.real() as f32);
        let number = |place: usize| (((place as f32 + first) * 0.618_034).fract() - 0.5) * 2.0;
        (0..count).map(|place| wild.filter(|_| place % 7 == 3).unwrap_or(number(place))).collect()
    }

    /// A value for a setting; `wild` ones are mostly refused.
    fn value(&mut self, setting: &Setting, wild: bool, depth: usize) -> Option<Value> {
        if setting.optional && self.once_in(4) {
            return Some(Value::Null);
        }
        self.of_form(&setting.form, wild, depth)
    }

    fn of_form(&mut self, form: &Form, wild: bool, depth: usize) -> Option<Value> {
        let whole = |draws: &mut Self| match wild {
            true => draws.odd(),
            false => 1 + draws.below(4) as u64,
        };
        Some(match form {
            Form::Whole => json!(whole(self)),
            Form::Integer => json!((whole(self) as i64).wrapping_sub(self.below(4) as i64)),
            Form::Real => json!(if wild { self.real() } else { self.below(9) as f64 / 8.0 }),
            Form::Flag => json!(self.once_in(2)),
            Form::Name { names } => self.one_of(names).clone(),
            Form::Padding { .. } if self.once_in(2) => json!(self.name(&["same", "valid", "causal"])),
            Form::Extents { axes } | Form::Padding { axes } => {
                (0..*axes).map(|_| json!(whole(self))).collect()
            }
            Form::Activation => json!(self.one_of(Activation::ALL)),
            Form::Initializer => json!(self.name(&["he_normal", "zeros", "ones", "orthogonal"])),
            Form::Layers => (0..self.below(3)).map(|_| self.layer(wild, depth + 1).config).collect(),
            Form::List { of } => (0..self.below(4)).filter_map(|_| self.of_form(of, wild, depth)).collect(),
            Form::Settings { settings } => {
                let mut object = Map::new();
                for setting in settings {
                    if setting.default.is_none() || self.once_in(3) {
                        object.insert(setting.name.into(), self.value(setting, wild, depth)?);
                    }
                }
                Value::Object(object)
            }
            Form::PositionBias if self.once_in(2) => json!("alibi"),
            Form::PositionBias => json!({"relative": {"buckets": whole(self), "max_distance": whole(self)}}),
            Form::RotaryRule | Form::Other => return None,
        })
    }

    /// A layer that is tried somewhere, some of its settings changed.
    pub fn layer(&mut self, wild: bool, depth: usize) -> Fitting {
        let mut layer = self.one_of(&FITTING).clone();
        if depth > DEEPEST {
            return Fitting { config: json!({"type": "flatten"}), ..layer };
        }
        let kind = layer.config["type"].as_str().unwrap_or_default().to_string();
        let settings = SCHEMA.get(kind.as_str()).map_or(&[][..], Vec::as_slice);
        let changes = if settings.is_empty() { 0 } else { self.below(4) };
        for _ in 0..changes {
            let setting = self.one_of(settings);
            if let Some(value) = self.value(setting, wild, depth) {
                layer.config[setting.name] = value;
            }
        }
        layer
    }

    /// A shape of up to five axes.
    pub fn shape(&mut self, wild: bool) -> Vec<u64> {
        let axes = self.below(5);
        (0..=axes).map(|_| if wild { self.odd() } else { 1 + self.below(6) as u64 }).collect()
    }

    fn precision(&mut self) -> &'static str {
        self.name(&["float32", "float32", "float64", "mixed"])
    }

    /// What goes on with a layer's weights.
    fn settings_of(&mut self, at: [usize; 4]) -> Value {
        let mut settings = json!({"at": at, "trainable": !self.once_in(4), "rate_factor": 0.5});
        if self.once_in(3) {
            let all: Vec<DType> = DType::all().collect();
            settings["dtype"] = json!(self.one_of(&all));
        }
        settings
    }

    /// The config of a network of any layers behind each other, most of which do not fit.
    pub fn loose(&mut self) -> Value {
        let wild = self.once_in(2);
        let grid: Vec<u64> = (0..3).map(|_| if self.once_in(40) { self.odd() } else { 1 }).collect();
        let cells = 1 + self.below(3);
        let (mut list, mut input) = (Vec::new(), json!(self.shape(wild)));
        for number in 0..cells {
            let layers: Vec<Fitting> = (0..1 + self.below(3)).map(|_| self.layer(wild, 0)).collect();
            if number == 0 && !self.once_in(3) {
                input = json!(layers[0].input);
            }
            let layers: Vec<Value> = layers.into_iter().map(|layer| layer.config).collect();
            list.push(json!({"at": [0, 0, number], "layers": layers}));
        }
        let grid = if cells > 1 { json!([1, 1, cells]) } else { json!(grid) };
        let mut config = json!({
            "input_shape": input, "grid": grid, "precision": self.precision(), "seed": 1, "cells": list,
        });
        if self.once_in(3) {
            let mut at = || [0, 0, self.below(cells + 1)];
            let (source, target) = (at(), at());
            let combine = self.name(&["add", "concat", "context"]);
            config["links"] = json!([{"source": source, "target": target, "combine": combine}]);
        }
        if self.once_in(4) {
            config["settings"] = json!([self.settings_of([0, 0, 0, 0])]);
        }
        config
    }

    /// The config of a network of layers each of which gets the input that it wants, as far as its settings have not
    /// changed that.
    pub fn fitting(&mut self) -> Value {
        let first = self.layer(false, 0);
        let dense = |units: usize| json!({"type": "dense", "units": units, "activation": "tanh"});
        let reshape = |shape: &[usize]| json!({"type": "reshape", "shape": shape});
        let flatten = json!({"type": "flatten"});
        let mut cells: Vec<Vec<Value>> = vec![Vec::new()];
        let mut links = Vec::new();
        let mut input = vec![4];
        for number in 0..=self.below(3) {
            let layer = if number == 0 { first.clone() } else { self.layer(false, 0) };
            let count = layer.input.iter().product::<usize>();
            let begins = number == 0 && (layer.reads_indices || self.once_in(3)) && layer.context.is_none();
            if layer.reads_indices && !begins {
                continue;
            }
            if begins {
                input = layer.input.clone();
            }
            if let Some(context) = &layer.context {
                let source = cells.len();
                cells.push(vec![flatten.clone(), dense(context.iter().product()), reshape(context)]);
                cells.push(Vec::new());
                links.push(json!({
                    "source": [0, 0, source], "target": [0, 0, source + 1], "combine": "context",
                }));
            }
            let Some(cell) = cells.last_mut() else { continue };
            if !begins {
                cell.extend([flatten.clone(), dense(count), reshape(&layer.input)]);
            }
            let config = match layer.masked && layer.config["type"] != "masked" {
                true => json!({"type": "masked", "layers": [layer.config]}),
                false => layer.config.clone(),
            };
            cell.push(config);
        }
        if let Some(cell) = cells.last_mut() {
            cell.extend([flatten.clone(), dense(3)]);
        }
        let count = cells.len();
        let cells: Vec<Value> =
            (0..).zip(cells).map(|(at, layers)| json!({"at": [0, 0, at], "layers": layers})).collect();
        let mut config = json!({
            "input_shape": input, "grid": [1, 1, count], "precision": self.precision(), "seed": self.below(9),
            "cells": cells, "links": links,
        });
        if self.once_in(4) {
            let at = [0, 0, self.below(count), self.below(3)];
            config["settings"] = json!([self.settings_of(at)]);
        }
        config
    }
}

/// The network of a config, which is shown with `LOOM_FUZZ_SHOW`.
pub fn network(config: &Value) -> Result<Network> {
    if std::env::var_os("LOOM_FUZZ_SHOW").is_some() {
        eprintln!("{config}");
    }
    Network::from_json(&config.to_string())
}

/// Whether a network is so small that it may be built and run here.
pub fn is_small(network: &Network) -> Result<bool> {
    let rows = network.summary_rows()?;
    let parameters = rows.iter().fold(0usize, |sum, row| sum.saturating_add(row.parameters));
    let shapes = rows.iter().map(|row| &row.output_shape[..]).chain([&network.input_shape()[..]]);
    let largest =
        shapes.map(|shape| shape.iter().fold(1usize, |all, extent| all.saturating_mul(*extent))).max();
    Ok(parameters <= 20_000 && largest.is_none_or(|largest| largest <= 4096))
}

/// An input of so many rows: its extents and numbers.
pub fn input(draws: &mut Draws<'_>, network: &Network, rows: usize) -> (Vec<usize>, Vec<f32>) {
    let shape = [&[rows], &network.input_shape()[..]].concat();
    let mut numbers = draws.numbers(shape.iter().product());
    if let Some(limit) = network.index_limit() {
        let first = draws.below(256);
        (0..).zip(&mut numbers).for_each(|(place, number)| *number = ((place + first) % limit) as f32);
    }
    (shape, numbers)
}
