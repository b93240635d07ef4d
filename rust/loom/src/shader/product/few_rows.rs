//! The product of a few rows, such as one sample, with a matrix: every element of B is needed
//! once, so threads read B side by side and nothing is kept in workgroup memory but sums.

use super::half::Rounding;
use super::tile::Along;
use crate::shader::{Shader, THREADS};

/// The most rows it is generated for.
pub const MAX_ROWS: usize = 4;

/// A product of few rows as WGSL text.
///
/// It calls the hooks of [`Tiled`](super::Tiled). B has to lie along the depth (the
/// transpose is stored: one warp reads a stored row, `load_a` and `load_b` give `width` elements
/// of it) or across (`load_a` gives one element, `load_b` and `store` have `width` columns).
#[derive(Clone, Debug)]
pub struct FewRows {
    /// Rows of C, at most [`MAX_ROWS`].
    pub rows: u32,
    /// Along what B is contiguous.
    pub along: Along,
    /// Elements of B loaded together: 1, or 4.
    pub width: u32,
    /// Whether the summed extent is cut into `constants.parts` parts.
    pub parts: bool,
    /// How operands are rounded.
    pub rounding: Rounding,
}

impl FewRows {
    /// Threads side by side along the depth.
    fn lanes(&self) -> u32 {
        match self.along {
            Along::Depth => 32,
            Along::Across => 8 * self.width,
        }
    }

    /// Columns of C made by one workgroup.
    pub fn columns(&self) -> usize {
        let columns = THREADS as u32 / self.lanes();
        (if self.along == Along::Across { columns * self.width } else { columns }) as usize
    }

    /// Adds `main` to a kernel that has the hooks.
    pub fn add_to(&self, shader: Shader) -> Shader {
        shader.threads(THREADS).append(self.rounding.functions()).append(&self.main())
    }

    fn main(&self) -> String {
        let (lanes, width) = (self.lanes(), self.width);
        let across = self.along == Along::Across;
        let threads = THREADS as u32;
        let columns = threads / lanes;
        // What a thread sums, and how far it goes along the depth in one step.
        let ty = if across && width == 4 { "vec4<f32>" } else { "f32" };
        let (step, columns_of_thread) = if across { (1, width) } else { (width, 1) };
        let (lane, column) = match self.along {
            Along::Depth => (format!("thread % {lanes}u"), format!("thread / {lanes}u")),
            Along::Across => (format!("thread / {columns}u"), format!("thread % {columns}u")),
        };
        let rows = 0..self.rows;
        let each = |text: &dyn Fn(u32) -> String| rows.clone().map(text).collect::<String>();
        let sums = each(&|r| format!("    var sum{r} = {ty}();\n"));
        let a = |r: u32, width: u32| self.rounding.operand(width, &format!("load_a({r}u, k)"));
        let products = each(&|r| match (across, width) {
            (true, 4) => format!("            sum{r} = fma(vec4<f32>({}), b, sum{r});\n", a(r, 1)),
            (false, 4) => format!("            sum{r} += dot({}, b);\n", a(r, 4)),
            _ => format!("            sum{r} = fma({}, b, sum{r});\n", a(r, 1)),
        });
        let b = self.rounding.operand(width, "load_b(k, first_column)");
        let put = each(&|r| format!("    sums[{}u + lane * {columns}u + column] = sum{r};\n", r * threads));
        let halve = each(&|r| {
            let at = format!("{}u + lane * {columns}u + column", r * threads);
            format!("            sums[{at}] += sums[{at} + half * {columns}u];\n")
        });
        let store = each(&|r| {
            format!(
                "        store({r}u, first_column, sums[{}u + lane * {columns}u + column]);\n",
                r * threads
            )
        });
        let (parts, range) = match self.parts {
            true => (
                "constants.parts",
                "let first = part * constants.chunk;\n    let last = min(constants.depth, first + constants.chunk);",
            ),
            false => ("1u", "let first = 0u;\n    let last = constants.depth;"),
        };
        format!(
            "var<workgroup> sums: array<{ty}, {memory}>;
var<private> part: u32;

fn main(group: u32, thread: u32) {{
    let groups = (constants.columns + {last_column}u) / {all_columns}u;
    part = group / groups;
    if (part >= {parts}) {{ return; }}
    {range}
    let lane = {lane};
    let column = {column};
    let first_column = group % groups * {all_columns}u + column * {columns_of_thread}u;
{sums}    if (first_column < constants.columns) {{
        for (var k = first + lane * {step}u; k < last; k += {stride}u) {{
            let b = {b};
{products}        }}
    }}
    // One fixed tree over the lanes.
{put}    workgroupBarrier();
    for (var half = {half}u; half > 0u; half /= 2u) {{
        if (lane < half) {{
{halve}        }}
        workgroupBarrier();
    }}
    if (lane == 0u && first_column < constants.columns) {{
{store}    }}
}}
",
            memory = self.rows * threads,
            last_column = self.columns() - 1,
            all_columns = self.columns(),
            stride = lanes * step,
            half = lanes / 2,
        )
    }
}
