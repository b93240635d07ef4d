//! What the weights of examples are of.

/// What weights there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weighing {
    #[default]
    None,
    /// One a row.
    Rows,
    /// So many a row: one for each of its places, such as steps or pixels; where outputs have names, one for each of
    /// these, or for each place of one.
    Places(usize),
}

impl Weighing {
    /// What serves both; where a row's places are other ones now, those of the newer.
    pub(crate) fn or(self, newer: Self) -> Self {
        match (self, newer) {
            (Self::None, _) | (Self::Places(_), Self::Places(_)) => newer,
            _ => self,
        }
    }

    /// How many weights a row has.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::None => 0,
            Self::Rows => 1,
            Self::Places(count) => count,
        }
    }
}
