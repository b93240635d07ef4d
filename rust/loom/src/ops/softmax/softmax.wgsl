// Softmax over classes that lie INNER elements apart, or its gradient: LANES threads a position.
#{BINDINGS}

struct Constants {
    step: u32,
    // Class axes of the whole batch.
    positions: u32,
}
var<immediate> constants: Constants;

// Every logit that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

#{JOIN}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let position = group_index(group, groups) * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    let present = position < constants.positions;
    let base = position / INNER * CLASSES * INNER + position % INNER;
    #{BODY}
}
