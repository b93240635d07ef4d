// da = dy b f'(a) and db = dy f(a), four elements a thread.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> da: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> db: array<vec4<f32>>;

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
        let value = vec4<f32>(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
        let saved = #{SAVED};
        let slope =
            vec4<f32>(derivative(saved.x), derivative(saved.y), derivative(saved.z), derivative(saved.w));
        da[i] = dy[i] * b[i] * slope;
        db[i] = dy[i] * value;
    }
}
