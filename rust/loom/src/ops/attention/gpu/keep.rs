//! Filling a session's caches on a GPU.

use crate::Result;
use crate::ops::{CacheAppend, Keep};
use crate::shader::{GpuOperation, Operand, Recorder, Shader, Share, THREADS};

impl GpuOperation for CacheAppend {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (shader, groups) = self.shader(recorder, recorder.read(0)?, recorder.write(0)?);
        shader.groups(recorder, groups)
    }
}

impl CacheAppend {
    fn shader(&self, recorder: &Recorder<'_>, x: Operand, cache: Operand) -> Share {
        let elements = x.elements;
        let shader = Shader::new("cache_append", include_str!("cache.wgsl"))
            .section("PUT", PUT)
            .row_places(recorder, true)
            .read("x", "f32", x)
            // Of one call, of all rows.
            .number("elements", elements);
        (self.target(shader, cache), elements.div_ceil(THREADS))
    }

    /// Declares what [`PUT`] stores to.
    fn target(&self, shader: Shader, cache: Operand) -> Shader {
        shader
            .write("cache", "f32", cache)
            .number("call_time", self.time)
            .number("capacity", self.capacity)
            // Of one step.
            .number("features", self.features)
    }
}

/// Stores an element of a call behind those of earlier calls, where there is room; next to `#{PLACES}`.
const PUT: &str = "fn put(i: u32, value: f32) {
    let row = i / constants.features / constants.call_time;
    let place = i / constants.features % constants.call_time + position(row);
    if place < constants.capacity {
        cache[(sequence(row) * constants.capacity + place) * constants.features + i % constants.features] = value;
    }
}";

impl GpuOperation for Keep {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let mut kernels = Vec::with_capacity(self.parts.len());
        for (number, part) in self.parts.iter().enumerate() {
            let (x, y) = (recorder.read(number)?, recorder.write(number)?);
            kernels.push(match (&part.rotary, &part.append) {
                (Some(rotary), Some(append)) => {
                    let (shader, groups) = rotary.shader(recorder, x, PUT)?;
                    (append.target(shader, y), groups)
                }
                (Some(rotary), None) => {
                    let put = "fn put(i: u32, value: f32) {\n    y[i] = value;\n}";
                    let (shader, groups) = rotary.shader(recorder, x, put)?;
                    (shader.write("y", "f32", y), groups)
                }
                (None, Some(append)) => append.shader(recorder, x, y),
                (None, None) => continue,
            });
        }
        Shader::side_by_side(recorder, "keep", &[], kernels)
    }
}
