// running = kept * running + share * value, unless the step is a bad one.
@group(0) @binding(0) var<storage, read> control: Control;
@group(0) @binding(1) var<storage, read> value: array<f32>;
@group(0) @binding(2) var<storage, read_write> running: array<f32>;

struct Constants {
    step: u32,
    elements: u32,
    // Bits of numbers.
    kept: u32,
    share: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i < constants.elements && control.applies != 0u {
        running[i] = bitcast<f32>(constants.kept) * running[i] + bitcast<f32>(constants.share) * value[i];
    }
}
