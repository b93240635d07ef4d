//! On a GPU: windows forward, and backward what each element gets from the windows above it.

use super::window::is_global;
use super::{Pool, PoolKind};
use crate::ops::Direction;
use crate::ops::pointwise::WGSL_PRELUDE;
use crate::shader::{GpuOperation, Recorder, Shader};
use crate::{Error, Result};

impl GpuOperation for Pool {
    fn record(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (input, output) = self.geometry.volumes();
        let planes = recorder.rows() * self.channels;
        let (read, written) = (recorder.read(0)?, recorder.write(0)?);
        let (from, to) = match self.direction {
            Direction::Forward => (input, output),
            Direction::InputGradient => (output, input),
            Direction::WeightGradient => {
                return Err(Error::Internal("pooling has no weight to take a gradient of".into()));
            }
        };
        if [read.elements, written.elements] != [planes * from, planes * to] {
            return Err(Error::Internal(format!(
                "{self}: {} and {} elements for {planes} planes",
                read.elements, written.elements
            )));
        }
        if self.geometry.stride.contains(&0) || self.geometry.dilation.contains(&0) {
            return Err(Error::Shape(format!("{self}: strides and dilations must be positive")));
        }
        let elements = written.elements;
        let forward = self.direction == Direction::Forward;
        if forward && self.kind != PoolKind::Max && is_global(&self.geometry) {
            return Shader::new(self.to_string(), include_str!("gpu/global.wgsl"))
                .constant("INPUTS", input)
                .read("x", "f32", read)
                .write("y", "f32", written)
                .number("planes", planes)
                .groups(recorder, planes);
        }
        // By the row, so that one text serves all batches.
        let width = if (self.channels * to).is_multiple_of(4) { 4 } else { 1 };
        let (stored, index) = if width == 4 { ("vec4<f32>", "vec4<i32>") } else { ("f32", "i32") };
        let divisor = include_str!("gpu/divisor.wgsl");
        let functions = match (forward, self.kind) {
            (true, PoolKind::Max) => include_str!("gpu/max.wgsl").to_string(),
            (true, PoolKind::Average { .. }) => [include_str!("gpu/average.wgsl"), divisor].concat(),
            (false, PoolKind::Max) => [include_str!("gpu/max_gradient.wgsl"), self.gather()].concat(),
            (false, PoolKind::Average { .. }) => {
                [include_str!("gpu/average_gradient.wgsl"), divisor, self.gather()].concat()
            }
        };
        let derivative = self.derivative.filter(|_| !forward);
        let slope = derivative.map_or(String::new(), |activation| {
            [WGSL_PRELUDE, "\n", &activation.wgsl_derivative("derivative")].concat()
        });
        let shader = Shader::new(self.to_string(), include_str!("gpu/main.wgsl"))
            .section("FUNCTIONS", functions + include_str!("gpu/place.wgsl") + &slope)
            .section("MAKE", self.make(width))
            .constant("WIDTH", width);
        let mut shader = match (forward, self.kind) {
            (true, PoolKind::Max) => shader.read("x", "f32", read).write("y", stored, written).write(
                "indices",
                index,
                recorder.write(1)?,
            ),
            (true, _) => shader.read("x", "f32", read).write("y", stored, written),
            (false, PoolKind::Max) => shader
                .read("dy", "f32", read)
                .read("indices", "i32", recorder.read(1)?)
                .write("dx", stored, written),
            (false, _) => shader.read("dy", "f32", read).write("dx", stored, written),
        };
        if derivative.is_some() {
            let number = if self.kind == PoolKind::Max { 2 } else { 1 };
            shader = shader.read("saved", stored, recorder.read(number)?);
        }
        self.fill(shader).number("elements", elements).elements(recorder, elements.div_ceil(width))
    }
}

