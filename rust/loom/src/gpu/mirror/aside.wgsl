// Adds a gradient to one made before it.
fn main(i: u32) {
    if i < constants.elements {
        gradient[i] = waiting[i] + gradient[i];
    }
}
