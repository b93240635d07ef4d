// Adds to each step the row of its place: a thread an element.
#{PLACES}

fn main(i: u32) {
    if i < constants.elements {
        let row = i / constants.width / constants.time;
        let place = min(position(row) + i / constants.width % constants.time, constants.places - 1u);
        y[i] = x[i] + table[place * constants.width + i % constants.width];
    }
}
