// A hidden-to-hidden weight (UNITS, GATES) decoded, and transposed where TURNED.

fn weight(at: u32) -> f32 {
    return #{ELEMENT};
}

fn main(i: u32) {
    // Neighbouring threads write neighbouring elements.
    if i < UNITS * GATES {
        var place = i;
        if TURNED {
            place = i % UNITS * GATES + i / UNITS;
        }
        plain[i] = weight(place);
    }
}
