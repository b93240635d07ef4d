//! Random steps over few places, fused and unfused: whoever touches what, in whatever order.

use super::{Builder, Kind, Phase, Program, Rewrites, Run};
use crate::cpu::execute;
use crate::layers::{BatchNorm, Dense, Flatten, Reshape};
use crate::network::Network;
use crate::ops::pointwise::Activation;
use crate::ops::update::Optimizer;
use crate::ops::{
    BiasAdd, BiasGradient, ClampGradient, Direction, Op, Pointwise, Product, ScaleGradient, StepValues, Sum,
    Update,
};
use crate::program::{Access, ParameterRef, Place, Value};
use crate::simd::Cpu;
use crate::tensor::{Precision, Shape};
use crate::{Result, dtype::DType};
use std::sync::Arc;

/// Elements of every value but parameters.
const ELEMENTS: usize = 4;

/// Numbers that follow from a seed (an LCG's upper bits).
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % count as u64) as usize
    }

    fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Stores of two parameters each, weight and bias, and two states; some weights are packed.
fn network(packed: bool) -> Result<Network> {
    let mut network = Network::with_options([ELEMENTS], [1, 1, 1], Precision::Float32, 3)?;
    let cell = [0, 0, 0];
    network.add(cell, Dense::new(4))?;
    network.add(cell, Dense::new(4))?;
    network.add(cell, Reshape { shape: vec![2, 2] })?;
    network.add(cell, Dense::new(2))?;
    network.add(cell, Flatten {})?;
    network.add(cell, BatchNorm::default())?;
    network.build()?;
    if packed {
        network.morph_where(DType::Int8, |placed| placed.path().indices()[3] == 1)?;
    }
    network.registry.prepare_gradients(4).unwrap();
    network.registry.prepare_moments(1, 4).unwrap();
    Ok(network)
}

/// Lowers random steps.
struct Drawing<'a> {
    b: Builder,
    choices: &'a mut Choices,
    network: &'a Network,
    /// What has been made.
    made: Vec<Value>,
}

