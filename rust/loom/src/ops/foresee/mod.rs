//! A look ahead at what a step is about to write, for devices that make many steps before anybody looks.

mod cpu;
mod gpu;

use super::measure::{ExplosionRule, MeasureMemory};
use super::{RunningAverage, Update};
use crate::weights::WeightStore;
use std::fmt;

/// What a step is about to write, checked before it is written.
#[derive(Clone, Debug)]
pub enum Foreseen {
    /// The update of a store, which reads what [`Update`] reads, then what it changes: gradient or directions with
    /// what comes along, master and moments, and the memory of the measures last where it is watched.
    Update(Box<Update>, Vec<HeldParameter>),
    /// A running average: reads the value and what it is to change.
    Average(RunningAverage),
    /// Values that are taken as they are.
    Values,
}

/// A parameter of a store, and what it can hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldParameter {
    /// Where it starts in the flat master.
    pub first: usize,
    /// The element after its last.
    pub end: usize,
    /// The largest magnitude that the type it is packed as holds.
    pub most: f32,
}

/// Where each parameter stands in the flat master, and the largest magnitude that its version holds.
pub(crate) fn held(store: &WeightStore) -> Vec<HeldParameter> {
    let parameters = store.parameters().iter().enumerate();
    let held = parameters.map(|(index, info)| HeldParameter {
        first: info.offset,
        end: info.offset + info.len(),
        most: store.most_held(index),
    });
    held.collect()
}

/// Writes one number: 0 where all that is about to be written is finite, and what is wrong otherwise, as
/// [`Wrong`] has it.
#[derive(Clone, Debug)]
pub struct Foresee {
    /// What is checked.
    pub what: Foreseen,
}

/// What is wrong with what would be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A type that it is packed as does not hold it.
    Packed = 1,
    /// An optimizer's moment is not finite.
    Moment = 2,
    /// It is not finite itself.
    Value = 3,
}

impl Wrong {
    /// From the number that stands for it.
    pub fn from_code(code: u32) -> Option<Self> {
        [Wrong::Packed, Wrong::Moment, Wrong::Value].into_iter().find(|wrong| *wrong as u32 == code)
    }
}

/// Brings several looks ahead together: reads their numbers, and the result of the group before after those
/// where it is not the first; writes 0, or 4 times the number of the first that found something, from 1 on,
/// plus what it found.
///
/// Where measures judge the step it also writes their memory: a step that cannot land has exploded.
#[derive(Clone, Debug)]
pub struct Foresight {
    /// How many looks.
    pub count: usize,
    /// How many were brought together before.
    pub before: usize,
    /// How a step that was judged calm is judged again.
    pub judged: Option<(MeasureMemory, ExplosionRule)>,
}

impl Foresight {
    /// The most looks of one.
    pub const MOST: usize = 6;

    /// The number of a look and what it found, from the result.
    pub fn read(result: f64) -> Option<(usize, Wrong)> {
        let code = result as u32;
        Some(((code / 4).checked_sub(1)? as usize, Wrong::from_code(code % 4)?))
    }
}

impl fmt::Display for Foresee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Foreseen::Update(update, _) => write!(f, "foresee {update}"),
            Foreseen::Average(average) => write!(f, "foresee {average}"),
            Foreseen::Values => write!(f, "foresee values"),
        }
    }
}

