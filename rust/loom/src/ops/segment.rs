//! WGSL text that joins what the threads of a workgroup have found, in one fixed order.

use std::fmt::Write;

/// A function `name(thread, value)`: `value` of each run of `width` threads joined by `combine`, an
/// expression of `a` and `b`, and handed to all of them. Every thread of the workgroup, which has
/// `THREADS`, must call it. `width` is a power of two.
pub(super) fn join(name: &str, element: &str, width: usize, combine: &str) -> String {
    let mut text = String::new();
    let mut line = |part: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = text.write_fmt(part);
    };
    if width > 1 {
        line(format_args!("var<workgroup> {name}_cells: array<{element}, THREADS>;\n"));
    }
    line(format_args!("fn {name}(thread: u32, value: {element}) -> {element} {{\n"));
    if width > 1 {
        line(format_args!("    {name}_cells[thread] = value;\n    workgroupBarrier();\n"));
        line(format_args!("    let lane = thread % {width}u;\n"));
        let mut half = width / 2;
        while half > 0 {
            line(format_args!("    if lane < {half}u {{\n"));
            line(format_args!("        let a = {name}_cells[thread];\n"));
            line(format_args!("        let b = {name}_cells[thread + {half}u];\n"));
            line(format_args!(
                "        {name}_cells[thread] = {combine};\n    }}\n    workgroupBarrier();\n"
            ));
            half /= 2;
        }
        line(format_args!("    let joined = {name}_cells[thread - lane];\n"));
        // The next call must not overwrite what a slower thread has yet to read.
        line(format_args!("    workgroupBarrier();\n    return joined;\n}}\n"));
    } else {
        line(format_args!("    return value;\n}}\n"));
    }
    text
}

/// The threads that share `extent` elements: a power of two, no more than `most`.
pub(super) fn lanes(extent: usize, most: usize) -> usize {
    extent.next_power_of_two().clamp(1, most)
}
