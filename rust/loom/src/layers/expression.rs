//! A function of one's own as a layer, given as text.

use super::activation::{activate, activate_backward};
use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{Form, forms, kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, single};
use crate::ops::expression::{Expression, Repeated, functions};
use crate::ops::{BiasGradient, Evaluate};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What stands for the layer's input.
const INPUT: &str = "x";

/// A number or an array that an expression names and that is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpressionParameter {
    /// The name that the expression has for it.
    pub name: String,
    /// Its extents, aligned with the last axes of the layer's input; none for one number.
    #[serde(default)]
    pub shape: Vec<usize>,
    /// What all its elements start at.
    #[serde(default = "one")]
    pub initial: f64,
}

fn one() -> f64 {
    1.0
}

forms! { ExpressionParameter => Form::Other }

settings! {
    /// A function of every element by itself, given as text: `a * x + b`. The shape stays.
    ///
    /// The outside sees every parameter in its extents, one number as (1,).
    #[derive(Clone, Debug, PartialEq)]
    pub struct Expr "expr" {
        /// The text, in which x is the input.
        expression: String,
    } optional {
        /// What else the text names; all of it is trained.
        parameters: Vec<ExpressionParameter> = Vec::new(),
    }
}

/// How a parameter lies on a row: (outer, elements, inner).
#[derive(Clone, Copy)]
struct Extents {
    outer: usize,
    count: usize,
    inner: usize,
}

impl Expr {
    fn parsed(&self) -> Result<Expression> {
        let parameters = self.parameters.iter().map(|parameter| parameter.name.as_str());
        let names: Vec<&str> = std::iter::once(INPUT).chain(parameters).collect();
        Expression::parse(&self.expression, &names)
    }

    /// The extents of each parameter.
    fn extents(&self, input: &Shape) -> Result<Vec<Extents>> {
        self.parameters.iter().map(|parameter| parameter.extents(input)).collect()
    }

    /// The operation of this program, whose first inputs are x and the parameters.
    fn evaluate(&self, program: crate::ops::expression::Program, extents: &[Extents]) -> Evaluate {
        let repeated = |number: &usize| {
            let extents = extents.get(number.checked_sub(1)?)?;
            Some(Repeated { count: extents.count, inner: extents.inner })
        };
        let repeated = program.reads().iter().map(repeated).collect();
        Evaluate { program: Arc::new(program), repeated, text: self.expression.as_str().into() }
    }
}

impl ExpressionParameter {
    fn extents(&self, input: &Shape) -> Result<Extents> {
        let refused = |why: &str| {
            let shape = Shape::from(&self.shape[..]);
            Error::Shape(format!(
                "Expr: parameter \"{}\" of shape {shape} does not broadcast to the input {input}: {why}",
                self.name
            ))
        };
        let axes: &[usize] = input;
        let Some(lead) = axes.len().checked_sub(self.shape.len()) else {
            return Err(refused(
                "it has more axes than the input; extents are aligned with the input's last axes",
            ));
        };
        let own = std::iter::repeat_n(&1, lead).chain(&self.shape);
        let (mut outer, mut count, mut inner) = (1, 1, 1);
        for (own, axis) in own.zip(axes) {
            match (own, axis) {
                (1, 1) => {}
                (1, axis) if count == 1 => outer *= axis,
                (1, axis) => inner *= axis,
                (own, axis) if own != axis => {
                    return Err(refused("every extent must be 1 or the input's of the same axis"));
                }
                _ if inner > 1 => {
                    return Err(refused(
                        "extents of 1 between others are not supported; swap axes with Permute",
                    ));
                }
                (own, _) => count *= own,
            }
        }
        // One number is the same everywhere.
        Ok(if count == 1 {
            Extents { outer: 1, count, inner: outer * inner }
        } else {
            Extents { outer, count, inner }
        })
    }
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

impl Configured for Expr {
    fn samples() -> Vec<Sample> {
        let expr = |text: &str, parameters: &[(&str, &[usize], f64)]| Self {
            expression: text.into(),
            parameters: parameters
                .iter()
                .map(|(name, shape, initial)| ExpressionParameter {
                    name: (*name).into(),
                    shape: shape.to_vec(),
                    initial: *initial,
                })
                .collect(),
        };
        vec![
            Sample::new(expr("x * tanh(log1p(exp(x)))", &[]), [7]),
            Sample::new(expr("a * x + b", &[("a", &[5], 0.5), ("b", &[], 0.25)]), [3, 5]),
            Sample::new(expr("gelu(x)", &[]), [3, 5]),
            Sample::new(
                expr("where(x > 0, x, a * (exp(x) - 1)) + 0.1 * sin(3 * x)", &[("a", &[3, 1, 1], 1.0)]),
                [3, 2, 4],
            ),
            Sample::new(
                expr(
                    "(x * x + 1) ** 0.75 * sigmoid(a * x) - x / (2 + cos(a + x)) * b",
                    &[("a", &[4], 0.5), ("b", &[2, 4], -1.0)],
                ),
                [3, 2, 4],
            ),
            Sample::new(expr("(x * x + 1) ** p", &[("p", &[2, 1], 0.5)]), [3, 2, 4]),
        ]
    }

