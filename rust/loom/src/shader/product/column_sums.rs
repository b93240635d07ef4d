//! The sums of B's columns, by workgroups of the product's own dispatch: a bias gradient, where
//! the product is the weight gradient.

use super::matrix::element;
use crate::shader::Shader;

/// Additions of one thread that more threads for a column would not make faster.
const ADDITIONS: usize = 4;
/// Steps of [`ADDITIONS`] that a product in several parts hides in any case.
const PATIENCE: usize = 8;

/// How workgroups share the columns out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSums {
    /// Elements loaded and stored together.
    width: u32,
    /// Threads side by side, each with `width` columns.
    across: usize,
    /// Threads of a workgroup.
    pub(super) threads: usize,
    /// Workgroups.
    pub(super) groups: usize,
    /// Where they go in C's buffer.
    pub(super) at: usize,
}

impl ColumnSums {
    /// The sums over `depth` rows, by workgroups of `threads`, a power of two.
    pub(super) fn new(depth: usize, columns: usize, width: u32, threads: usize) -> Self {
        let units = columns / width as usize;
        // Neighbouring threads load neighbouring columns, unless too few were left along the depth.
        let mut across = units.next_power_of_two().min(8);
        while across > 1 && depth * across > ADDITIONS * threads {
            across /= 2;
        }
        Self { width, across, threads, groups: units.div_ceil(across), at: 0 }
    }

    /// Whether they are done when a product of so many steps between barriers is, or soon enough.
    pub(super) fn are_hidden(&self, depth: usize, steps: usize) -> bool {
        let lanes = self.threads / self.across;
        depth.div_ceil(lanes * ADDITIONS) <= steps.max(PATIENCE)
    }

    /// Adds `fn column_sums(group: u32, thread: u32)`, to be called by all threads of a workgroup.
    ///
    /// It needs `load_b`, the matrix `output`, and as many vec4s of `memory` as there are threads.
    pub(super) fn add_to(&self, shader: Shader, accumulate: bool) -> Shader {
        let Self { width, across, threads, .. } = *self;
        let lanes = threads / across;
        let ty = element(width);
        let cell = |at: &str| format!("memory[{at}]{}", if width == 4 { "" } else { ".x" });
        let (own, other) = (cell("thread"), cell(&format!("thread + half * {across}u")));
        let before = if accumulate { "output[at] + " } else { "" };
        shader.number("sums_offset", self.at).append(&format!(
            "
// Sums of B's columns: the rows are shared out among {lanes} threads a column, whose sums are
// joined by one fixed tree.
fn column_sums(group: u32, thread: u32) {{
    let column = (group * {across}u + thread % {across}u) * {width}u;
    let there = column < constants.columns;
    // Four sums side by side, so that four loads are under way at a time.
    var a = {ty}();
    var b = {ty}();
    var c = {ty}();
    var d = {ty}();
    if (there) {{
        var k = thread / {across}u;
        for (; k + {three}u < constants.depth; k += {four}u) {{
            a += load_b(k, column);
            b += load_b(k + {lanes}u, column);
            c += load_b(k + {two}u, column);
            d += load_b(k + {three}u, column);
        }}
        for (; k < constants.depth; k += {lanes}u) {{
            a += load_b(k, column);
        }}
    }}
    {own} = (a + b) + (c + d);
    workgroupBarrier();
    for (var half = {half}u; half > 0u; half /= 2u) {{
        if (thread < half * {across}u) {{
            {own} += {other};
        }}
        workgroupBarrier();
    }}
    if (thread < {across}u && there) {{
        let at = (constants.sums_offset + column) / {width}u;
        output[at] = {before}{own};
    }}
}}
",
            two = 2 * lanes,
            three = 3 * lanes,
            four = 4 * lanes,
            half = lanes / 2,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_shared_out_among_many() {
        let sums = ColumnSums::new(64, 512, 4, 64);
        assert_eq!((sums.across, sums.groups), (4, 32));
        assert!(sums.are_hidden(64, 4));
        let sums = ColumnSums::new(1024, 512, 4, 256);
        assert_eq!((sums.across, sums.groups), (1, 128));
        assert!(sums.are_hidden(1024, 16));
        let sums = ColumnSums::new(1, 10, 1, 64);
        assert_eq!((sums.across, sums.groups), (8, 2));
        assert!(!ColumnSums::new(1 << 20, 10, 1, 64).are_hidden(1 << 20, 1024));
    }
}
