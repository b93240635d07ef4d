//! A skip around layers.

use super::chain::{Chain, Named, Part, PartGradients, specs_of};
use super::kind_registry::Configured;
use super::settings::{kind_and_config, settings};
use super::{Context, Conv2D, Dense, Forward, Layer, Padding, ParameterSpec, Sample, Steps, Want};
use crate::ops::pointwise::Activation;
use crate::program::{Builder, Value};
use crate::state::{CarriedSpec, StateSpec};
use crate::tensor::Shape;
use crate::{Error, Result};
use std::borrow::Cow;

settings! {
    /// `layers(x) + x`, or `layers(x) + projection(x)` where the shapes differ (He et al. 2016).
    ///
    /// Unless given, the projection is, for images, a 1x1 convolution without bias with the stride that is
    /// needed, and otherwise, or where no stride makes that shape, a Dense layer without bias where only the
    /// last axis differs.
    #[derive(Clone, Debug)]
    pub struct Residual "residual" {
        /// The layers that are skipped, first to last.
        layers: Chain [least 1],
    } optional {
        /// What brings the input to the output's shape.
        projection: Chain = Chain::default(); unwritten,
    }
}

impl Residual {
    /// A skip around these layers.
    pub fn new(layers: impl Into<Chain>) -> Self {
        Self::with_defaults(layers.into())
    }

    /// The layers and what stands on the skip, for this input.
    fn parts(&self, inputs: &[Shape]) -> Result<[Part<'_>; 2]> {
        let main = Part { number: 0, name: "layers".into(), layers: Cow::Borrowed(&self.layers) };
        Ok([main, self.projection(self.skip(inputs)?.1)])
    }

    /// Of this input, which fits, or nothing.
    fn specs<S: Named>(&self, inputs: &[Shape], ask: impl Fn(&Chain, &[Shape]) -> Vec<S>) -> Vec<S> {
        self.parts(inputs).map(|parts| specs_of(&parts, inputs, ask)).unwrap_or_default()
    }

    fn projection<'a>(&self, layers: Cow<'a, Chain>) -> Part<'a> {
        Part { number: 1, name: "projection".into(), layers }
    }

    /// What the layers make, and what stands on the skip, for this input; empty where it is the input itself.
    fn skip(&self, inputs: &[Shape]) -> Result<(Shape, Cow<'_, Chain>)> {
        let output = self.layers.output_shape(inputs)?;
        let input = &inputs[0];
        if !self.projection.is_empty() {
            let given = Cow::Borrowed(&self.projection);
            let projected = self.projection(given.clone()).output_shape(inputs)?;
            if projected != output {
                return Err(Error::Shape(format!(
                    "residual: the projection makes {projected}, its layers make {output}"
                )));
            }
            return Ok((output, given));
        }
        if *input == output {
            return Ok((output, Cow::Owned(Chain::default())));
        }
        let convolution = match (&input[..], &output[..]) {
            (&[_, height, width], &[filters, rows, columns])
                if height.div_ceil(rows) <= height && width.div_ceil(columns) <= width =>
            {
                let stride = [height.div_ceil(rows), width.div_ceil(columns)];
                Some(Chain::from(Conv2D::new(filters, [1, 1]).stride(stride).without_bias()))
            }
            _ => None,
        };
        let dense = match (input.split_last(), output.split_last()) {
            (Some((_, before)), Some((units, after))) if before == after => {
                Some(Chain::from(Dense::new(*units).without_bias()))
            }
            _ => None,
        };
        let fits = |chain: &Chain| chain.output_shape(&inputs[..1]).is_ok_and(|made| made == output);
        match convolution.into_iter().chain(dense).find(fits) {
            Some(projection) => Ok((output, Cow::Owned(projection))),
            None => Err(Error::Shape(format!(
                "residual: its layers make {output} of {input}, which no dense layer or 1x1 convolution on \
                 the skip does; give a projection"
            ))),
        }
    }
}

impl Configured for Residual {
    fn validate(&self) -> Result<()> {
        self.layers.validate()?;
        self.projection.validate()
    }

    fn samples() -> Vec<Sample> {
        let dense = |units| Dense::new(units).activation(Activation::Tanh);
        let strided = Conv2D::new(3, [3, 3]).stride([2, 2]).padding(Padding::Explicit([1, 1]));
        let nested = Self::new(Chain::from(Self::new(dense(3))).then(dense(5)));
        let given = Self { projection: dense(4).into(), ..Self::new(Chain::from(dense(6)).then(dense(4))) };
        vec![
            Sample::new(Self::new(dense(1)), [1]),
            Sample::new(Self::new(Chain::from(dense(7)).then(dense(5))), [3, 5]),
            Sample::new(nested, [4]),
            Sample::new(given, [3]),
            Sample::new(Self::new(strided), [2, 5, 6]),
            Sample::new(Self::new(dense(4)), [2, 3, 6]),
        ]
    }
}

impl Layer for Residual {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        self.skip(inputs).map(|(output, _)| output)
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        self.specs(inputs, Chain::parameters)
    }

    fn states(&self, inputs: &[Shape]) -> Vec<StateSpec> {
        self.specs(inputs, Chain::states)
    }

    fn carried(&self, inputs: &[Shape], length: usize) -> Vec<CarriedSpec> {
        self.specs(inputs, |layers, inputs| layers.carried(inputs, length))
    }

    fn takes_context(&self) -> bool {
        self.layers.takes_context() || self.projection.takes_context()
    }

    fn is_stepwise(&self) -> bool {
        self.layers.is_stepwise() && self.projection.is_stepwise()
    }

    fn steps(&self) -> Steps {
        self.layers.steps().beside(self.projection.steps())
    }

    fn forward(&self, b: &mut Builder, cx: &Context, inputs: &[Value]) -> Result<Forward> {
        let shapes: Vec<Shape> = inputs.iter().map(|input| b.shape(*input).clone()).collect();
        let [main, skip] = self.parts(&shapes)?;
        let main = main.forward(b, cx, inputs)?;
        let around = skip.forward(b, cx, inputs)?;
        let output = b
            .sum(&[main.output, around.output])
            .ok_or_else(|| Error::Internal("a sum of two values has no operand".into()))?;
        Ok(Forward { inner: vec![main, around], ..Forward::new(output) })
    }

    fn backward(
        &self,
        b: &mut Builder,
        cx: &Context,
        inputs: &[Value],
        forward: &Forward,
        gradient: Value,
        want: Want,
    ) -> Result<Vec<Option<Value>>> {
        let shapes: Vec<Shape> = inputs.iter().map(|input| b.shape(*input).clone()).collect();
        let parts = self.parts(&shapes)?.into_iter().zip(&forward.inner);
        let made: Vec<PartGradients> = parts
            .map(|(part, inner)| part.backward(b, cx, inputs, inner, gradient, want))
            .collect::<Result<_>>()?;
        Ok(PartGradients::summed(b, &made, want))
    }
}
