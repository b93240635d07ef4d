// Entmax over the last axis, or its gradient: LANES threads a position.
#{BINDINGS}

struct Constants {
    step: u32,
    positions: u32,
}
var<immediate> constants: Constants;

// Every logit that is finite is at least this.
const LEAST: f32 = -3.4028234e38;

#{JOIN}

fn value_of(v: f32) -> f32 {
    return select(0.0, #{VALUE}, v > 0.0);
}

// By how much y grows with its logit, but for the change of tau.
fn slope_of(y: f32) -> f32 {
    return select(0.0, #{SLOPE}, y > 0.0);
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let position = group_index(group, groups) * (THREADS / LANES) + thread / LANES;
    let lane = thread % LANES;
    let base = position * CLASSES;
    // Threads past the last position go along, as all meet at the barriers.
    let end = select(0u, CLASSES, position < constants.positions);
    #{BODY}
}
