// Normalises sets of UNITS neighbouring units of four elements, or the gradient of doing so: LANES threads a set, each of
// which keeps its units between summing and storing.

#{JOIN}

fn whole(sums: vec4<f32>) -> f32 {
    return (sums.x + sums.y) + (sums.z + sums.w);
}

fn main(group: u32, thread: u32) {
    let place = group * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    // Threads past the last set go along, as all meet at the barriers.
    let end = select(0u, UNITS, place < constants.sets);
    let base = place * UNITS;
    // Where the set's gains and biases start.
    let channels = place % GROUPS * UNITS;
    #{BODY}
}
