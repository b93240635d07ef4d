//! Memory for the temporary results of recorded lists: lists run one after the other, and so all have the same.
//!
//! Within a list small ones lie beside each other while there is plenty, as small values do (`program/sharing.rs`).

use super::Gpu;
use super::dispatch::Dispatch;
use super::leveling::{Order, Touched};
use super::repeating;
use crate::Result;
use crate::program::LARGE;
use crate::shader::{Accelerator, Allocation, Bind, Recorded, ToPlace};
use std::collections::HashMap;

/// Bytes of temporary results up to which calls may wait for others like them, and keep what they read.
const MOST_KEPT: u64 = 2 * PLENTY;
/// Bytes of small ones that hardware can hold beside each other.
const PLENTY: u64 = 1 << 28;

/// Memory that lists use in turn.
#[derive(Debug, Default)]
pub(super) struct Temporaries(Vec<Allocation>);

/// A temporary result of a list.
struct Temporary {
    recorded: Allocation,
    /// The first and the last level at which it is in use.
    first: usize,
    last: usize,
    /// Which memory it lies in.
    place: usize,
}

impl Temporaries {
    /// What was recorded, in the order of its levels, with temporary results where none overwrites another
    /// that is in use; side by side stays what was side by side.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where there is too little memory.
    pub(super) fn place(&mut self, gpu: &Gpu, recorded: Vec<Recorded>) -> Result<Vec<Dispatch>> {
        let touched: Vec<Touched> = recorded.iter().map(Touched::by).collect();
        let waits = gpu.joins_all() && size_of_all(&touched) <= MOST_KEPT;
        let groups = if waits { repeating::groups(gpu, &recorded) } else { Vec::new() };
        let levels = Order::of(&touched).levels(&groups);
        let mut ordered: Vec<_> = levels.into_iter().zip(touched).zip(recorded).collect();
        ordered.sort_by_key(|((level, _), _)| *level);
        let mut temporaries: Vec<Temporary> = Vec::new();
        for ((level, touched), _) in &ordered {
            for allocation in touched.memory.iter().map(|touch| &touch.allocation) {
                if allocation.held::<ToPlace>().is_none() {
                    continue;
                }
                match temporaries.iter_mut().find(|known| known.recorded.is(allocation)) {
                    Some(known) => known.last = *level,
                    None => {
                        temporaries.push(Temporary {
                            recorded: allocation.clone(),
                            first: *level,
                            last: *level,
                            place: 0,
                        });
                    }
                }
            }
        }
        let whole: u64 = temporaries.iter().map(|temporary| temporary.recorded.size()).sum();
        // An adapter in software runs no two kernels at once.
        let shares_all = gpu.capabilities().software || whole > PLENTY;
        let least = if shares_all { 0 } else { 4 * LARGE as u64 };
        // Bytes of each place, and the last level at which it is in use.
        let mut places: Vec<(u64, Option<usize>)> = self.0.iter().map(|held| (held.size(), None)).collect();
        for temporary in &mut temporaries {
            let bytes = temporary.recorded.size();
            // Whatever no temporary result of this list lies in yet, or no longer.
            let small = bytes < least;
            let free = (0..places.len()).filter(|place| match places[*place].1 {
                None => true,
                Some(last) => !small && last < temporary.first,
            });
            // The smallest that is large enough, or else the largest, to be grown.
            temporary.place = free
                .min_by_key(|place| (places[*place].0 < bytes, places[*place].0.abs_diff(bytes)))
                .unwrap_or(places.len());
            if temporary.place == places.len() {
                places.push((0, None));
            }
            let (held, last) = &mut places[temporary.place];
            (*held, *last) = ((*held).max(bytes), Some(temporary.last));
        }
        for (number, (bytes, _)) in places.into_iter().enumerate() {
            match self.0.get_mut(number) {
                Some(held) if held.size() >= bytes => {}
                Some(held) => *held = gpu.storage("temporary results", bytes)?,
                None => self.0.push(gpu.storage("temporary results", bytes)?),
            }
        }
        let placed = |allocation: &Allocation| {
            let known = temporaries.iter().find(|known| known.recorded.is(allocation));
            known.and_then(|known| self.0.get(known.place))
        };
        let ordered = ordered.into_iter().map(|((level, _), mut recorded)| {
            if let Recorded::Kernel(call) = &mut recorded {
                for Bind::Read(operand) | Bind::Write(operand) in &mut call.operands {
                    if let Some(allocation) = placed(operand.allocation()) {
                        *operand = operand.moved(allocation);
                    }
                }
            }
            (level, recorded)
        });
        repeating::dispatches(gpu, ordered.collect())
    }
}

/// Whether calls may wait for others like them.
pub(super) fn may_wait(gpu: &Gpu, recorded: &[Recorded]) -> bool {
    let touched: Vec<Touched> = recorded.iter().map(Touched::by).collect();
    gpu.joins_all() && size_of_all(&touched) <= MOST_KEPT
}

/// Bytes of all temporary results, were they to lie beside each other.
fn size_of_all(touched: &[Touched]) -> u64 {
    let all = touched.iter().flat_map(|touched| &touched.memory).map(|touch| &touch.allocation);
    let temporary = all.filter(|allocation| allocation.held::<ToPlace>().is_some());
    let sizes: HashMap<usize, u64> =
        temporary.map(|allocation| (allocation.number(), allocation.size())).collect();
    sizes.values().sum()
}
