//! At which level each call of a list runs: behind all that it needs, and, where it may wait, beside others like it.

use super::dispatch::Touched;
use std::collections::HashMap;
use std::ops::Range;

/// What each of a list waits for.
pub(super) struct Order {
    /// The calls that each needs done, all before it in the list.
    before: Vec<Vec<usize>>,
    /// The calls that need it done.
    behind: Vec<Vec<usize>>,
}

impl Order {
    /// Of calls that touch this, in the order in which they were recorded.
    pub(super) fn of<'a>(all: impl IntoIterator<Item = &'a Touched>) -> Self {
        /// Bytes with who wrote them last, and who has read them since.
        struct Part {
            bytes: Range<u64>,
            writer: Option<usize>,
            readers: Vec<usize>,
        }
        let mut memory: HashMap<usize, Vec<Part>> = HashMap::new();
        let mut last_host = None;
        let mut before: Vec<Vec<usize>> = Vec::new();
        for (number, touched) in all.into_iter().enumerate() {
            let mut needed = Vec::new();
            if touched.host {
                needed.extend(last_host.replace(number));
            }
            for touch in &touched.memory {
                let parts = memory.get(&touch.allocation.number()).map_or(&[][..], Vec::as_slice);
                for part in parts.iter().filter(|part| meet(&part.bytes, &touch.bytes)) {
                    needed.extend(part.writer);
                    if touch.is_written {
                        needed.extend(&part.readers);
                    }
                }
            }
            for touch in &touched.memory {
                let parts = memory.entry(touch.allocation.number()).or_default();
                let place = parts.iter().position(|part| part.bytes == touch.bytes).unwrap_or_else(|| {
                    parts.push(Part { bytes: touch.bytes.clone(), writer: None, readers: Vec::new() });
                    parts.len() - 1
                });
                let part = &mut parts[place];
                match touch.is_written {
                    true => (part.writer, part.readers) = (Some(number), Vec::new()),
                    false => part.readers.push(number),
                }
            }
            needed.sort_unstable();
            needed.dedup();
            before.push(needed);
        }
        let mut behind = vec![Vec::new(); before.len()];
        for (number, needed) in before.iter().enumerate() {
            needed.iter().for_each(|other| behind[*other].push(number));
        }
        Self { before, behind }
    }

    /// The earliest levels, none below its own of `least`.
    fn earliest(&self, least: &[usize]) -> Vec<usize> {
        let mut levels: Vec<usize> = Vec::with_capacity(least.len());
        for (needed, least) in self.before.iter().zip(least) {
            let level = needed.iter().map(|other| levels[*other] + 1).max();
            levels.push(level.unwrap_or(0).max(*least));
        }
        levels
    }

    /// The latest levels, none above its own of `most`.
    fn latest(&self, most: &[usize]) -> Vec<usize> {
        let mut levels = most.to_vec();
        for number in (0..levels.len()).rev() {
            let level = self.behind[number].iter().map(|other| levels[*other].saturating_sub(1)).min();
            levels[number] = level.map_or(most[number], |level| level.min(most[number]));
        }
        levels
    }

    /// A level for each, as few as there can be. Those of a group are alike: as many of them as may have the same level,
    /// and the others the earliest.
    pub(super) fn levels(&self, groups: &[Vec<usize>]) -> Vec<usize> {
        let mut least = vec![0; self.before.len()];
        let mut early = self.earliest(&least);
        let last = early.iter().copied().max().unwrap_or(0);
        let mut most = vec![last; early.len()];
        let mut late = self.latest(&most);
        for group in groups {
            let mut left = group.clone();
            // By who can wait the shortest, with whoever is there by then.
            while let Some(level) = left.iter().map(|number| late[*number]).min() {
                let mut together = Vec::new();
                for number in left.iter().copied() {
                    // One that waits for another of them is moved behind it by that.
                    if early[number] <= level && level <= late[number] {
                        (least[number], most[number]) = (level, level);
                        together.push(number);
                        early = self.earliest(&least);
                    }
                }
                if let [alone] = together[..] {
                    // It has nothing to wait for.
                    (least[alone], most[alone]) = (0, last);
                    early = self.earliest(&least);
                    (least[alone], most[alone]) = (early[alone], early[alone]);
                }
                left.retain(|number| !together.contains(number));
                late = self.latest(&most);
            }
        }
        self.earliest(&least)
    }
}

