// dx = dy f', from what the function has saved: its input or its output. In units of four; what lies
// beyond the last element in its unit is nobody's.
@group(0) @binding(0) var<storage, read> saved: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> dx: array<vec4<f32>>;

struct Constants {
    step: u32,
    units: u32,
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
    if i < constants.units {
        let v = saved[i];
        dx[i] = dy[i] * vec4<f32>(derivative(v.x), derivative(v.y), derivative(v.z), derivative(v.w));
    }
}
