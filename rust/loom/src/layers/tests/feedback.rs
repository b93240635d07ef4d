//! Feedback maps lead back to where they come from, and the transposed ones can be the transpose.

use crate::Network;
use crate::layers::*;
use crate::ops::pointwise::Activation;
use crate::ops::testing::{assert_close, numbers};
use crate::tensor::Precision;
use crate::tensor_view;
use proptest::prelude::*;
use std::sync::Arc;

const FORMS: [FeedbackForm; 2] = [FeedbackForm::Inverse, FeedbackForm::TransposedJacobian];

/// Asserts that a learned map leads from the output's shape to the input's, and says whether there is one.
#[track_caller]
fn leads_back(layer: &dyn Layer, inputs: &[Shape], form: FeedbackForm) -> Option<Arc<dyn Layer>> {
    let output = layer.output_shape(inputs).unwrap();
    match layer.target_rules().feedback(inputs, form) {
        Feedback::Learned(layers) => {
            let map = Sequential::joined(layers);
            assert_eq!(map.output_shape(&[output]).unwrap(), inputs[0], "{map:?} for {layer:?}");
            assert_eq!(from_config(&map.config()).unwrap().config(), map.config());
            Some(map)
        }
        _ => None,
    }
}

fn padding() -> impl Strategy<Value = Padding<2>> {
    prop_oneof![
        (0..3usize, 0..3usize).prop_map(|(a, b)| Padding::Explicit([a, b])),
        Just(Padding::Named(NamedPadding::Same)),
        Just(Padding::Named(NamedPadding::Valid)),
    ]
}

fn pair(range: std::ops::Range<usize>) -> impl Strategy<Value = [usize; 2]> {
    [range.clone(), range]
}

fn convolutions() -> impl Strategy<Value = (Conv2D, Shape)> {
    let channels = (1..4usize, 1..3usize, 1..3usize);
    let window = (pair(1..5), pair(1..4), pair(1..4), padding());
    (channels, window, pair(1..14), any::<bool>()).prop_map(
        |((groups, inputs, filters), (kernel_size, stride, dilation, padding), [height, width], active)| {
            let activation = if active { Activation::Tanh } else { Activation::Linear };
            let layer = Conv2D::new(groups * filters, kernel_size)
                .stride(stride)
                .dilation(dilation)
                .padding(padding)
                .groups(groups)
                .activation(activation);
            (layer, Shape::from([groups * inputs, height, width]))
        },
    )
}

