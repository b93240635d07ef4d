// y = f(a) b, four elements a thread.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

struct Constants {
    step: u32,
    units: u32,
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
    if i < constants.units {
        let gate = a[i];
        y[i] = vec4<f32>(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w)) * b[i];
    }
}
