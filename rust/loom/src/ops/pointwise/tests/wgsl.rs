//! The text rendered from each row.

use super::*;

/// All functions of the table, each row's value and derivative.
fn rendered() -> String {
    let mut text = String::new();
    for activation in Activation::ALL {
        let name = activation.name();
        text.push_str(&activation.wgsl_value(&format!("{name}_value")));
        text.push_str(&activation.wgsl_derivative(&format!("{name}_derivative")));
        text.push('\n');
    }
    text
}

#[test]
fn text_of_every_row() {
    assert_eq!(rendered(), include_str!("golden.wgsl"));
}

#[test]
fn parameters_stand_in_the_text() {
    assert_eq!(
        Activation::LeakyRelu { slope: -0.25 }.wgsl_value("f"),
        "fn f(x: f32) -> f32 {\n    return select(x * -0.25, x, x > 0.0);\n}\n"
    );
    assert_eq!(
        Activation::Elu { alpha: -0.25 }.wgsl_derivative("g"),
        "fn g(x: f32) -> f32 {\n    return select(exp(x) * -0.25, 1.0, x > 0.0);\n}\n"
    );
}