impl Drawing<'_> {
    fn reference(store: usize, parameter: usize) -> ParameterRef {
        ParameterRef { store, parameter: Some(parameter) }
    }

    fn shape() -> Shape {
        Shape::from([ELEMENTS])
    }

    /// A product of 4 by 4, or of 2 by 2 twice, with its weight's store.
    fn product(&mut self, direction: Direction) -> (Product, usize) {
        match self.choices.below(3) {
            2 => (Product::new(direction, 2, 2, 2), 2),
            store => (Product::new(direction, 1, 4, 4), store),
        }
    }

    /// A store's weight as the forward pass reads it.
    fn weight(&mut self, store: usize) -> Value {
        let reference = Self::reference(store, 0);
        let info = &self.network.registry.stores[store];
        let shape = info.parameters()[0].layout.storage_shape();
        self.b.parameter(reference, shape, info.dtype_of(0))
    }

    fn state(&mut self) -> Value {
        let number = self.choices.below(2);
        self.b.state("state", Self::shape(), number)
    }

    /// Anything of four elements: most often something made by a step.
    fn operand(&mut self) -> Value {
        let newest = *self.made.last().expect("the input is there");
        match self.choices.below(12) {
            0 => self.state(),
            1 => {
                let store = self.choices.below(2);
                self.b.parameter(Self::reference(store, 1), Self::shape(), None)
            }
            2 | 3 => {
                let made = self.made.clone();
                self.choices.one_of(&made)
            }
            _ => newest,
        }
    }

    fn activation(&mut self) -> Activation {
        self.choices.one_of(&[Activation::Tanh, Activation::Sigmoid, Activation::Relu])
    }

    /// One step of an operation that a rewrite may concern, or of one that stands in its way.
    fn draw(&mut self) {
        let x = self.operand();
        let (op, reads): (Op, Vec<Value>) = match self.choices.below(9) {
            0 | 1 => {
                let (op, store) = self.product(Direction::Forward);
                let weight = self.weight(store);
                (op.into(), vec![x, weight])
            }
            2 => {
                let (op, store) = self.product(Direction::InputGradient);
                let weight = self.weight(store);
                if self.choices.once_in(2) {
                    // Most often its derivative comes next, or soon after.
                    let gradient = self.b.apply(op, &[x, weight], "made", Self::shape());
                    if self.choices.once_in(2) {
                        self.draw();
                    }
                    self.made.push(gradient);
                    let (saved, activation) = (self.operand(), self.activation());
                    (Pointwise::backward(activation).into(), vec![saved, gradient])
                } else {
                    (op.into(), vec![x, weight])
                }
            }
            3 => {
                let (outer, channels, store) = self.choices.one_of(&[(1, 4, 0), (1, 4, 1), (2, 2, 2)]);
                let bias = match self.choices.below(4) {
                    0 if channels == 4 => self.operand(),
                    1 if channels == 4 => self.state(),
                    _ => self.b.parameter(Self::reference(store, 1), Shape::from([channels]), None),
                };
                (BiasAdd { outer, channels, inner: 1 }.into(), vec![x, bias])
            }
            4 => (Pointwise::forward(self.activation()).into(), vec![x]),
            5 => {
                let (saved, activation) = (self.operand(), self.activation());
                let reads = if self.choices.once_in(3) { vec![x, saved] } else { vec![saved, x] };
                (Pointwise::backward(activation).into(), reads)
            }
            6 => {
                let other = self.operand();
                (Sum { operands: 2 }.into(), vec![x, other])
            }
            7 => {
                let alias = self.b.reshape(x, Shape::from([2, 2]));
                let alias = self.b.reshape(alias, Self::shape());
                if !matches!(self.b.info(x).place, Place::Buffer(_) | Place::Alias(_)) {
                    return;
                }
                self.made.push(alias);
                return;
            }
            _ => {
                self.b.pin(x);
                return;
            }
        };
        // Some results go to what is kept, if the operation reads nothing there.
        let state = self.state();
        if self.choices.once_in(6) && !reads.contains(&state) {
            match self.choices.once_in(3) {
                true => self.b.effect_of_batch(op, &reads, &[state]),
                false => self.b.effect(op, &reads, &[state]),
            }
            return;
        }
        let value = self.b.apply(op, &reads, "made", Self::shape());
        self.made.push(value);
    }

    /// A contribution to some parameter.
    fn contribute(&mut self) {
        let (x, dy) = (self.operand(), self.operand());
        if self.choices.once_in(3) {
            let store = self.choices.below(2);
            let op = BiasGradient { outer: 1, channels: 4, inner: 1 };
            self.b.contribute(op, &[dy], Self::reference(store, 1), Self::shape());
            return;
        }
        let (op, store) = self.product(Direction::WeightGradient);
        let shape = self.network.registry.stores[store].parameters()[0].layout.storage_shape();
        // To a bias by something else than a product, too, and to a weight of two by two.
        match store == 2 && self.choices.once_in(2) {
            true => {
                let op = Sum { operands: 1 };
                self.b.contribute(op, &[dy], Self::reference(store, 0), shape);
            }
            false => self.b.contribute(op, &[x, dy], Self::reference(store, 0), shape),
        }
    }

    fn whole(&mut self, store: usize, place: impl Fn(ParameterRef) -> Place) -> Value {
        let len = self.network.registry.stores[store].len();
        self.b.stored("whole", Shape::from(len), place(ParameterRef { store, parameter: None }))
    }

    /// What stands between gradients and updates.
    fn judge(&mut self) {
        let store = self.choices.below(3);
        let len = self.network.registry.stores[store].len();
        let gradient = self.whole(store, Place::Gradient);
        match self.choices.below(8) {
            0 => self.b.effect(ClampGradient { len, scaled: false }, &[], &[gradient]),
            1 => {
                let factor = self.b.parameter(Self::reference(2, 1), Shape::from([2]), None);
                self.b.effect(ScaleGradient { len }, &[factor], &[gradient]);
            }
            2 if store < 2 => {
                let shape = Self::shape();
                let bias = self.b.stored("gradient", shape, Place::Gradient(Self::reference(store, 1)));
                let state = self.state();
                self.b.effect(Sum { operands: 1 }, &[bias], &[state]);
            }
            3 => self.draw(),
            _ => {}
        }
    }

    fn update(&mut self, store: usize) {
        let weights = &self.network.registry.stores[store];
        let (len, packed) = (weights.len(), weights.is_packed());
        let update = Update {
            offsets: weights.parameters().iter().map(|parameter| parameter.offset).collect(),
            ..Update::new(Optimizer::Velocity { momentum: 0.9 }, len)
        };
        let gradient = self.whole(store, Place::Gradient);
        let master = self.whole(store, Place::Master);
        let moment = self.b.stored("moment", Shape::from(len), Place::Moment { store, slot: 0 });
        self.b.effect(update, &[gradient], &[master, moment]);
        if packed {
            self.b.effect(crate::ops::Encode { store }, &[], &[]);
        }
    }
}

