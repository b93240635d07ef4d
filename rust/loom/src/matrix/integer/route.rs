//! Which instructions sum products of codes.

use crate::simd::{Isa, has_quads};

/// The instructions that products of codes are summed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    isa: Isa,
    /// Whether four products an instruction are there: AVX-512 VNNI. Private, as an `Isa`'s level is.
    quads: bool,
}

impl Route {
    /// The fastest of an instruction set on this machine.
    pub fn best(isa: Isa) -> Self {
        Self { isa, quads: has_quads(isa) }
    }

    /// Every route of this machine.
    pub fn available() -> Vec<Self> {
        let plain = Isa::available().into_iter().map(|isa| Self { isa, quads: false });
        let quads = Isa::available().into_iter().filter(|isa| has_quads(*isa));
        plain.chain(quads.map(|isa| Self { isa, quads: true })).collect()
    }

    /// The instruction set it is of.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// Codes along k in a word of 32 bits.
    pub(super) fn per(self) -> usize {
        if self.quads { 4 } else { 2 }
    }

    /// Bytes of a row's code.
    pub fn code_bytes(self) -> usize {
        4 / self.per()
    }
}
