//! What layers with learned feedback maps share: the forms of a map, and that it leads back.

use super::{ActivationLayer, Feedback, FeedbackForm, Layer};
use crate::ops::pointwise::Activation;
use crate::tensor::Shape;
use std::sync::Arc;

/// A layer's map in this form from `output` back to `input`, made of its linear map with an activation after
/// it, where there is such a layer and it leads there.
pub(super) fn learned<L: Layer + 'static>(
    form: FeedbackForm,
    activation: Activation,
    map: impl Fn(Activation) -> L,
    output: Shape,
    input: &Shape,
) -> Feedback {
    let before = form == FeedbackForm::TransposedJacobian && activation != Activation::Linear;
    let map = map(if before { Activation::Linear } else { activation });
    let leads_back = map.output_shape(&[output]).is_ok_and(|shape| shape == *input);
    if !leads_back {
        return Feedback::Unknown;
    }
    let before = before.then(|| Arc::new(ActivationLayer { function: activation }) as Arc<dyn Layer>);
    Feedback::Learned(before.into_iter().chain([Arc::new(map) as Arc<dyn Layer>]).collect())
}
