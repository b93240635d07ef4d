//! The loop on a GPU, beside the CPU.

use super::*;
use crate::dtype::{DType, testing::sample};
use crate::gpu::testing::{self, Packed, check, compare};
use crate::ops::recurrent::gpu_operands::{BackwardOperands, ForwardOperands};
use crate::shader::Recorder;
use crate::{Error, Result};

/// A loop and its gradient on both devices.
fn both(case: &Case) {
    let setting = case.setting::<f32>();
    check(case.op.clone(), &setting);
    if case.op.keeps {
        let forward = setting.run_on(&case.op, &cpus()[0]).unwrap();
        let forward: Vec<Vec<f32>> = forward.iter().map(|data| data.real().to_vec()).collect();
        let dy = numbers::<f32>(5, forward[0].len());
        let (op, setting) = case.backward(&forward, &dy);
        check(op, &setting);
    }
}

#[test]
fn every_cell_is_as_on_the_cpu() {
    for cell in CELLS {
        for rows in [1, 5] {
            both(&Case::new(Recurrent { directions: 2, ..op(cell, 4, 9) }, rows));
        }
    }
}

#[test]
fn states_that_do_not_fit_workgroup_memory() {
    let Some(gpu) = testing::gpu() else { return };
    for (number, cell) in [Cell::Lstm, Cell::Gru, Cell::ResetFirstGru].into_iter().enumerate() {
        let case = Case::new(Recurrent { mask: true, directions: 2, ..op(cell, 3, 33) }, 6);
        let setting = case.setting::<f32>();
        let forward = setting.run(&case.op);
        let elements: Vec<Vec<f32>> = forward.iter().map(|data| data.real().to_vec()).collect();
        let (op, backward) = case.backward(&elements, &numbers(5, elements[0].len()));
        // Room for some rows, for one, and for none.
        for (size, bytes) in [1 << 14, 1 << 10, 64].into_iter().enumerate() {
            if !testing::in_part(number + size, 3) {
                continue;
            }
            for (op, setting, expected) in
                [(&case.op, &setting, &forward), (&op, &backward, &backward.run(&op))]
            {
                let op = op.clone().into();
                let found = testing::run_with_workgroups_of(&gpu, &op, setting, bytes).unwrap();
                compare(&op, expected, &found);
            }
        }
    }
}

/// Weights so many that steps are dispatches of their own.
#[test]
fn steps_that_are_dispatches_of_their_own() {
    let cells = [(Cell::Lstm, 83), (Cell::Gru, 97), (Cell::Tanh, 161), (Cell::Relu, 168)];
    let of_each = cells.into_iter().flat_map(|cell| [(cell, 1, 2), (cell, 7, 1)]);
    // So many rows that a workgroup takes eight, or sixteen.
    for ((cell, units), rows, directions) in of_each.chain([(cells[0], 100, 1), (cells[1], 190, 1)]) {
        let case = Case::new(Recurrent { mask: rows != 1, directions, ..op(cell, 4, units) }, rows);
        assert!(case.op.is_stepwise());
        both(&case);
    }
    let Some(gpu) = testing::gpu() else { return };
    // Room for fewer rows.
    let case = Case::new(op(Cell::Lstm, 3, 90), 9);
    let setting = case.setting::<f32>();
    let op = case.op.clone().into();
    let found = testing::run_with_workgroups_of(&gpu, &op, &setting, 1 << 13).unwrap();
    compare(&op, &setting.run(&case.op), &found);
}

/// Who goes through all steps without a dispatch each.
#[derive(Clone, Copy)]
enum Staying {
    /// A workgroup by itself.
    Alone,
    /// Workgroups that share out the units.
    Together,
}

/// Records workgroups that stay, however few weights there are.
fn record_staying(op: &Recurrent, recorder: &mut Recorder<'_>, who: Staying) -> Result<()> {
    let missing = || Error::Internal("no workgroups that stay fit".into());
    for direction in 0..op.directions {
        if op.direction == Direction::Forward {
            let operands = ForwardOperands::new(op, recorder, direction)?;
            match who {
                Staying::Alone => {
                    let shares = op.alone_forward(recorder).ok_or_else(missing)?;
                    op.record_alone_forward(recorder, operands, direction, &shares)?;
                }
                Staying::Together => {
                    let shares = op.resident_forward(recorder).ok_or_else(missing)?;
                    op.record_resident_forward(recorder, operands, direction, &shares)?;
                }
            }
        } else {
            let operands = BackwardOperands::new(op, recorder, direction)?;
            match who {
                Staying::Alone => {
                    let shares = op.alone_backward(recorder).ok_or_else(missing)?;
                    op.record_alone_backward(recorder, operands, direction, &shares)?;
                }
                Staying::Together => {
                    let shares = op.resident_backward(recorder).ok_or_else(missing)?;
                    op.record_resident_backward(recorder, operands, direction, &shares)?;
                }
            }
        }
    }
    Ok(())
}

