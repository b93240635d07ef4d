// Writes a call's steps behind those of earlier calls: a thread an element.
#{PLACES}
#{PUT}

fn main(i: u32) {
    if i < constants.elements {
        put(i, x[i]);
    }
}