/// Whether two ranges have bytes in common.
fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::super::dispatch::{Touch, levels};
    use super::*;
    use crate::shader::Operand;
    use proptest::prelude::*;

    /// What calls touch of some memory, by number: where from, how many pieces, and whether they write.
    type Calls = Vec<Vec<(usize, usize, usize, bool)>>;

    fn touched(calls: &Calls) -> Vec<Touched> {
        let memory: Vec<Operand> = (0..4).map(|_| Operand::unbound()).collect();
        let touch = |(place, first, count, is_written): &(usize, usize, usize, bool)| Touch {
            allocation: memory[*place].allocation().clone(),
            bytes: *first as u64..(first + count) as u64,
            is_written: *is_written,
        };
        let touched = |call: &Vec<_>| Touched { memory: call.iter().map(touch).collect(), host: false };
        calls.iter().map(touched).collect()
    }

    fn meets(one: &Touched, other: &Touched) -> bool {
        one.memory.iter().any(|a| {
            let same = |b: &&Touch| b.allocation.is(&a.allocation) && meet(&a.bytes, &b.bytes);
            other.memory.iter().filter(same).any(|b| a.is_written || b.is_written)
        })
    }

    #[test]
    fn calls_wait_for_others_like_them_as_long_as_nobody_waits_for_them() {
        // Two chains of three, of which the second begins with one step more; the last of each are alike, and so are
        // the first, of which one cannot wait.
        let write = |place, at| (place, at, 1, true);
        let read = |place, at| (place, at, 1, false);
        let calls = vec![
            vec![write(0, 0)],
            vec![read(0, 0), write(0, 1)],
            vec![write(1, 9)],
            vec![read(1, 9), write(1, 0)],
            vec![read(1, 0), write(1, 1)],
            vec![read(1, 1), write(1, 2)],
        ];
        let order = Order::of(&touched(&calls));
        assert_eq!(order.levels(&[]), [0, 1, 0, 1, 2, 3]);
        assert_eq!(order.levels(&[vec![1, 5], vec![0, 3]]), [1, 3, 0, 1, 2, 3]);
        // What waits for another of its group stays behind it.
        assert_eq!(order.levels(&[vec![0, 4, 5]]), [2, 3, 0, 1, 2, 3]);
    }

    proptest! {
        /// Whatever waits: who touches the same memory keeps its order, and there are no more levels than before.
        #[test]
        fn orders_are_kept(
            calls in proptest::collection::vec(
                proptest::collection::vec((0..4usize, 0..6usize, 1..4usize, any::<bool>()), 1..4), 1..30),
            kinds in proptest::collection::vec(0..5usize, 30),
        ) {
            let touched = touched(&calls);
            let alike = |kind| (0..calls.len()).filter(|call| kinds[*call] == kind).collect::<Vec<_>>();
            let groups: Vec<Vec<usize>> = (0..4).map(alike).filter(|group| group.len() > 1).collect();
            let order = Order::of(&touched);
            let (plain, found) = (levels(&touched), order.levels(&groups));
            prop_assert_eq!(&order.levels(&[]), &plain);
            for (later, other) in touched.iter().enumerate() {
                for (earlier, one) in touched.iter().enumerate().take(later) {
                    prop_assert!(!meets(one, other) || found[earlier] < found[later], "{} {}", earlier, later);
                }
            }
            prop_assert!(found.iter().max() <= plain.iter().max(), "{:?} {:?}", plain, found);
        }
    }
}
