//! The second pass of a product whose summed extent was cut into parts: the parts' sums are
//! added in order, and what follows the product is applied.

/// Threads of a workgroup: few, since there are few elements where it pays to cut.
pub const THREADS: usize = 64;

/// `main`: for each group of `width` elements of C the sum over `constants.parts`
/// parts in `partials`, handed to `store(row, column, value)`. Workgroups
/// past those that this needs run the statements `beyond`, with their number beyond it in `extra`.
pub fn main(width: u32, threads: usize, beyond: &str) -> String {
    format!(
        "fn main(group: u32, thread: u32) {{
    let run = constants.columns / {width}u;
    let total = constants.rows * run;
    let groups = (total + {last}u) / {threads}u;
    if (group >= groups) {{
        let extra = group - groups;
        {beyond}
        return;
    }}
    let item = group * {threads}u + thread;
    if (item >= total) {{ return; }}
    var sum = partials[item];
    for (var part = 1u; part < constants.parts; part++) {{
        sum += partials[part * total + item];
    }}
    store(item / run, item % run * {width}u, sum);
}}
",
        last = threads - 1,
    )
}

/// Workgroups for C of this many elements.
pub fn groups(elements: usize, width: u32, threads: usize) -> usize {
    (elements / width as usize).div_ceil(threads)
}
