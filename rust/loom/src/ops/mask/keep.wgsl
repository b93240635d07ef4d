// Zeros in place of the steps that are padding: one thread an element.
@group(0) @binding(0) var<storage, read> mask: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

struct Constants {
    step: u32,
    count: u32,
    width: u32,
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
    y[i] = select(0.0, x[i], mask[i / constants.width] != 0.0);
}
