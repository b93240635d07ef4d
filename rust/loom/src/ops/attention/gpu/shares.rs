//! How the heads of queries that share a head of keys are dealt out over workgroups, for the gradients of keys and
//! values.
//!
//! A workgroup that goes through all of them reads its keys once and has whole sums, but few heads of keys are few
//! workgroups: four heads for 32 of queries kept 128 of them busy, one on each multiprocessor of a large device. Where
//! there are so few, each goes through a share of the heads, and what the shares make is added up in their order.

use super::Attention;
use crate::Result;
use crate::ops::bias::gpu::sum_columns;
use crate::shader::{Operand, Recorder, Shader};

/// As many workgroups as keep large devices busy.
const ENOUGH: usize = 1024;

/// The shares that each head of keys has of the heads of queries that look at it.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    shares: usize,
    /// Heads of queries in a share.
    members: usize,
}

impl Shares {
    /// The fewest that make enough of so many workgroups, or a share for each head of queries.
    pub(super) fn new(attention: &Attention, workgroups: usize) -> Self {
        let group = attention.heads / attention.key_value_heads;
        let enough = |shares: &usize| group.is_multiple_of(*shares) && workgroups * shares >= ENOUGH;
        let shares = (1..group).find(enough).unwrap_or(group);
        Self { shares, members: group / shares }
    }

    /// Heads of keys, each as often as it has shares.
    pub(super) fn heads(self, attention: &Attention) -> usize {
        attention.key_value_heads * self.shares
    }

    pub(super) fn declare(self, shader: Shader) -> Shader {
        shader.constant("SHARES", self.shares).constant("MEMBERS", self.members)
    }

    /// Where the shares' results of so many elements go: to the gradient itself where there is one share.
    pub(super) fn parts(
        self,
        recorder: &mut Recorder<'_>,
        gradient: Operand,
        elements: usize,
    ) -> Result<Operand> {
        if self.shares == 1 { Ok(gradient) } else { recorder.scratch(self.shares * elements) }
    }

    /// Adds up what the shares have made.
    pub(super) fn join(
        self,
        recorder: &mut Recorder<'_>,
        parts: Operand,
        gradient: Operand,
        elements: usize,
    ) -> Result<()> {
        if self.shares == 1 {
            return Ok(());
        }
        sum_columns(recorder, parts, (self.shares, elements), gradient, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_shares_as_keep_a_device_busy() {
        for (heads, workgroups, expected) in [
            ((32, 4), 128, 8),
            ((32, 4), 512, 2),
            ((32, 4), 1024, 1),
            ((12, 2), 400, 3),
            ((12, 2), 2, 6),
            ((8, 8), 1, 1),
        ] {
            let shares = Shares::new(&Attention::new((64, 64), heads, 16), workgroups);
            assert_eq!((shares.shares, shares.members), (expected, heads.0 / heads.1 / expected));
        }
    }
}
