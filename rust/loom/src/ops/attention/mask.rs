//! Masks that are the same for every row and every call.

/// Which of `keys` places each of `queries` places may look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedMask {
    queries: usize,
    keys: usize,
    /// Row after row, 32 to a word, the first in the lowest bit; rows start at words of their own.
    words: Vec<u32>,
}

impl FixedMask {
    /// The mask that allows key j to query i where `allows(i, j)`.
    pub fn new(queries: usize, keys: usize, allows: impl Fn(usize, usize) -> bool) -> Self {
        let row = keys.div_ceil(32);
        let mut words = vec![0; queries * row];
        for query in 0..queries {
            for key in (0..keys).filter(|key| allows(query, *key)) {
                words[query * row + key / 32] |= 1 << (key % 32);
            }
        }
        Self { queries, keys, words }
    }

    /// Places that ask, and places that are looked at.
    pub fn extents(&self) -> (usize, usize) {
        (self.queries, self.keys)
    }

    /// Whether the query may see the key; places beyond the mask see and are seen by nobody.
    pub fn allows(&self, query: usize, key: usize) -> bool {
        query < self.queries
            && key < self.keys
            && self.words[query * self.row_words() + key / 32] >> (key % 32) & 1 == 1
    }

    /// Words of one query's row.
    pub(super) fn row_words(&self) -> usize {
        self.keys.div_ceil(32)
    }

    /// The rows of all queries, one after another.
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }
}
