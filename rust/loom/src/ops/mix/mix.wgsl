// A weighted sum of branches, or the gradient of the branches: one thread an element of the result.
@group(0) @binding(0) var<storage, read> weights: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    count: u32,
    branches: u32,
    len: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if (i >= constants.count) {
        return;
    }
    let len = constants.len;
    let place = i % len;
#{COMPUTE}
}
