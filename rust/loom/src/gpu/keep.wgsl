// Copies a step's output to where the frame keeps those of all its steps.
fn main(i: u32) {
    if i < constants.elements {
        outputs[constants.step * constants.stride + i] = output[i];
    }
}