    fn validate(&self) -> Result<()> {
        let functions = functions();
        for (place, ExpressionParameter { name, initial, shape }) in self.parameters.iter().enumerate() {
            if !is_name(name) {
                return Err(Error::Value(format!(
                    "a parameter's name is of letters, digits and _, got \"{name}\""
                )));
            }
            if name == INPUT || name == "pi" || functions.contains(&name.as_str()) {
                return Err(Error::Value(format!(
                    "\"{name}\" has a meaning in expressions; name the parameter otherwise"
                )));
            }
            if self.parameters[..place].iter().any(|other| other.name == *name) {
                return Err(Error::Value(format!("there are two parameters \"{name}\"")));
            }
            if !(*initial as f32).is_finite() {
                return Err(Error::Value(format!(
                    "parameter \"{name}\" must start at a finite number, got {initial}"
                )));
            }
            if shape.contains(&0) {
                return Err(Error::Value(format!("parameter \"{name}\" has an extent of 0: {shape:?}")));
            }
        }
        self.parsed().map(|_| ())
    }
}

impl Layer for Expr {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        self.extents(input)?;
        Ok(input.clone())
    }

    fn parameters(&self, _inputs: &[Shape]) -> Vec<ParameterSpec> {
        let spec = |ExpressionParameter { name, shape, initial }: &ExpressionParameter| ParameterSpec {
            name: name.clone().into(),
            layout: if shape.is_empty() { Layout::plain([1]) } else { Layout::plain(&shape[..]) },
            initializer: Initializer::Constant { value: *initial },
            fan_in: 1,
            fan_out: 1,
            morphable: false,
            decay_exempt: false,
            adaptable: false,
        };
        self.parameters.iter().map(spec).collect()
    }

    fn is_stepwise(&self) -> bool {
        // Arrays of more axes than the last one may differ from step to step.
        self.parameters.iter().all(|parameter| parameter.shape.len() < 2)
    }

    one_input!();
}

impl OneInput for Expr {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let parsed = self.parsed()?;
        if let Some(activation) = parsed.activation() {
            return Ok(activate(b, activation, x));
        }
        let shape = b.shape(x).clone();
        let op = self.evaluate(parsed.value(), &self.extents(&shape)?);
        let mut reads = Vec::new();
        for number in op.program.reads() {
            reads.push(match number.checked_sub(1) {
                None => x,
                Some(parameter) => cx.read(b, &self.parameters[parameter].name)?,
            });
        }
        Ok(Forward::new(b.apply(op, &reads, "y", shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, forward, gradient, want } = *back;
        let parsed = self.parsed()?;
        if let Some(activation) = parsed.activation() {
            return Ok(Some(activate_backward(b, activation, forward, gradient)));
        }
        let (shape, count) = (b.shape(x).clone(), self.parameters.len());
        let extents = self.extents(&shape)?;
        let wanted: Vec<usize> =
            (0..=count).filter(|number| if *number == 0 { want.inputs } else { want.parameters }).collect();
        let op = self.evaluate(parsed.gradients(&wanted), &extents);
        let mut reads = Vec::new();
        for number in op.program.reads() {
            reads.push(match *number {
                0 => x,
                number if number <= count => cx.read(b, &self.parameters[number - 1].name)?,
                number if number == count + 1 => forward.output,
                _ => gradient,
            });
        }
        let labels =
            wanted.iter().map(|number| (if *number == 0 { "dx" } else { "dparameter" }, shape.clone()));
        let results = b.apply_list(op, &reads, labels);
        let mut input_gradient = None;
        for (number, result) in wanted.into_iter().zip(results) {
            let Some(parameter) = number.checked_sub(1) else {
                input_gradient = Some(result);
                continue;
            };
            let Extents { outer, count, inner } = extents[parameter];
            let sum = BiasGradient { outer, channels: count, inner };
            cx.contribute(b, &self.parameters[parameter].name, sum, &[result])?;
        }
        Ok(input_gradient)
    }
}
