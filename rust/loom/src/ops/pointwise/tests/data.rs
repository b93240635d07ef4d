//! Activations to text and JSON and back.

use super::*;
use crate::Error;

fn read(json: &str) -> Result<Activation, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn the_default_is_no_activation() {
    assert_eq!(Activation::default(), Activation::Linear);
}

#[test]
fn every_activation_goes_to_json_and_back() {
    for activation in all() {
        let json = serde_json::to_string(&activation).unwrap();
        assert_eq!(read(&json).unwrap(), activation, "{json}");
    }
}

#[test]
fn the_json_is_a_name_or_a_map() {
    let json = |activation| serde_json::to_string(&activation).unwrap();
    assert_eq!(json(Activation::Relu), "\"relu\"");
    assert_eq!(json(Activation::LeakyRelu { slope: 0.01 }), "\"leaky_relu\"");
    assert_eq!(json(Activation::LeakyRelu { slope: 0.2 }), "{\"leaky_relu\":{\"slope\":0.2}}");
    assert_eq!(read("\"leaky_relu\""), Ok(Activation::LeakyRelu { slope: 0.01 }));
    assert_eq!(read("{\"elu\": {\"alpha\": 2}}"), Ok(Activation::Elu { alpha: 2.0 }));
    assert_eq!(read("{\"elu\": {}}"), Ok(Activation::Elu { alpha: 1.0 }));
    assert_eq!(read("{\"tanh\": {}}"), Ok(Activation::Tanh));
}

#[test]
fn display_shows_parameters_that_are_not_default() {
    assert_eq!(Activation::Relu.to_string(), "relu");
    assert_eq!(Activation::LeakyRelu { slope: 0.01 }.to_string(), "leaky_relu");
    assert_eq!(Activation::LeakyRelu { slope: 0.2 }.to_string(), "leaky_relu(slope=0.2)");
}

#[test]
fn wrong_data_is_refused_with_what_to_do() {
    let cases = [
        ("\"rellu\"", "did you mean \"relu\""),
        ("\"rellu\"", "linear, relu, leaky_relu"),
        ("{\"leaky\": {}}", "did you mean \"leaky_relu\""),
        ("{\"leaky_relu\": {\"slop\": 1}}", "did you mean \"slope\""),
        ("{\"relu\": {\"slope\": 1}}", "relu has no parameters"),
        ("{\"leaky_relu\": {\"slope\": 1e300}}", "slope of leaky_relu must be a finite number"),
        ("{\"leaky_relu\": {\"slope\": \"x\"}}", "invalid type"),
        ("{\"elu\": {}, \"relu\": {}}", "one name"),
        ("{}", "one name"),
        ("3", "the name of an activation"),
    ];
    for (json, expected) in cases {
        let message = read(json).unwrap_err();
        assert!(message.contains(expected), "{json}: {message}");
    }
    for slope in [f64::NAN, f64::INFINITY] {
        let result = Activation::LeakyRelu { slope }.validated();
        assert!(matches!(result, Err(Error::Value(_))));
    }
    assert!(matches!("gelu".parse(), Ok(Activation::Gelu)));
    assert!(matches!("GELU!".parse::<Activation>(), Err(Error::Value(_))));
}
