//! Layers that read one input, which are all but those that are made of others and those with a context.

use super::{Context, Forward, Want};
use crate::Result;
use crate::program::{Builder, Value};

/// What the backward lowering of such a layer works with.
pub(super) struct Backward<'a> {
    pub cx: &'a Context,
    pub x: Value,
    pub forward: &'a Forward,
    /// The gradient of the output.
    pub gradient: Value,
    pub want: Want,
}

/// How a layer of one input lowers; [`one_input`] makes of it what [`Layer`](super::Layer) asks for.
pub(super) trait OneInput {
    /// Lowers the layer.
    fn lower(&self, b: &mut Builder, cx: &Context, x: Value) -> Result<Forward>;

    /// Lowers the gradients: pushes those of parameters and returns that of the input. Layers without
    /// parameters are asked only where the input's is wanted.
    fn lower_backward(&self, b: &mut Builder, back: &Backward<'_>) -> Result<Option<Value>>;
}

/// `forward` and `backward` of a layer that is [`OneInput`].
macro_rules! one_input {
    () => {
        fn forward(
            &self,
            b: &mut $crate::program::Builder,
            cx: &$crate::layers::Context,
            inputs: &[$crate::program::Value],
        ) -> $crate::Result<$crate::layers::Forward> {
            let x = *$crate::layers::single(self.kind(), inputs)?;
            $crate::layers::one_input::OneInput::lower(self, b, cx, x)
        }

        fn backward(
            &self,
            b: &mut $crate::program::Builder,
            cx: &$crate::layers::Context,
            inputs: &[$crate::program::Value],
            forward: &$crate::layers::Forward,
            gradient: $crate::program::Value,
            want: $crate::layers::Want,
        ) -> $crate::Result<Vec<Option<$crate::program::Value>>> {
            if !want.inputs && (!want.parameters || cx.parameters.is_empty()) {
                return Ok(vec![None]);
            }
            let x = *$crate::layers::single(self.kind(), inputs)?;
            let back = $crate::layers::one_input::Backward { cx, x, forward, gradient, want };
            Ok(vec![$crate::layers::one_input::OneInput::lower_backward(self, b, &back)?])
        }
    };
}

pub(super) use one_input;
