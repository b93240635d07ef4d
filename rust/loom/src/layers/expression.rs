//! A function of one's own as a layer, given as text.

#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)]

use super::activation::{activate, activate_backward};
use super::kind_registry::Configured;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{Form, forms, kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, single};
use crate::ops::BiasGradient;
use crate::ops::expression::{Expression, Operand, Shaped, Total, functions};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
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
    /// A function of every element by itself, given as text: `a * x + b`. The shape stays but for axes of which there
    /// is only the sum or mean, as of the last in `mean(x, -1)`; these have one element then.
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

impl Expr {
    fn parsed(&self) -> Result<Expression> {
        let parameters = self.parameters.iter().map(|parameter| parameter.name.as_str());
        let names: Vec<&str> = std::iter::once(INPUT).chain(parameters).collect();
        Expression::parse(&self.expression, &names)
    }

    /// The expression over rows of these extents.
    fn shaped(&self, input: &Shape) -> Result<Shaped> {
        self.parameters.iter().try_for_each(|parameter| parameter.check(input))?;
        let own = self.parameters.iter().map(|parameter| Operand::Shared(parameter.shape.clone()));
        let operands = std::iter::once(Operand::Rows).chain(own).collect();
        self.parsed()?.shaped(&self.expression, input, operands)
    }
}

impl ExpressionParameter {
    /// Refuses extents that do not broadcast to the input.
    fn check(&self, input: &Shape) -> Result<()> {
        let refused = |why: &str| {
            let shape = Shape::from(&self.shape[..]);
            Err(Error::Shape(format!(
                "Expr: parameter \"{}\" of shape {shape} does not broadcast to the input {input}: {why}",
                self.name
            )))
        };
        let axes: &[usize] = input;
        let Some(lead) = axes.len().checked_sub(self.shape.len()) else {
            return refused(
                "it has more axes than the input; extents are aligned with the input's last axes",
            );
        };
        let (mut own_before, mut one_behind) = (false, false);
        for (own, axis) in self.shape.iter().zip(axes.iter().skip(lead)) {
            match (own, axis) {
                (1, 1) => {}
                (1, _) => one_behind = own_before,
                (own, axis) if own != axis => {
                    return refused("every extent must be 1 or the input's of the same axis");
                }
                _ if one_behind => {
                    return refused("extents of 1 between others are not supported; swap axes with Permute");
                }
                _ => own_before = true,
            }
        }
        Ok(())
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
            Sample::new(
                expr(
                    "g * (x - mean(x, -1)) / sqrt(mean((x - mean(x, -1)) ** 2, axis=-1) + 0.1) + b",
                    &[("g", &[5], 1.0), ("b", &[5], 0.5)],
                ),
                [3, 5],
            ),
            Sample::new(
                expr(
                    "x * sigmoid(a * mean(x, 1, 2)) + sum(exp(a) * x, 0) / sum(exp(a), axis=(0, 1, 2)) - tanh(mean(x))",
                    &[("a", &[3, 1, 1], 0.5)],
                ),
                [3, 2, 4],
            ),
            Sample::new(expr("sqrt(sum(x * x, 0) + a)", &[("a", &[4], 0.5)]), [3, 2, 4]),
            Sample::new(expr("mean(x, -1)", &[]), [3, 5]),
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
            if self.parameters.iter().take(place).any(|other| other.name == *name) {
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
        Ok(self.shaped(single(self.kind(), inputs)?)?.output())
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
        let shared = self.parameters.iter().all(|parameter| parameter.shape.len() < 2);
        shared && self.parsed().is_ok_and(|parsed| !parsed.sums_over_more_than_the_last_axis())
    }

    one_input!();
}

impl OneInput for Expr {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        let parsed = self.parsed()?;
        if let Some(activation) = parsed.activation() {
            return Ok(activate(b, activation, x));
        }
        let shaped = self.shaped(&b.shape(x).clone())?;
        let plan = shaped.value()?;
        let mut given = vec![Some(x)];
        for parameter in &self.parameters {
            given.push(Some(cx.read(b, &parameter.name)?));
        }
        let (results, sums) = b.evaluate(&plan, given, "y")?;
        let [output] = results[..] else {
            return Err(Error::Internal("an expression has one value".into()));
        };
        Ok(Forward::saving(output, sums))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let Backward { cx, x, forward, gradient, want } = *back;
        if let Some(activation) = self.parsed()?.activation() {
            return Ok(Some(activate_backward(b, activation, forward, gradient)));
        }
        let shaped = self.shaped(&b.shape(x).clone())?;
        let count = self.parameters.len();
        let wanted: Vec<usize> =
            (0..=count).filter(|number| if *number == 0 { want.inputs } else { want.parameters }).collect();
        let (plan, of) = shaped.gradients(&wanted)?;
        let mut given = vec![Some(x)];
        for parameter in &self.parameters {
            given.push(Some(cx.read(b, &parameter.name)?));
        }
        given.extend([Some(forward.output), Some(gradient)]);
        given.extend(forward.saved.iter().copied().map(Some));
        let (results, _) = b.evaluate(&plan, given, "dx")?;
        let mut input_gradient = None;
        for (of, result) in of.into_iter().zip(results) {
            // The input comes first.
            let Some(parameter) = of.0.checked_sub(1).and_then(|number| self.parameters.get(number)) else {
                input_gradient = Some(result);
                continue;
            };
            let Total { outer, channels, inner } = shaped.total(of)?;
            let sum = BiasGradient { outer, channels, inner };
            cx.contribute(b, &parameter.name, sum, &[result])?;
        }
        Ok(input_gradient)
    }
}