/// The results of workgroups that stay through all steps, on a device that runs one of them at a time.
fn staying(op: &Recurrent, setting: &Setting<f32>) {
    let Some(gpu) = testing::gpu() else { return };
    for who in [Staying::Alone, Staying::Together] {
        let found = testing::run_recorded(&gpu, setting, None, |recorder| {
            recorder.concurrent_groups = 1;
            record_staying(op, recorder, who)
        });
        compare(&op.clone().into(), &setting.run(op), &found.unwrap());
    }
}

/// The same, and those of the gradient.
fn both_staying(case: &Case) {
    let setting = case.setting::<f32>();
    staying(&case.op, &setting);
    if case.op.keeps {
        let forward = setting.run(&case.op);
        let forward: Vec<Vec<f32>> = forward.iter().map(|data| data.real().to_vec()).collect();
        let (op, setting) = case.backward(&forward, &numbers(5, forward[0].len()));
        staying(&op, &setting);
    }
}

/// By themselves a row or four of a workgroup; together tiles of eight units to 32, and one to four vectors of rows.
#[test]
fn workgroups_that_stay() {
    let cells = [(Cell::Lstm, 7), (Cell::Gru, 13), (Cell::Tanh, 31), (Cell::Relu, 32), (Cell::Lstm, 24)];
    let cases = cells.into_iter().flat_map(|cell| [(cell, 1, true), (cell, 4, false), (cell, 7, true)]);
    for (number, (((cell, units), rows, mask), directions)) in
        cases.zip([1, 2].into_iter().cycle()).enumerate()
    {
        if !testing::in_part(number + number / 3, 3) {
            continue;
        }
        both_staying(&Case::new(Recurrent { mask, directions, ..op(cell, 4, units) }, rows));
    }
    for cell in [Cell::Lstm, Cell::Gru] {
        let op = Recurrent { initial: InitialState::Shared, state: true, resumes: true, ..op(cell, 3, 20) };
        resuming(&op).iter().for_each(|setting| staying(&op, setting));
    }
}

#[test]
fn what_software_would_not_finish_is_refused() {
    let Some(gpu) = testing::gpu() else { return };
    if gpu.capabilities().software {
        let case = Case::new(op(Cell::Tanh, 4000, 150), 1);
        let error = testing::run(&gpu, &case.op.clone().into(), &case.setting(), None).unwrap_err();
        assert!(error.to_string().contains("too long for this software adapter"), "{error}");
    }
}

#[test]
fn sessions_go_on_as_on_the_cpu() {
    for cell in [Cell::Lstm, Cell::Gru, Cell::ResetFirstGru] {
        // All steps in one dispatch, and one dispatch a step.
        for units in [9, 100] {
            let initial = InitialState::Shared;
            let op = Recurrent { initial, state: true, resumes: true, ..op(cell, 3, units) };
            resuming(&op).iter().for_each(|setting| check(op.clone(), setting));
        }
    }
}

#[test]
fn packed_weights_are_decoded() {
    let Some(gpu) = testing::gpu() else { return };
    for cell in [Cell::Lstm, Cell::Gru, Cell::ResetFirstGru] {
        let case = Case::new(op(cell, 3, 12), 5);
        let setting = case.setting::<f32>();
        let weight = setting.reads[1].real();
        let channels = cell.gates() * 12;
        for dtype in [DType::BFloat16, DType::Int8, DType::Int2, DType::Q8_0] {
            let sample = sample(dtype, weight, channels);
            let plain = sample.decoded::<f32>();
            let packed = Packed::of(&sample);
            let found = testing::run(&gpu, &case.op.clone().into(), &setting, Some((1, packed))).unwrap();
            let mut setting = setting.clone();
            setting.reads[1] = crate::ops::testing::Data::Real(plain);
            compare(&case.op.clone().into(), &setting.run(&case.op), &found);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn any_options_of_workgroups_that_stay(op in loops(1..6, 1..33), rows in 1..5usize) {
        if op.cell != Cell::ResetFirstGru {
            both_staying(&Case::new(op, rows));
        }
    }

    #[test]
    fn any_options_are_as_on_the_cpu(op in loops(1..6, 1..40), rows in 1..9usize) {
        both(&Case::new(op, rows));
    }
}
