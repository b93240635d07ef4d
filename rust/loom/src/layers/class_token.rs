//! Trained steps before a sequence.

use super::kind_registry::Configured;
use super::layer::Linear;
use super::one_input::{Backward, OneInput, one_input};
use super::settings::{kind_and_config, settings};
use super::{Context, Forward, Layer, ParameterSpec, Sample, TargetRules, shape_error, single};
use crate::ops::{BiasAdd, BiasGradient, Concat, Slice};
use crate::program::{Builder, Value};
use crate::tensor::Shape;
use crate::weights::{Initializer, Layout};
use crate::{Error, Result};

settings! {
    /// Puts trained rows before a sequence: (time, width) to (count + time, width), as vision transformers do.
    ///
    /// The `weight` is (count, width), the same rows for every sequence.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ClassToken "class_token" {} optional {
        /// How many rows.
        count: usize [least 1] = 1,
        /// How the rows start; normal with a standard deviation of 0.02 unless named.
        weight_initializer: Option<Initializer> = None,
    }
}

impl Default for ClassToken {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl Configured for ClassToken {
    fn samples() -> Vec<Sample> {
        let wide = Self { weight_initializer: Some(Initializer::Normal { std: 1.0 }), ..Self::default() };
        vec![
            Sample::new(Self::default(), [1, 1]),
            Sample::new(wide.clone(), [5, 7]),
            Sample::new(Self { count: 3, ..wide }, [2, 19]),
        ]
    }
}

impl ClassToken {
    /// The rows beside the sequence.
    fn joined(&self, input: &Shape) -> Result<Concat> {
        let rows = Shape::from([self.count, input[1]]);
        Concat::along(&[&rows, input], Some(0)).map(|(joined, _)| joined).map_err(Error::Internal)
    }
}

impl Layer for ClassToken {
    kind_and_config!();

    fn output_shape(&self, inputs: &[Shape]) -> Result<Shape> {
        let input = single(self.kind(), inputs)?;
        match &input[..] {
            [time, width] if *time > 0 && *width > 0 => {
                Ok(Shape::from([self.count.saturating_add(*time), *width]))
            }
            _ => Err(shape_error("ClassToken", "(time, width)", input)),
        }
    }

    fn parameters(&self, inputs: &[Shape]) -> Vec<ParameterSpec> {
        let width = inputs[0].last().copied().unwrap_or(1);
        vec![ParameterSpec {
            name: "weight".into(),
            layout: Layout::plain([self.count, width]),
            initializer: self.weight_initializer.unwrap_or(Initializer::Normal { std: 0.02 }),
            fan_in: width,
            fan_out: width,
            morphable: false,
            decay_exempt: false,
            adaptable: false,
        }]
    }

    one_input!();

    fn target_rules(&self) -> &dyn TargetRules {
        &Linear
    }
}

impl OneInput for ClassToken {
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward> {
        if cx.mask.is_some() {
            return Err(Error::Value(
                "ClassToken inside Masked would shift the steps that are padding; put it before or after"
                    .into(),
            ));
        }
        let input = b.shape(x).clone();
        let joined = self.joined(&input)?;
        let shape = Shape::from([self.count + input[0], input[1]]);
        let rows = Concat { parts: vec![joined.parts[0]], ..joined.clone() };
        let weight = cx.read(b, "weight")?;
        // The rows belong to no sequence, so they are added to where each leaves room for them.
        let rows = b.apply_fixed(rows, &[weight], "rows", shape.clone());
        let add = BiasAdd { outer: 1, channels: joined.total, inner: 1 };
        let sequence = Concat { parts: vec![joined.parts[1]], ..joined };
        let sequence = b.apply(sequence, &[x], "sequence", shape.clone());
        Ok(Forward::new(b.apply(add, &[sequence, rows], "y", shape)))
    }

    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>> {
        let input = b.shape(back.x).clone();
        let joined = self.joined(&input)?;
        if back.want.parameters {
            let channels = joined.parts[0].1;
            let shape = Shape::from([self.count, input[1]]);
            let part = b.apply(Slice::of(&joined, 0), &[back.gradient], "drows", shape);
            back.cx.contribute(b, "weight", BiasGradient { outer: 1, channels, inner: 1 }, &[part])?;
        }
        if !back.want.inputs {
            return Ok(None);
        }
        Ok(Some(b.apply(Slice::of(&joined, 1), &[back.gradient], "dx", input)))
    }
}
