//! The rectifier with learned slopes on a GPU: memory-bound, so units of four elements where they have one slope
//! or lie side by side with theirs.

use super::Prelu;
use crate::Result;
use crate::ops::Direction;
use crate::shader::{GpuOperation, Recorder, Shader};

impl GpuOperation for Prelu {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let Self { direction, channels, inner } = *self;
        let (x, second, result) = (recorder.read(0)?, recorder.read(1)?, recorder.write(0)?);
        let slopeless = direction == Direction::WeightGradient;
        let side_by_side = inner == 1 && channels.is_multiple_of(4);
        let wide = slopeless || channels == 1 || side_by_side || inner.is_multiple_of(4);
        let unit = if wide { "vec4<f32>" } else { "f32" };
        let width = if wide { 4 } else { 1 };
        let units = result.elements.div_ceil(width);
        let slope = format!("{unit}(slopes[i / constants.inner % constants.channels])");
        let (below, above) = match direction {
            Direction::Forward => (format!("{slope} * x[i]"), "x[i]".to_string()),
            Direction::InputGradient => (format!("{slope} * dy[i]"), "dy[i]".to_string()),
            Direction::WeightGradient => ("x[i] * dy[i]".to_string(), format!("{unit}(0.0)")),
        };
        let mut shader = Shader::new(self.to_string(), include_str!("prelu.wgsl"))
            .section("UNIT", unit)
            .section("BELOW", below)
            .section("ABOVE", above)
            .read("x", unit, x);
        shader = match direction {
            Direction::WeightGradient => shader.read("dy", unit, second),
            _ => shader
                .read("slopes", if side_by_side { unit } else { "f32" }, second)
                // Units of slopes.
                .number("channels", if side_by_side { channels / 4 } else { channels })
                // Units of x that share one unit of slopes.
                .number("inner", inner.div_ceil(width)),
        };
        if direction == Direction::InputGradient {
            shader = shader.read("dy", unit, recorder.read(2)?);
        }
        shader.write("result", unit, result).number("units", units).elements(recorder, units)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::testing::{Setting, numbers};

    #[test]
    fn extents_of_every_kind() {
        for (rows, channels, inner) in
            [(1, 1, 1), (3, 1, 7), (2, 3, 5), (3, 3, 1), (5, 8, 1), (2, 3, 8), (70, 5, 300)]
        {
            let len = rows * channels * inner;
            let [x, slope, dy] =
                [(1, len), (2, channels), (3, len)].map(|(seed, len)| numbers::<f32>(seed, len));
            let both = |direction, reads: &[&[f32]]| {
                check(Prelu { direction, channels, inner }, &Setting::new(rows, reads, &[len]));
            };
            both(Direction::Forward, &[&x, &slope]);
            both(Direction::InputGradient, &[&x, &slope, &dy]);
            both(Direction::WeightGradient, &[&x, &dy]);
        }
    }
}
