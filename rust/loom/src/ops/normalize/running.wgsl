// running = kept * running + share * value, unless the step is a bad one.
fn main(i: u32) {
    if i < constants.elements && control.applies != 0u {
        running[i] = constants.kept * running[i] + constants.share * value[i];
    }
}
