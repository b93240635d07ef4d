//! Steps that a device may make as one, where starting them takes longer than what they compute: the projections of
//! one value with what comes before and after them, and what a session keeps.
//!
//! Unlike a rewrite this leaves the program as it is: an engine that asks may still run the steps one by one.

use super::{Phase, Program, Step, Value, Write};
use crate::ops::{Added, Direction, Keep, Kept, LeftSide, Op, Products, SquaredSums, Summed};

/// What is run at once: steps of the program by their numbers, in an order in which they may run one by one.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The steps.
    pub(crate) members: Vec<usize>,
    /// What does the work of all of them, with what it reads and writes.
    pub(crate) together: Option<(Together, Vec<Value>, Vec<Value>)>,
}

impl Unit {
    /// A step by itself.
    pub(crate) fn alone(number: usize) -> Self {
        Self { members: vec![number], together: None }
    }
}

/// What does the work of several steps.
#[derive(Debug)]
pub(crate) enum Together {
    /// Products of one value.
    Products(Products),
    /// Rotated queries, and keys and values behind those of earlier calls.
    Keep(Keep),
    /// A sum whose operands add themselves to it.
    Summed(Summed),
    /// Sums of squares of several gradients.
    Squares(SquaredSums),
}

/// The steps of these phases for batches of `rows` rows, those together that may be and, for products, have at most
/// `most_rows` rows.
pub(crate) fn units(program: &Program, numbers: Vec<usize>, rows: usize, most_rows: usize) -> Vec<Unit> {
    let search = Search { program, numbers: &numbers, rows, most_rows };
    let mut units: Vec<Unit> = Vec::new();
    let mut taken = vec![false; program.steps.len()];
    for (place, &number) in numbers.iter().enumerate() {
        if taken[number] {
            continue;
        }
        let unit = search
            .products(place, &taken)
            .or_else(|| search.kept(place))
            .or_else(|| search.summed(place, &taken, &units))
            .or_else(|| search.squares(place))
            .unwrap_or_else(|| Unit::alone(number));
        for &member in &unit.members {
            taken[member] = true;
        }
        if unit.together.is_some() {
            // A step that joins a later one no longer runs where it stood.
            units.retain(|earlier| !unit.members.iter().any(|member| earlier.members.contains(member)));
        }
        units.push(unit);
    }
    units
}

struct Search<'a> {
    program: &'a Program,
    /// The steps that run, in order.
    numbers: &'a [usize],
    rows: usize,
    most_rows: usize,
}

