// Copies a step's output to where the frame keeps those of all its steps.
@group(0) @binding(0) var<storage, read> output: array<f32>;
@group(0) @binding(1) var<storage, read_write> outputs: array<f32>;

struct Constants {
    step: u32,
    elements: u32,
    // Elements that each step has room for.
    stride: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i < constants.elements {
        outputs[constants.step * constants.stride + i] = output[i];
    }
}
