// Encodes a part of a parameter in bytes, four weights a thread.
@group(0) @binding(0) var<storage, read> control: Control;
@group(0) @binding(1) var<storage, read> master: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> codes: array<u32>;

struct Constants {
    step: u32,
    elements: u32,
    channels: u32,
    // Of the part's first weight.
    channel: u32,
}
var<immediate> constants: Constants;

#{INT8}

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
    let first = constants.channel + 4u * i;
    codes[i] = code(bits.x, scales[first % constants.channels])
        | code(bits.y, scales[(first + 1u) % constants.channels]) << 8u
        | code(bits.z, scales[(first + 2u) % constants.channels]) << 16u
        | code(bits.w, scales[(first + 3u) % constants.channels]) << 24u;
}
