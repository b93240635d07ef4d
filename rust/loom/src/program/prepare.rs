//! What is made of parameters alone, taken out of what runs for every batch.

use super::{Kind, Phase, Place, Program, Step, Write};

/// Moves steps of the forward phase that read nothing but parameters, or what such steps have made, to the front, into the
/// phase [`Prepare`](Phase::Prepare); whatever others read of theirs is kept from run to run.
pub(super) fn prepare(program: &mut Program) {
    let mut made = vec![false; program.values.len()];
    let mut writers = vec![0; program.values.len()];
    for value in program.steps.iter().flat_map(|step| &step.writes) {
        writers[program.owner(*value).index()] += 1;
    }
    for number in 0..program.steps.len() {
        let step = &program.steps[number];
        let is_given = |value| {
            let owner = program.owner(value);
            let is_parameter = matches!(program.value(owner).place, Place::Master(_) | Place::Version(..));
            is_parameter || made[owner.index()]
        };
        let is_own = |value| {
            let owner = program.owner(value);
            let info = program.value(owner);
            let is_alike = !info.per_row && info.kind == Kind::Real && matches!(info.place, Place::Buffer(_));
            is_alike && writers[owner.index()] == 1
        };
        let runs_alone = step.phase == Phase::Forward && step.write == Write::Set && step.after.is_none();
        let (reads, writes) = (step.reads.iter().copied(), step.writes.iter().copied());
        let moves =
            runs_alone && !step.reads.is_empty() && reads.clone().all(is_given) && writes.clone().all(is_own);
        let owners: Vec<usize> =
            if moves { writes } else { reads }.map(|value| program.owner(value).index()).collect();
        if moves {
            owners.into_iter().for_each(|owner| made[owner] = true);
            program.steps[number].phase = Phase::Prepare;
        } else {
            owners
                .into_iter()
                .filter(|owner| made[*owner])
                .for_each(|owner| program.values[owner].pinned = true);
        }
    }
    let (prepared, others): (Vec<Step>, Vec<Step>) =
        std::mem::take(&mut program.steps).into_iter().partition(|step| step.phase == Phase::Prepare);
    program.steps = prepared.into_iter().chain(others).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;
    use crate::ops::{BiasAdd, Sum};
    use crate::program::{Builder, ParameterRef, Rewrites};
    use crate::tensor::Shape;

    fn program(prepares: bool) -> Program {
        let mut b = Builder::new(Precision::Float32);
        b.prepares = prepares;
        let parameter = |index| ParameterRef { store: 0, parameter: Some(index) };
        let shape = Shape::from(3);
        let x = b.input("x", shape.clone(), Kind::Real);
        let added = BiasAdd { outer: 1, channels: 3, inner: 1 };
        let y = b.apply(added.clone(), &[x, x], "y", shape.clone());
        let [one, other] = [0, 1].map(|index| b.parameter(parameter(index), shape.clone(), None));
        // Of parameters, of what is made of these, and of the batch, too.
        let sum = b.apply_fixed(Sum { operands: 2 }, &[one, other], "sum", shape.clone());
        let twice = b.apply_fixed(Sum { operands: 2 }, &[sum, sum], "twice", shape.clone());
        let state = b.state("state", shape.clone(), 0);
        let kept = b.apply_fixed(Sum { operands: 2 }, &[twice, state], "kept", shape.clone());
        let z = b.apply(added, &[y, kept], "z", shape);
        b.ports.input = Some(x);
        b.ports.output = Some(z);
        b.finish(4, &Rewrites::none()).unwrap()
    }

    #[test]
    fn what_reads_parameters_alone_comes_first_and_is_kept() {
        let made = program(true);
        let labels = |program: &Program, phase: Phase| -> Vec<&str> {
            let steps = program.steps.iter().filter(|step| step.phase == phase);
            steps.map(|step| program.value(step.writes[0]).label).collect()
        };
        assert_eq!(labels(&made, Phase::Prepare), ["sum", "twice"]);
        assert_eq!(labels(&made, Phase::Forward), ["y", "kept", "z"]);
        assert!(made.prepares());
        let pinned = |label: &str| made.values.iter().any(|info| info.label == label && info.pinned);
        assert!(pinned("twice") && !pinned("sum") && !pinned("y"));
        // What is kept shares its memory with nothing that is made for every batch.
        let place = |label: &str| made.values.iter().find(|info| info.label == label).unwrap().place;
        for other in ["sum", "y", "kept", "z"] {
            assert_ne!(place("twice"), place(other), "{other}");
        }
    }

    #[test]
    fn programs_that_move_parameters_make_all_of_it_each_time() {
        let made = program(false);
        assert!(!made.prepares());
        assert!(made.steps.iter().all(|step| step.phase == Phase::Forward));
    }
}
