//! Whether a file holds what the network that it describes has: looked at before anything is allocated by that
//! description.

use super::source::{Source, lacks};
use super::tensor_file::ElementType;
use super::tensors::{damaged, packed_element, packed_name, real_element};
use crate::dtype::{DType, Packing};
use crate::layers::ParameterSpec;
use crate::network::{Beginning, LayerNumerics, Network, PlacedLayer};
use crate::program::LayerPath;
use crate::weights::{Layout, ParameterInfo};
use crate::{Error, Result, error, extents};
use std::collections::HashMap;

/// How the weights of each layer begin that is to be filled from a file: without a master where the file has none.
///
/// # Errors
/// [`Error::Serialization`] naming a tensor that is missing, or not such a one.
pub(super) fn beginnings(
    network: &Network,
    source: &Source<'_>,
    numerics: &[(LayerPath, LayerNumerics)],
) -> Result<HashMap<LayerPath, Beginning>> {
    let (_, shapes) = network.find_shapes().map_err(damaged)?;
    let mut found = HashMap::new();
    for ((placed, shapes), (_, numerics)) in network.layers().zip(&shapes.layers).zip(numerics) {
        for state in placed.layer.states(&shapes.inputs) {
            let name = format!("{}.{}", placed.path, state.name);
            source.expect_real(&name, network.precision(), &state.shape)?;
        }
        if placed.is_tied() {
            continue;
        }
        let specs = placed.layer.parameters(&shapes.inputs);
        for (name, _) in &numerics.parameters {
            let known = specs.iter().map(|spec| &*spec.name);
            if known.clone().all(|known| known != name) {
                return Err(damaged(error::unknown("parameter", name, known)));
            }
        }
        for spec in placed.adapter_specs(&specs).map_err(damaged)?.iter().flatten() {
            let shape = spec.layout.outside_shape();
            source.expect_real(&format!("{}.{}", placed.path, spec.name), network.precision(), &shape)?;
        }
        found.insert(placed.path.clone(), beginning(network, source, placed, &specs, numerics)?);
    }
    Ok(found)
}

fn beginning(
    network: &Network,
    source: &Source<'_>,
    placed: &PlacedLayer,
    specs: &[ParameterSpec],
    numerics: &LayerNumerics,
) -> Result<Beginning> {
    let name_of = |spec: &ParameterSpec| format!("{}.{}", placed.path, spec.name);
    let is_packed = |spec: &ParameterSpec| numerics.named(&spec.name, spec.morphable).dtype.is_some();
    // What was saved without its master gets none: its packed weights are all there is.
    let mut packed = specs.iter().filter(|spec| is_packed(spec)).peekable();
    let without = packed.peek().is_some() && packed.all(|spec| !source.has(&name_of(spec)));
    for spec in specs {
        let (name, shape) = (name_of(spec), spec.layout.outside_shape());
        extents::check(format_args!("\"{name}\""), &shape).map_err(damaged)?;
        if !(without && is_packed(spec)) {
            source.expect_real(&name, network.precision(), &shape)?;
        }
        if is_packed(spec) {
            check_packed(source, &name, spec, numerics)?;
        }
    }
    Ok(if without { Beginning::WithoutMaster } else { Beginning::Zeros })
}

/// Refuses packed weights that are not there, or not as many as they should be.
fn check_packed(
    source: &Source<'_>,
    name: &str,
    spec: &ParameterSpec,
    numerics: &LayerNumerics,
) -> Result<()> {
    let chosen = numerics.named(&spec.name, spec.morphable);
    let Some(dtype) = chosen.dtype else { return Ok(()) };
    let recipe = chosen.numerics.recipe.checked(dtype).map_err(damaged)?;
    let info = ParameterInfo {
        name: spec.name.clone(),
        layout: spec.layout.clone(),
        morphable: spec.morphable,
        offset: 0,
    };
    let own = info.packing(dtype);
    let (packed, turned) = named_packed(source, name, dtype, &spec.layout);
    let packing = Packing { turned, ..own.with(recipe.granularity.unwrap_or(own.granularity)) };
    let (element, shape) = packed_element(dtype, [packing.rows, packing.channels], packing.bytes());
    source.expect(&packed, element, &shape)?;
    match packing.scale_words() {
        0 => Ok(()),
        words => source.expect(&format!("{name}@{dtype}.scale"), ElementType::F32, &[words]),
    }
}

/// What a parameter's packed weights are called in a file, and whether their blocks are those of a table's rows.
pub(super) fn named_packed(
    source: &Source<'_>,
    parameter: &str,
    dtype: DType,
    layout: &Layout,
) -> (String, bool) {
    let of_rows = packed_name(parameter, dtype, true);
    match matches!(layout, Layout::Table(_)) && source.has(&of_rows) {
        true => (of_rows, true),
        false => (packed_name(parameter, dtype, false), false),
    }
}

/// Refuses a list of numbers that are not so many.
///
/// # Errors
/// [`Error::Serialization`] then.
pub(super) fn check_length(source: &Source<'_>, network: &Network, name: &str, len: usize) -> Result<()> {
    let info = source.find(name).ok_or_else(|| lacks(name))?;
    let bytes = len.saturating_mul(network.precision().size());
    if info.element != real_element(network.precision()) || info.bytes() != bytes {
        return Err(Error::Serialization(format!("\"{name}\" has {} bytes, expected {bytes}", info.bytes())));
    }
    Ok(())
}
