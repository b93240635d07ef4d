//! The second pass of a product whose summed extent was cut into parts: the parts' sums are
//! added in order, and what follows the product is applied.

/// Threads of a workgroup: few, since there are few elements where it pays to cut.
pub const THREADS: usize = 64;

/// The module's text: for each group of `width` elements of C the sum over `constants.parts`
/// parts in `partials`, handed to `store(row, column, value)` of the declarations.
pub fn source(declarations: &str, width: u32) -> String {
    format!(
        "{declarations}
@compute @workgroup_size({THREADS})
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) thread: u32) {{
    let run = constants.columns / {width}u;
    let total = constants.rows * run;
    let item = group_index(id, count) * {THREADS}u + thread;
    if (item >= total) {{ return; }}
    var sum = partials[item];
    for (var part = 1u; part < constants.parts; part++) {{
        sum += partials[part * total + item];
    }}
    store(item / run, item % run * {width}u, sum);
}}
"
    )
}

/// Workgroups for C of this many elements.
pub fn groups(elements: usize, width: u32) -> usize {
    (elements / width as usize).div_ceil(THREADS)
}
