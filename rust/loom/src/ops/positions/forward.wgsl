// Adds to each step the row of its place: a thread an element.
fn main(i: u32) {
    if i < constants.elements {
        let place = min(#{POSITION} + i / constants.width % constants.time, constants.places - 1u);
        y[i] = x[i] + table[place * constants.width + i % constants.width];
    }
}
