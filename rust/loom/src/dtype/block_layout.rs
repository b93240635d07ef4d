//! How the scale and the codes of a block lie in its bytes.

/// Elements of a block.
pub(crate) const BLOCK: usize = 32;

/// How codes lie in the bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeOrder {
    /// A byte each.
    Bytes,
    /// Two in a byte: the lower halves of the bytes are the block's first half, the upper ones its second.
    Halves,
    /// Two in a byte, the first in the lower half.
    Pairs,
}

impl CodeOrder {
    /// Bits of a code.
    pub(crate) const fn bits(self) -> usize {
        match self {
            CodeOrder::Bytes => 8,
            CodeOrder::Halves | CodeOrder::Pairs => 4,
        }
    }

    /// Bytes of the codes of a block.
    pub(crate) const fn bytes(self) -> usize {
        BLOCK * self.bits() / 8
    }

    /// Which byte the code of a place is in, and above how many bits of it.
    #[inline(always)]
    pub(super) fn of(self, place: usize) -> (usize, usize) {
        match self {
            CodeOrder::Bytes => (place, 0),
            CodeOrder::Halves => (place % (BLOCK / 2), place / (BLOCK / 2) * 4),
            CodeOrder::Pairs => (place / 2, place % 2 * 4),
        }
    }

    /// [`of`](CodeOrder::of) as WGSL expressions.
    pub(super) fn wgsl(self, place: &str) -> [String; 2] {
        const HALF: usize = BLOCK / 2;
        match self {
            CodeOrder::Bytes => [place.to_string(), "0u".to_string()],
            CodeOrder::Halves => [format!("{place} % {HALF}u"), format!("{place} / {HALF}u * 4u")],
            CodeOrder::Pairs => [format!("{place} / 2u"), format!("{place} % 2u * 4u")],
        }
    }

    /// Where in the block the first of each four numbers of the word at byte `n` of the codes is: the first times
    /// `n`, and the second; with the WGSL expression of those four codes, from the lowest bits of `word` on.
    pub(super) fn runs(self) -> &'static [((usize, usize), &'static str)] {
        match self {
            CodeOrder::Bytes => &[((1, 0), "word")],
            CodeOrder::Halves => &[((1, 0), "word"), ((1, BLOCK / 2), "word >> 4u")],
            CodeOrder::Pairs => &[((2, 0), "word"), ((2, 4), "word >> 16u")],
        }
    }
}

/// What the blocks of a format are, as kernels on a GPU want to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockLayout {
    /// Bytes of a block.
    pub(crate) bytes: usize,
    /// Bytes before its codes.
    pub(crate) head: usize,
    /// How those lie.
    pub(crate) order: CodeOrder,
    /// A WGSL expression of the scale, from a word `head` that the block begins with.
    pub(crate) scale: &'static str,
}
