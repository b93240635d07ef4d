//! Runs a program's steps in place on the CPU.

use crate::ops::{Args, Direction, MAX_READS, MAX_WRITES, Op, Product, StepValues};
use crate::program::{Access, Kind, Phase, Place, Program, Run, Step, Value, Write, resolve};
use crate::simd::{Cpu, Real};
use crate::state::Registry;
use crate::tensor::Buffer;
use crate::{Error, Result, extents};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs the steps of these phases, in order.
///
/// Nothing is allocated. When a kernel panics, every buffer is back in its place
/// before the panic goes on.
pub fn execute<T: Real>(
    cpu: &Cpu,
    run: &mut Run,
    mut access: Access<'_>,
    phases: RangeInclusive<Phase>,
    values: &StepValues,
) -> Result<()> {
    debug_assert_eq!(T::PRECISION, run.program.precision.stored());
    let program = run.program.clone();
    let mut rest = &program.steps[run.chosen()];
    while let Some(step) = rest.first() {
        let together = match phases.contains(&step.phase) {
            true => beside(&program, rest),
            false => 1,
        };
        let (steps, later) = rest.split_at(together);
        rest = later;
        if together > 1 {
            execute_beside::<T>(cpu, &program, steps, run, &mut access, values)?;
        } else if phases.contains(&step.phase) && !is_elsewhere(&program, step, &access) {
            execute_step::<T>(cpu, &program, step, run, &mut access, values)?;
        }
    }
    Ok(())
}

/// The product with quantised activations that a step of a session or of inference is.
fn quantized(step: &Step) -> Option<&Product> {
    match &step.op {
        Op::Product(product) if product.quantized && product.direction == Direction::Forward => {
            let plain = step.write == Write::Set && step.phase == Phase::Forward && step.writes.len() == 1;
            plain.then_some(product)
        }
        _ => None,
    }
}

/// How many of the next steps are products with quantised activations of one value, which are made as one.
fn beside(program: &Program, steps: &[Step]) -> usize {
    let Some(first) = quantized(&steps[0]) else { return 1 };
    let place = |value: &Value| program.value(program.owner(*value)).place;
    let joins = |number: usize| {
        let (step, before) = (&steps[number], &steps[..number]);
        let alike = quantized(step)
            .is_some_and(|product| (product.multiplier, product.inputs) == (first.multiplier, first.inputs));
        // What is written is out of its table meanwhile, so nobody else may look for it there.
        let apart = |written: &Value| {
            let of = |other: &Step| {
                other.writes.iter().chain(&other.reads).all(|value| place(value) != place(written))
            };
            before.iter().all(of)
        };
        let unread = before
            .iter()
            .flat_map(|other| &other.writes)
            .all(|written| step.reads.iter().all(|read| place(read) != place(written)));
        alike && step.reads.first() == steps[0].reads.first() && step.writes.iter().all(apart) && unread
    };
    let most = steps.len().min(Product::MOST_BESIDE);
    (1..most).take_while(|number| joins(*number)).count() + 1
}

