// y = f(x), element by element, in units of four; what lies beyond the last element in its unit is
// nobody's.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

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
        let v = x[i];
        y[i] = vec4<f32>(activate(v.x), activate(v.y), activate(v.z), activate(v.w));
    }
}