/// The program of this seed, and what of its values is to be looked at.
fn program(seed: u64, network: &Network, rewrites: &Rewrites) -> (Program, Vec<Value>) {
    let mut choices = Choices(seed);
    let mut b = Builder::new(Precision::Float32);
    let input = b.input("input", Shape::from([ELEMENTS]), Kind::Real);
    b.ports.input = Some(input);
    let mut drawing = Drawing { b, choices: &mut choices, network, made: vec![input] };
    let forward = 2 + drawing.choices.below(8);
    (0..forward).for_each(|_| drawing.draw());
    drawing.b.set_phase(Phase::Backward);
    for _ in 0..2 + drawing.choices.below(6) {
        drawing.draw();
        if drawing.choices.once_in(2) {
            drawing.contribute();
        }
    }
    drawing.b.set_phase(Phase::Verdict);
    drawing.judge();
    drawing.b.set_phase(Phase::Update);
    for store in 0..3 {
        let store = (store + seed as usize) % 3;
        drawing.update(store);
        if drawing.choices.once_in(5) {
            drawing.draw();
        }
        if drawing.choices.once_in(8) {
            // Another step toward the same end.
            drawing.b.restart_gradients();
            drawing.contribute();
            drawing.update(store);
        }
    }
    let Drawing { mut b, made, .. } = drawing;
    let output = made[made.len() - 1];
    b.pin(output);
    let pinned: Vec<Value> = made.into_iter().filter(|value| b.info(*value).pinned).collect();
    (b.finish(1, rewrites).unwrap(), pinned)
}

/// Everything that a program leaves behind, as bits, and how many steps it has.
fn left_behind(seed: u64, rewrites: &Rewrites) -> Result<(Vec<u32>, usize, Program)> {
    let mut network = network(seed.is_multiple_of(3))?;
    let (program, pinned) = program(seed, &network, rewrites);
    let steps = program.steps().len();
    let mut run = Run::new(crate::Device::cpu().engine().clone(), Arc::new(program.clone()))?;
    run.rows = 1;
    if let Some(port) = program.ports().input {
        run.write::<f32>(port).copy_from_slice(&[0.3, -0.7, 0.9, -0.2]);
    }
    let values = StepValues { rate: 0.5, clip_value: 0.01, ..StepValues::default() };
    let access = Access::Exclusive(&mut network.registry);
    execute::<f32>(Cpu::global()?, &mut run, access, Phase::Forward..=Phase::Commit, &values)?;
    let mut left: Vec<f32> = Vec::new();
    for value in pinned {
        left.extend(run.read::<f32>(value));
    }
    let registry = &network.registry;
    for store in 0..3 {
        left.extend(
            registry.stores[store].float_bytes(None)?.chunks(4).map(bytemuck::pod_read_unaligned::<f32>),
        );
        left.extend(registry.moments[store][0].as_slice::<f32>());
        left.extend(registry.stores[store].decoded(0)?.to_f32());
    }
    for state in &registry.states {
        left.extend(state.content.as_slice::<f32>());
    }
    Ok((left.iter().map(|x| x.to_bits()).collect(), steps, program))
}

#[test]
fn no_rewrite_changes_what_random_steps_leave_behind() -> Result<()> {
    let all: Vec<Rewrites> = (0..16)
        .map(|set| Rewrites {
            bias: set & 1 != 0,
            activation: set & 2 != 0,
            derivative: set & 4 != 0,
            update: set & 8 != 0,
        })
        .collect();
    let count = std::env::var("LOOM_RANDOM_NETWORKS").ok().and_then(|count| count.parse().ok());
    let mut shorter = [0; 16];
    for seed in 0..count.unwrap_or(1000) {
        let (expected, unfused, plain) = left_behind(seed, &Rewrites::none())?;
        for (number, rewrites) in all.iter().enumerate() {
            let (found, steps, fused) = left_behind(seed, rewrites)?;
            assert!(
                found == expected,
                "program {seed} with {rewrites:?}\n{plain}\nbecomes\n{fused}\nwhich leaves\n{found:?}\nfor\n{expected:?}"
            );
            shorter[number] += usize::from(steps < unfused);
        }
    }
    // Each rewrite by itself finds something to do now and then.
    for alone in [1, 2, 4, 8] {
        assert!(shorter[alone] > 10, "{shorter:?}");
    }
    Ok(())
}

/// Steps that a device makes together run in an order that leaves the same behind as the program's, and what such a
/// unit does not write is looked at by nobody else.
#[cfg(feature = "gpu")]
#[test]
fn steps_that_are_made_together_may_be() -> Result<()> {
    use super::together::units;
    let network = network(false)?;
    let mut found = 0;
    for seed in 0..12_000 {
        for rewrites in [Rewrites::default(), Rewrites::none()] {
            let (program, pinned) = program(seed, &network, &rewrites);
            let units = units(&program, (0..program.steps.len()).collect(), 1, 8);
            let order: Vec<usize> = units.iter().flat_map(|unit| unit.members.iter().copied()).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..program.steps.len()).collect::<Vec<_>>(), "seed {seed}");
            for (place, later) in order.iter().enumerate() {
                for earlier in order[place + 1..].iter().filter(|earlier| *earlier < later) {
                    let (one, other) = (&program.steps[*later], &program.steps[*earlier]);
                    assert!(program.commute(one, other), "seed {seed}: {} and {}", one.op, other.op);
                }
            }
            for unit in &units {
                let Some((_, _, writes)) = &unit.together else { continue };
                found += 1;
                let members = unit.members.iter().map(|member| &program.steps[*member]);
                for value in members.flat_map(|step| &step.writes).filter(|value| !writes.contains(value)) {
                    assert!(!pinned.contains(value), "seed {seed}: what is pinned is left out");
                    let outside = (0..program.steps.len()).filter(|number| !unit.members.contains(number));
                    for number in outside {
                        assert!(!program.looks_at(&program.steps[number], *value), "seed {seed}");
                    }
                }
            }
        }
    }
    assert!(found > 500, "only {found} units of several steps");
    Ok(())
}

