// 1 where any feature of a step differs from the padding's value: one thread a step.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> mask: array<f32>;

struct Constants {
    step: u32,
    count: u32,
    width: u32,
    // The bits of the padding's value.
    value: u32,
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
    let value = bitcast<f32>(constants.value);
    var found = 0.0;
    for (var feature = 0u; feature < constants.width; feature++) {
        if (x[i * constants.width + feature] != value) {
            found = 1.0;
        }
    }
    mask[i] = found;
}
