// Clamps a part of a gradient to plus or minus the step's limit. What lies beyond the last element in
// its unit of four is nobody's.
#{CONTROL}
@group(0) @binding(BINDING) var<storage, read_write> gradient: array<vec4<f32>>;

struct Constants {
    step: u32,
    units: u32,
}
var<immediate> constants: Constants;

// What stands for no limit.
const LARGEST: f32 = 3.4028234e38;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    let clip_value = steps[constants.step].clip_value;
    if i < constants.units && clip_value < LARGEST {
        let limit = vec4<f32>(clip_value#{SCALE});
        let g = gradient[i];
        // A NaN stays one; by bits, as comparisons may be compiled as though there were none.
        let is_clamped = (bitcast<vec4<u32>>(g) & vec4<u32>(0x7fffffffu)) <= vec4<u32>(#{CLAMPED});
        gradient[i] = select(g, clamp(g, -limit, limit), is_clamped);
    }
}
