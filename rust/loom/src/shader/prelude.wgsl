// What changes from step to step, one entry a step of the frame; `constants.step` says which is this one's.
struct Step {
    seed_low: u32,
    seed_high: u32,
    // Committed training steps: keys random draws.
    step_low: u32,
    step_high: u32,
    // Rows of the step's global batch that came before this run's.
    row_offset: u32,
    // Updates the optimizer has made, this one counted, had none of this frame been skipped.
    optimizer_step: u32,
    rate: f32,
    loss_divisor: f32,
    // The largest f32 where there is no limit.
    max_norm: f32,
    clip_value: f32,
    // Where this step's rows start in the frame's order of rows.
    first_row: u32,
    // Steps of the sequences that a session has seen before this call.
    position: u32,
    // Rows of the step's global batch.
    batch_rows: u32,
    unused_a: u32,
    unused_b: u32,
    unused_c: u32,
}

@group(1) @binding(0) var<storage, read> steps: array<Step>;

// Workgroups past 65,535 are folded into rows; the last row may overshoot.
fn group_index(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + group.y * groups.x;
}

// By bits: comparisons may be compiled as though there were no NaN.
fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// What the verdict on a step has decided; updates read it and write nothing where `applies` is 0.
struct Control {
    applies: u32,
    // Steps of this frame left out so far: optimizers have made so many updates fewer.
    skipped: u32,
    // Nothing is written any more after the step that halted.
    halted: u32,
    halted_step: u32,
    // What the loss's gradient is multiplied by, where it is; a power of two.
    scale: f32,
    // Good steps since that last changed.
    good_steps: u32,
    // Whether updates go back to their copies instead of writing.
    goes_back: u32,
    unused: u32,
}

