//! What a parameter is to a rule that looks at it whole.

use crate::ops::update::Optimizer;
use crate::weights::{Layout, ParameterInfo};

/// Weights that a rule looks at together: a parameter, or one of several matrices in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it starts in the flat master.
    pub start: usize,
    /// Rows as stored: inputs.
    pub rows: usize,
    /// Columns as stored: outputs.
    pub columns: usize,
    /// From one row to the next.
    pub stride: usize,
    /// Whether it is treated as a matrix, not number by number.
    pub matrix: bool,
}

impl Part {
    /// What a parameter consists of for a rule. A convolution's kernel is the matrix of all that one output reads;
    /// rows of tables that are looked up, such as embeddings, are no matrix to be orthogonalised.
    pub(crate) fn of(info: &ParameterInfo, optimizer: &Optimizer) -> Vec<Self> {
        let (rows, columns) = info.layout.storage_matrix();
        let whole =
            Self { start: info.offset, rows, columns, stride: columns, matrix: rows > 1 && columns > 1 };
        let groups = match (&info.layout, optimizer) {
            (Layout::Table(_), Optimizer::Muon { .. }) => return vec![Self { matrix: false, ..whole }],
            (Layout::Grouped(shape), Optimizer::Muon { .. }) => shape.first().copied().unwrap_or(1).max(1),
            _ => 1,
        };
        let columns = columns / groups;
        let group = |group| Self {
            start: info.offset + group * columns,
            columns,
            matrix: rows > 1 && columns > 1,
            ..whole
        };
        if groups == 1 { vec![whole] } else { (0..groups).map(group).collect() }
    }

    /// How many weights it has.
    pub(super) fn len(&self) -> usize {
        self.rows * self.columns
    }
}
