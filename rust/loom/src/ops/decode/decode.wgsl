// What codes stand for: a thread an element.
@group(0) @binding(0) var<storage, read> packed: array<#{ELEMENT}>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
#{SCALES}

struct Constants {
    step: u32,
    elements: u32,
}
var<immediate> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = group_index(group, groups) * THREADS + thread;
    if at >= constants.elements {
        return;
    }
    y[at] = #{VALUE};
}