/// Values that share memory are read as they were written, however many steps are made together, and no step has to
/// wait for longer than it would with memory for each.
#[cfg(feature = "gpu")]
#[test]
fn values_that_share_memory_keep_what_they_hold() -> Result<()> {
    use super::sharing::{Sharing, levels};
    use super::together::{Unit, units};
    /// Whether every read finds what was last written for that very value, and what is pinned is there at the end.
    fn finds_all(program: &Program, sharing: &Sharing, units: &[Unit]) -> bool {
        let mut holders: Vec<Option<Value>> = vec![None; sharing.elements.len()];
        for unit in units {
            let steps = || unit.members.iter().map(|number| &program.steps[*number]);
            // A unit may read its operands at any time until it is done, and write its results from the start.
            let written = steps().flat_map(|step| &step.writes).map(|value| program.owner(*value));
            let read = steps().flat_map(|step| &step.reads).map(|value| program.owner(*value));
            let made: Vec<Value> = written.clone().collect();
            for value in written {
                if let Some(share) = sharing.of(value) {
                    holders[share] = Some(value);
                }
            }
            for value in read.chain(made) {
                // Where nobody has written, what the caller or an earlier run has left is there.
                let held =
                    sharing.of(value).is_none_or(|share| holders[share].is_none_or(|holder| holder == value));
                if !held {
                    return false;
                }
            }
        }
        let pinned = (0..program.values.len() as u32).map(Value).filter(|value| program.value(*value).pinned);
        pinned.map(|value| program.owner(value)).all(|value| {
            let alone = (0..program.values.len() as u32)
                .map(Value)
                .filter(|other| *other != value)
                .all(|other| sharing.of(other).is_none() || sharing.of(other) != sharing.of(value));
            sharing.of(value).is_none() || alone
        })
    }
    let network = network(false)?;
    let (mut values, mut shares, mut refused) = (0, 0, 0);
    for seed in 0..3_000 {
        let (program, _) = program(seed, &network, &Rewrites::default());
        let sharing = Sharing::new(&program, 8, 0);
        let all: Vec<usize> = (0..program.steps.len()).collect();
        let joined = units(&program, all.clone(), 1, 8);
        let alone: Vec<Unit> = all.iter().copied().map(Unit::alone).collect();
        for order in [&joined, &alone] {
            assert!(sharing.keeps(&program, order), "seed {seed}\n{program}\n{sharing:?}");
            assert!(finds_all(&program, &sharing, order), "seed {seed}\n{program}\n{sharing:?}");
        }
        // Another order that leaves the same behind is refused where memory is shared so that it would not.
        let (from, to) = (seed as usize % all.len(), seed as usize / 7 % all.len());
        let mut passed = (from.min(to)..=from.max(to)).filter(|number| *number != from);
        if passed.all(|number| program.commute(&program.steps[number], &program.steps[from])) {
            let mut other = all;
            let moved = other.remove(from);
            other.insert(to, moved);
            let other: Vec<Unit> = other.into_iter().map(Unit::alone).collect();
            let kept = sharing.keeps(&program, &other);
            refused += usize::from(!kept);
            assert!(!kept || finds_all(&program, &sharing, &other), "seed {seed}\n{program}\n{sharing:?}");
        }
        // The same program with one name for each share.
        let mut shared = program.clone();
        let mut first: Vec<Option<Value>> = vec![None; sharing.elements.len()];
        for index in 0..program.values.len() {
            if let Some(share) = sharing.of(Value(index as u32)) {
                values += 1;
                match first[share] {
                    Some(value) => shared.values[index].place = Place::Alias(value),
                    None => first[share] = Some(Value(index as u32)),
                }
            }
        }
        shares += sharing.elements.len();
        assert_eq!(
            levels(&shared, &joined),
            levels(&program, &joined),
            "seed {seed}\n{program}\n{sharing:?}"
        );
    }
    assert!(4 * shares < 3 * values, "{values} values in {shares} shares");
    assert!(refused > 10, "{refused} orders are refused");
    Ok(())
}