impl Pool {
    /// How an element of dx finds the windows above it.
    fn gather(&self) -> &'static str {
        let g = &self.geometry;
        let apart = (0..3).all(|axis| g.dilation[axis] == 1 && g.kernel[axis] <= g.stride[axis]);
        if apart { include_str!("gpu/single.wgsl") } else { include_str!("gpu/gather.wgsl") }
    }

    /// Makes `width` neighbouring elements from number `first` on.
    fn make(&self, width: usize) -> String {
        let (result, function) = match (self.direction, self.kind) {
            (Direction::Forward, PoolKind::Max) => ("y", "best_of"),
            (Direction::Forward, PoolKind::Average { .. }) => ("y", "mean_of"),
            _ => ("dx", "gathered"),
        };
        let each = |text: &dyn Fn(usize) -> String| {
            let parts: Vec<_> = (0..width).map(text).collect();
            parts.join(", ")
        };
        if function == "best_of" {
            let bests: String =
                (0..width).map(|i| format!("    let best{i} = best_of(first + {i}u);\n")).collect();
            let (values, places) = (each(&|i| format!("best{i}.value")), each(&|i| format!("best{i}.index")));
            let (value, index) = if width == 4 { ("vec4<f32>", "vec4<i32>") } else { ("f32", "i32") };
            return format!(
                "{bests}    y[first / WIDTH] = {value}({values});\n    indices[first / WIDTH] = {index}({places});"
            );
        }
        let values = each(&|i| format!("{function}(first + {i}u)"));
        let ty = if width == 4 { "vec4<f32>" } else { "f32" };
        if self.direction == Direction::Forward || self.derivative.is_none() {
            return format!("    {result}[first / WIDTH] = {ty}({values});");
        }
        // Looked up for all elements, those with a gradient of zero among them: in what memory hands
        // over at a time there is nearly always one that needs it, and the load waits for nothing.
        let factors = match width {
            4 => each(&|i| format!("derivative(before[{i}])")),
            _ => "derivative(before)".to_string(),
        };
        format!(
            "    let before = saved[first / WIDTH];\n    {result}[first / WIDTH] = {ty}({values}) * {ty}({factors});"
        )
    }

    /// Adds the extents that texts name.
    fn fill(&self, shader: Shader) -> Shader {
        let g = &self.geometry;
        let (input, output) = g.volumes();
        let count_padding = matches!(self.kind, PoolKind::Average { count_padding: true });
        shader
            .flag("COUNT_PADDING", count_padding)
            .constant("INPUTS", input)
            .constant("INPUT_DEPTH", g.input[0])
            .constant("INPUT_HEIGHT", g.input[1])
            .constant("INPUT_WIDTH", g.input[2])
            .constant("OUTPUTS", output)
            .constant("OUTPUT_DEPTH", g.output[0])
            .constant("OUTPUT_HEIGHT", g.output[1])
            .constant("OUTPUT_WIDTH", g.output[2])
            .constant("KERNEL_DEPTH", g.kernel[0])
            .constant("KERNEL_HEIGHT", g.kernel[1])
            .constant("KERNEL_WIDTH", g.kernel[2])
            .constant("STRIDE_BACK", g.stride[0])
            .constant("STRIDE_DOWN", g.stride[1])
            .constant("STRIDE_RIGHT", g.stride[2])
            .constant("PADDING_BACK", g.padding[0])
            .constant("PADDING_DOWN", g.padding[1])
            .constant("PADDING_RIGHT", g.padding[2])
            .constant("DILATION_BACK", g.dilation[0])
            .constant("DILATION_DOWN", g.dilation[1])
            .constant("DILATION_RIGHT", g.dilation[2])
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::gpu::testing::check;
    use crate::ops::Geometry;
    use crate::ops::pointwise::Activation;
    use crate::ops::pool::tests::{coarse, geometries, geometry, len};
    use crate::ops::testing::{Data, Setting, numbers};
    use proptest::prelude::*;

    /// Both directions of a maximum, whose indices the CPU finds, and of both means.
    fn check_all(geometry: &Geometry, rows: usize, channels: usize, x: &[f32]) {
        let (input, output) = len(geometry, rows * channels);
        let dy: Vec<f32> = numbers(30, output);
        let pool =
            |direction, kind| Pool { direction, kind, geometry: *geometry, channels, derivative: None };
        let mut setting = Setting::new(rows, &[x], &[output]);
        setting.writes.push(Data::Index(vec![-77; output]));
        let forward = pool(Direction::Forward, PoolKind::Max);
        check(forward.clone(), &setting);
        let indices = setting.run(&forward).swap_remove(1);
        let mut setting = Setting::new(rows, &[&dy], &[input]);
        setting.reads.push(indices);
        let back = pool(Direction::InputGradient, PoolKind::Max);
        check(back.clone(), &setting);
        let saved = Data::Real(numbers(35, input));
        setting.reads.push(saved.clone());
        check(Pool { derivative: Some(Activation::Relu), ..back }, &setting);
        for count_padding in [false, true] {
            let kind = PoolKind::Average { count_padding };
            let x: Vec<f32> = numbers(31, input);
            check(pool(Direction::Forward, kind), &Setting::new(rows, &[&x], &[output]));
            let mut setting = Setting::new(rows, &[&dy], &[input]);
            let back = pool(Direction::InputGradient, kind);
            check(back.clone(), &setting);
            setting.reads.push(saved.clone());
            check(Pool { derivative: Some(Activation::Tanh), ..back }, &setting);
        }
    }

    #[test]
    fn windows_side_by_side_and_overlapping() {
        for (rows, columns, channels) in [
            ([28, 2, 2, 0, 1], [28, 2, 2, 0, 1], 3),
            ([14, 2, 2, 0, 1], [15, 2, 2, 0, 1], 4),
            ([13, 3, 2, 1, 1], [12, 3, 2, 1, 1], 2),
            ([9, 3, 1, 1, 2], [8, 2, 3, 1, 1], 1),
            ([19, 19, 19, 0, 1], [23, 23, 23, 0, 1], 5),
            ([1, 1, 1, 0, 1], [1, 1, 1, 0, 1], 1),
        ] {
            let g = geometry(rows, columns);
            check_all(&g, 3, channels, &coarse(32, len(&g, 3 * channels).0));
        }
    }

    #[test]
    fn nan_wins_and_borders_do_not() {
        let g = geometry([7, 3, 2, 1, 1], [7, 3, 2, 1, 1]);
        let mut x: Vec<f32> = coarse(33, len(&g, 4).0);
        for x in x.iter_mut().step_by(3) {
            *x = f32::NEG_INFINITY;
        }
        for x in x.iter_mut().skip(49).step_by(5) {
            *x = f32::NAN;
        }
        x[98..].fill(f32::NEG_INFINITY);
        check_all(&g, 2, 2, &x);
    }

    proptest! {
        #![proptest_config(crate::gpu::testing::cases(8))]

        #[test]
        fn any_windows(g in geometries(), rows in 1..3usize, channels in 1..5usize) {
            check_all(&g, rows, channels, &coarse(34, len(&g, rows * channels).0));
        }
    }
}
