//! The product with a matrix of few columns, such as the weight of a classifier's last layer: a
//! workgroup makes whole rows of C, and its threads share the summed extent out, so that there is
//! no second pass over parts.
//!
//! B is read as one long row of vec4s. There are as many threads as make whole columns of it, so
//! that each of a thread's four elements stays in one column from step to step.

use super::half::Rounding;
use crate::shader::{Shader, THREADS};

/// The most columns it is generated for.
pub const MAX_COLUMNS: usize = 16;

/// A product with few columns as WGSL text.
///
/// It calls `load_a(row, k) -> f32`, `store(row, column, value: f32)`, and
/// `load_four(at, column_of_each) -> vec4<f32>`: elements `at`, a multiple of 4, to `at + 3` of B,
/// whose rows follow each other without a gap.
#[derive(Clone, Debug)]
pub struct FewColumns {
    /// Columns of C, at most [`MAX_COLUMNS`].
    pub columns: u32,
    /// Rows of C made by one workgroup: 1, 2 or 4.
    pub rows: u32,
    /// How operands are rounded.
    pub rounding: Rounding,
}

/// Rows of B that the threads of a workgroup read in one step: a power of two, at least 64.
pub(super) const fn lanes(columns: u32) -> u32 {
    let most = THREADS as u32 * 4 / columns;
    1 << most.ilog2()
}

/// Threads of a workgroup.
pub(super) const fn threads(columns: u32) -> u32 {
    lanes(columns) * columns / 4
}

/// Rows of C that a workgroup is to make where there are so many: fewer fill the device, more
/// read B less often.
pub(super) fn group_rows(rows: usize) -> u32 {
    match rows {
        ..256 => 1,
        256..1024 => 2,
        _ => 4,
    }
}

impl FewColumns {
    /// Adds `main` to a kernel that has the hooks.
    pub fn add_to(&self, shader: Shader) -> Shader {
        let threads = threads(self.columns) as usize;
        shader.threads(threads).append(self.rounding.functions()).append(&self.main())
    }

    fn main(&self) -> String {
        let Self { columns, rows, rounding } = *self;
        let (lanes, threads) = (lanes(columns), threads(columns));
        let each = |text: &dyn Fn(u32) -> String| (0..rows).map(text).collect::<String>();
        let sums = each(&|r| format!("    var sum{r} = vec4<f32>();\n"));
        let places = each(&|r| format!("    let row{r} = min(row + {r}u, constants.rows - 1u);\n"));
        let step = |at: &str, indent: &str| {
            let products =
                each(&|r| format!("{indent}sum{r} = fma(left_four(row{r}, {at}, lane), b, sum{r});\n"));
            let four = format!("load_four(({at}) * {columns}u + thread * 4u, column)");
            format!("{indent}b = {};\n{products}", rounding.operand(4, &four))
        };
        let unrolled: String = (0..4).map(|i| step(&format!("k + {}u", i * lanes), "        ")).collect();
        let single = step("k", "        ");
        let rest = each(&|r| {
            format!("        sum{r} = fma(select(zero, left_some(row{r}, k, lane), inside), b, sum{r});\n")
        });
        // Elements of a vec4 that lie in the same row of B need the same element of A.
        let left_four = match columns {
            4 | 8 | 12 | 16 => "vec4<f32>(load_a(row, k + lane.x))".to_string(),
            4.. => "select(vec4<f32>(load_a(row, k + lane.w)), vec4<f32>(load_a(row, k + lane.x)), \
                    lane == lane.xxxx)"
                .to_string(),
            _ => {
                let loads = ["x", "y", "z", "w"].map(|c| format!("load_a(row, k + lane.{c})"));
                format!("vec4<f32>({})", loads.join(", "))
            }
        };
        let left_four = rounding.operand(4, &left_four);
        let last_four = rounding.operand(4, &format!("load_four(k * {columns}u + thread * 4u, column)"));
        let put = each(&|r| format!("    sums[{}u + thread] = sum{r};\n", r * threads));
        let (mut tree, mut left) = (String::new(), lanes);
        // Four lanes of a column become one, or two at the end; what a thread replaces it alone reads.
        while left > 1 {
            let joined = if left.is_multiple_of(4) { 4 } else { 2 };
            left /= joined;
            let next = left * columns;
            let cell = |r: u32, i: u32| format!("cell({}u + {}u + thread)", r * threads * 4, i * next);
            let join = each(&|r| match joined {
                4 => format!(
                    "        let joined{r} = ({} + {}) + ({} + {});\n",
                    cell(r, 0),
                    cell(r, 1),
                    cell(r, 2),
                    cell(r, 3)
                ),
                _ => format!("        let joined{r} = {} + {};\n", cell(r, 0), cell(r, 1)),
            });
            let done = each(&|r| match left {
                1 => format!(
                    "        if (row + {r}u < constants.rows) {{ store(row + {r}u, thread, joined{r}); }}\n"
                ),
                _ => format!("        put_cell({}u + thread, joined{r});\n", r * threads * 4),
            });
            tree += &format!("    workgroupBarrier();\n    if (thread < {next}u) {{\n{join}{done}    }}\n");
        }
        format!(
            "var<workgroup> sums: array<vec4<f32>, {memory}>;

fn cell(at: u32) -> f32 {{
    return sums[at / 4u][at % 4u];
}}

fn put_cell(at: u32, value: f32) {{
    sums[at / 4u][at % 4u] = value;
}}

// What four elements of B from row k on are multiplied with, each in a row of its own.
fn left_four(row: u32, k: u32, lane: vec4<u32>) -> vec4<f32> {{
    return {left_four};
}}

// The same where the last row of B may lie before.
fn left_some(row: u32, k: u32, lane: vec4<u32>) -> vec4<f32> {{
    let last = vec4<u32>(constants.depth - 1u - k);
    return left_four(row, k, min(lane, last));
}}

fn main(group: u32, thread: u32) {{
    let row = group * {rows}u;
    if (row >= constants.rows) {{ return; }}
{places}    let element = vec4<u32>(thread * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
    let lane = element / vec4<u32>({columns}u);
    let column = element % vec4<u32>({columns}u);
    let zero = vec4<f32>();
    var b = zero;
{sums}    var k = 0u;
    // Four steps at a time, so that their loads are under way together.
    for (; k + {four}u <= constants.depth; k += {four}u) {{
{unrolled}    }}
    for (; k + {lanes}u <= constants.depth; k += {lanes}u) {{
{single}    }}
    if (k + lane.x < constants.depth) {{
        // Past the last element there may be anything, which is not to be multiplied.
        let inside = vec4<u32>(k) + lane < vec4<u32>(constants.depth);
        b = select(zero, {last_four}, inside);
{rest}    }}
    // One fixed tree over the lanes.
{put}{tree}}}
",
            memory = rows * threads,
            four = 4 * lanes,
        )
    }
}
