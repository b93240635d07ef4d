//! Random draws on a GPU: a word of the counter-based generator for every element.

use crate::Result;
use crate::shader::{Recorder, Shader};

/// WGSL of the generator: `philox`, and `multiply` in 64 bits.
pub(super) const GENERATOR: &str = include_str!("generator.wgsl");

/// What becomes of the words that a thread has drawn.
pub(super) struct Draws<'a> {
    /// What is drawn for: part of the key.
    pub(super) purpose: u32,
    /// A number for the layer: part of the key.
    pub(super) path: u32,
    /// Elements of one row.
    pub(super) features: usize,
    /// WGSL of functions that the others call.
    pub(super) functions: &'a str,
    /// WGSL of what is done with the four `words` of unit `index`.
    pub(super) drawn: &'a str,
    /// WGSL that stores element `i`, whose number among the four is `word`.
    pub(super) store: &'a str,
}

impl Draws<'_> {
    /// Runs a kernel over this many elements; `declare` adds its operands and further numbers.
    ///
    /// # Errors
    /// As [`Shader::groups`].
    pub(super) fn record(
        &self,
        recorder: &mut Recorder<'_>,
        label: &str,
        elements: usize,
        declare: impl FnOnce(Shader) -> Shader,
    ) -> Result<()> {
        let shader = Shader::new(label, include_str!("draws.wgsl"))
            .constant("USE", self.purpose)
            .section("GENERATOR", GENERATOR)
            .section("FUNCTIONS", self.functions)
            .section("DRAWN", self.drawn)
            .section("STORE", self.store)
            .number("elements", elements)
            .number("features", self.features)
            .number("path", self.path);
        // One block more where the first is begun in the middle.
        declare(shader).elements(recorder, elements.div_ceil(4) + 1)
    }
}
