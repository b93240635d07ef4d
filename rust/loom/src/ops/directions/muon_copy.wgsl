// From another place to the beginning.

fn main(i: u32) {
    if i < constants.elements {
        scratch[i] = scratch[constants.source + i];
    }
}
