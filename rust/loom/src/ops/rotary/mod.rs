//! Rotary position embedding (Su et al. 2021).

mod cpu;
mod gpu;

use super::Direction;
use super::constants::Constants;
use crate::{Result, extents};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Which elements of a head turn together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairLayout {
    /// Elements 2 i and 2 i + 1, as in Llama's own code and llama2.c.
    #[default]
    Interleaved,
    /// Elements i and i + dim / 2, as in GPT-NeoX and in Hugging Face's Llama; dim is how many turn.
    HalfSplit,
}

/// Turns pair i of each head by the angle `place x rate[i]`, and multiplies it by a factor that is 1 as a rule.
///
/// - forward reads x (time, heads, head_dim), writes y like x: for a pair (a, b),
///   (a cos - b sin, b cos + a sin); elements behind the last pair stay as they are;
/// - input gradient reads dy and turns back.
///
/// Step t stands at place t, or with `positioned` at the session's position + t.
#[derive(Clone, Debug)]
pub struct Rotary {
    /// Forward or input gradient.
    pub direction: Direction,
    /// Steps of the sequence.
    pub time: usize,
    /// Heads of a step.
    pub heads: usize,
    /// Extent of a head.
    pub head_dim: usize,
    /// How many pairs of a head turn: those of its first elements.
    pub pairs: usize,
    /// Which elements are pairs.
    pub layout: PairLayout,
    /// Whether places count from the session's position.
    pub positioned: bool,
    /// For each place, the cosines of all pairs, then their sines.
    table: Arc<Constants>,
    /// How many places there are.
    places: usize,
}

impl Rotary {
    /// A rotation of whole heads by `place / scaling x base^(-2 i / head_dim)`, for so many `places`.
    pub fn new(
        (time, heads, head_dim): (usize, usize, usize),
        base: f64,
        scaling: f64,
        layout: PairLayout,
        places: usize,
    ) -> Result<Self> {
        let mut rates = extents::room(head_dim / 2)?;
        rates.extend((0..head_dim / 2).map(|pair| Self::rate(base, pair, head_dim) / scaling));
        Self::by_rates((time, heads, head_dim), &rates, 1.0, layout, places)
    }

    /// How fast a pair turns among the first `dim` elements of a head.
    pub fn rate(base: f64, pair: usize, dim: usize) -> f64 {
        libm::pow(base, -2.0 * pair as f64 / dim as f64)
    }

    /// A rotation with a pair for each of these rates, which multiplies them by `factor`, for so many `places`.
    pub fn by_rates(
        (time, heads, head_dim): (usize, usize, usize),
        rates: &[f64],
        factor: f64,
        layout: PairLayout,
        places: usize,
    ) -> Result<Self> {
        let pairs = rates.len();
        let table = table(rates, factor, places)?;
        Ok(Self {
            direction: Direction::Forward,
            time,
            heads,
            head_dim,
            pairs,
            layout,
            positioned: false,
            table,
            places,
        })
    }

    /// The same rotation the other way.
    pub fn inverse(&self) -> Self {
        Self { direction: Direction::InputGradient, ..self.clone() }
    }

    /// The same rotation of a sequence with so many heads.
    pub fn of_heads(&self, heads: usize) -> Self {
        Self { heads, ..self.clone() }
    }
}

/// What a table of rotations is made of.
#[derive(PartialEq)]
struct Turns {
    rates: Vec<u64>,
    factor: u64,
    places: usize,
}

/// Tables that somebody has: all layers of a network turn alike, in each of its programs.
static TABLES: Mutex<Vec<(Turns, Weak<Constants>)>> = Mutex::new(Vec::new());

/// For each place the cosines of all pairs times a factor, then their sines.
fn table(rates: &[f64], factor: f64, places: usize) -> Result<Arc<Constants>> {
    let bits = rates.iter().map(|rate| rate.to_bits()).collect();
    let turns = Turns { rates: bits, factor: factor.to_bits(), places };
    // What is in it holds even where somebody has panicked meanwhile.
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.retain(|(_, table)| table.strong_count() > 0);
    if let Some(table) = tables.iter().find(|(held, _)| *held == turns).and_then(|(_, table)| table.upgrade())
    {
        return Ok(table);
    }
    let angles = |place: usize| rates.iter().map(move |rate| place as f64 * rate);
    let numbers =
        (0..places).flat_map(|place| angles(place).map(libm::cos).chain(angles(place).map(libm::sin)));
    let numbers = numbers.map(|number| factor * number);
    let table = Arc::new(Constants::new("rotations", [places, 2 * rates.len()], numbers)?);
    tables.push((turns, Arc::downgrade(&table)));
    Ok(table)
}

impl fmt::Display for Rotary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rotary.{} {}x{}x{}", self.direction, self.time, self.heads, self.head_dim)?;
        if 2 * self.pairs < self.head_dim { write!(f, " first {}", 2 * self.pairs) } else { Ok(()) }
    }
}