impl<'a> Search<'a> {
    fn step(&self, number: usize) -> &'a Step {
        &self.program.steps[number]
    }

    /// Whether what a step writes is looked at by nobody but these steps.
    fn is_between(&self, value: Value, readers: &[usize]) -> bool {
        let program = self.program;
        let owner = program.owner(value);
        let info = program.value(owner);
        let outside = info.pinned
            || !matches!(info.place, super::Place::Buffer(_))
            || program.ports.values().any(|port| program.owner(port) == owner);
        let mut others = (0..program.steps.len()).filter(|number| !readers.contains(number));
        !outside && !others.any(|number| program.looks_at(self.step(number), value))
    }

    /// Whether step `later` may run at once with what runs at the place of `number`, as though nothing but
    /// `members` stood between.
    fn moves_up(&self, later: usize, number: usize, members: &[usize]) -> bool {
        let between = self.numbers.iter().filter(|other| (number..later).contains(*other));
        between
            .filter(|other| !members.contains(other))
            .all(|other| self.program.commute(self.step(later), self.step(*other)))
    }

    /// Whether step `earlier` may run as late as the place of `number`, where only `members` read what it makes.
    fn moves_down(&self, earlier: usize, number: usize, members: &[usize]) -> bool {
        let between = self.numbers.iter().filter(|other| (earlier + 1..number).contains(*other));
        between
            .filter(|other| !members.contains(other))
            .all(|other| self.program.commute(self.step(earlier), self.step(*other)))
    }

    /// The product that a step is, where it may stand beside others.
    fn product(&self, number: usize) -> Option<&'a crate::ops::Product> {
        let step = self.step(number);
        let Op::Product(product) = &step.op else { return None };
        let few = self.rows * product.multiplier <= self.most_rows;
        // Mixed ones are made from operands as they are: so few rows gain nothing by rounding them.
        let plain = product.direction == Direction::Forward && !product.quantized;
        (few && plain && step.write == Write::Set && step.phase == Phase::Forward).then_some(product)
    }

    /// The step that last wrote a value before this one.
    fn writer(&self, value: Value, before: usize) -> Option<usize> {
        let earlier = self.numbers.iter().rev().filter(|number| **number < before);
        earlier.copied().find(|number| self.program.changes(self.step(*number), value))
    }

    /// Products of what the step at this place multiplies, with what is made for them alone and what is added to
    /// the result of one alone.
    fn products(&self, place: usize, taken: &[bool]) -> Option<Unit> {
        let number = *self.numbers.get(place)?;
        let first = self.product(number)?;
        let x = *self.step(number).reads.first()?;
        let mut members = vec![number];
        for &other in self.numbers.get(place + 1..)? {
            if self.program.changes(self.step(other), x) {
                break;
            }
            let beside = self.product(other).is_some_and(|product| {
                (product.multiplier, product.inputs) == (first.multiplier, first.inputs)
            });
            if beside
                && !taken[other]
                && members.len() < Products::MOST
                && self.step(other).reads.first() == Some(&x)
                && self.moves_up(other, number, &members)
            {
                members.push(other);
            }
        }
        let mut reads = Vec::new();
        let mut writes = Vec::new();
        // What attention leaves where it is made whole.
        let mut aside = Vec::new();
        let (left, before) = match self.left_side(x, number, &members) {
            Some((left, maker)) => {
                let made = self.step(maker);
                reads.extend(match left {
                    // The place of what is normalised comes first, and then the gain.
                    LeftSide::MeanSquare { gain, .. } => &made.reads[..1 + usize::from(gain)],
                    _ => &made.reads[..],
                });
                if matches!(left, LeftSide::Attention(_)) {
                    aside.clone_from(&made.writes);
                }
                (left, Some(maker))
            }
            None => {
                reads.push(x);
                (LeftSide::Plain, None)
            }
        };
        for member in &members {
            reads.extend(&self.step(*member).reads[1..]);
            writes.extend(&self.step(*member).writes);
        }
        let after = match members[..] {
            [alone] => self.residual(alone),
            _ => None,
        };
        if let Some((sum, residual)) = after {
            reads.push(residual);
            writes.clone_from(&self.step(sum).writes);
        }
        writes.extend(aside);
        if members.len() == 1 && before.is_none() && after.is_none() {
            return None;
        }
        let products = members.iter().filter_map(|member| self.product(*member).cloned()).collect();
        let op = Products { left, products, residual: after.is_some() };
        let members: Vec<usize> =
            before.into_iter().chain(members).chain(after.map(|(sum, _)| sum)).collect();
        let distinct = |values: &[Value]| {
            writes
                .iter()
                .all(|written| values.iter().all(|value| !self.program.is_same_memory(*written, *value)))
        };
        if !distinct(&reads) {
            return None;
        }
        Some(Unit { members, together: Some((Together::Products(op), reads, writes)) })
    }

    /// What makes the left operand of these products and of nothing else, where they can make it themselves.
    fn left_side(&self, x: Value, number: usize, members: &[usize]) -> Option<(LeftSide, usize)> {
        let maker = self.writer(x, number)?;
        let step = self.step(maker);
        let first = self.product(number)?;
        if step.write != Write::Set || step.phase != Phase::Forward || step.writes.first() != Some(&x) {
            return None;
        }
        let left = match &step.op {
            Op::Normalize(norm) => {
                let rows = norm.direction == Direction::Forward
                    && (norm.outer, norm.channels) == (first.multiplier, first.inputs)
                    && (norm.inner, norm.groups) == (1, 1);
                let plain = !norm.centred && !norm.bias;
                (rows && plain).then_some(LeftSide::MeanSquare { gain: norm.gain, epsilon: norm.epsilon })?
            }
            Op::Gate(gate) if gate.direction == Direction::Forward => LeftSide::Gated(gate.activation),
            Op::Attention(op) if op.direction == Direction::Forward => {
                let whole = (op.queries, op.heads * op.head_dim) == (first.multiplier, first.inputs);
                let plain = op.bias.is_none() && op.dropout == 0.0;
                (whole && plain).then(|| LeftSide::Attention(Box::new(op.clone())))?
            }
            _ => return None,
        };
        let rest = step.writes.iter().skip(1);
        (self.is_between(x, members)
            && rest.clone().all(|value| self.is_between(*value, &[]))
            && self.moves_down(maker, number, members))
        .then_some((left, maker))
    }

    /// The sum of a product's result, which nothing else reads, and one other value.
    fn residual(&self, product: usize) -> Option<(usize, Value)> {
        let [y] = self.step(product).writes[..] else { return None };
        let sum = self
            .numbers
            .iter()
            .copied()
            .find(|number| *number > product && self.program.looks_at(self.step(*number), y))?;
        let step = self.step(sum);
        let (Op::Sum(_), [one, other]) = (&step.op, &step.reads[..]) else { return None };
        let residual = if *one == y { *other } else { *one };
        let once = (*one == y) != (*other == y);
        (once
            && step.write == Write::Set
            && step.phase == Phase::Forward
            && self.is_between(y, &[sum])
            && self.moves_up(sum, product, &[product]))
        .then_some((sum, residual))
    }

    /// The sum at this place with those who make what it adds up, as far as these can add to it themselves.
    fn summed(&self, place: usize, taken: &[bool], units: &[Unit]) -> Option<Unit> {
        let number = *self.numbers.get(place)?;
        let sum = self.step(number);
        let (Op::Sum(_), [result]) = (&sum.op, &sum.writes[..]) else { return None };
        if sum.write != Write::Set {
            return None;
        }
        // Whoever is a member of something else is not to be taken out of it.
        let alone = |step: usize| {
            !taken[step] || units.iter().any(|unit| unit.together.is_none() && unit.members[..] == [step])
        };
        let mut makers: Vec<(Added, usize)> = Vec::new();
        let mut others: Vec<Value> = Vec::new();
        for read in &sum.reads {
            let maker = self.writer(*read, number).and_then(|maker| {
                let step = self.step(maker);
                let added = Added::of(&step.op)?;
                let fits = step.write == Write::Set
                    && step.phase == sum.phase
                    && step.writes[..] == [*read]
                    && alone(maker)
                    && self.is_between(*read, &[number])
                    && sum.reads.iter().filter(|other| *other == read).count() == 1;
                fits.then_some((added, maker))
            });
            match maker {
                Some(maker) => makers.push(maker),
                None => others.push(*read),
            }
        }
        // One can begin with what is there already; those that come later only add to sums, and what is made of
        // a sum before it is stored has to be made of its own share alone.
        let (mut first, mut later): (Vec<_>, Vec<_>) =
            makers.into_iter().partition(|(added, _)| added.changes_sums());
        if first.len() > 1 || others.len() > 1 {
            return None;
        }
        first.append(&mut later);
        // On matrix units products are so short that they had better run side by side than one on top of the other,
        // but for those that take as long as adding them up would.
        let alone = |(added, _): &&(Added, usize)| !added.is_thin();
        // As one product they need no sum.
        let mixed = first.iter().filter(alone).any(|(added, _)| added.is_mixed());
        let whole = |(_, maker): &(Added, usize)| {
            let weight = self.step(*maker).reads.get(1);
            weight.is_some_and(|weight| matches!(self.program.value(*weight).place, super::Place::Master(_)))
        };
        let join = Added::join(first.iter().map(|(added, _)| added)) && first.iter().all(whole);
        if mixed && !join && first.iter().filter(alone).count() > 1 {
            return None;
        }
        let members: Vec<usize> = first.iter().map(|(_, maker)| *maker).chain([number]).collect();
        if members.len() < 2 || !first.iter().all(|(_, maker)| self.moves_down(*maker, number, &members)) {
            return None;
        }
        let mut reads = others.clone();
        let mut counts = Vec::with_capacity(first.len());
        for (_, maker) in &first {
            let made = self.step(*maker);
            counts.push(made.reads.len());
            reads.extend(&made.reads);
        }
        if reads.iter().any(|read| self.program.is_same_memory(*result, *read)) {
            return None;
        }
        let parts = first.into_iter().map(|(added, _)| added).zip(counts).collect();
        let op = Summed { parts, begins: !others.is_empty() };
        Some(Unit { members, together: Some((Together::Summed(op), reads, vec![*result])) })
    }

    /// Sums of squares from this place on, each on top of the one before.
    fn squares(&self, place: usize) -> Option<Unit> {
        let (mut members, mut lens, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        let mut total: Option<Value> = None;
        for &number in self.numbers.get(place..)? {
            let step = self.step(number);
            let Op::SquaredSum(sum) = &step.op else { break };
            let goes_on = match total {
                None => sum.first,
                Some(total) => {
                    step.reads.get(1) == Some(&total)
                        && self.is_between(total, &[members[members.len() - 1], number])
                }
            };
            if !goes_on || step.write != Write::Set {
                break;
            }
            members.push(number);
            lens.push(sum.len);
            reads.push(*step.reads.first()?);
            total = step.writes.first().copied();
        }
        let apart = |total: &Value| !reads.iter().any(|read| self.program.is_same_memory(*read, *total));
        let total = total.filter(|total| members.len() > 1 && apart(total))?;
        Some(Unit { members, together: Some((Together::Squares(SquaredSums { lens }), reads, vec![total])) })
    }

    /// Rotations and what is kept of them, one behind the other from this place on.
    fn kept(&self, place: usize) -> Option<Unit> {
        let first = self.step(*self.numbers.get(place)?);
        let run = self.numbers.get(place..)?.iter().copied().take_while(|number| {
            let step = self.step(*number);
            let fits = match &step.op {
                Op::Rotary(_) => true,
                Op::CacheAppend(_) => step.phase == Phase::Forward,
                _ => false,
            };
            fits && step.at == first.at && step.write == Write::Set && step.phase == first.phase
        });
        let members: Vec<usize> = run.take(Keep::MOST).collect();
        if members.len() < 2 {
            return None;
        }
        let (mut parts, mut reads, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        let mut done = vec![false; members.len()];
        for (i, &number) in members.iter().enumerate() {
            if done[i] {
                continue;
            }
            let step = self.step(number);
            let (&[x], &[y]) = (&step.reads[..], &step.writes[..]) else { return None };
            let readers: Vec<usize> =
                (i + 1..members.len()).filter(|j| self.program.looks_at(self.step(members[*j]), y)).collect();
            let (part, written) = match (&step.op, &readers[..]) {
                (Op::Rotary(rotary), []) => (Kept { rotary: Some(rotary.clone()), append: None }, y),
                (Op::Rotary(rotary), [j]) => {
                    let Op::CacheAppend(append) = &self.step(members[*j]).op else { return None };
                    if !self.is_between(y, &[members[*j]]) {
                        return None;
                    }
                    done[*j] = true;
                    let written = *self.step(members[*j]).writes.first()?;
                    (Kept { rotary: Some(rotary.clone()), append: Some(append.clone()) }, written)
                }
                (Op::CacheAppend(append), []) => (Kept { rotary: None, append: Some(append.clone()) }, y),
                _ => return None,
            };
            parts.push(part);
            reads.push(x);
            writes.push(written);
        }
        // They run side by side: none reads or writes what another one writes.
        let apart = |(i, written): (usize, &Value)| {
            let same = |other: &Value| self.program.is_same_memory(*written, *other);
            !reads.iter().any(same) && !writes[i + 1..].iter().any(same)
        };
        if !writes.iter().enumerate().all(apart) {
            return None;
        }
        Some(Unit { members, together: Some((Together::Keep(Keep { parts }), reads, writes)) })
    }
}