impl fmt::Display for Foresight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "foresight {}", self.count)
    }
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;
    use crate::ops::Op;
    use crate::ops::testing::{Data, Setting, numbers};
    use crate::ops::update::Optimizer;
    use crate::simd::Cpu;

    fn wrong(op: &Foresee, setting: &Setting<f32>) -> Option<Wrong> {
        let found = setting.run_on(op, Cpu::global().unwrap()).unwrap()[0].real()[0];
        if let Some(gpu) = crate::gpu::testing::gpu() {
            let there = crate::gpu::testing::run(&gpu, &Op::from(op.clone()), setting, None).unwrap();
            // On a device the number is that of the bits.
            assert_eq!(there[0].real()[0].to_bits(), found as u32, "{op}");
        }
        Wrong::from_code(found as u32)
    }

    fn updates(optimizer: &Optimizer, most: f32) -> (Foresee, Setting<f32>) {
        let held = vec![
            HeldParameter { first: 0, end: 70, most },
            HeldParameter { first: 128, end: 131, most: f32::MAX },
        ];
        let op = Update { frozen: std::iter::once(3..5).collect(), ..Update::new(optimizer.clone(), 192) };
        let slots = optimizer.slots().len();
        let small: Vec<f32> = numbers::<f32>(4, 192).into_iter().map(|x| x * x + 0.05).collect();
        let mut reads = vec![numbers::<f32>(1, 192)];
        // One ratio, or the moments that were made.
        reads.resize(op.memory_operand(), small.clone());
        reads.push(numbers::<f32>(2, 192));
        reads.resize(op.memory_operand() + 1 + slots, small);
        let reads: Vec<&[f32]> = reads.iter().map(Vec::as_slice).collect();
        let mut setting = Setting::new(1, &reads, &[1]);
        setting.writes = vec![Data::Real(vec![0.0])];
        (setting.values.rate, setting.values.optimizer_step) = (0.01, 3);
        (Foresee { what: Foreseen::Update(Box::new(op), held) }, setting)
    }

    #[test]
    fn updates_are_foreseen() {
        for optimizer in Optimizer::ALL {
            let (op, calm) = updates(optimizer, 65519.0);
            assert_eq!(wrong(&op, &calm), None, "{op}");
            let master = match &op.what {
                Foreseen::Update(update, _) => update.memory_operand(),
                _ => 1,
            };
            let with = |operand: usize, place: usize, value: f32| {
                let operand = if operand == 1 { master } else { operand };
                let mut setting = calm.clone();
                if let Data::Real(elements) = &mut setting.reads[operand] {
                    elements[place] = value;
                }
                wrong(&op, &setting)
            };
            assert_eq!(with(0, 69, f32::NAN), Some(Wrong::Value), "{op}");
            assert_eq!(with(1, 130, f32::INFINITY), Some(Wrong::Value), "{op}");
            assert_eq!(with(1, 1, 7e4), Some(Wrong::Packed), "{op}");
            assert_eq!(with(1, 128, 7e4), None, "{op}");
            // What does not move, and what is nobody's.
            assert_eq!(with(1, 3, f32::NAN), None, "{op}");
            assert_eq!(with(0, 100, f32::NAN), None, "{op}");
            if optimizer.is_made_beside() {
                let mut made = calm.clone();
                if let Data::Real(elements) = &mut made.reads[1] {
                    elements[0] = f32::INFINITY;
                }
                assert_eq!(wrong(&op, &made), Some(Wrong::Moment), "{op}");
            } else if optimizer.slots().contains(&"square") {
                assert_eq!(with(0, 0, 1e25), Some(Wrong::Moment), "{op}");
            }
        }
    }

    #[test]
    fn averages_and_values_are_foreseen() {
        for (unbiased, factor) in [(None, 1.0), (Some(3), 1.0)] {
            let op = Foresee { what: Foreseen::Average(RunningAverage { momentum: 0.5, unbiased }) };
            let setting = |value: f32, running: f32| {
                let mut setting = Setting::new(4, &[&[1.0, value * factor], &[0.5, running]], &[1]);
                setting.writes = vec![Data::Real(vec![0.0])];
                setting
            };
            assert_eq!(wrong(&op, &setting(2.0, 3.0)), None);
            assert_eq!(wrong(&op, &setting(3e38, 1.0)), None);
            assert_eq!(wrong(&op, &setting(3.4e38, 3.4e38)).is_some(), unbiased.is_some());
            assert_eq!(wrong(&op, &setting(f32::INFINITY, 1.0)), Some(Wrong::Value));
            assert_eq!(wrong(&op, &setting(f32::NAN, 1.0)), Some(Wrong::Value));
        }
        let op = Foresee { what: Foreseen::Values };
        for (values, expected) in [
            (vec![1.0f32; 700], None),
            ([vec![1.0f32; 699], vec![f32::NAN]].concat(), Some(Wrong::Value)),
            ([vec![f32::NEG_INFINITY], vec![1.0f32; 3]].concat(), Some(Wrong::Value)),
        ] {
            let mut setting = Setting::new(1, &[&values], &[1]);
            setting.writes = vec![Data::Real(vec![0.0])];
            assert_eq!(wrong(&op, &setting), expected);
        }
    }
}
