//! The order of sums, in the plainest form.

use super::{Epilogue, Output, PanelSource, Start};
use crate::simd::{Isa, Real};

/// The product by three plain loops: what [`super::product`] must equal bit for bit.
///
/// For tests; it is slow.
///
/// # Panics
/// If the extents do not fit each other.
pub fn product_reference<T: Real>(
    a: &dyn PanelSource<T>,
    b: &dyn PanelSource<T>,
    start: Start,
    epilogue: &dyn Epilogue<T>,
    c: Output<'_, T>,
) {
    assert_eq!((a.lanes(), a.depth(), b.lanes()), (c.rows, b.depth(), c.columns));
    let depth = a.depth();
    let unpack = |source: &dyn PanelSource<T>| {
        let width = source.lanes().next_multiple_of(16);
        let mut panel = vec![T::ZERO; depth * width];
        source.pack(Isa::portable(), 0..depth, 0..source.lanes(), width, &mut panel);
        (panel, width)
    };
    let ((a, a_width), (b, b_width)) = (unpack(a), unpack(b));
    for i in 0..c.rows {
        // SAFETY: row i of C, which is borrowed exclusively.
        let row = unsafe { std::slice::from_raw_parts_mut(c.data.add(i * c.row_stride), c.columns) };
        for (j, element) in row.iter_mut().enumerate() {
            let mut sum = match start {
                Start::Zero => T::ZERO,
                Start::Continue => *element,
            };
            for k in 0..depth {
                sum = a[k * a_width + i].mul_add(b[k * b_width + j], sum);
            }
            *element = sum;
        }
        epilogue.apply(Isa::portable(), i, 0, row);
    }
}
