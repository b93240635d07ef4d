// Holds every element between two bounds.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    count: u32,
    // The bits of the bounds.
    low: u32,
    high: u32,
}
var<immediate> constants: Constants;

#{FUNCTIONS}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i < constants.count {
        y[i] = loom_at_least(loom_at_most(x[i], bitcast<f32>(constants.high)), bitcast<f32>(constants.low));
    }
}
