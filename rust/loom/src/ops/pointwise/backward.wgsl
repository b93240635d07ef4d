// dx = dy f', from what the function has saved: its input or its output.
@group(0) @binding(0) var<storage, read> saved: array<f32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;

struct Constants {
    step: u32,
    elements: u32,
}
var<immediate> constants: Constants;

#{FUNCTION}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if i < constants.elements {
        dx[i] = dy[i] * derivative(saved[i]);
    }
}
