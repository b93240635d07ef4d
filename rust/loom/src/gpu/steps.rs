//! The step table and the control: what changes from step to step, as kernels read it.

use crate::ops::StepValues;

/// Bytes of one entry: the prelude's `Step`.
pub(crate) const STEP_BYTES: usize = 64;

/// One entry. `first_row` is where the step's rows start in the frame's order of rows.
pub(crate) fn encode_step(values: &StepValues, first_row: usize) -> [u8; STEP_BYTES] {
    let limit = |x: f64| (x as f32).min(f32::MAX).to_bits();
    let pass = values.pass_number();
    let words: [u32; STEP_BYTES / 4] = [
        values.seed as u32,
        (values.seed >> 32) as u32,
        pass as u32,
        (pass >> 32) as u32,
        values.row_offset as u32,
        values.optimizer_step.min(u64::from(u32::MAX)) as u32,
        (values.rate as f32).to_bits(),
        (values.loss_divisor as f32).to_bits(),
        limit(values.max_norm),
        limit(values.clip_value),
        first_row as u32,
        values.position as u32,
        values.batch_rows as u32,
        0,
        0,
        0,
    ];
    bytemuck::cast(words)
}

/// Words of the prelude's `Control`.
pub(super) const CONTROL_WORDS: usize = 8;

/// A control that lets updates write, before a step with these values.
pub(super) fn control_before(values: &StepValues) -> [u32; CONTROL_WORDS] {
    [1, 0, 0, 0, values.loss_scale.to_bits(), values.good_steps, 0, 0]
}