/// Runs products that are made as one.
fn execute_beside<T: Real>(
    cpu: &Cpu,
    program: &Program,
    steps: &[Step],
    run: &mut Run,
    access: &mut Access<'_>,
    values: &StepValues,
) -> Result<()> {
    let mut taken: [Option<Taken>; Product::MOST_BESIDE] = [const { None }; Product::MOST_BESIDE];
    let mut outcome = Ok(());
    for (slot, value) in taken.iter_mut().zip(steps.iter().flat_map(|step| &step.writes)) {
        let place = program.value(program.owner(*value)).place;
        match take(place, run, access) {
            Ok(buffer) => *slot = Some(Taken { place, buffer }),
            Err(error) => outcome = Err(error),
        }
    }
    let rows = run.rows;
    let finished = outcome.and_then(|()| {
        let mut slots = taken.iter_mut().flatten();
        let mut part = |step: &Step| -> Result<Args<'_>> {
            let mut args = Args::new(cpu, rows, values);
            for (view, value) in args.reads.iter_mut().zip(&step.reads) {
                *view = resolve::<T>(program, *value, run, access)?;
            }
            // Slots come last: what is zipped with them must not end after one of them was taken.
            for ((slice, value), taken) in args.writes.iter_mut().zip(&step.writes).zip(slots.by_ref()) {
                *slice = destination::<T>(program, *value, taken, rows, access.get());
            }
            Ok(args)
        };
        let product = |step| quantized(step).ok_or_else(|| Error::Internal("a step is no product".into()));
        Ok(match steps {
            [one, two] => {
                let mut parts = [(product(one)?, part(one)?), (product(two)?, part(two)?)];
                catch_unwind(AssertUnwindSafe(|| Product::run_beside(&mut parts)))
            }
            [one, two, three] => {
                let mut parts = [
                    (product(one)?, part(one)?),
                    (product(two)?, part(two)?),
                    (product(three)?, part(three)?),
                ];
                catch_unwind(AssertUnwindSafe(|| Product::run_beside(&mut parts)))
            }
            _ => return Err(Error::Internal("steps are made as one that are not beside each other".into())),
        })
    });
    for taken in taken.into_iter().flatten() {
        put_back(taken, run, access);
    }
    extents::caught(|| finished?.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Whether a step updates what another process does.
fn is_elsewhere(program: &Program, step: &Step, access: &Access<'_>) -> bool {
    let registry = access.get();
    step.phase >= Phase::Verdict
        && registry.owned.is_some()
        && step.reads.iter().chain(&step.writes).any(|value| {
            match program.value(program.owner(*value)).place {
                Place::Moment { store, .. } => !registry.owns(store),
                Place::Gradient(parameter) => registry.splits_gradients && !registry.owns(parameter.store),
                Place::Master(parameter) => step.phase == Phase::Update && !registry.owns(parameter.store),
                _ => false,
            }
        })
}

/// A result's buffer, out of its table while a kernel writes it.
struct Taken {
    place: Place,
    buffer: Buffer,
}

fn execute_step<T: Real>(
    cpu: &Cpu,
    program: &Program,
    step: &Step,
    run: &mut Run,
    access: &mut Access<'_>,
    values: &StepValues,
) -> Result<()> {
    if let Op::Encode(encode) = &step.op {
        let store = &mut access.get_mut()?.stores[encode.store];
        store.set_updates(values.optimizer_step);
        return store.refresh(cpu);
    }
    let rows = run.rows;
    let mut taken: [Option<Taken>; MAX_WRITES] = [const { None }; MAX_WRITES];
    let mut outcome = Ok(());
    for (slot, value) in taken.iter_mut().zip(&step.writes) {
        let place = program.value(program.owner(*value)).place;
        match take(place, run, access) {
            Ok(buffer) => *slot = Some(Taken { place, buffer }),
            Err(error) => outcome = Err(error),
        }
    }
    let finished = outcome.and_then(|()| {
        let mut args = Args::new(cpu, rows, values);
        args.path = step.path;
        args.accumulate = match step.write {
            Write::Set => false,
            Write::Add => true,
            Write::First => !values.gradients_zeroed,
        };
        debug_assert!(step.reads.len() <= MAX_READS && step.writes.len() <= MAX_WRITES);
        for (view, value) in args.reads.iter_mut().zip(&step.reads) {
            *view = resolve::<T>(program, *value, run, access)?;
        }
        for ((slice, taken), value) in
            args.writes.iter_mut().zip(taken.iter_mut().flatten()).zip(&step.writes)
        {
            let rows = match taken.place {
                Place::Carried(_) => access.carried().map_or(rows, |carried| carried.rows_of(rows)),
                _ => rows,
            };
            *slice = destination::<T>(program, *value, taken, rows, access.get());
        }
        Ok(catch_unwind(AssertUnwindSafe(|| step.op.run::<T>(&mut args))))
    });
    for taken in taken.into_iter().flatten() {
        put_back(taken, run, access);
    }
    extents::caught(|| finished?.unwrap_or_else(|panic| resume_unwind(panic)))
}

fn take(place: Place, run: &mut Run, access: &mut Access<'_>) -> Result<Buffer> {
    Ok(match place {
        Place::Buffer(buffer) => std::mem::take(&mut run.buffers[buffer]),
        Place::Alias(_) => unreachable!("owners are no aliases"),
        stored => std::mem::take(stored_buffer(stored, access)?),
    })
}

fn put_back(taken: Taken, run: &mut Run, access: &mut Access<'_>) {
    match taken.place {
        Place::Buffer(buffer) => run.buffers[buffer] = taken.buffer,
        stored => {
            if let Ok(buffer) = stored_buffer(stored, access) {
                *buffer = taken.buffer;
            }
        }
    }
}

fn stored_buffer<'a>(place: Place, access: &'a mut Access<'_>) -> Result<&'a mut Buffer> {
    if let Place::Carried(number) = place {
        return Ok(&mut access.carried_mut()?.buffers[number]);
    }
    if let Access::Part(_, parts) = access {
        let part = parts.iter_mut().find(|part| part.holds(place));
        return part.map(|part| &mut part.buffer).ok_or_else(|| {
            Error::Internal(format!("{place:?} is not among what this part of a tick writes"))
        });
    }
    let registry = access.get_mut()?;
    match place {
        Place::Ring { member, age } => match &mut registry.ring {
            Some(ring) => Ok(ring.buffer_mut(member, age)),
            None => Err(Error::Internal("a program of ticks ran without a ring".into())),
        },
        Place::Master(parameter) => registry.stores[parameter.store].master_buffer_mut(),
        Place::Gradient(parameter) => Ok(&mut registry.gradients[parameter.store]),
        Place::Moment { store, slot } => Ok(&mut registry.moments[store][slot]),
        Place::State(number) => Ok(&mut registry.states[number].content),
        Place::Version(..) | Place::Buffer(_) | Place::Alias(_) | Place::Carried(_) => {
            Err(Error::Internal(format!("{place:?} is not written by steps")))
        }
    }
}

fn destination<'a, T: Real>(
    program: &Program,
    value: Value,
    taken: &'a mut Taken,
    rows: usize,
    registry: &Registry,
) -> &'a mut [u8] {
    let info = program.value(value);
    match taken.place {
        Place::Master(parameter) | Place::Gradient(parameter) => {
            let (offset, len) = registry.extent(parameter);
            &mut taken.buffer.bytes_mut()[offset * size_of::<T>()..(offset + len) * size_of::<T>()]
        }
        Place::Buffer(_) => {
            let size = match info.kind {
                Kind::Real => size_of::<T>(),
                Kind::Index => size_of::<i32>(),
            };
            &mut taken.buffer.bytes_mut()[..info.len(rows) * size]
        }
        Place::Carried(_) | Place::Ring { .. } => {
            &mut taken.buffer.bytes_mut()[..info.len(rows) * size_of::<T>()]
        }
        _ => taken.buffer.bytes_mut(),
    }
}
