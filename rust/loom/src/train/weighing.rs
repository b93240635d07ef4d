//! What the weights of examples are of.

/// What weights there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weighing {
    #[default]
    None,
    /// One a row.
    Rows,
    /// One for each step of a row; where outputs have names, one for each of these.
    Steps,
}

impl Weighing {
    /// What serves both.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::None { other } else { self }
    }
}
