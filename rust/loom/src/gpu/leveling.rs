//! At which level each call of a list runs: behind all that it needs, and, where it may wait, beside others like it.

use crate::shader::{Allocation, KernelCall, Operand, Recorded};
use std::collections::HashMap;
use std::ops::Range;

/// What something in a frame reads and writes.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    pub(super) memory: Vec<Touch>,
    /// Whether the host does.
    pub(super) host: bool,
}

impl Touched {
    /// By a kernel.
    pub(super) fn by_call(call: &KernelCall) -> Self {
        let memory = call.operands.iter().map(|bind| Touch::of(bind.operand(), bind.is_written()));
        Self { memory: memory.collect(), host: false }
    }

    /// By what was recorded.
    pub(super) fn by(recorded: &Recorded) -> Self {
        match recorded {
            Recorded::Kernel(call) => Self::by_call(call),
            Recorded::Host(call) => {
                let reads = call.reads.iter().map(|operand| Touch::of(operand, false));
                let writes = call.writes.iter().map(|operand| Touch::of(operand, true));
                Self { memory: reads.chain(writes).collect(), host: true }
            }
        }
    }
}

/// Memory that is read or written.
#[derive(Clone, Debug)]
pub(super) struct Touch {
    pub(super) allocation: Allocation,
    /// Which of its bytes.
    bytes: Range<u64>,
    pub(super) is_written: bool,
}

impl Touch {
    fn of(operand: &Operand, is_written: bool) -> Self {
        let bytes = operand.offset()..operand.offset() + operand.bytes();
        Self { allocation: operand.allocation().clone(), bytes, is_written }
    }
}

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
        // By memory, of which most is touched whole, and some by hundreds.
        let mut memory: HashMap<usize, Vec<Part>> = HashMap::new();
        // The host's calls keep their order: one may know of another's what is in no memory here.
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

    /// The earliest levels.
    fn earliest(&self) -> Vec<usize> {
        let mut levels: Vec<usize> = Vec::with_capacity(self.before.len());
        for needed in &self.before {
            levels.push(needed.iter().map(|other| levels[*other] + 1).max().unwrap_or(0));
        }
        levels
    }

    /// The latest levels, of which `last` is the last.
    fn latest(&self, last: usize) -> Vec<usize> {
        let mut levels = vec![last; self.behind.len()];
        for number in (0..levels.len()).rev() {
            if let Some(level) = self.behind[number].iter().map(|other| levels[*other]).min() {
                levels[number] = level.saturating_sub(1);
            }
        }
        levels
    }

    /// Has a call run no earlier than at a level, and whoever waits for it behind that.
    fn raise(&self, early: &mut [usize], number: usize, level: usize) {
        let mut raised = vec![(number, level)];
        while let Some((number, level)) = raised.pop() {
            if early[number] < level {
                early[number] = level;
                raised.extend(self.behind[number].iter().map(|other| (*other, level + 1)));
            }
        }
    }

    /// Has a call run no later than at a level, and whatever it waits for before that.
    fn lower(&self, late: &mut [usize], number: usize, level: usize) {
        let mut lowered = vec![(number, level)];
        while let Some((number, level)) = lowered.pop() {
            if late[number] > level {
                late[number] = level;
                lowered.extend(self.before[number].iter().map(|other| (*other, level.saturating_sub(1))));
            }
        }
    }

    /// A level for each, as few as there can be. Those of a group are alike, and in their order: as many of them as may
    /// have the same level, and the others the earliest.
    pub(super) fn levels(&self, groups: &[Vec<usize>]) -> Vec<usize> {
        let mut early = self.earliest();
        let mut late = self.latest(early.iter().copied().max().unwrap_or(0));
        for group in groups {
            let mut left = group.clone();
            // By who can wait the shortest, with whoever is there by then.
            while let Some(shortest) = left.iter().copied().min_by_key(|number| late[*number]) {
                let level = late[shortest];
                let mut together: Vec<usize> =
                    left.iter().copied().filter(|number| early[*number] <= level).collect();
                if together.len() == 1 {
                    // It has nothing to wait for.
                    let level = early[shortest];
                    self.lower(&mut late, shortest, level);
                } else {
                    // One that waits for another of them is moved behind it by that.
                    together.retain(|number| {
                        let joins = early[*number] <= level;
                        if joins {
                            self.raise(&mut early, *number, level);
                        }
                        joins
                    });
                    together.iter().for_each(|number| self.lower(&mut late, *number, level));
                }
                let mut placed = together.into_iter().peekable();
                left.retain(|number| placed.next_if_eq(number).is_none());
            }
        }
        early
    }
}

/// Whether two ranges have bytes in common.
fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// The earliest levels by what they are: behind all before that touch the same memory, where one of both writes.
    fn by_definition(touched: &[Touched]) -> Vec<usize> {
        let mut levels: Vec<usize> = Vec::new();
        for (number, other) in touched.iter().enumerate() {
            let behind = (0..number).filter(|earlier| meets(&touched[*earlier], other));
            let level = behind.map(|earlier| levels[earlier] + 1).max().unwrap_or(0);
            levels.push(level);
        }
        levels
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
            let (plain, found) = (by_definition(&touched), order.levels(&groups));
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
