// Normalises sets of EXTENT neighbouring elements, or the gradient of doing so: LANES threads a set.

#{JOIN}

// The channel of element `e` of a set; CHANNELS are those of one set.
fn channel_of(place: u32, e: u32) -> u32 {
    return place % GROUPS * CHANNELS + e / INNER;
}

fn main(group: u32, thread: u32) {
    let place = group * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    // Threads past the last set go along, as all meet at the barriers.
    let end = select(0u, EXTENT, place < constants.sets);
    let base = place * EXTENT;
    #{BODY}
}
