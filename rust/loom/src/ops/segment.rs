//! WGSL text that joins what the threads of a workgroup have found, in one fixed order.

use crate::shader::add_line;

/// A function `name(thread, value)`: `value` of each run of `width` threads joined by `combine`, an
/// expression of `a` and `b`, and handed to all of them. Every thread of the workgroup, which has
/// `THREADS`, must call it. `width` is a power of two.
pub(super) fn join(name: &str, element: &str, width: usize, combine: &str) -> String {
    let mut text = String::new();
    if width > 1 {
        add_line!(text, "var<workgroup> {name}_cells: array<{element}, THREADS>;");
    }
    add_line!(text, "fn {name}(thread: u32, value: {element}) -> {element} {{");
    if width > 1 {
        add_line!(text, "    {name}_cells[thread] = value;\n    workgroupBarrier();");
        add_line!(text, "    let lane = thread % {width}u;");
        let mut half = width / 2;
        while half > 0 {
            add_line!(text, "    if lane < {half}u {{");
            add_line!(text, "        let a = {name}_cells[thread];");
            add_line!(text, "        let b = {name}_cells[thread + {half}u];");
            add_line!(text, "        {name}_cells[thread] = {combine};\n    }}\n    workgroupBarrier();");
            half /= 2;
        }
        add_line!(text, "    let joined = {name}_cells[thread - lane];");
        // The next call must not overwrite what a slower thread has yet to read.
        add_line!(text, "    workgroupBarrier();\n    return joined;\n}}");
    } else {
        add_line!(text, "    return value;\n}}");
    }
    text
}

/// The threads that share `extent` elements: a power of two, no more than `most`.
pub(super) fn lanes(extent: usize, most: usize) -> usize {
    extent.next_power_of_two().clamp(1, most)
}
