// Encodes a part of a parameter in 16 bits, four weights a thread, with the CPU's codes: on the bits
// alone, as drivers may flush what is too small for a normal number.
@group(0) @binding(0) var<storage, read> control: Control;
@group(0) @binding(1) var<storage, read> master: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> codes: array<vec2<u32>>;

struct Constants {
    step: u32,
    elements: u32,
}
var<immediate> constants: Constants;

#{CODE}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = group_index(group, groups) * THREADS + thread;
    if 4u * i >= constants.elements || control.applies == 0u && control.goes_back == 0u {
        return;
    }
    // What lies beyond the last weight is another's.
    let is_weight = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(constants.elements);
    let bits = select(vec4<u32>(), master[i], is_weight);
    codes[i] = vec2<u32>(code(bits.x) | code(bits.y) << 16u, code(bits.z) | code(bits.w) << 16u);
}