/// The output of a layer without a bias that computes with this weight.
fn with_weight(layer: Arc<dyn Layer>, weight: &[f64], input: &Shape, x: &[f64]) -> Vec<f64> {
    let mut network = Network::with_options(input.clone(), [1, 1, 1], Precision::Float64, 1).unwrap();
    network.add_arc([0, 0, 0], layer).unwrap();
    network.build().unwrap();
    let shape = network.parameter([0, 0, 0], 0, "weight").unwrap().shape().to_vec();
    network.set_parameter([0, 0, 0], 0, "weight", tensor_view(&shape, weight).unwrap()).unwrap();
    let batch = [&[1], &input[..]].concat();
    network.predict(tensor_view(&batch, x).unwrap()).unwrap().to_f64()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn transposed_convolutions_lead_back((layer, input) in convolutions()) {
        prop_assume!(layer.output_shape(std::slice::from_ref(&input)).is_ok());
        for form in FORMS {
            let map = leads_back(&layer, std::slice::from_ref(&input), form);
            if layer.padding != Padding::Named(NamedPadding::Same) {
                prop_assert!(map.is_some(), "{layer:?} on {input}");
            }
        }
    }

    #[test]
    fn convolutions_lead_back(
        (layer, input) in convolutions(),
        output_padding in pair(0..3),
    ) {
        let layer = ConvTranspose2D::new(layer.filters, layer.kernel_size)
            .stride(layer.stride)
            .padding(layer.padding)
            .dilation(layer.dilation)
            .groups(layer.groups)
            .activation(layer.activation)
            .output_padding(output_padding);
        prop_assume!(from_config(&layer.config()).is_ok() && layer.output_shape(std::slice::from_ref(&input)).is_ok());
        for form in FORMS {
            let map = leads_back(&layer, std::slice::from_ref(&input), form);
            if (0..2).all(|axis| output_padding[axis] < layer.stride[axis]) {
                prop_assert!(map.is_some(), "{layer:?} on {input}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// <conv(x), y> = <x, map(y)> with one weight for both.
    #[test]
    fn the_transposed_form_can_be_the_transpose((layer, input) in convolutions()) {
        let layer = layer.activation(Activation::Linear).without_bias();
        prop_assume!(layer.output_shape(std::slice::from_ref(&input)).is_ok());
        let map = leads_back(&layer, std::slice::from_ref(&input), FeedbackForm::TransposedJacobian);
        prop_assume!(map.is_some());
        let output = layer.output_shape(std::slice::from_ref(&input)).unwrap();
        let count = layer.parameters(std::slice::from_ref(&input))[0].layout.storage_shape().len();
        let weight = numbers::<f64>(1, count);
        let (x, y) = (numbers::<f64>(2, input.len()), numbers::<f64>(3, output.len()));
        let there = with_weight(Arc::new(layer), &weight, &input, &x);
        let back = with_weight(map.unwrap(), &weight, &output, &y);
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        assert_close(&[product(&there, &y)], &[product(&x, &back)], 1e-12);
    }
}

#[test]
fn every_learned_map_leads_back() {
    for (kind, samples) in samples() {
        for sample in samples {
            let inputs: Vec<Shape> = std::iter::once(sample.input).chain(sample.context).collect();
            for form in FORMS {
                let map = leads_back(&*sample.layer, &inputs, form);
                // Uneven padding has no transpose.
                let maps = kind == "dense" || kind.starts_with("conv") && form == FeedbackForm::Inverse;
                assert!(map.is_some() || !maps, "{:?} on {}", sample.layer, inputs[0]);
            }
        }
    }
}

#[test]
fn the_two_forms_of_a_dense_layer() {
    let layer = Dense::new(3).activation(Activation::Tanh).without_bias();
    let input = [Shape::from([4, 7])];
    let map = leads_back(&layer, &input, FeedbackForm::Inverse).unwrap();
    assert_eq!(map.config(), Dense { units: 7, ..layer.clone() }.config());
    let map = leads_back(&layer, &input, FeedbackForm::TransposedJacobian).unwrap();
    let tanh = ActivationLayer { function: Activation::Tanh };
    let linear = Dense::new(7).without_bias();
    assert_eq!(map.config(), Sequential::new(Chain::from(tanh).then(linear.clone())).config());
    let plain = layer.activation(Activation::Linear);
    let map = leads_back(&plain, &input, FeedbackForm::TransposedJacobian).unwrap();
    assert_eq!(map.config(), linear.config());
}

#[test]
fn layers_without_parameters_go_back_by_their_gradient() {
    let image = [Shape::from([2, 6, 8])];
    let layers: [Box<dyn Layer>; 8] = [
        Box::new(MaxPool2D::new([2, 2])),
        Box::new(AvgPool2D::new([2, 3])),
        Box::new(GlobalAvgPool2D {}),
        Box::new(GlobalMaxPool2D {}),
        Box::new(Flatten {}),
        Box::new(Permute { axes: vec![2, 0, 1] }),
        Box::new(Dropout { rate: 0.3 }),
        Box::new(Sequential::new(Chain::from(MaxPool2D::new([2, 2])).then(Flatten {}))),
    ];
    for layer in layers {
        assert!(
            matches!(layer.target_rules().feedback(&image, FeedbackForm::Inverse), Feedback::Backward),
            "{layer:?}"
        );
    }
    assert!(matches!(
        LayerNorm::default().target_rules().feedback(&image, FeedbackForm::Inverse),
        Feedback::Unknown
    ));
}

#[test]
fn layers_in_a_row_lead_back_one_after_the_other() {
    let image = [Shape::from([2, 6, 8])];
    let first = Conv2D::new(3, [3, 3]).stride([2, 1]);
    let layers = Chain::from(first).then(Flatten {}).then(Dense::new(4).activation(Activation::Tanh));
    for form in FORMS {
        assert!(leads_back(&Sequential::new(layers.clone()), &image, form).is_some());
    }
    let pooled = Chain::from(Conv2D::new(3, [3, 3])).then(MaxPool2D::new([2, 2]));
    let unknown = Sequential::new(pooled).target_rules().feedback(&image, FeedbackForm::Inverse);
    assert!(matches!(unknown, Feedback::Unknown));
}
