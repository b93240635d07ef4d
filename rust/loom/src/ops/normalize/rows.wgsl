// Normalises sets of EXTENT neighbouring elements, or the gradient of doing so: LANES threads a set.
#{BINDINGS}

struct Constants {
    step: u32,
    // Sets of the whole batch.
    sets: u32,
}
var<immediate> constants: Constants;

#{JOIN}

// The channel of element `e` of a set; CHANNELS are those of one set.
fn channel_of(place: u32, e: u32) -> u32 {
    return place % GROUPS * CHANNELS + e / INNER;
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let place = group_index(group, groups) * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    // Threads past the last set go along, as all meet at the barriers.
    let end = select(0u, EXTENT, place < constants.sets);
    let base = place * EXTENT;
    #{BODY}
}
