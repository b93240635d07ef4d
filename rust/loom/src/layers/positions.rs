//! What tells steps of a sequence from each other: learned rows, or waves.

use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, shape_error, single};
use crate::ops::{Direction, Positions};
use crate::program::{Builder, Value};
use crate::state::CarriedSpec;
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result};

/// The extents of a sequence that is no longer than there are places.
fn extents(kind: &str, input: &Shape, places: usize) -> Result<(usize, usize)> {
    match &input[..] {
        [time, width] if *time > 0 && *time <= places && *width > 0 => Ok((*time, *width)),
        _ => Err(shape_error(kind, &format!("(time, width) with a time of at most {places}"), input)),
    }
}

/// What a layer with places for so many steps carries: nothing is kept in it, but its extent says how long
/// the session may become.
fn session_length(length: usize) -> Vec<CarriedSpec> {
    vec![CarriedSpec {
        name: "places".into(),
        shape: Shape::from(length),
        initial: 0.0,
        in_training: false,
        by_place: true,
        packable: None,
    }]
}

/// Refuses a session that may become longer than there are places.
fn check_session(kind: &str, b: &mut Builder, cx: &Context, places: usize) -> Result<()> {
    let Some(carried) = cx.carried(b, "places") else { return Ok(()) };
    let length = b.shape(carried).len();
    if length > places {
        return Err(Error::Value(format!(
            "{kind} has places for {places} steps, fewer than the session's capacity of {length}; raise max_time \
             or begin a shorter session"
        )));
    }
    Ok(())
}

settings! {
    /// Adds a trained row to each step of a sequence: (time, width) to (time, width).
    ///
    /// The `weight` is (max_time, width), its rows by place from the start of the sequence; in a session
    /// places count from the first call.
    #[derive(Clone, Debug, PartialEq)]
    pub struct PositionalEmbedding "positional_embedding" {
        /// The most steps that a sequence may have.
        max_time: usize [least 1],
    } optional {
        /// How the rows start; normal with standard deviation 1 / sqrt(width) unless named.
        weight_initializer: Option<Initializer> = None,
    }
}

impl PositionalEmbedding {
    /// Rows for so many places.
    pub fn new(max_time: usize) -> Self {
        Self::with_defaults(max_time)
    }
}

impl Configured for PositionalEmbedding {
    fn samples() -> Vec<Sample> {
        let named = Self { weight_initializer: Some(Initializer::Normal { std: 0.1 }), ..Self::new(9) };
        vec![
            Sample::new(Self::new(1), [1, 1]),
            Sample::new(Self::new(5), [5, 7]),
            Sample::new(named, [4, 19]),
        ]
    }
}

impl Layer for PositionalEmbedding {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        extents("PositionalEmbedding", input, self.max_time)?;
        Ok(input.clone())
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let width = inputs[0].last().copied().unwrap_or(1);
        let usual = Initializer::Normal { std: 1.0 / (width as f64).sqrt() };
        vec![ParameterSpec {
            name: "weight".into(),
            layout: Layout::plain([self.max_time, width]),
            initializer: self.weight_initializer.unwrap_or(usual),
            fan_in: width,
            fan_out: width,
            // Positions stay as exact as they are.
            morphable: false,
            decay_exempt: false,
            adaptable: false,
        }]
    }

    fn carried(&self, _inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        session_length(length)
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl OneInput for PositionalEmbedding {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = b.shape(x).clone();
        let (time, width) = extents("PositionalEmbedding", &shape, self.max_time)?;
        check_session("PositionalEmbedding", b, cx, self.max_time)?;
        let weight = cx.read(b, "weight")?;
        let mut op = Positions::learned(Direction::Forward, time, width, self.max_time);
        op.positioned = cx.session;
        Ok(Forward::new(b.apply(op, &[x, weight], "y", shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let (time, width) = extents("PositionalEmbedding", b.shape(back.x), self.max_time)?;
        if back.want.parameters {
            let op = Positions::learned(Direction::WeightGradient, time, width, self.max_time);
            back.cx.contribute(b, "weight", op, &[back.gradient])?;
        }
        Ok(back.want.inputs.then_some(back.gradient))
    }
}

settings! {
    /// Adds waves to each step of a sequence (Vaswani et al. 2017): (time, width) to (time, width). Element
    /// 2 i at place p gets sin(p base^(-2 i / width)), element 2 i + 1 the cosine.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SinusoidalPositions "sinusoidal_positions" {} optional {
        /// The most steps that a sequence may have.
        max_time: usize [least 1] = 4096,
        /// How much longer the last wave is than the first.
        base: f64 [above 0.0] = 10_000.0,
    }
}

impl Default for SinusoidalPositions {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for SinusoidalPositions {
    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Self::default(), [1, 1]),
            Sample::new(Self { max_time: 5, base: 100.0 }, [5, 7]),
            Sample::new(Self { max_time: 90, ..Self::default() }, [40, 3]),
        ]
    }
}

impl Layer for SinusoidalPositions {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        extents("SinusoidalPositions", input, self.max_time)?;
        Ok(input.clone())
    }

    fn carried(&self, _inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        session_length(length)
    }

    fn is_stepwise(&self) -> bool {
        true
    }

    one_input!();
}

impl OneInput for SinusoidalPositions {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let shape = b.shape(x).clone();
        let (time, width) = extents("SinusoidalPositions", &shape, self.max_time)?;
        check_session("SinusoidalPositions", b, cx, self.max_time)?;
        let places = if cx.session { self.max_time } else { time };
        let mut op = Positions::sinusoidal(time, width, self.base, places)?;
        op.positioned = cx.session;
        Ok(Forward::new(b.apply(op, &[x], "y", shape)))
    }

    fn lower_backward(&self, _b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        Ok(Some(back.gradient))
    }
}
