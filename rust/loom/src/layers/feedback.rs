//! What layers with learned feedback maps share: the forms of a map, and that it leads back.

use super::{ActivationLayer, Chain, Feedback, FeedbackForm, Layer, Sequential, from_config};
use crate::ops::pointwise::Activation;
use crate::tensor::Shape;

/// A layer's map back in this form, from what makes its linear map with an activation after it.
pub(super) fn in_form<L: Layer + 'static>(
    form: FeedbackForm,
    activation: Activation,
    map: impl Fn(Activation) -> L,
) -> Box<dyn Layer> {
    match form {
        FeedbackForm::TransposedJacobian if activation != Activation::Linear => {
            let before = ActivationLayer { function: activation };
            Box::new(Sequential::new(Chain::from(before).then(map(Activation::Linear))))
        }
        _ => Box::new(map(activation)),
    }
}

/// This map, where there is such a layer and it leads from `output` back to `input`.
pub(super) fn learned(map: Box<dyn Layer>, output: Shape, input: &Shape) -> Feedback {
    let leads_back = map.output_shape(&[output]).is_ok_and(|shape| shape == *input);
    if leads_back && from_config(&map.config()).is_ok() { Feedback::Learned(map) } else { Feedback::Unknown }
}
