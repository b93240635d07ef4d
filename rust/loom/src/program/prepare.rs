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
        let moves = runs_alone && !step.reads.is_empty() && reads.clone().all(is_given) && writes.clone().all(is_own);
        let owners: Vec<usize> = if moves { writes } else { reads }.map(|value| program.owner(value).index()).collect();
        if moves {
            owners.into_iter().for_each(|owner| made[owner] = true);
            program.steps[number].phase = Phase::Prepare;
        } else {
            owners.into_iter().filter(|owner| made[*owner]).for_each(|owner| program.values[owner].pinned = true);
        }
    }
    let (prepared, others): (Vec<Step>, Vec<Step>) =
        std::mem::take(&mut program.steps).into_iter().partition(|step| step.phase == Phase::Prepare);
    program.steps = prepared.into_iter().chain(others).collect();
}
