//! Finds the first layer that a non-finite loss or gradient comes from.

use crate::Error;
use crate::network::{Lowered, Mode, Network, describe_path};
use crate::ops::StepValues;
use crate::precision::in_precision;
use crate::program::{Access, Builder, Phase, Rewrites, Run, Value};
use crate::simd::Real;
use std::sync::Arc;

/// The error for a step that is not finite, after running its forward pass again with every
/// layer's values kept.
pub(super) fn explain(
    network: &Network,
    failed: &Run,
    gradient_norm: Option<f64>,
    values: &StepValues,
) -> Error {
    in_precision!(network.precision(), T => explain_in::<T>(network, failed, gradient_norm, values))
}

fn explain_in<T: Real>(
    network: &Network,
    failed: &Run,
    gradient_norm: Option<f64>,
    values: &StepValues,
) -> Error {
    let step = values.step;
    let advice = "lower the learning rate, clip gradients, or skip such steps with on_nonfinite=\"skip\"";
    if gradient_norm.is_some() {
        let layer = match first_gradient::<T>(network) {
            Ok(layer) => layer.unwrap_or_else(|| "no single layer (the sum overflows)".into()),
            Err(error) => return error,
        };
        return Error::NonFinite(format!(
            "the gradient norm became infinite or NaN at step {step}, first in {layer}; {advice}"
        ));
    }
    if has_non_finite(failed.program().ports().input.map_or(&[][..], |port| failed.read::<T>(port))) {
        return Error::NonFinite(format!("the input of step {step} holds NaN or infinity; clean the data"));
    }
    match first_activation::<T>(network, failed, values) {
        Ok(Some(layer)) => Error::NonFinite(format!(
            "the loss became infinite or NaN at step {step}, first in the output of {layer}; {advice}"
        )),
        Ok(None) => Error::NonFinite(format!(
            "the loss became infinite or NaN at step {step} though every layer's output is finite: \
             check the targets and their scale; or {advice}"
        )),
        Err(error) => error,
    }
}

fn has_non_finite<T: Real>(elements: &[T]) -> bool {
    elements.iter().any(|x| !x.is_finite())
}

fn first_gradient<T: Real>(network: &Network) -> crate::Result<Option<String>> {
    for (store, placed) in network.trained_stores() {
        if has_non_finite(network.registry.gradient(store)?.as_slice::<T>()) {
            return Ok(Some(describe_path(placed)));
        }
    }
    Ok(None)
}

fn first_activation<T: Real>(
    network: &Network,
    failed: &Run,
    values: &StepValues,
) -> crate::Result<Option<String>> {
    let mut b = Builder::new(network.precision());
    let apart = !failed.program().carries();
    Lowered::forward(network, &mut b, Mode { training: true, pin_layers: true, apart, ..Mode::default() })?;
    let mut run = network.device.run(Arc::new(b.finish(failed.rows, &Rewrites::default())?))?;
    run.rows = failed.rows;
    if let (Some(to), Some(from)) = (run.program().ports().input, failed.program().ports().input) {
        run.write::<T>(to).copy_from_slice(failed.read::<T>(from));
    }
    let access = Access::Shared(&network.registry);
    run.execute(access, Phase::Forward..=Phase::Forward, values)?;
    let outputs: Vec<Value> = run.program().ports().layers.iter().map(|(_, layer)| layer.output).collect();
    run.fetch(&outputs)?;
    let ports = run.program().ports();
    let first = ports.layers.iter().position(|(_, layer)| has_non_finite(run.read::<T>(layer.output)));
    Ok(first.and_then(|number| network.layers().nth(number)).map(describe_path))
}
