// Multiplies a part of a gradient by the factor; a factor of 1 leaves the memory alone. What lies beyond
// the last element in its unit of four is nobody's.
@group(0) @binding(0) var<storage, read> clip: array<f32>;
@group(0) @binding(1) var<storage, read_write> gradient: array<vec4<f32>>;

struct Constants {
    step: u32,
    units: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    let factor = clip[1];
    if i < constants.units && factor != 1.0 {
        gradient[i] *= factor;
    }
}
