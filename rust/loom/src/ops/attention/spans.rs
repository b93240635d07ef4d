//! What attention over parts of the keys hands on, for whoever reads its result to join.

use crate::shader::Operand;

/// What queries have gathered over spans of their keys.
pub(in crate::ops) struct Spans {
    /// A head's sums of weighted values, for each span of each head of each query.
    pub(in crate::ops) gathered: Operand,
    /// Their largest scores, and the sums of their weights relative to these, two numbers each.
    pub(in crate::ops) weights: Operand,
    /// Spans of one query.
    pub(in crate::ops) spans: usize,
}
