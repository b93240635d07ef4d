// 1 for the first steps of a sequence, as many as its row says, 0 for the others: one thread a step.
fn main(i: u32) {
    if (i >= constants.count) {
        return;
    }
    let step = i % constants.steps;
    mask[i] = select(0.0, 1.0, f32(step) < lengths[i / constants.steps]);
}
